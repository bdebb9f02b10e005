"""The parts of the benchmark of durable SETs. No speed is asserted; tests/bench/test_smoke.py runs it as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cltest import answered, wait_until

from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.bench.kv_tcp.scripts import Space
from corelane.bench.resp_durable import resp_durable, servers
from corelane.bench.resp_durable.grouped import Grouped
from corelane.bench.resp_durable.resp_durable import BESIDE, GROUPED, IN_MEMORY, ON_MEMORY, OURS, REDIS
from corelane.bench.tcp import links


def points(rps: float, **extra: float) -> list[Point]:
    return [Point(0.0, rps * turn, 1, 1, extra=dict(extra)) for turn in (1, 2, 3)]


def test_the_ratio_stands_beside_what_bounds_it() -> None:
    session = Session("resp_durable", seconds=0.1)
    found = {
        OURS: points(150e3, requests_per_flush=20.0, requests_per_batch=10.0, call_us=100.0),
        REDIS: points(100e3),
        GROUPED: points(170e3),
        ON_MEMORY: points(400e3, requests_per_flush=30.0, requests_per_batch=30.0),
        OURS + IN_MEMORY: points(250e3),
        REDIS + IN_MEMORY: points(125e3),
        OURS + BESIDE: points(60e3, requests_per_flush=20.0, requests_per_batch=10.0),
        REDIS + BESIDE: points(50e3),
    }
    resp_durable.conclude(session, found, [50.0, 50.0, 50.0])
    figure = session.figures["resp-durable.over_aof"]
    assert figure["value"] == pytest.approx(1.5)
    assert figure["beside"] == {
        "bound: ours without a log": pytest.approx(2.5),
        "bound: that, and then one write for all": pytest.approx(50 / (100e-6 + 50e-6) / 200e3),
        "bound: the disk alone, as many requests to a write": pytest.approx(20 / 50e-6 / 200e3),
        "bound: ours without a log, and then one write as long as ours took": pytest.approx(1.25),
        GROUPED: pytest.approx(1.7),
        ON_MEMORY: pytest.approx(4.0),
        "both without a log": pytest.approx(2.0),
        "both beside a neighbour": pytest.approx(1.2),
    }


def test_sets_on_the_memory_nic_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "MEMORY_MIB", 4)  # so that no large log is made
    cpus = sorted(os.sched_getaffinity(0))
    script = Space(100).redis_sets()
    for _ in range(2):  # the second replays what the first has left
        with servers.on_memory((cpus[0], cpus[-1]), tmp_path, script, 5) as (service, load):
            result = answered(lambda load=load: load.run(1.0, 0.1, 0.0))
            counts = service.stats()
        assert result.wrong == 0
        assert counts["log_units"] >= result.answered
    assert service.recovered is not None
    assert service.recovered.records > 0


def test_the_bare_server_answers_a_group_when_it_is_written(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    script = Space(100).redis_sets()
    with (
        Grouped(tmp_path, 4, servers.OURS_PORT) as server,
        links.serving((cpus[0], cpus[-1]), server, port=servers.OURS_PORT, poll="block") as link,
    ):
        with link.client("ask", script=script, connections=3, arrivals="closed") as load:
            assert (load.run(1.0, 0.02, 0.0).answered, server.writes) == (0, 0), "a group is four"
        with link.client("ask", script=script, connections=8, arrivals="closed") as load:

            def answered() -> bool:  # the disk may be slow
                result = load.run(1.0, 0.05, 0.0)
                return result.wrong == 0 and 4 <= result.answered <= 4 * server.writes

            wait_until(answered, what="answers")

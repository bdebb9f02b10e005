"""The parts of the kv_tcp benchmark: scripts, our server under them, others on a veth pair. No speed is asserted."""

from __future__ import annotations

import contextlib
import io
import os
import shutil

import pytest
from cltest import answered, netns_missing, wait_until
from cltest.netns import skip_without_af_xdp

from corelane.apps.kv import Session, Store
from corelane.bench.harness.openloop import Curve, Measure, Point
from corelane.bench.harness.session import Session as BenchSession
from corelane.bench.harness.stops import Stop
from corelane.bench.kv_tcp import items, kinds, kv_tcp, servers, storing
from corelane.bench.kv_tcp.scripts import Space
from corelane.drivers.nic.loadgen.loadgen import Limits

SPACE = Space(300)
PATIENT = Limits(drain_s=20.0, give_up_s=20.0)


def cores() -> tuple[int, int]:
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[0], cpus[-1]


def test_a_script_is_what_the_store_answers() -> None:
    with Store(4 << 20, huge_pages=0) as store:
        storing.store_here(store, SPACE)
        session = Session(store)
        sets = SPACE.memcached(lines=200, sets=0.5)
        assert 50 < sum(asked.startswith(b"set") for asked, _ in sets) < 150
        for asked, answered in [*SPACE.memcached(lines=300), *SPACE.memcached(16, lines=20), *sets]:
            assert session.execute(asked) == answered


def test_popular_keys_are_asked_for_more_often() -> None:
    drawn = SPACE.drawn(30_000)
    often = sorted((drawn.count(i) for i in range(300)), reverse=True)
    assert 0.1 < often[0] / 30_000 < 0.25  # 1 / (1 + 1/2 + ... + 1/300)
    assert often[-1] < often[0] / 50


@pytest.mark.parametrize("pipeline", [1, 16])
def test_each_request_is_answered_as_the_script_says(pipeline: int) -> None:
    script = SPACE.memcached(pipeline, lines=500)
    with (
        servers.on_memory(cores(), SPACE, 20) as client,
        client(script, 20, limits=PATIENT, verify=True) as load,
    ):
        point = load.measure(5000, 0.2)
        assert point.sent == point.answered > 500
        assert "wrong" not in point.extra


def test_an_answer_that_differs_is_found() -> None:
    script = [(asked, answered[:-7] + b"?" + answered[-6:]) for asked, answered in SPACE.memcached(lines=50)]
    with servers.on_memory(cores(), SPACE, 1) as client, client(script, 1, limits=Limits(drain_s=0.1)) as load:

        def found() -> bool:
            point = load.measure(1000, 0.05)
            assert point.answered == 0
            return point.extra.get("wrong", 0) > 0

        wait_until(found, what="an answer, on a machine that may do something else")


def test_what_bounds_it_answers_as_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """An echo over the same TCP and a reflector, by turns with ours; what they carry stands beside the figures."""
    found: dict[str, Point] = {}

    def few(_: object, arms: dict[str, Measure], **__: object) -> dict[str, list[Curve]]:
        found.update((name, answered(lambda measure=measure: measure(1000, 0.1))) for name, measure in arms.items())
        return {name: [Curve([], "", Stop("worker busy", ""))] for name in arms}

    monkeypatch.setattr(kv_tcp, "CONNECTIONS", 20)
    monkeypatch.setattr(kv_tcp, "find_peaks", few)
    session = BenchSession("kv_tcp", cores=cores(), progress=io.StringIO())
    monkeypatch.setattr(session, "curves", lambda *_, **__: None)
    _, bounds = kv_tcp.peak(session, SPACE, 1.0)
    assert set(found) == {kv_tcp.MEMORY, *bounds}
    assert session.figures["kv-tcp.rps_per_core"]["beside"] == bounds
    rates = {"ours": [4.0], "memcached": [2.0], "redis-server": [1.0]}
    kv_tcp.compare(session, rates, [8.0], dict.fromkeys(bounds, 6.0))
    over = session.figures["kv-tcp.over_memcached"]["beside"]
    assert over == {"all on a veth pair": 2.0} | dict.fromkeys(bounds, 3.0)


@pytest.mark.root
def test_all_servers_answer_the_same_client() -> None:
    if missing := netns_missing():
        pytest.skip(missing)
    for program, package in (("memcached", "memcached"), ("redis-server", "redis-server")):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: apt-get install {package}")
    skip_without_af_xdp()
    with contextlib.ExitStack() as stack:
        pair = servers.Pair(stack, cores(), SPACE, 10)
        gets = SPACE.memcached(lines=500)
        for port, script in (
            (servers.MEMCACHED_PORT, gets),
            (servers.REDIS_PORT, SPACE.redis(lines=500)),
            (servers.OURS_PORT, gets),
        ):
            with pair.ours() if port == servers.OURS_PORT else contextlib.nullcontext():
                with pair.client(port, script, 10, limits=PATIENT) as load:
                    result = load.run(1000, 0.1, 0.0)
                with pair.kernel_client(port, SPACE, 10) as kernel:
                    counts = kernel.run(1000, 0.1).counts
            assert (result.answered, result.wrong) == (result.sent, 0), port
            assert result.sent > 50
            assert counts["answered"] == counts["hits"] == counts["sent"] > 50


def test_what_does_not_fit_is_evicted() -> None:
    held = items.ours(2, Space(20_000))
    assert 5_000 < held < 20_000


def test_windows_fit_the_queue_where_values_are_long() -> None:
    """And are wide enough for the client, which takes none of less than four segments."""
    offered = {kind.name: kind.window().get("window_bytes", 0) for kind in kinds.kinds(SPACE)}
    assert offered["10,000 connections"] == 0
    assert any(offered.values())
    for kind in kinds.kinds(SPACE):
        window = offered[kind.name]
        assert window == 0 or 4 * 1500 <= window <= kinds.QUEUE_BYTES // kind.connections


@pytest.mark.parametrize("kind", kinds.kinds(SPACE), ids=lambda kind: kind.name)
def test_a_kind_of_load_is_what_the_store_answers(kind: kinds.Kind) -> None:
    with Store(64 << 20, huge_pages=0) as store:
        storing.store_here(store, kind.space)
        session = Session(store, room=3 << 20)
        script = kind.script(servers.OURS_PORT)[:50]
        assert any(asked.startswith(b"set") for asked, _ in script) == bool(kind.sets)
        for asked, answered in script:
            assert session.execute(asked) == answered
    resp = kind.script(servers.REDIS_PORT)
    assert len(resp) == len(kind.script(servers.OURS_PORT))

"""Loads that corelane's own stack carries, over a memory link and through an iokernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.apps import echo
from corelane.bench.harness import rig
from corelane.bench.load import targets, workloads
from corelane.bench.load.dataplane import PORT, reflecting
from corelane.bench.load.measuring import Plan, measure_share
from corelane.bench.load.sockload.sockload import Asked, Result, SockLoad
from corelane.iokernel import AppConfig, Iokernel
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError

RATE, SECONDS = 1000.0, 0.1


@pytest.fixture
def over() -> Iterator[Runtime]:
    """A runtime with a reflector at the other end of its link."""
    with reflecting() as (runtime, _):
        yield runtime


def asked(over: Runtime, **options: Any) -> Asked:
    usual: dict[str, Any] = {"protocol": "echo", "address": rig.SERVER_IP, "port": PORT, "connections": 4}
    return Asked(**usual | {"runtime": over, "drain_s": 20.0} | options)


def run(over: Runtime, **options: Any) -> Result:
    with SockLoad(asked(over, **options)) as load:
        load.connect()
        return load.run(RATE, SECONDS)


@pytest.mark.parametrize("spin", [True, False])
@pytest.mark.parametrize("udp", [False, True], ids=["tcp", "udp"])
def test_everything_is_answered_and_counted(over: Runtime, udp: bool, spin: bool):
    result = run(over, udp=udp, spin=spin, records=1 << 10)
    c = result.counts
    assert c["offered"] == c["sent"] == c["answered"] == result.latency.count > 0
    assert c["bytes_out"] == c["bytes_in"] == 64 * c["answered"]
    assert not any(c[name] for name in ("wrong", "errors", "broken", "stray", "reconnects", "refused", "timeouts"))


def test_large_answers_come_whole(over: Runtime):
    counts = run(over, request_bytes=300_000, connections=2).counts
    assert counts["answered"] == counts["offered"] > 0


def test_requests_share_connections(over: Runtime):
    counts = run(over, depth=16, connections=1).counts
    assert counts["answered"] == counts["offered"] > 0


def test_a_connection_for_each_request(over: Runtime):
    counts = run(over, fresh=True, connections=64).counts
    assert counts["answered"] == counts["offered"] > 0
    assert counts["reconnects"] == 0


def test_runs_follow_each_other_and_can_be_given_up(over: Runtime):
    with SockLoad(asked(over)) as load:
        load.connect()
        for _ in range(2):
            assert load.run(RATE, 0.02).counts["answered"] > 0

        def interrupt(seconds: float, sent: int, answered: int) -> None:
            raise KeyboardInterrupt

        assert load.run(RATE, 60.0, tick=interrupt).aborted
        assert load.open <= 4


def test_two_loads_share_a_runtime(over: Runtime):
    with SockLoad(asked(over)) as one, SockLoad(asked(over, udp=True)) as other:
        one.connect()
        other.connect()
        for load in (one, other, one):
            counts = load.run(RATE, 0.03).counts
            assert counts["answered"] == counts["offered"] > 0


def test_nobody_listens(over: Runtime):
    with SockLoad(asked(over, port=PORT + 100)) as load, pytest.raises(CorelaneError, match=r"0 of 4 .*[Rr]efused"):
        load.connect()


def test_a_datagram_to_nobody_has_no_answer(over: Runtime):
    counts = run(over, udp=True, port=PORT + 100, drain_s=0.05).counts
    assert counts["answered"] == 0
    assert counts["offered"] > 0


def test_what_cannot_be(over: Runtime):
    with pytest.raises(CorelaneError, match="IPv4 addresses only"):
        SockLoad(asked(over, address="::1"))
    with pytest.raises(CorelaneError, match="one thread of load"):
        SockLoad(asked(over, threads=2))


def test_a_runtime_that_stops_ends_the_load():
    with rig.linked() as (near, far), rig.started(far, -1, lambda rt: rt.bind(echo.handler("c", PORT))):
        over = Runtime(nic=near, kthreads=1, address=f"{rig.CLIENT_IP}/{rig.PREFIX}")
        over.start()
        with SockLoad(asked(over, udp=True)) as load:
            load.connect()

            def stop(seconds: float, sent: int, answered: int) -> None:
                over.stop()

            with pytest.raises(CorelaneError, match="the runtime that carries the load stops"):
                load.run(RATE, 60.0, tick=stop)
        over.close()


def test_a_server_that_dies_in_the_middle_is_waited_for_no_longer_than_the_drain():
    with rig.linked() as (near, far), rig.started(near, -1, lambda rt: None, address="10.77.0.1/16") as (client, _):
        with rig.started(far, -1, lambda rt: rt.bind(echo.handler("c", PORT))) as (server, _):
            load = SockLoad(asked(client, udp=True, drain_s=0.05))
            load.connect()
            ended: list[bool] = []

            def end(seconds: float, sent: int, answered: int) -> None:
                if answered and not ended:
                    ended.append(True)
                    server.stop()

            result = load.run(RATE, 0.3, tick=end)
        load.close()
    assert ended
    assert 0 < result.counts["answered"] < result.counts["offered"]
    assert result.latency.percentile(99) == float("inf")


@pytest.mark.parametrize("url", [f"udp://{rig.SERVER_IP}:9", f"memcached://{rig.SERVER_IP}:9"])
def test_the_clients_own_share_is_that_of_a_memory_link(over: Runtime, url: str):
    plan = Plan(target=targets.resolved(targets.parse(url)), workload=workloads.find("get"), over=over)
    share = measure_share(plan, 500, 0.1)
    assert share.why == "" or "did not carry" in share.why
    assert share.why or 0 < share.p50_us <= share.p99_us


def test_an_application_of_an_iokernel_is_loaded_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from corelane.cli.main import main

    path = str(tmp_path / "io.sock")
    apps = {"echo": AppConfig(ip=rig.SERVER_IP), "load": AppConfig(ip=rig.CLIENT_IP)}
    with Iokernel(path, poll="block", apps=apps), Runtime(path, name="echo", kthreads=1, poll="block") as server:
        server.bind(echo.handler("c", PORT))
        server.start()
        words = ["--socket", path, "--rate", "500", "--seconds", "0.1", "--warm", "0", "--no-share", "--drain", "20"]
        assert main(["load", f"udp://{rig.SERVER_IP}:{PORT}", *words]) == 0
    out = capsys.readouterr().out
    assert f"over the iokernel at {path}" in out
    assert "has a right answer" not in out

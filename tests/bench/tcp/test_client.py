"""The TCP client of drivers/nic/tcpload against our own stack: right bytes and right counts, and that it finds wrong
ones. What is asked is asked at a rate that a loaded machine carries, and answers may take long."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import pytest
from cltest import wait_until

from corelane.bench.tcp import links
from corelane.bench.tcp.server import BLOCKING
from corelane.drivers.nic.loadgen.loadgen import Limits, Phase
from corelane.drivers.nic.loadgen.runs import Result
from corelane.drivers.nic.tcpload.tcpload import CONNECTED, KINDS, NEIGHBOUR, TcpLoad, TcpSource
from corelane.runtime.errors import CorelaneError

PATIENT = Limits(drain_s=20.0, give_up_s=20.0)
NEVER = ("gaps", "foreign", "bad_checksums")  # a loaded machine may be late for what was sent, and have it twice


def counts(link: links.Link) -> dict[str, int]:
    """The servers' counters without the connection that told them the client's MAC address, which ended by a reset."""
    found = link.servers.counts()
    return found | {name: found[name] - 1 for name in ("accepted", "ended", "failed")}


@pytest.fixture
def link() -> Iterator[links.Link]:
    """Our servers on a memory link, not pinned; the sink compares each byte."""
    cpus = sorted(os.sched_getaffinity(0))
    with links.memory((cpus[0], cpus[-1]), poll="block", check_bytes=True) as made:
        yield made
        assert made.servers.counts()["wrong"] == 0


def run(load: TcpLoad, rate: float, seconds: float = 0.1, never: tuple[str, ...] = NEVER) -> Result:
    """A measured run of which nothing is lost on the way."""
    result = load.run(rate, seconds, 0.0)
    other = load.other()
    assert {name: other[name] for name in never} == dict.fromkeys(never, 0)
    assert result.wrong == 0
    return result


@pytest.mark.parametrize("plain", [False, True], ids=["timestamps", "plain"])
@pytest.mark.parametrize("connections", [1, 300])
def test_each_request_is_answered(link: links.Link, connections: int, plain: bool) -> None:
    with link.client("ask", connections=connections, plain=plain, verify=True, limits=PATIENT) as load:
        result = run(load, 20_000)
        assert 1500 < result.offered < 2500
        assert result.offered == result.sent == result.answered == result.latency.count
        assert result.latency.infinite == result.dropped == 0
        assert load.other()["opened"] == connections
    wait_until(lambda: counts(link)["ended"] == connections, 60.0, "resets to arrive")
    assert counts(link)["accepted"] == connections


def test_what_a_closed_loop_asks_is_answered(link: links.Link) -> None:
    with link.client("ask", connections=10, arrivals="closed", request_bytes=1000, limits=PATIENT) as load:
        result = run(load, 1.0, 0.02)
    assert result.sent == result.answered > 10
    assert not result.open_loop


def test_connections_come_and_go(link: links.Link) -> None:
    source = TcpSource(ports=100)  # each port is used again
    with link.client("churn", connections=50, verify=True, source=source, limits=PATIENT) as load:
        result = run(load, 5000)
        assert 350 < result.offered == result.sent == result.answered
        assert load.other()["opened"] == result.sent
        assert load.open == 0
    wait_until(lambda: counts(link)["ended"] == result.sent, 60.0, "connections to end")
    found = counts(link)
    assert (found["accepted"], found["failed"]) == (result.sent, 0)


def test_connections_come_and_go_in_blocking_form(link: links.Link) -> None:
    with link.client("churn", connections=20, server_port=BLOCKING, limits=PATIENT) as load:
        result = run(load, 2000)
        assert 100 < result.offered == result.sent == result.answered
    wait_until(lambda: counts(link)["ended"] == result.sent, 60.0, "connections to end")


def test_bytes_without_end_are_right_both_ways(link: links.Link) -> None:
    for traffic, connections in (("send", 1), ("send", 5), ("receive", 1), ("receive", 5)):
        with link.client(traffic, connections=connections, verify=True, window_bytes=65536) as load:
            result = run(load, 0.0, 0.05, ("gaps", "bad_checksums"))  # of the client before something may still come
            came, went = load.bytes()
        assert (came > 0, went > 0) == (traffic == "receive", traffic == "send")
        assert result.wrong == 0
        if traffic == "send":
            assert counts(link)["bytes_in"] >= went


def test_connections_are_held(link: links.Link) -> None:
    source = TcpSource(ip=links.MANY_IPS, ips=3, ports=100)
    with link.client("hold", connections=250, source=source, limits=PATIENT) as load:
        with load.held():
            assert load.open == 250
            wait_until(lambda: counts(link)["accepted"] == 250, 60.0, "all to be accepted")
            assert counts(link)["ended"] == 0
        assert load.open == 0
    wait_until(lambda: counts(link)["ended"] == 250, 60.0, "resets to arrive")


def test_wrong_bytes_are_found(link: links.Link) -> None:
    """A server that sends what was not asked for, and one that sends nothing."""
    with link.client("ask", server_port=links.SOURCE, limits=Limits(drain_s=0.01)) as load:
        result = load.run(1000, 0.05, 0.0)
        assert result.wrong > 0
        assert result.answered == 0
    with link.client("ask", server_port=links.SINK, limits=Limits(drain_s=0.01)) as load:
        result = load.run(1000, 0.05, 0.0)
        assert (result.sent, result.answered, result.wrong) == (1, 0, 0)
        assert result.dropped == result.offered - 1
        assert result.latency.infinite == result.offered


def test_refused_connections_fail_the_run(link: links.Link) -> None:
    with link.client("ask", connections=3, server_port=7, limits=PATIENT) as load:
        with pytest.raises(CorelaneError, match="0 of 3 connections"):
            load.run(1000, 0.01)
        assert load.other()["resets"] == 3


def test_connections_stay_from_run_to_run(link: links.Link) -> None:
    with link.client("ask", connections=20, keep=True, limits=PATIENT) as load:
        for _ in range(3):
            result = run(load, 20_000, 0.02)
            assert result.offered == result.answered == result.latency.count > 100
            assert load.open == 20
        assert (load.other()["opened"], counts(link)["ended"]) == (20, 0)
    wait_until(lambda: counts(link)["ended"] == 20, 60.0, "resets to arrive when the client ends")


def test_a_connection_without_its_answer_is_not_kept(link: links.Link) -> None:
    with link.client("ask", server_port=links.SINK, keep=True, limits=Limits(drain_s=0.01)) as load:
        for opened in (1, 2):
            result = load.run(1000, 0.02, 0.0)
            assert (result.sent, result.answered, load.open) == (1, 0, 0)
            assert load.other()["opened"] == opened


def test_an_ended_run_keeps_no_connection(link: links.Link) -> None:
    with link.client("ask", connections=5, keep=True, limits=PATIENT) as load:
        with load.held():
            assert load.open == 5
        assert load.open == 0


def test_what_servers_do_to_connections_that_are_kept(c_program: Callable[..., Callable[..., str]]) -> None:
    assert "passed" in c_program("tests/bench/tcp/c/kept.c")()


def test_phases_share_a_run_and_another_follows(link: links.Link) -> None:
    with link.client("ask", connections=4, limits=PATIENT) as load:
        for _ in range(2):
            load.start((Phase(0.02, 5000, measured=False), Phase(0.02, 0), Phase(0.02, 10_000)))
            load.wait()
            pause, asked = load.result().windows
            assert pause.offered == 0
            assert asked.offered == asked.answered > 100
        assert load.other()["opened"] == 8


def test_a_request_counts_in_its_phase_however_many_there_are(link: links.Link) -> None:
    """The last of 600 is the one that asks."""
    with link.client("ask", connections=4, limits=PATIENT) as load:
        load.start((*[Phase(0.0001, 0)] * 599, Phase(0.02, 10_000)))
        load.wait()
        windows = load.result().windows
    assert [i for i, window in enumerate(windows) if window.answered] == [599]
    assert windows[599].offered == windows[599].answered == windows[599].latency.count > 100


def test_a_run_can_be_ended(link: links.Link) -> None:
    with link.client("ask", connections=4) as load:
        load.start((Phase(1000.0, 1000.0),))
        with pytest.raises(CorelaneError, match="not done after"):
            load.wait(timeout_s=0.05)
        load.wait()
        assert load.open == 0


def test_the_client_as_the_uplink_of_an_iokernel() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    with links.counted((cpus[0], cpus[-1]), "ask", connections=20, verify=True, limits=PATIENT) as (load, counts):
        before = counts()
        result = run(load, 5000)
        after = counts()
    assert before.loop_s is not None
    assert after.loop_s is not None
    assert after.loop_s > before.loop_s, "what says why its curve stops"
    assert result.offered == result.sent == result.answered > 300


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_is_answered_beside_an_attacker(link: links.Link, kind: str) -> None:
    with link.client("ask", connections=10, limits=PATIENT) as load:
        load.attack(kind, 20_000, connections=50)
        result = load.run(2000, 0.1, 0.0)
        assert (result.wrong, result.offered) == (0, result.answered)
        assert load.other()["attacks"] > (50 if kind == "all ports" else 500)
        assert load.other()["resets"] == 0
        assert (load.other()["attackers"] > 10) == (kind in CONNECTED)
        load.attack("")
        attacked = load.other()["attacks"]
        load.run(2000, 0.02, 0.0)
        assert load.other()["attacks"] == attacked
        if kind == NEIGHBOUR:
            asked = attacked - 2 * load.other()["attackers"]  # but for what opened the connections

            def answered() -> bool:  # most: what a full queue loses is not sent again
                load.run(2000, 0.02, 0.0)  # the answers come in while it runs
                return load.other()["attackers_bytes"] > 64 * asked // 2

            wait_until(answered, what=lambda: f"the answers to {asked}: {load.other()}")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"connections": 101, "source": TcpSource(ports=100)}, "a port for each"),
        ({"request_bytes": 1449}, "one segment"),
        ({"window_bytes": 1000}, "four segments"),
        ({"source": TcpSource(first_port=60_000, ports=10_000)}, "at most 65536"),
        ({"traffic": "hold", "keep": True}, "only connections of ask"),
    ],
)
def test_what_cannot_be_is_refused(how: dict[str, object], why: str) -> None:
    with pytest.raises(CorelaneError, match=why):
        contextlib.closing(TcpLoad(**{"traffic": "ask", "server_mac": "02:00:00:00:00:02"} | how))  # type: ignore[arg-type]

"""What `corelane bench tcp` compares with: Linux' servers and client on loopback, lwIP on a memory link."""

from __future__ import annotations

import contextlib
import os

import pytest
from cltest import wait_until
from cltest.ports import free_port

from corelane.bench.baseline.tcp_sockets import LinuxTcp, ask, bulk
from corelane.bench.tcp import links
from corelane.bench.tcp.wire import jain
from corelane.drivers.nic.loadgen.loadgen import Limits
from corelane.runtime.errors import CorelaneError, SystemLimit

HERE = "127.0.0.1"


@pytest.mark.parametrize("poll", ["spin", "block"])
@pytest.mark.parametrize("rate", [2000.0, 0.0], ids=["open loop", "closed loop"])
def test_linux_answers_a_client_on_linux(poll: str, rate: float) -> None:
    port, runs, answered = free_port(), 0, 0
    with LinuxTcp(kind="echo", poll=poll, address=HERE, port=port) as server:
        while answered < 10 and runs < 100:  # a loaded machine may give a run no time at all
            point = ask(address=HERE, port=port, cpu=-1, connections=5, rate=rate, seconds=0.05)
            assert "wrong" not in point.extra
            answered += point.answered
            runs += 1
        assert answered >= 10
        wait_until(lambda: server.stats()["ended"] == 5 * runs, 60.0, "the clients' resets")
        stats = server.stats()
    assert stats["accepted"] == 5 * runs
    assert stats["bytes_in"] >= stats["bytes_out"] >= 64 * answered  # a run may end before an answer


def test_an_open_loop_charges_what_is_not_answered() -> None:
    port = free_port()
    with LinuxTcp(kind="sink", poll="block", address=HERE, port=port):
        point = ask(address=HERE, port=port, cpu=-1, connections=2, rate=1000.0, seconds=0.05)
    assert point.answered == 0
    assert point.sent + point.dropped == point.hist.count == point.hist.infinite > 10


@pytest.mark.parametrize(("kind", "send"), [("sink", True), ("source", False)])
def test_bytes_without_end_from_linux_to_linux(kind: str, send: bool) -> None:
    port, runs, gbps = free_port(), 0, 0.0
    with LinuxTcp(kind=kind, poll="block", address=HERE, port=port, congestion="cubic") as server:
        while not gbps and runs < 100:  # as above
            gbps = bulk(send=send, address=HERE, port=port, cpu=-1, seconds=0.05, connections=3, congestion="cubic")
            runs += 1
        assert gbps > 0
        wait_until(lambda: server.stats()["ended"] == 3 * runs, 60.0, "the clients' resets")
        if send:
            assert sum(server.flow_bytes(64)) == server.stats()["bytes_in"] > 0


def test_what_cannot_be_served_is_said() -> None:
    with pytest.raises(CorelaneError, match="congestion control"):
        LinuxTcp(kind="echo", poll="spin", address=HERE, port=free_port(), congestion="sideways")
    with pytest.raises(CorelaneError, match="cannot connect"):
        ask(address=HERE, port=free_port(), cpu=-1, connections=1, rate=0.0, seconds=0.01)


def test_lwip_answers_our_client() -> None:
    lwip = pytest.importorskip("corelane.bench.tcp.lwip")
    try:
        lwip.library()
    except SystemLimit as error:
        pytest.skip(str(error))
    cpus = sorted(os.sched_getaffinity(0))
    for _ in range(2):
        with lwip.lwip_link((cpus[0], cpus[-1])) as (end, mac):
            load = links.load_of("ask", server_mac=mac, connections=20, verify=True, limits=Limits(drain_s=20.0))
            with contextlib.closing(load):
                load.start_client(end)
                result = load.run(2000, 0.05, 0.0)
                assert (result.wrong, result.offered) == (0, result.answered)


def test_jain() -> None:
    assert jain([3.0] * 7) == pytest.approx(1)
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([]) == 0

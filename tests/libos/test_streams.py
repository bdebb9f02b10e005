"""TCP connections of a runtime from Python. The stack loops them back to itself; Linux as the peer: net/tcp."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator

import pytest
from cltest import wait_until

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.runtime.errors import CorelaneError

ADDRESS = "10.0.0.1"


@pytest.fixture
def runtime() -> Iterator[libos.Runtime]:
    nic, end = memory_link(ipv4=(ADDRESS, None), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, kthreads=1) as made:
        yield made.start()


def two_ends(runtime: libos.Runtime, listener: libos.TcpListener) -> tuple[libos.TcpStream, libos.TcpStream]:
    ours = runtime.connect_tcp((ADDRESS, listener.own[1]), timeout_s=10)
    return ours, listener.accept(10)


def test_bytes_go_both_ways(runtime: libos.Runtime) -> None:
    with runtime.listen_tcp(7000) as listener:
        ours, theirs = two_ends(runtime, listener)
        assert ours.peer == theirs.own == (ADDRESS, 7000)
        assert ours.own == theirs.peer
        ours.write(b"question")
        assert theirs.peek(4, timeout_s=10) == b"ques"
        assert theirs.read(timeout_s=10) == b"question"
        theirs.write(b"answer")
        theirs.shutdown()
        assert ours.read(3, timeout_s=10) == b"ans"
        assert ours.read(timeout_s=10) == b"wer"
        assert ours.read(timeout_s=10) == b""
        ours.write(b"still open")
        assert theirs.read(timeout_s=10) == b"still open"
        assert ours.info.state == 7  # CLOSE_WAIT
        assert ours.linger(10)
        assert theirs.read(timeout_s=10) == b""
        theirs.close()
        theirs.close()
        with pytest.raises(CorelaneError, match="it is closed"):
            theirs.read()


def test_time_outs_are_said(runtime: libos.Runtime) -> None:
    with runtime.listen_tcp(7000) as listener:
        with pytest.raises(TimeoutError, match=r"nobody connected to TCP port 7000 within 0\.01 s"):
            listener.accept(0.01)
        with pytest.raises(TimeoutError):
            listener.accept(0)
        ours, theirs = two_ends(runtime, listener)
        with pytest.raises(TimeoutError, match=r"nothing came from \('10\.0\.0\.1', 7000\) within 0\.01 s"):
            ours.read(timeout_s=0.01)
        with pytest.raises(TimeoutError, match=r"took [0-9]+ of 4000000 bytes"):
            ours.write(bytes(4_000_000), timeout_s=0.05)
        theirs.abort()
        wait_until(lambda: _is_over(ours), 60, "the reset to come")
    with pytest.raises(TimeoutError, match=r"did not answer within 0\.01 s"):
        runtime.connect_tcp(("10.0.0.77", 80), timeout_s=0.01)


def _is_over(stream: libos.TcpStream) -> bool:
    try:
        _ = stream.info
    except CorelaneError as error:
        assert error.errno in (errno.ENOTCONN, errno.ECONNRESET)
        return True
    return False


def test_ends_are_raised_with_their_reasons(runtime: libos.Runtime) -> None:
    with pytest.raises(CorelaneError) as refused:
        runtime.connect_tcp((ADDRESS, 9), timeout_s=10)
    assert refused.value.errno == errno.ECONNREFUSED
    listener = runtime.listen_tcp(7000)
    ours, theirs = two_ends(runtime, listener)
    theirs.abort()
    for _ in range(2):
        with pytest.raises(CorelaneError) as reset:
            ours.read(timeout_s=10)
        assert reset.value.errno == errno.ECONNRESET
    for peer, said in (("10.0.0.300", 1), "is no address"), ((ADDRESS, 0), "port 0"), (("8.8.8.8", 53), "route"):
        with pytest.raises(CorelaneError, match=said):
            runtime.connect_tcp(peer)
    with pytest.raises(CorelaneError, match="give 1 or more"):
        ours.read(0)
    with runtime.connect_tcp((ADDRESS, 7000), own=("0.0.0.0", 4711)) as bound:
        assert bound.own == (ADDRESS, 4711)
        with pytest.raises(CorelaneError) as used:
            runtime.connect_tcp((ADDRESS, 7000), own=("0.0.0.0", 4711))
        assert used.value.errno == errno.EADDRINUSE


def test_options(runtime: libos.Runtime) -> None:
    listener = runtime.listen_tcp(7000)
    listener.set(no_delay=True, send_buffer=10_000, congestion="newreno")
    ours, theirs = two_ends(runtime, listener)
    assert [theirs.get(o) for o in ("no_delay", "send_buffer", "congestion")] == [1, 10_000, "newreno"]
    assert [ours.get(o) for o in ("no_delay", "keep_alive", "congestion")] == [0, 0, "cubic"]
    ours.set(keep_alive=True, keep_idle_s=30, keep_interval_s=5, keep_probes=3, cork=True)
    assert [ours.get(o) for o in ("keep_idle_s", "keep_interval_s", "keep_probes", "cork")] == [30, 5, 3, 1]
    ours.set(keep_alive=True, user_timeout_ms=5000)
    assert [ours.get(o) for o in ("keep_alive", "user_timeout_ms")] == [1, 5000]
    with pytest.raises(CorelaneError, match="give cubic, newreno or dctcp"):
        ours.set(congestion="vegas")
    with pytest.raises(CorelaneError, match="send_buffer"):
        ours.set(send_buffer=1)
    with pytest.raises(CorelaneError, match="there are no_delay"):
        ours.get("delay")


def test_dctcp_needs_marks(runtime: libos.Runtime) -> None:
    listener = runtime.listen_tcp(7000)
    listener.set(congestion="dctcp")
    ours, theirs = two_ends(runtime, listener)
    assert [end.get("congestion") for end in (ours, theirs)] == ["cubic", "cubic"], "nobody has offered ECN"
    for end in (ours, theirs):
        with pytest.raises(CorelaneError, match="have not agreed on ECN") as refused:
            end.set(congestion="dctcp")
        assert refused.value.errno == errno.EOPNOTSUPP
    runtime.tcp_congestion("newreno", ecn="offer")
    ours, theirs = two_ends(runtime, listener)
    assert [end.get("congestion") for end in (ours, theirs)] == ["newreno", "dctcp"]
    ours.set(congestion="dctcp")
    ours.write(b"x" * 100_000)
    came = 0
    while came < 100_000:
        came += len(theirs.read(timeout_s=10))
    assert ours.get("congestion") == "dctcp"
    for wrong in ({"rule": "vegas"}, {"ecn": "on"}):
        with pytest.raises(CorelaneError):
            runtime.tcp_congestion(**wrong)


def test_a_poll_set_waits_for_connections_and_datagrams(runtime: libos.Runtime) -> None:
    udp, listener = runtime.open_udp(7000), runtime.listen_tcp(7000)
    with runtime.open_poll() as poll:
        poll.add(udp)
        poll.add(listener)
        ours = runtime.connect_tcp((ADDRESS, 7000), timeout_s=10)
        assert poll.wait(60) == [listener]
        theirs = listener.accept(0)
        poll.add(theirs, edge=True)
        poll.add(ours, room=True)
        assert poll.wait(60) == [ours]
        poll.remove(ours)
        ours.write(b"x")
        assert poll.wait(60) == [theirs]
        assert poll.wait(0.01) == []
        with pytest.raises(CorelaneError):
            poll.add(runtime.open_udp(), room=True)
        udp.send(b"x", (ADDRESS, 7000))
        assert poll.wait(60) == [udp]
        udp.receive(0)
        ours.abort()
        assert poll.wait(60) == [theirs]


def test_a_closed_socket_is_not_taken_for_its_successor(runtime: libos.Runtime) -> None:
    """As when another thread closes it just before a call."""
    with runtime.listen_tcp(7000) as listener:
        ours, theirs = two_ends(runtime, listener)
        stale = libos.TcpStream(runtime, theirs.ptr, theirs._life)
        theirs.close()
        assert ours.read(timeout_s=10) == b""
        ours.close()
        again = [two_ends(runtime, listener) for _ in range(3)]
        assert stale.address in {stream.address for two in again for stream in two}, "memory is used again"
        for call in (stale.read, lambda: stale.write(b"x"), lambda: stale.peer, stale.abort):
            with pytest.raises(CorelaneError) as closed:
                call()
            assert closed.value.errno == errno.EBADF
        for first, second in again:
            first.write(b"untouched")
            assert second.read(timeout_s=10) == b"untouched"


def test_who_waits_hears_of_the_end() -> None:
    nic, end = memory_link(ipv4=(ADDRESS, None), ipv4_prefix=24)
    said: list[BaseException] = []
    with nic, end, libos.Runtime(nic=nic, kthreads=1) as runtime:
        runtime.start()
        listener = runtime.listen_tcp(7000)
        ours, theirs = two_ends(runtime, listener)

        def waits(call: object) -> None:
            try:
                call()  # type: ignore[operator]
            except CorelaneError as error:
                said.append(error)

        threads = [threading.Thread(target=waits, args=(call,)) for call in (listener.accept, ours.read)]
        for thread in threads:
            thread.start()
        runtime.stop()
        for thread in threads:
            thread.join()
        assert len(said) == 2
        for made in (ours, theirs, listener):
            made.close()

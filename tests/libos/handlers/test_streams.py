"""Handlers of byte streams: compiled and plain Python, messages in pieces, what closes and what resets."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cltest import wait_until

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.libos.handlers.handlers import HandlerWarning
from corelane.libos.numba import calls
from corelane.runtime.errors import CorelaneError

ADDRESS, PORT = "10.0.0.1", 7000
ROOM = 2024

Stream = libos.TcpStream
Connect = Callable[[], Stream]


@pytest.fixture
def runtime() -> Iterator[libos.Runtime]:
    nic, end = memory_link(ipv4=(ADDRESS, None), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, kthreads=1) as made:
        yield made.start()


def connect(runtime: libos.Runtime) -> Stream:
    return runtime.connect_tcp((ADDRESS, PORT), timeout_s=10)


def read(stream: Stream, n: int) -> bytes:
    parts = b""
    while len(parts) < n:
        part = stream.read(n - len(parts), timeout_s=10)
        assert part, f"the end came after {len(parts)} of {n} bytes"
        parts += part
    return parts


def is_reset(stream: Stream) -> bool:
    try:
        while stream.read(timeout_s=10):
            pass
    except CorelaneError as error:
        return error.errno == errno.ECONNRESET
    return False  # an end


def took_all(stream: Stream, data: bytes) -> bool:
    try:
        stream.write(data, timeout_s=0.3)
    except TimeoutError:
        return False
    return True


def lines(data, reply):  # type: ignore[no-untyped-def]  # numba types it
    """Lines, each answered by its letters in reverse; "q" closes, "f" faults."""
    for at in range(len(data)):
        if data[at] == 10:
            if at == 1 and data[0] == 113:
                reply[0] = 98
                return -1, 1
            if at == 1 and data[0] == 102:
                reply[ROOM + at] = 0
                return at + 1, 0
            for i in range(at):
                reply[i] = data[at - 1 - i]
            reply[at] = 10
            return at + 1, at + 1
    return 0, 0


def plain_lines(data: memoryview) -> tuple[int, bytes | None]:
    line, end, _ = bytes(data).partition(b"\n")
    if not end:
        return 0, None
    if line == b"q":
        return -1, b"b"
    if line == b"f":
        raise ValueError("as asked")
    return len(line) + 1, line[::-1] + b"\n"


@pytest.fixture(params=["compiled", "plain"])
def handler(request: pytest.FixtureRequest) -> libos.StreamHandler:
    if request.param == "compiled":
        return libos.tcp(PORT, window=8192)(lines)
    return libos.tcp(PORT, compiled=False, window=8192)(plain_lines)


def test_messages_in_pieces_and_many_at_once(runtime: libos.Runtime, handler: libos.StreamHandler) -> None:
    assert runtime.bind(handler) is handler
    with connect(runtime) as stream:
        stream.write(b"one\n")
        assert read(stream, 4) == b"eno\n"
        for part in (b"t", b"w", b"o\nthr", b"ee\n"):
            stream.write(part)
        assert read(stream, 10) == b"owt\neerht\n"
        stream.write(b"".join(b"%05d\n" % i for i in range(3000)))
        reverse = [(b"%05d" % i)[::-1] + b"\n" for i in range(3000)]
        assert read(stream, 18_000) == b"".join(reverse)
        stream.write(b"x" * 1900)  # the rest comes in another chunk
        stream.write(b"y" * 100 + b"\n")
        assert read(stream, 2001) == b"y" * 100 + b"x" * 1900 + b"\n"
        stream.shutdown()
        assert stream.read(timeout_s=10) == b""


def test_many_connections(runtime: libos.Runtime, handler: libos.StreamHandler) -> None:
    runtime.bind(handler)
    streams = [connect(runtime) for _ in range(50)]
    for _ in range(3):
        for i, stream in enumerate(streams):
            stream.write(b"%04d\n" % i)
        for i, stream in enumerate(streams):
            assert read(stream, 5) == (b"%04d" % i)[::-1] + b"\n"
    for stream in streams:
        stream.close()


def test_what_closes_and_what_resets(runtime: libos.Runtime, handler: libos.StreamHandler) -> None:
    runtime.bind(handler)
    errors = 0

    def counted() -> None:
        nonlocal errors
        errors += 1
        runtime.wait_until(lambda stats: stats.net["handler_errors"] == errors, 60)

    with connect(runtime) as stream:
        stream.write(b"q\nwhat nobody wants")
        assert read(stream, 1) == b"b"
        assert stream.read(timeout_s=10) == b""
    with connect(runtime) as stream:
        stream.write(b"f\n")
        assert is_reset(stream)
        counted()
    with connect(runtime) as stream:  # an end in the middle
        stream.write(b"incompl")
        stream.shutdown()
        assert is_reset(stream)
        counted()
    with connect(runtime) as stream:  # more than the window
        stream.write(b"x" * 9000)
        assert is_reset(stream)
        counted()
    if handler.compiled:
        runtime.wait_until(lambda s: s.net["handler_faults"] == 1)
    else:
        assert handler.counters == {"errors": 1}


def test_a_peer_that_does_not_read_is_not_read_from(runtime: libos.Runtime, handler: libos.StreamHandler) -> None:
    runtime.bind(handler)
    with connect(runtime) as stream:
        line, sent = b"x" * 999 + b"\n", 0
        while took_all(stream, line * 50):
            sent += 50
            assert sent < 10_000, "10 MB are kept for one that does not read"
        stream.set(receive_buffer=65536)
        assert read(stream, sent * 1000) == line * sent


def test_state_and_who_asks(runtime: libos.Runtime) -> None:
    state = np.zeros(2, np.uint64)

    def counts(data, reply, state):  # type: ignore[no-untyped-def]
        state[0] += np.uint64(len(data))
        state[1] = np.uint64(calls.peer_port())
        calls.put_be16(reply, 0, calls.local_port())
        return len(data), 2

    runtime.bind(libos.tcp(state=state)(counts), PORT)
    with connect(runtime) as stream:
        stream.write(b"12345")
        assert read(stream, 2) == PORT.to_bytes(2, "big")
        assert state.tolist() == [5, stream.own[1]]


def test_a_handler_that_blocks_holds_its_connection_alone(runtime: libos.Runtime) -> None:
    def sleeps(data, reply):  # type: ignore[no-untyped-def]
        while data[0] == 115 and calls.sleep_ns(1_000_000) == 0:  # until the runtime stops
            pass
        return len(data), 1

    runtime.bind(libos.tcp(PORT)(sleeps))
    with connect(runtime) as slow, connect(runtime) as quick:
        slow.write(b"s")
        quick.write(b"x")
        assert len(read(quick, 1)) == 1
        with pytest.raises(TimeoutError):
            slow.read(timeout_s=0.02)
        assert runtime.stop() == 0


def test_plain_python_has_a_connection_with_a_state(runtime: libos.Runtime) -> None:
    seen: list[Any] = []

    def count(data: memoryview, connection: libos.Connection) -> tuple[int, bytes]:
        if connection.state is None:
            seen.append(connection)
        connection.state = (connection.state or 0) + len(data)
        return len(data), b"%d;" % connection.state

    handler = libos.tcp(PORT, compiled=False)(count)
    runtime.bind(handler)
    with connect(runtime) as one, connect(runtime) as two:
        for n, stream in ((b"1;", one), (b"1;", two), (b"2;", one)):
            stream.write(b"x")
            assert read(stream, 2) == n
        assert [c.peer for c in seen] == [one.own, two.own]


def test_a_wrong_result_is_told(runtime: libos.Runtime, caplog: pytest.LogCaptureFixture) -> None:
    handler = libos.tcp(PORT, compiled=False)(lambda data: bytes(data))
    runtime.bind(handler)
    with connect(runtime) as stream:
        stream.write(b"abc")
        assert is_reset(stream)
    wait_until(lambda: bool(caplog.records), 60, "the log to say why")
    assert "return how many bytes it took" in caplog.text


def test_an_exception_resets_its_connection_and_is_logged_with_its_traceback(
    runtime: libos.Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(data: memoryview) -> tuple[int, None]:
        raise LookupError("no such line")

    handler = libos.tcp(PORT, compiled=False)(fails)
    runtime.bind(handler)
    for _ in range(2):
        with connect(runtime) as stream:
            stream.write(b"abc")
            assert is_reset(stream)
    wait_until(lambda: handler.counters == {"errors": 2}, 60, "both are counted")
    (record,) = caplog.records
    assert "fails" in record.getMessage()
    assert record.exc_info is not None
    assert 'raise LookupError("no such line")' in caplog.text


def refuses(data, reply):  # type: ignore[no-untyped-def]  # numba types it
    if data[0] == 10:
        raise LookupError("no such line")
    return 1, 0


def test_an_exception_of_a_compiled_one_resets_its_connection_and_is_logged_with_its_line(
    runtime: libos.Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    handler = libos.tcp(PORT)(refuses)
    with pytest.warns(HandlerWarning, match="refuses may raise LookupError: no such line"):
        runtime.bind(handler)
    with connect(runtime) as stream, connect(runtime) as other:
        other.write(b"a\n")
        assert is_reset(other)
        stream.write(b"aaa")
    runtime.wait_until(lambda stats: stats.net["handler_errors"] == stats.net["handler_faults"] == 1, 60)
    wait_until(lambda: bool(caplog.records), 60, "the log to say why")
    (record,) = caplog.records
    line = refuses.__code__.co_firstlineno + 2
    place = f'File "{__file__}", line {line}, in refuses'
    assert record.getMessage() == f"stream handler refuses raised LookupError: no such line ({place})"


def test_what_cannot_be_a_handler_is_said(runtime: libos.Runtime) -> None:
    with pytest.raises(CorelaneError, match="TCP ports are 1 to 65535"):
        libos.tcp(70_000)
    with pytest.raises(CorelaneError, match="window is 70000"):
        libos.tcp(PORT, window=70_000)
    with pytest.raises(CorelaneError, match=r"write @libos\.tcp\(port=7000\)"):
        libos.tcp(lines)  # type: ignore[arg-type]
    with pytest.raises(CorelaneError, match="two integers"):
        runtime.bind(libos.tcp(PORT)(lambda data, reply: 0))
    with pytest.raises(CorelaneError, match=r"\(data, reply\)"):
        runtime.bind(libos.tcp(PORT)(lambda data: (0, 0)))
    with pytest.raises(CorelaneError, match="neither"):
        runtime.bind(libos.tcp(PORT, compiled=False)(lambda: None))
    with pytest.raises(CorelaneError, match="it has no port"):
        runtime.bind(libos.tcp()(lines))
    runtime.bind(libos.tcp(PORT)(lines))
    with pytest.raises(CorelaneError, match=f"TCP port {PORT}"):
        runtime.bind(libos.tcp(PORT, compiled=False)(plain_lines))


link = np.zeros(4, np.uint64)


def test_compiled_code_accepts_and_connects(runtime: libos.Runtime) -> None:
    """A compiled uthread that forwards what comes to one port to another one, byte by byte."""

    def forward(state):  # type: ignore[no-untyped-def]
        data = np.empty(100, np.uint8)
        inner = calls.tcp_accept(state[0], 20_000_000_000)
        outer = calls.tcp_connect(state[1], state[2], PORT, 20_000_000_000)
        if inner < 0 or outer < 0:
            return -1
        n = calls.tcp_read(inner, data, -1)
        while n > 0:
            if calls.tcp_write(outer, data[:n], -1) != n:
                return -1
            n = calls.tcp_read(outer, data, -1)
            if n <= 0 or calls.tcp_write(inner, data[:n], -1) != n:
                return -1
            n = calls.tcp_read(inner, data, -1)
        calls.tcp_shutdown(outer)
        calls.tcp_close(inner)
        calls.tcp_close(outer)
        state[3] = np.uint64(1)
        return 0

    runtime.bind(libos.tcp(PORT)(lines))
    listener = runtime.listen_tcp(PORT + 1)
    link[:] = [listener.address, runtime.pointer, 0x0A000001, 0]
    job = runtime.batch(forward, link)
    with runtime.connect_tcp((ADDRESS, PORT + 1), timeout_s=10) as stream:
        stream.write(b"abc\n")
        assert read(stream, 4) == b"cba\n"
        stream.shutdown()
        assert stream.read(timeout_s=10) == b""
    assert job.result(20) == 0
    assert link[3] == 1


everything = np.zeros(5, np.uint64)


def test_compiled_code_has_every_call_of_stream_sockets(runtime: libos.Runtime) -> None:
    """Returns the number of the step that went wrong."""

    def work(state):  # type: ignore[no-untyped-def]
        wait = 20_000_000_000
        lease, ends, events = np.zeros(4, np.uint64), np.zeros(2, np.uint64), np.zeros(2, np.uint64)
        info, one, two = np.zeros(34, np.uint32), np.zeros(10, np.uint8), np.zeros(10, np.uint8)
        listener = calls.tcp_listen(state[0], PORT, 4)
        ours = calls.tcp_open(state[0], state[1], PORT, 0, 4711)
        if listener < 0 or ours < 0 or calls.poll_add_tcp(state[2], ours, 8, 1, 5):
            return 1
        if calls.poll_wait(state[2], events, wait) != 1 or events[0] != 5 or events[1] != 8:
            return 2
        if calls.tcp_wait_open(ours, 0) or calls.tcp_error(ours) or calls.poll_remove_tcp(state[2], ours):
            return 3
        theirs = calls.tcp_accept(listener, wait)
        if calls.tcp_ends(theirs, ends) or np.uint64(ends[1]) != np.uint64(state[1]) | np.uint64(4711 << 32):
            return 4
        if calls.tcp_set(theirs, 5, 1) or calls.tcp_get(theirs, 5) != 1 or calls.tcp_set(theirs, 99, 1) >= 0:
            return 5
        if calls.tcp_set_congestion(ours, "newreno") or calls.tcp_set_congestion(ours, "none") >= 0:
            return 6
        one[:] = 1
        if calls.tcp_writev(ours, (one[:3], ends), wait) != 19:
            return 7
        while calls.tcp_peek(theirs, one, wait) < 10:
            pass
        if calls.tcp_readv(theirs, (one[:1], two[:4]), wait) != 5 or two[1] != 1 or two[2] != ends[0] & np.uint64(255):
            return 8
        left = 14
        while left:
            left -= calls.tcp_read(theirs, one, wait)
        if calls.tcp_write_from(ours, state[3], 0, 1000, wait) != 1000:
            return 9
        while left < 1000:
            n = calls.tcp_lease(theirs, lease, wait)
            view = calls.lease_view(lease)
            if n <= 0 or len(view) != n or view[0] != left & 255 or view[n - 1] != (left + n - 1) & 255:
                return 10
            left += n
            if (
                calls.lease_return(state[0], lease)
                or len(calls.lease_view(lease))
                or calls.lease_return(state[0], lease) >= 0
            ):
                return 11
        if calls.tcp_wait_released(ours, -1, wait) or calls.tcp_released(ours) != 1000:
            return 12
        if calls.tcp_info(ours, info) or info[0] != 4 or calls.tcp_info(ours, info[:20]) != -22:
            return 13
        if calls.tcp_lease(theirs, lease[:3], 0) != -22 or calls.tcp_ends(theirs, ends[:1]) != -22:
            return 14
        if calls.tcp_shutdown(ours) or calls.tcp_read(theirs, one, wait) != 0:
            return 15
        if calls.tcp_close(theirs, wait) or calls.tcp_close(ours) or calls.tcp_close(listener):
            return 16
        return 0

    page = bytes(i & 255 for i in range(1000))
    with libos.Region(page) as region, runtime.open_poll() as poll:
        everything[:] = [runtime.pointer, 0x0A000001, poll.address, region.address, 0]
        assert runtime.batch(work, everything).result(20) == 0

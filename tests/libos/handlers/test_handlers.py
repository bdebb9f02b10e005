"""Handlers in C, numba and Python: the same behaviour, and what each does when it goes wrong."""

from __future__ import annotations

import ctypes
import logging
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers._native import ffi as nics
from corelane.drivers.nic.memory import memory_link
from corelane.libos._native import ffi, lib
from corelane.libos.handlers.handlers import HandlerWarning
from corelane.libos.numba import atomics, calls
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., Any]


def _address(name: str) -> Any:
    """Of a C handler of the applications."""
    from corelane.apps._native import ffi, lib

    return ffi.addressof(lib, name)


@pytest.mark.parametrize("kind", ["c", "numba", "python"])
def test_echo(serve: Serve, kind: str) -> None:
    served = serve(echo_handler(kind))
    for payload in (b"a", b"hello", bytes(range(256)) * 5, b""):
        if payload:
            assert served.ask(payload) == payload
    served.settled(lambda s: s.net["handled"] == 3)


@pytest.mark.parametrize("kind", ["c", "burst", "numba", "python"])
def test_echo_does_not_answer_servers(serve: Serve, kind: str) -> None:
    """Not its own kind, nor the well-known ones that answer anything (echo, chargen): they would never stop."""
    burst = libos.c_handler(_address("cl_echo_burst"), 9000)
    served = serve(burst if kind == "burst" else echo_handler(kind))
    served.send(*(_request(b"?", sport=sport) for sport in (9000, 7, 19, 53, 1023)))
    assert served.ask(b"hello", sport=1024) == b"hello"
    served.settled(lambda s: s.net["unanswered"] == 5 and s.net["replied"] == 1)


def test_burst_handler_in_c(serve: Serve) -> None:
    served = serve(libos.c_handler(_address("cl_echo_burst"), 9000))
    assert served.ask(b"hello") == b"hello"


def test_a_nic_is_told_of_the_frames_ahead_while_a_burst_is_answered() -> None:
    places: list[int] = []
    nic, end = memory_link((1, 1), ipv4=("10.0.0.1", "10.0.0.2"), ipv4_prefix=24)
    with nic, end:
        ops = nics.new("struct cl_nic_ops *", nic.ptr.ops[0])
        told = nics.callback("void(struct cl_nic *, unsigned, unsigned)", lambda _nic, _queue, at: places.append(at))
        ops.ahead, nic.ptr.ops = told, ops
        with libos.Runtime(nic=nic, kthreads=1) as runtime:
            runtime.bind(libos.c_handler(_address("cl_echo_burst"), 9000))
            assert end.send([_request(b"?")] * 3) == 3  # before it looks, so that they are one burst
            runtime.start()
            runtime.wait_until(lambda s: s.net["replied"] == 3, 60.0)
        assert places == [0, 1, 2]


def test_ctypes_function_and_address(serve: Serve) -> None:
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    )

    @kind
    def answer(request: int, length: int, reply: int, room: int, arg: int) -> int:
        ctypes.memmove(reply, b"%d" % arg, 2)
        return 2

    served = serve(
        libos.c_handler(answer, 9000, arg=42), libos.c_handler(ctypes.cast(answer, ctypes.c_void_p).value, 9001, arg=43)
    )
    assert served.ask(b"?") == b"42"
    assert served.ask(b"?", 9001) == b"43"


def test_python_handler_that_returns_bytes(serve: Serve) -> None:
    @libos.udp(9000, compiled=False)
    def upper(request: memoryview) -> bytes:
        return bytes(request).upper()

    assert serve(upper).ask(b"shout") == b"SHOUT"


@pytest.mark.parametrize("bits", [47, 48, 52, 56])
def test_views_reach_every_address_of_user_space(bits: int) -> None:
    """User space ends at 2^47 on x86-64, 2^48 on aarch64, 2^52 and 2^56 with longer page tables. No byte is touched."""
    seen: list[tuple[int, int]] = []
    made = libos.udp(9000, compiled=False)(lambda request, reply: seen.append((len(request), len(reply))))
    handler = made.prepare().keep[0]
    req = ffi.new("struct cl_udp_req *")
    top = 1 << bits
    req.data, req.len = ffi.cast("uint8_t *", top - 8192), 100
    req.reply, req.room = ffi.cast("uint8_t *", top - 4096 - 200), 200
    handler._burst(req, 1, ffi.NULL)
    assert seen == [(100, 200)]
    assert req.reply_len == 0


def test_python_handler_knows_its_peer(serve: Serve) -> None:
    seen = []

    @libos.udp(9000, compiled=False)
    def who(request: memoryview) -> bytes:
        r = libos.current_request()
        seen.append((r.peer, r.port, r.broadcast, r.rx_tsc > 0))
        return b"ok"

    serve(who).ask(b"x", sport=1234)
    assert seen == [(("10.0.0.2", 1234), 9000, False, True)]
    with pytest.raises(CorelaneError, match="no Python handler is running"):
        libos.current_request()


def test_python_handler_that_says_nothing(serve: Serve) -> None:
    @libos.udp(9000, compiled=False)
    def silent(request: memoryview, reply: memoryview) -> int | None:
        return None if request[0] else 0

    served = serve(silent, echo_handler("c", 9001))
    for n in range(2):
        served.send(_request(bytes([n])))
    stats = served.settled(lambda s: s.net["unanswered"] == 2)
    assert stats.net["handler_errors"] == 0
    assert served.ask(b"next", 9001) == b"next"


def test_python_exceptions_are_counted_and_logged_once(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    @libos.udp(9000, compiled=False)
    def fails(request: memoryview) -> bytes:
        if request[0] == 0:
            raise LookupError("no such thing")
        if request[0] == 1:
            return bytes(3000)
        if request[0] == 2:
            return "text"  # type: ignore[return-value]
        return b"fine"

    served = serve(fails)
    with caplog.at_level(logging.ERROR, "corelane.libos"):
        served.send(*[_request(bytes([n])) for n in (0, 1, 2, 0)])
        served.settled(lambda s: s.net["handler_errors"] == 4)
        assert served.ask(b"\3") == b"fine"
    assert fails.counters == {"errors": 4, "kept_views": 0}
    (record,) = caplog.records
    assert "fails" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


@pytest.mark.parametrize("answer", ["text", 1.5, [1], np.zeros(2, np.uint8)], ids=lambda a: type(a).__name__)
def test_an_answer_of_another_type_is_named(answer: Any) -> None:
    handler = libos.udp(9000, compiled=False)(lambda request: answer).prepare().keep[0]
    with pytest.raises(TypeError, match=rf"returned {type(answer).__name__}: return the reply as bytes, or its length"):
        handler._other_result(answer, memoryview(bytearray(8)))


def test_views_do_not_outlive_their_request(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    kept: list[Any] = []

    @libos.udp(9000, compiled=False)
    def keeps(request: memoryview, reply: memoryview) -> int:
        kept.append(request)
        if request[0]:
            kept.append(pickle.PickleBuffer(request))
        return 0

    served = serve(keeps)
    served.send(_request(b"\0"))
    served.settled(lambda s: s.net["handled"] == 1 and s.net["unanswered"] == 1)
    with pytest.raises(ValueError, match="released"):
        kept[0][0]
    with caplog.at_level(logging.ERROR, "corelane.libos"):
        served.send(_request(b"\1"))
        served.settled(lambda s: s.net["unanswered"] == 2)
    assert keeps.counters["kept_views"] == 1
    assert "keeps a view" in caplog.text
    kept.clear()


def _request(payload: bytes, port: int = 9000, sport: int = 5555) -> bytes:
    from cltest.packets import Host

    return Host("02:00:00:00:00:02", "10.0.0.2").datagram(Host("02:00:00:00:00:01", "10.0.0.1"), payload, sport, port)


# Compiled handlers


@libos.udp(9000)
def swap(request: Any, reply: Any) -> int:
    n = len(request) // 2
    reply[:n] = request[n : 2 * n]
    reply[n : 2 * n] = request[:n]
    return 2 * n


@libos.udp(9001)
def checked(request: Any, reply: Any) -> int:
    """Byte 0 says which mistake to make."""
    what = request[0]
    reply[0] = 7
    if what == 1:
        reply[0] = request[len(request)]
    elif what == 2:
        reply[len(reply)] = 1
    elif what == 3:
        reply[:4] = request[:1]
    elif what == 4:
        return len(reply) + 1
    elif what == 5:
        return -5
    elif what == 6:
        calls.put_be64(reply, len(reply) - 7, 1)
    elif what == 7:
        return int(calls.be32(request, len(request) - 3))
    elif what == 8:
        reply[0] = request[-1]
    elif what == 9:
        reply[-1 - len(reply)] = 1
    return 1


FAULTS = {1, 2, 3, 6, 7, 9}


def test_compiled_slices(serve: Serve) -> None:
    assert serve(swap).ask(b"abcdef") == b"defabc"
    assert swap(b"abcd", bytearray(10)) == 4, "the Python function itself can be called"


def test_compiled_handlers_cannot_leave_their_views(serve: Serve) -> None:
    served = serve(checked)
    for n in range(1, 10):
        if n != 8:
            served.send(_request(bytes([n, 0, 0, 0, 9]), 9001))
    stats = served.settled(lambda s: s.net["handler_errors"] == 8)
    assert stats.net["handler_faults"] == len(FAULTS)
    assert served.ask(b"\0", 9001) == b"\7"
    assert served.ask(b"\x08abc!", 9001) == b"!"


counted = np.zeros(8, np.uint64)


@libos.udp(9000, state=counted)
def counter(request: Any, reply: Any, state: Any) -> int:
    before = atomics.atomic_add(state, 0, 1)
    if atomics.cmpxchg(state, 1, 0, 5) == 0:
        atomics.store_atomic(state, 2, 9)
    calls.put_le64(reply, 0, before)
    calls.put_be32(reply, 8, calls.peer_ipv4())
    calls.put_be16(reply, 12, calls.peer_port())
    calls.put_be16(reply, 14, calls.local_port())
    return 16


def test_state_atomics_and_the_request(serve: Serve) -> None:
    counted[:] = 0
    served = serve(counter, kthreads=2)
    replies = [served.ask(b"x", sport=p) for p in (5, 6, 7)]
    assert [r[:8] for r in replies] == [n.to_bytes(8, "little") for n in range(3)]
    assert [r[8:] for r in replies] == [bytes([10, 0, 0, 2, 0, p, 0x23, 0x28]) for p in (5, 6, 7)]
    assert counted.tolist()[:3] == [3, 5, 9]


@libos.udp(9000)
def raises(request: Any, reply: Any) -> int:
    if request[0] == 0:
        raise ValueError("nought")
    return 1


def test_a_raising_handler_fails_its_request_without_the_gil(serve: Serve) -> None:
    with pytest.warns(HandlerWarning, match=r"raises may raise ValueError: nought \(line \d+\)"):
        served = serve(raises)
    served.send(_request(b"\0"))
    stats = served.settled(lambda s: s.net["handler_errors"] == 1)
    assert stats.net["handler_faults"] == 1
    assert len(served.ask(b"\1")) == 1


@libos.udp(9000)
def allocates(request: Any, reply: Any) -> int:
    copy = np.zeros(len(request), np.uint8)
    for i in range(len(request)):  # numba takes seconds for copy[:] = request
        copy[i] = request[i]
    reply[: len(copy)] = copy
    return len(copy)


def test_lint_tells_of_allocation_with_its_line(serve: Serve) -> None:
    with pytest.warns(HandlerWarning) as caught:
        served = serve(allocates)
    text = " ".join(str(w.message) for w in caught)
    line = allocates.function.__code__.co_firstlineno + 2
    assert f"allocates memory for a request (line {line})" in text
    assert served.ask(b"abc") == b"abc"


def test_lint_is_the_same_from_the_cache(tmp_path: Any) -> None:
    """A handler that comes from the disk gets the remarks that it got when it was compiled; a clean one gets none."""
    program = tmp_path / "served.py"
    program.write_text(
        "import warnings, sys\n"
        "from corelane import libos\n"
        "@libos.udp(9000)\n"
        "def h(request, reply):\n"
        "    if request[0] == 0:\n"
        "        raise ValueError('nought')\n"
        "    return 1\n"
        "@libos.udp(9001)\n"
        "def clean(request, reply):\n"
        "    n = len(request)\n"
        "    reply[:n] = request\n"
        "    return n\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    h.prepare(); clean.prepare()\n"
        "print([str(w.message) for w in seen], h.prepare().keep[0].from_cache)\n"
    )
    env = {"CORELANE_CACHE_DIR": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    out = [
        subprocess.run([sys.executable, program], env=env, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert "handler h may raise ValueError: nought (line 6)" in out[0]
    assert "clean" not in out[0]
    assert out[0].endswith("False\n")
    assert out[1] == out[0].replace("False\n", "True\n")


sleeping = np.zeros(2, np.uint64)


@libos.udp(9000, state=sleeping)
def sleeps(request: Any, reply: Any, state: Any) -> int:
    """Byte 0: milliseconds. Counts how many are inside at one time."""
    inside = atomics.atomic_add(state, 0, 1) + np.uint64(1)
    if inside > atomics.load_atomic(state, 1):
        atomics.store_atomic(state, 1, inside)
    calls.sleep_ns(np.uint64(request[0]) * np.uint64(1_000_000))
    atomics.atomic_sub(state, 0, 1)
    reply[0] = request[1]
    return 1


def test_a_handler_that_blocks_holds_up_nobody(serve: Serve) -> None:
    sleeping[:] = 0
    served = serve(sleeps, echo_handler("c", 9001))
    served.send(*[_request(bytes([200, n])) for n in range(5)], _request(b"quick", 9001))
    assert served.datagrams(1)[0].payload == b"quick", "answered while five handlers sleep"
    assert sorted(d.payload for d in served.datagrams(5)) == [bytes([n]) for n in range(5)]
    assert sleeping.tolist() == [0, 5], "all five were asleep at one time, on uthreads of their own"


locked = np.zeros(3, np.uint64)


@libos.udp(9000, state=locked)
def locks(request: Any, reply: Any, state: Any) -> int:
    calls.mutex_lock(state[0])
    if state[1] != 0:
        return -1
    state[1] = 1
    calls.sleep_ns(np.uint64(100_000))
    calls.yield_now()
    state[1] = 0
    state[2] += np.uint64(1)
    calls.mutex_unlock(state[0])
    reply[0] = 1
    return 1


def test_a_mutex_in_compiled_handlers(serve: Serve) -> None:
    mutex = ffi.new("struct cl_mutex *")
    lib.cl_mutex_init(mutex)
    locked[:] = (int(ffi.cast("uintptr_t", mutex)), 0, 0)
    served = serve(locks, kthreads=2)
    served.send(*[_request(b"x") for _ in range(40)])
    assert len(served.receive(40)) == 40
    assert locked[2] == 40


forward = np.zeros(2, np.uint64)


@libos.udp(9000, state=forward)
def asks_another(request: Any, reply: Any, state: Any) -> int:
    """Forwards the request from a socket of its own and waits for the answer."""
    calls.udp_send(state[0], calls.peer_ipv4(), 7777, request)
    n = calls.udp_recv(state[0], reply, 2_000_000_000)
    state[1] = np.uint64(calls.local_port())
    return int(n)


def test_sending_and_receiving_in_a_compiled_handler(serve: Serve) -> None:
    from cltest.packets import Host, arp, ethernet, read_datagram

    client, server = Host("02:00:00:00:00:02", "10.0.0.2"), Host("02:00:00:00:00:01", "10.0.0.1")
    served = serve(asks_another)
    socket = served.runtime.open_udp()
    assert socket.port >= 49152
    forward[0] = socket.address
    served.send(_request(b"please"))
    (who_has,) = served.receive()
    assert who_has[38:42] == bytes([10, 0, 0, 2]), "the neighbour is asked for first"
    served.send(ethernet(arp(2, client.mac, client.ip, server.mac, server.ip), client.mac, server.mac, 0x0806))
    asked = read_datagram(served.receive()[0])
    assert (asked.sport, asked.dport, asked.payload) == (socket.port, 7777, b"please")
    served.send(client.datagram(server, b"thank you", 7777, socket.port))
    assert served.datagrams(1)[0].payload == b"thank you"
    assert forward[1] == 9000
    net = served.runtime.stats().net
    assert (net["sent"], net["to_sockets"], net["learned"]) == (1, 1, 1)


# Refusals


@pytest.mark.parametrize("port", [0, -1, 65536, "80", True])
def test_wrong_ports_are_refused(port: Any) -> None:
    with pytest.raises(CorelaneError, match="1 to 65535"):
        libos.udp(port)


def test_what_is_no_handler_is_refused(serve: Serve) -> None:
    with pytest.raises(CorelaneError, match="is no C function"):
        libos.c_handler("echo", 9000)
    with pytest.raises(CorelaneError, match="NULL"):
        libos.c_handler(ffi.cast("cl_udp_handler", 0), 9000)
    with pytest.raises(CorelaneError, match="takes neither"):
        libos.udp(9000, compiled=False)(lambda a, b, c: 0).prepare()
    with pytest.raises(CorelaneError, match="cannot be called"):
        libos.udp(9000)(3)  # type: ignore[arg-type]
    with pytest.raises(CorelaneError, match="compile handler"):
        libos.udp(9000)(lambda request, reply: request.no_such).prepare()
    with pytest.raises(CorelaneError, match="return the reply's length"):
        libos.udp(9000)(lambda request, reply: 0.5).prepare()
    with pytest.raises(CorelaneError, match="C-contiguous"):
        libos.udp(9000, state=np.zeros((4, 4))[:, 1])(lambda request, reply, state: 0).prepare()
    served = serve(echo_handler("c"))
    with pytest.raises(CorelaneError, match="Address already in use"):
        served.runtime.bind(echo_handler("c"))
    with pytest.raises(CorelaneError, match="it has no port"):
        served.runtime.bind(libos.c_handler(ffi.cast("cl_udp_handler", 1 << 20)))


set_by_handler = 0


def sets_a_global(request: Any, reply: Any) -> int:
    global set_by_handler
    set_by_handler += 1
    return 0


def test_a_global_that_is_set_is_refused_with_what_to_do() -> None:
    with pytest.raises(CorelaneError, match=r"compile handler sets_a_global: .*keep what changes in `state`"):
        libos.udp(9000, cache=False)(sets_a_global).prepare()


def test_printing_is_told_as_what_it_is() -> None:
    def printer(request: Any, reply: Any) -> int:
        print("got", len(request))
        return 0

    with pytest.warns(HandlerWarning) as told:
        libos.udp(9000, cache=False)(printer).prepare()
    said = " ".join(str(warning.message) for warning in told)
    assert "takes the GIL" in said
    assert "Environment" not in said


def test_a_clean_handler_draws_no_remark() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for h in (swap, checked, counter, echo_handler("numba")):
            h.prepare()


def test_importing_libos_does_not_import_numba_or_numpy() -> None:
    code = (
        "import sys; import corelane.libos as l; l.Runtime, l.udp, l.current_request; "
        "print('numba' in sys.modules, 'numpy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]

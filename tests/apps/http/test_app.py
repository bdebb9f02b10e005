"""The application on a runtime: uthreads that wait for files, handlers on kthreads, time-outs, its end.

The client is the runtime's own TCP."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cltest import wait_until
from httphost import LARGE, TEXT, Answer, read_answers

from corelane import libos
from corelane.apps._native import ffi, lib
from corelane.apps.http.app import APP, HttpService, Options
from corelane.apps.http.handlers import Request, Route, route
from corelane.drivers.nic.memory import memory_link
from corelane.libos.handlers.warn import HandlerWarning
from corelane.libos.numba import atomics, calls
from corelane.runtime.errors import CorelaneError

ADDRESS, PORT = "10.0.0.1", 8080
ASK = b"GET /text.txt HTTP/1.1\r\nHost: here\r\n\r\n"
Serve = Callable[..., HttpService]
gate = np.zeros(2, np.int64)  # whether loops may end, and whether one has begun


@pytest.fixture
def scheduler() -> libos.Scheduler:
    return libos.Scheduler()


@pytest.fixture
def runtime(scheduler: libos.Scheduler) -> Iterator[libos.Runtime]:
    if not lib.cl_http_built():
        pytest.skip("needs llhttp: apt-get install node-llhttp, and build again")
    nic, end = memory_link(ipv4=(ADDRESS, None), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, kthreads=1, scheduler=scheduler) as made:
        yield made


@pytest.fixture
def serve(runtime: libos.Runtime, folder: Path) -> Iterator[Serve]:
    made: list[HttpService] = []

    def make(*routes: Route, **options: Any) -> HttpService:
        made.append(HttpService(runtime, Options(**{"root": str(folder), "port": PORT} | options), routes))
        runtime.start()
        return made[-1]

    yield make
    runtime.close()
    for service in made:
        assert service.stats()["alive"] == service.stats()["used_bytes"] == 0
        service.close()


def connect(runtime: libos.Runtime, port: int = PORT) -> libos.TcpStream:
    return runtime.connect_tcp((ADDRESS, port), timeout_s=10)


def ask(runtime: libos.Runtime, request: bytes) -> Answer:
    """The answer to one request on a connection of its own, which the server ends."""
    with connect(runtime) as stream:
        stream.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        raw = b"".join(iter(lambda: stream.read(timeout_s=30), b""))
    return read_answers(raw, (request.split(b" ")[0].decode(),))[0]


def get(runtime: libos.Runtime, path: str) -> Answer:
    return ask(runtime, f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())


def test_files_from_memory_and_in_pieces(runtime: libos.Runtime, serve: Serve) -> None:
    service = serve(fresh_ms=60_000)
    assert (service.ports, service.tcp_ports) == ((), (PORT,))
    assert [get(runtime, "/text.txt").body for _ in range(3)] == [TEXT] * 3
    assert get(runtime, "/large.bin").body == bytes(range(256)) * (LARGE // 256)
    assert get(runtime, "/none").status == 404
    stats = service.stats()
    assert (stats["requests"], stats["ok"], stats["client_errors"]) == (5, 4, 1)
    assert (stats["files_hits"], stats["files_looks"]) == (2, 3)


def test_a_file_is_sent_from_where_it_lies(runtime: libos.Runtime, serve: Serve, tmp_path: Path) -> None:
    """Without a copy, also while another one takes its place on disk and in memory, and a reader goes away."""
    data = [bytes(i * step % 251 for i in range(1 << 16)) * 16 for step in (3, 7)]
    page, other = tmp_path / "page", tmp_path / "other"
    page.write_bytes(data[0])
    service = serve(root=str(tmp_path), fresh_ms=0)
    assert get(runtime, "/page").body == data[0]
    request = b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n"
    with connect(runtime) as slow, connect(runtime) as gone:
        for stream in (slow, gone):
            stream.write(request)
            assert stream.read(100, timeout_s=10).startswith(b"HTTP/1.1 200 OK")
        other.write_bytes(data[1])
        other.rename(page)
        wait_until(lambda: get(runtime, "/page").body == data[1], 60.0, "the other file to be seen")
        gone.abort()
        slow.write(request)  # of another file, while the one before is still being sent
        raw = b""
        while len(raw) < 2 * len(data[0]):
            raw += slow.read(timeout_s=10)
        assert raw.partition(b"\r\n\r\n")[2].startswith(data[0])
    counts = ffi.new("struct cl_tcp_counts *")
    lib.cl_runtime_tcp_counts(runtime.ptr, counts)
    assert counts.bytes_lent > 3 * len(data[0])
    assert service.stats()["files_entries"] == 1


def test_many_connections_wait_for_one_look(runtime: libos.Runtime, serve: Serve) -> None:
    service = serve(fresh_ms=60_000)
    streams = [connect(runtime) for _ in range(30)]
    for stream in streams:
        stream.write(ASK)
    for stream in streams:
        data = b""
        while not data.endswith(TEXT):
            data += stream.read(timeout_s=10)
        stream.close()
    assert service.stats()["files_looks"] == 1


def slow(target, body, reply, state):  # type: ignore[no-untyped-def]  # numba types it
    """Blocks its uthread, and says who asks."""
    calls.sleep_ns(1_000_000)
    state[0] += 1
    reply[0] = 48 + calls.local_port() % 10
    return 200, 1


def faults(target, body, reply):  # type: ignore[no-untyped-def]
    reply[len(reply)] = 1
    return 200, 0


def raises(target, body, reply):  # type: ignore[no-untyped-def]
    if len(target) > 2:
        raise ValueError
    return 200, 0


def test_handlers(runtime: libos.Runtime, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    @route("/python", methods=("GET", "POST"), compiled=False)
    def python(request: Request) -> Any:
        return [request.method.lower(), " ", request.body or b"nothing"]

    state = np.zeros(1, np.uint64)
    made = [
        route("/slow", state=state)(slow),
        route("/faults")(faults),
        route("/raises")(raises),
        python,
    ]
    with pytest.warns(HandlerWarning, match="may raise"):
        service = serve(*made)
    assert (get(runtime, "/slow").body, state[0]) == (b"0", 1)
    assert get(runtime, "/python").body == b"get nothing"
    assert ask(runtime, b"POST /python HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok").body == b"post ok"
    assert (get(runtime, "/faults").status, get(runtime, "/raises").status) == (500, 500)
    assert service.stats()["handler_errors"] == 2
    wait_until(lambda: bool(caplog.records), 60, "the log to say where")
    place = f'File "{__file__}", line {raises.__code__.co_firstlineno + 2}, in raises'
    assert caplog.records[0].getMessage() == f"HTTP handler raises raised ValueError ({place})"


def test_handlers_by_name(
    runtime: libos.Runtime, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "http_shop.py").write_text(
        "from corelane.apps.http.handlers import route\n"
        "@route('/one', compiled=False)\ndef one(request):\n    return 'one'\n"
        "other = 1\n"
    )
    (tmp_path / "http_shop.so").write_bytes(b"\x7fELF, a handler in C")
    monkeypatch.chdir(tmp_path)
    for name in ("path", "path_hooks"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    for text, why in {
        "http_shop": "not of the form",
        "http_shop:other": "other is no handler",
        "http_none:one": "No module named",
    }.items():
        with pytest.raises(CorelaneError, match=why):
            HttpService(runtime, Options(handlers=text))
    serve(handlers="http_shop:one", root="")
    assert (get(runtime, "/one").body, get(runtime, "/text.txt").status) == (b"one", 404)


@route("/loops", state=gate, cache=False)
def compiled_loop(target, body, reply, state):  # type: ignore[no-untyped-def]
    atomics.store_atomic(state, 1, 1)
    while atomics.load_atomic(state, 0) == 0:
        pass
    return 200, 0


@route("/loops", compiled=False)
def python_loop(request: Request) -> str:
    gate[1] = 1
    while not gate[0]:
        pass
    return ""


def stopped(runtime: libos.Runtime) -> bool:
    try:
        runtime.stop(0)
        return True
    except CorelaneError:
        return False


@pytest.mark.parametrize("scheduler", [libos.Scheduler(stop_s=0.1)], ids=[""])
@pytest.mark.parametrize("loop", [compiled_loop, python_loop], ids=["compiled", "python"])
def test_a_stop_names_a_handler_that_never_returns(runtime: libos.Runtime, serve: Serve, loop: Route) -> None:
    gate[:] = 0
    serve(loop)
    with connect(runtime) as stream:
        stream.write(b"GET /loops HTTP/1.1\r\nHost: here\r\n\r\n")
        wait_until(lambda: bool(gate[1]), 60, "the handler to be called")
        try:
            with pytest.raises(CorelaneError) as caught:
                runtime.stop(0.01)
        finally:
            gate[0] = 1
        assert f"in the handler of HTTP path /loops, {loop.function.__name__} at 0x" in str(caught.value)
        wait_until(lambda: stopped(runtime), 60, "the handler to come back")


@pytest.mark.parametrize(
    ("text", "why"),
    [("def f(:", "importing http_shop failed: SyntaxError"), ("1 / 0", "importing http_shop failed: ZeroDivision")],
)
def test_handlers_of_a_module_that_fails(
    runtime: libos.Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    (tmp_path / "http_shop.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    for name in ("path", "path_hooks"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.delitem(sys.modules, "http_shop", raising=False)
    with pytest.raises(CorelaneError, match=why):
        HttpService(runtime, Options(handlers="http_shop:one"))


async def is_async(request: Request) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (is_async, "it is async, and a handler runs to its end"),
        (lambda a, b: "", r"\(a, b\) does not take \(request\) \(write def handler\(request\)"),
    ],
    ids=["async", "two arguments"],
)
def test_a_handler_of_another_shape_is_refused(runtime: libos.Runtime, function: Callable[..., Any], why: str) -> None:
    with pytest.raises(CorelaneError, match=why):
        HttpService(runtime, Options(port=PORT), [route("/x", compiled=False)(function)])


@pytest.mark.parametrize(
    ("options", "why"),
    [({"room": "a"}, "room is 'a' .expected a whole number"), ({"room": -1}, "room is -1"), ({"type": 5}, "type is 5")],
)
def test_an_option_of_the_wrong_type_is_one_error(options: dict[str, Any], why: str) -> None:
    with pytest.raises(CorelaneError, match=why):
        route("/x", **options)


def test_times_pass(runtime: libos.Runtime, serve: Serve) -> None:
    service = serve(tick_ms=70, keep_alive_ms=70, head_ms=70)
    with connect(runtime) as idle, connect(runtime) as late:
        late.write(ASK[:5])
        assert idle.read(timeout_s=30) == b""
        assert read_answers(late.read(timeout_s=30))[0].status == 408
    wait_until(lambda: service.stats()["alive"] == 0, 60.0, "connections to end")
    assert (service.stats()["idle"], service.stats()["late_heads"]) == (1, 1)


def test_a_drain(runtime: libos.Runtime, serve: Serve) -> None:
    service = serve(tick_ms=70)
    with connect(runtime) as idle:
        idle.write(ASK)
        while not idle.read(timeout_s=10).endswith(TEXT):
            pass
        service.begin_drain()
        assert idle.read(timeout_s=10) == b""
        with pytest.raises(CorelaneError, match=r"(?i)refused"):
            connect(runtime)
    service.drain()
    assert lib.cl_runtime_unlisten_tcp(runtime.ptr, PORT) == -errno.ENOENT, "it has done so"
    assert service.stats()["alive"] == 0


def test_what_cannot_be_served(runtime: libos.Runtime, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    root, names = str(tmp_path), [str(path) for path in certificate]
    for options, why in [
        (Options(), "nothing to serve"),
        (Options(root=root, port=70_000), "port 70000"),
        (Options(root=root, port=0), "no port"),
        (Options(root=root, tls_cert=names[0]), "go together"),
        (Options(root=root, tls_cert=names[0], tls_key=names[0]), "cannot use the key"),
        (Options(root=root, tls_cert=f"{names[0]},{names[0]}", tls_key=names[1]), "not as many keys"),
        (Options(root=f"{root}/none"), "cannot open the folder"),
        (Options(root=root, tick_ms=0), "tick_ms is 0"),
        (Options(root=root, connections=-1), "connections is -1"),
        (Options(root=root, head_most=70_000), "head_most"),
    ]:
        with pytest.raises(CorelaneError, match=why):
            APP.setup(runtime, options)
    runtime.listen_tcp(PORT)
    with pytest.raises(CorelaneError, match=f"TCP port {PORT}"):
        APP.setup(runtime, Options(root=root, port=PORT))

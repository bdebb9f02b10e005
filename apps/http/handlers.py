"""Handlers of the HTTP server: functions that answer what is asked of a path, compiled by numba or plain Python.

    from corelane.apps.http import handlers as http

    @http.route("/sum", methods=("POST",))  # compiled
    def total(target, body, reply):
        n = 0
        for byte in body:
            n += byte
        reply[0] = 48 + n % 10
        return 200, 1  # the status, and the length of the answer

    @http.route("/hello/*", compiled=False)  # plain Python
    def hello(request):
        return f"hello {request.path}\\n"

If this is shop.py, `corelane run http --handlers shop:total,hello` serves them.
"""

from __future__ import annotations

import errno
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...libos._native import lib as libos
from ...libos.handlers.shape import check_http, name_of
from ...runtime.errors import CorelaneError, check
from ...runtime.typed import typed
from .._native import ffi, lib

if TYPE_CHECKING:
    from ...libos.aot.work import Work
    from ...libos.handlers.compile import Build
    from ...libos.handlers.compiled import CompiledHandler

LOG_EVERY_S = 10.0
_COMES = re.compile(r"/[^\x00- \x7f-\U0010ffff?#]*")  # a path in the first line of a request, without its query
METHODS = {
    "GET": lib.CL_HTTP_TAKES_GET,
    "POST": lib.CL_HTTP_TAKES_POST,
    "PUT": lib.CL_HTTP_TAKES_PUT,
    "DELETE": lib.CL_HTTP_TAKES_DELETE,
    "OPTIONS": lib.CL_HTTP_TAKES_OPTIONS,
    "PATCH": lib.CL_HTTP_TAKES_PATCH,
}
_TEXT, _BYTES = "text/plain; charset=utf-8", "application/octet-stream"

_log = logging.getLogger("corelane.apps.http")


class Request:
    """What a plain Python handler is given. Everything in it is a copy, and stays good.

    method: "GET", ...; of HEAD the handler is asked as of GET would be. path, query: of the target, as they came. body:
    bytes. headers: values by their names in lower case; those of one name are joined with commas.
    """

    __slots__ = ("_headers", "_lines", "body", "method", "path", "query")

    def __init__(self, method: str, target: str, lines: bytes, body: bytes) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.body = body
        self._lines = lines
        self._headers: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Read when they are first asked for: most handlers do not."""
        if self._headers is None:
            self._headers = {}
            for line in self._lines.decode("latin-1").split("\r\n"):
                name, _, value = line.partition(":")
                name, value = name.lower(), value.strip(" \t")
                self._headers[name] = f"{self._headers[name]}, {value}" if name in self._headers else value
            self._headers.pop("", None)
        return self._headers


@dataclass(eq=False)
class Route:
    """A handler and its path, made by `route`. Calling it calls the function. errors: exceptions and wrong answers of
    plain Python, each of which was answered by 500."""

    function: Callable[..., Any]
    path: str
    methods: tuple[str, ...]
    compiled: bool = True
    state: Any = None
    type: str = _TEXT
    room: int = 16384
    cache: bool = True
    errors: int = 0
    _streams: dict[int, Iterator[bytes | str]] = field(default_factory=dict, repr=False)
    _last_stream: int = 0
    _keep: list[object] = field(default_factory=list, repr=False)
    _logged_at: float = float("-inf")

    def __call__(self, *args: Any) -> Any:
        """Call the Python function itself, for tests of it without a network."""
        return self.function(*args)

    def add_to(self, service: Any, runtime: Any = None) -> None:
        """Give it its path of a `struct cl_http_service *`. Raises CorelaneError: it cannot be compiled, or the path is
        none."""
        what = f"serve {self.path} by {getattr(self.function, '__name__', 'a handler')}"
        path, methods = ffi.new("char[]", self.path.encode()), sum(METHODS[m] for m in self.methods)
        if self.compiled:
            pointer, arg = self._compile(what, runtime)
            kind = ffi.new("char[]", self.type.encode())
            rc = lib.cl_http_add_handler(service, path, methods, kind, self.room, pointer, arg)
        else:
            check_http(self.function)
            pointer = ffi.callback("cl_http_foreign", self._call)
            self._keep.append(pointer)
            rc = lib.cl_http_add_foreign(service, path, methods, pointer, ffi.NULL)
        check(rc, what)
        if runtime is not None:
            runtime.name_function(pointer, name_of(self.function))

    def ahead_of_time(self, name: str, port: int) -> Work:
        """As work of a service that is compiled ahead of time. Raises CorelaneError for plain Python."""
        from ...libos.aot.work import Http, Work
        from ...libos.aot.work import check as check_work

        check_work(name, self)

        def compiled(build: Build) -> CompiledHandler:
            from ...libos.handlers.compile import compile_http

            return compile_http(self.function, self.state, cache=False, build=build)

        http = Http(self.path, sum(METHODS[m] for m in self.methods), self.type, self.room)
        return Work(libos.CL_SERVICE_HTTP, name, self.function, compiled, self.state, port, http=http)

    def _compile(self, what: str, runtime: Any) -> tuple[Any, Any]:
        from ...libos.handlers.kept import compiled
        from ...libos.handlers.warn import warn_of

        made = compiled("HTTP handler", self.function, self.state, cache=self.cache)
        warn_of(self.function, made.remarks)
        if made.stack_bytes and runtime is not None:
            from ...libos.batch_work.refuse import refuse_small_stack

            refuse_small_stack(what, made.stack_bytes, runtime.stack_bytes)
        self._keep.append(made)
        arg = ffi.cast("void *", made.arg)
        return ffi.cast("cl_http_handler", made.address), arg

    # Plain Python.

    def _call(self, call: Any, op: int, _arg: Any) -> int:
        try:
            if op == lib.CL_HTTP_CALL_BEGIN:
                return self._begin(call)
            if op == lib.CL_HTTP_CALL_NEXT:
                return self._next(call)
            stream = self._streams.pop(call.stream, None)
            close = getattr(stream, "close", None)
            if close is not None:
                close()
        except Exception as error:
            self._failed(error)
            return -1
        return 0

    def _begin(self, call: Any) -> int:
        target = ffi.buffer(call.target, call.target_len)[:].decode("latin-1")
        lines = ffi.buffer(call.headers, call.headers_len)[:]
        body = ffi.buffer(call.body, call.body_len)[:] if call.body_len else b""
        method = ffi.string(call.method).decode()
        status, headers, answer = _taken_apart(self.function(Request(method, target, lines, body)))
        data, kind, stream = _as_bytes(answer)
        if kind and not any(name.lower() == "content-type" for name in headers):
            headers = {**headers, "Content-Type": kind}
        text = "".join(_line(name, value) for name, value in headers.items()).encode("latin-1")
        if stream is not None:
            self._last_stream += 1
            call.stream = self._last_stream
            self._streams[call.stream] = stream
        rc = lib.cl_http_reply(call, status, text, len(text), data, len(data), stream is not None)
        if rc < 0:
            self._streams.pop(call.stream, None)
        if rc == -errno.ENOMEM:
            return int(rc)
        if rc < 0:
            raise ValueError(f"it answered with status {status} and headers {headers}, which cannot be sent")
        return 0

    def _next(self, call: Any) -> int:
        stream = self._streams[call.stream]
        for piece in stream:
            if piece:
                data = piece.encode() if isinstance(piece, str) else bytes(piece)
                check(lib.cl_http_reply_piece(call, data, len(data)), "keep a piece of an answer")
                return 0
        check(lib.cl_http_reply_piece(call, b"", 0), "end an answer")
        return 0

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        now = time.monotonic()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            _log.error("handler of %s failed a request", self.path, exc_info=error)


def _taken_apart(result: Any) -> tuple[int, Mapping[str, str], Any]:
    """Status, headers and body of what a handler returned."""
    if not isinstance(result, tuple):
        return 200, {}, result
    if len(result) == 2:
        return int(result[0]), {}, result[1]
    if len(result) == 3:
        return int(result[0]), dict(result[1]), result[2]
    raise TypeError("return the body, (status, body) or (status, headers, body)")


def _line(name: str, value: str) -> str:
    """A header. One that would be two could say anything in our name."""
    line = f"{name}: {value}"
    if "\r" in line or "\n" in line:
        raise ValueError(f"the header {line!r} has an end of line in it")
    return line + "\r\n"


def _as_bytes(answer: Any) -> tuple[bytes, str, Iterator[bytes | str] | None]:
    """The body, its type, and the stream if it is one."""
    if answer is None:
        return b"", "", None
    if isinstance(answer, str):
        return answer.encode(), _TEXT, None
    if isinstance(answer, bytes | bytearray | memoryview):
        return bytes(answer), _BYTES, None
    try:
        return b"", _BYTES, iter(answer)
    except TypeError:
        raise TypeError(f"a body is text, bytes or an iterable of them, and not {type(answer).__name__}") from None


@typed("make a handler of HTTP")
def _check(*, methods: Iterable[str] | str, compiled: bool, type: str, room: int, cache: bool) -> None:
    if room < 0:
        raise CorelaneError("make a handler of HTTP", f"room is {room}", "give the bytes of its longest answer")


def route(
    path: str,
    *,
    methods: tuple[str, ...] = ("GET",),
    compiled: bool = True,
    state: Any = None,
    type: str = _TEXT,
    room: int = 16384,
    cache: bool = True,
) -> Callable[[Callable[..., Any]], Route]:
    """Decorator: make a function the handler of a path, or with a star at its end of all that begin so.

    Paths are compared as they come, without decoding. Of several that fit the longest counts; what none fits is a file.
    methods: those that it takes; another one is answered by 405. HEAD comes with GET: the body is left out.

    compiled=True: `handler(target, body, reply) -> (status, length)`, compiled by numba. All three are checked uint8
    views: path and query, the request's body, and `room` bytes for the answer's, which is of the content type `type`.
    With `state`, an array say that all calls share, it is `handler(target, body, reply, state)`. It may
    block (corelane.libos.numba.calls). A fault, an exception and what cannot be an answer are answered by 500.

    compiled=False: `handler(request)`, with a Request. It returns the body, (status, body) or (status, headers, body).
    A body is text, bytes, None, or an iterable of them: that is sent in chunks, the next piece asked for when the one
    before it has left. It must not block. An exception is answered by 500, and logged.

    Raises CorelaneError for what cannot be.
    """
    what = f"make a handler of {path!r}"
    if callable(path) or not str(path).startswith("/"):
        raise CorelaneError(what, "a path begins with a slash", 'as in @route("/hello")')
    if not _COMES.fullmatch(path):
        comes = quote(path.partition("?")[0], safe="/*%")
        raise CorelaneError(what, "no request has such a path: they come encoded", f"as in @route({comes!r})")
    _check(methods=methods, compiled=compiled, type=type, room=room, cache=cache)
    methods = (methods,) if isinstance(methods, str) else tuple(methods)
    if not methods or any(m not in METHODS for m in methods):
        raise CorelaneError(what, f"its methods are {methods}", f"some of {', '.join(METHODS)}")
    if state is not None and not compiled:
        raise CorelaneError(what, "state is for compiled handlers", "let the Python callable close over it")

    def decorate(function: Callable[..., Any]) -> Route:
        if not callable(function):
            raise CorelaneError(what, f"{function!r} cannot be called", "decorate a function")
        return Route(function, path, methods, compiled, state, type, room, cache)

    return decorate

"""Handlers of byte streams: a function that is given what has come for a TCP connection, and says how much it took and
what to answer.

Compiled by numba it runs inside of the connection's turn, on a uthread (libos/net/tcp/serve.c). A plain Python callable
is called for what waits of up to 32 connections with the GIL taken once (bursts.c); an exception resets the connection
that it was about, is counted, and logged at most once in LOG_EVERY_S seconds.
"""

from __future__ import annotations

import ipaddress
import logging
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...runtime.errors import CorelaneError, check
from ...runtime.typed import typed
from .._native import ffi, lib
from .handlers import check_port
from .interrupts import is_interrupt
from .shape import check_stream, name_of

BACKLOG = 1024
ANSWER_MOST = 16384  # bytes
LOG_EVERY_S = 10.0

_log = logging.getLogger("corelane.libos")


class Connection:
    """A connection as a plain Python handler sees it.

    peer: its other end, (address, port). state: the handler's own, None at first; it goes with the connection.
    """

    __slots__ = ("peer", "state")

    def __init__(self, peer: tuple[str, int]) -> None:
        self.peer = peer
        self.state: Any = None


@dataclass(eq=False)
class StreamHandler:
    """A handler of a TCP port, made by `tcp`; Runtime.bind or serve gives it the port. Calling it calls the function.

    errors of a plain Python one (exceptions, wrong results) are counted in `counters`.
    """

    function: Callable[..., Any]
    port: int | None = None
    compiled: bool = True
    state: Any = None
    cache: bool = True
    backlog: int = BACKLOG
    window: int = 0
    _python: _PythonStream | None = field(default=None, repr=False)
    _keep: list[object] = field(default_factory=list, repr=False)

    def __call__(self, *args: Any) -> Any:
        """Call the Python function itself, for tests of it without a network."""
        return self.function(*args)

    @property
    def counters(self) -> dict[str, int]:
        """Of a plain Python one: `errors`; else empty, for C counts them in handler_errors."""
        return dict(self._python.counters) if self._python else {}

    def bind(self, runtime: Any, number: int) -> None:
        """Called by Runtime.bind. Raises CorelaneError: it cannot be compiled, or the port is taken."""
        what = f"bind a handler to TCP port {number}"
        if self.compiled:
            pointer, arg = self._compile(what, runtime)
            rc = lib.cl_runtime_serve_tcp(runtime.ptr, number, self.backlog, self.window, pointer, arg)
        else:
            self._python = self._python or _PythonStream(self.function)
            pointer = self._python.callback()
            self._keep.append(pointer)
            rc = lib.cl_runtime_serve_tcp_foreign(runtime.ptr, number, self.backlog, self.window, pointer, ffi.NULL)
        check(rc, what)
        runtime.name_function(pointer, name_of(self.function))

    def _compile(self, what: str, runtime: Any) -> tuple[Any, Any]:
        from .kept import compiled
        from .warn import warn_of

        made = compiled("stream handler", self.function, self.state, cache=self.cache)
        warn_of(self.function, made.remarks)
        if made.stack_bytes:
            from ..batch_work.refuse import refuse_small_stack

            refuse_small_stack(what, made.stack_bytes, runtime.stack_bytes)
        self._keep.append(made)
        arg = ffi.cast("void *", made.arg)
        return ffi.cast("cl_tcp_handler", made.address), arg


class _PythonStream:
    """Wraps a callable. What `callback` returns is a cl_tcp_burst_handler, one for each port that it is bound to."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.counters = {"errors": 0}
        self._two = check_stream(function)
        self._logged_at = float("-inf")
        self._unlogged = 0

    def callback(self) -> Any:
        """Keep it as long as C may call it."""
        connections: dict[int, Connection] = {}

        def burst(items: Any, n: int, _arg: Any) -> None:
            for i in range(n):
                self._handle(items[i], connections)

        return ffi.callback("cl_tcp_burst_handler", burst)

    def _handle(self, item: Any, connections: dict[int, Connection]) -> None:
        if item.len == 0:
            connections.pop(item.connection, None)
            return
        try:
            self._handle_all(item, self._more_of(item, connections))
        except BaseException as error:
            item.took = lib.CL_HANDLER_RAISED
            connections.pop(item.connection, None)
            if not is_interrupt(error):
                self._failed(error)

    def _more_of(self, item: Any, connections: dict[int, Connection]) -> tuple[Connection, ...]:
        """What the function is given besides the data."""
        if not self._two:
            return ()
        connection = connections.get(item.connection)
        if connection is None:
            peer = str(ipaddress.IPv4Address(item.peer.ipv4)), int(item.peer.port)
            connection = connections[item.connection] = Connection(peer)
        return (connection,)

    def _handle_all(self, item: Any, more: tuple[Connection, ...]) -> None:
        """Message by message, as long as there is room for another answer."""
        left = memoryview(ffi.buffer(item.data, item.len)).toreadonly()
        taken = answered = 0
        while len(left) and item.room - answered >= ANSWER_MOST:
            took, answer = _checked(self.function(left, *more), len(left))
            if answer is not None:
                ffi.memmove(item.reply + answered, answer, len(answer))
                answered += len(answer)
            if took < 1:
                taken = took or taken
                break
            taken += took
            left = left[took:]
        item.took, item.answered = taken, answered

    def _failed(self, error: BaseException) -> None:
        self.counters["errors"] += 1
        now = time.monotonic()
        if now - self._logged_at < LOG_EVERY_S:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} more since the last report)" if self._unlogged else ""
        self._logged_at, self._unlogged = now, 0
        _log.error("handler %s failed a connection%s", name_of(self.function), more, exc_info=error)


def _checked(result: Any, most: int) -> tuple[int, Any]:
    """What a handler returned. Raises what is wrong with it."""
    try:
        took, answer = result
        took = operator.index(took)
    except (TypeError, ValueError):
        hint = "return how many bytes it took, and the answer as bytes or None"
        raise TypeError(f"the handler returned {result!r}: {hint}") from None
    if not -1 <= took <= most:
        raise ValueError(f"the handler took {took} of {most} bytes")
    if answer is not None and len(answer) > ANSWER_MOST:
        raise ValueError(f"the handler answered {len(answer)} bytes, and an answer has {ANSWER_MOST} at most")
    return took, answer


@typed("make a handler of a TCP port")
def _check(*, compiled: bool, cache: bool, backlog: int, window: int) -> None:
    if backlog < 1:
        raise CorelaneError("make a handler of a TCP port", f"backlog is {backlog}", "give 1 or more")
    if not 0 <= window <= lib.CL_TCP_WINDOW_MOST:
        hint = f"give 1 to {lib.CL_TCP_WINDOW_MOST} bytes"
        raise CorelaneError("make a handler of a TCP port", f"window is {window}", hint)


def tcp(
    port: int | None = None,
    *,
    compiled: bool = True,
    state: Any = None,
    cache: bool = True,
    backlog: int = BACKLOG,
    window: int = lib.CL_TCP_WINDOW,
) -> Callable[[Callable[..., Any]], StreamHandler]:
    """Decorator: make a function the handler of the byte streams that come to a TCP port.

    It is given what has come for a connection and waits, in order and in one piece, and says how many bytes of it it
    took and what to answer. What it does not take waits, and is given to it again with what comes next. A result of -1
    closes the connection once the answer is sent.

    compiled=True: `handler(data, reply) -> (took, answered)`, compiled by numba. data and reply are checked uint8 views
    of one dimension; reply has room for 2024 bytes; it is called again while it takes something and more waits. With
    `state`, an array say (docs/handlers.md) that all calls share, it is `handler(data, reply, state)`. It may block
    (corelane.libos.numba.calls); its connection waits meanwhile, no other does. A fault, an exception and any other
    negative result reset the connection, counted in handler_errors.

    compiled=False: any callable. `handler(data) -> (took, answer)`, or `handler(data, connection)` with a Connection.
    data is a read-only memoryview, good until it returns; answer is bytes (16384 at most) or None. It must not block.

    backlog: connections that are half open, at most. window: most bytes that are given at a time (65536 at most); one
    that takes none of so many is reset. So is one whose peer ends in the middle of what the handler waits for.

    Raises CorelaneError for a port outside 1..65535, or another option that cannot be.
    """
    if callable(port) and not isinstance(port, type):
        raise CorelaneError(
            f"make handler {name_of(port)}",
            "@libos.tcp is called with options, a port among them",
            "write @libos.tcp(port=7000); or @libos.tcp(), and give the port to Runtime.bind",
        )
    check_port(port, "TCP")
    _check(compiled=compiled, cache=cache, backlog=backlog, window=window)
    if state is not None and not compiled:
        raise CorelaneError("make a handler", "state is for compiled handlers", "let the Python callable close over it")

    def decorate(function: Callable[..., Any]) -> StreamHandler:
        if not callable(function):
            raise CorelaneError("make a handler", f"{function!r} cannot be called", "decorate a function")
        return StreamHandler(function, port, compiled, state, cache, backlog, window)

    return decorate

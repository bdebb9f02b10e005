"""What may handle requests, and turning it into what C calls.

In order of speed: a C function, a function compiled by numba (the default for Python functions), a Python callable
(`compiled=False`). docs/handlers.md compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...runtime.errors import CorelaneError
from ...runtime.typed import typed
from .._native import ffi
from . import batching
from .batching import Batching, batching_of
from .c_functions import address_of_function, is_c_function
from .request_types import Types, as_c, types_of
from .shape import name_of
from .warn import HandlerWarning, warn_of

__all__ = ["Handler", "HandlerWarning", "Prepared", "as_handler", "c_handler", "check_port", "udp"]

Kind = Literal["request", "burst", "foreign"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A handler as C takes it. pointer and arg are cdata; keep holds what must outlive the runtime.

    types: `struct cl_udp_types *`, or None. stack_bytes: the least that the runtime's uthreads must have, 0 for any.
    ordered: datagrams of one flow one after the other. batching: `struct cl_udp_batching *`, or None.
    """

    kind: Kind
    pointer: Any
    arg: Any
    keep: tuple[object, ...]
    types: Any = None
    stack_bytes: int = 0
    ordered: bool = False
    batching: Any = None


@dataclass(eq=False)
class Handler:
    """A request handler and its port, made by `udp` or `c_handler`; calling it calls the Python function itself.

    function: the Python function, or the C function's address. port: UDP port, or None if Runtime.bind gives it.
    errors and kept_views of a Python callable are counted in `counters`.
    """

    function: Any
    port: int | None = None
    kind: Kind = "request"
    compiled: bool = True
    state: Any = None
    cache: bool = True
    arg: Any = None
    keep: tuple[object, ...] = ()
    types: Types | None = None
    ordered: bool = False
    batching: Batching | None = None
    _prepared: Prepared | None = field(default=None, repr=False)

    def __call__(self, *args: Any) -> Any:
        """Call the Python function itself, for tests of a handler without a network."""
        if not callable(self.function):
            raise CorelaneError("call a C handler from Python", "only its address is known", "bind it to a Runtime")
        return self.function(*args)

    def prepare(self) -> Prepared:
        """Compile or wrap once.

        Raises CorelaneError if that is not possible; warns HandlerWarning what the lint found.
        """
        if self._prepared is None:
            made = self._make()
            if self.types is not None:
                types, keep = as_c(self.types)
                made = replace(made, types=types, keep=(*made.keep, *keep))
            if self.batching is not None:
                made = replace(made, batching=batching.as_c(self.batching))
            self._prepared = replace(made, ordered=self.ordered)
        return self._prepared

    def _make(self) -> Prepared:
        if isinstance(self.function, int):
            kind = "cl_udp_handler" if self.kind == "request" else "cl_udp_burst_handler"
            arg = ffi.NULL if self.arg is None else ffi.cast("void *", _address_of_arg(self.arg))
            return Prepared(self.kind, ffi.cast(kind, self.function), arg, (*self.keep, self.arg))
        if not self.compiled:
            python = self._python()
            return Prepared("foreign", python.callback, ffi.NULL, (python,))
        from .kept import compiled

        what = "handler" if self.batching is None else "batch handler"
        made = compiled(what, self.function, self.state, cache=self.cache)
        warn_of(self.function, made.remarks)
        arg = ffi.cast("void *", made.arg)
        if self.batching is not None:
            pointer = ffi.cast("cl_udp_burst_handler", made.address)
            return Prepared("burst", pointer, arg, (made,), stack_bytes=made.stack_bytes)
        pointer = ffi.cast("cl_udp_handler", made.address)
        return Prepared("request", pointer, arg, (made,), stack_bytes=made.stack_bytes)

    def _python(self) -> Any:
        """The wrapper of a Python callable."""
        if self.batching is None:
            from .python import PythonHandler

            return PythonHandler(self.function)
        from .python_batches import PythonBatchHandler

        return PythonBatchHandler(self.function)

    @property
    def name(self) -> str:
        """Of the Python function, for people; "" of a C function, which has its symbol."""
        return str(getattr(self.function, "__qualname__", "")) if callable(self.function) else ""

    @property
    def counters(self) -> dict[str, int]:
        """Of a Python callable: `errors` (exceptions), `kept_views` (views that outlived their request); else empty."""
        from_python = [k for k in self._prepared.keep if hasattr(k, "counters")] if self._prepared else []
        return dict(from_python[0].counters) if from_python else {}


def udp(
    port: int | None = None,
    *,
    compiled: bool = True,
    state: Any = None,
    cache: bool = True,
    classify: Any = None,
    targets_us: Sequence[int] | None = None,
    ordered: bool = False,
    batch: int | None = None,
    limit_us: int | None = None,
    wait_us: int | None = None,
    queue: int | None = None,
    early_drop: bool | None = None,
) -> Callable[[Callable[..., Any]], Handler]:
    """Decorator: make a function the handler of a UDP port.

    compiled=True: the function is `handler(request, reply) -> length`, compiled by numba when it is bound. request and
    reply are checked uint8 views of one dimension: the datagram's payload and the room for the reply. It returns the
    reply's length in bytes, 0 for none, a negative number for an error. With `state`, an array say (docs/handlers.md),
    it is `handler(request, reply, state)`; all calls, on all kthreads, share it (`numba_atomics` for counters). cache:
    keep the machine code on disk ($CORELANE_CACHE_DIR). Globals are constants of the compiled code.

    compiled=False: any callable. `handler(request, reply) -> length`, or `handler(request) -> bytes | None`. request is
    a read-only, reply a writable memoryview; both are released when the handler returns. It must not block.

    classify, targets_us: for compiled handlers. Requests wait in queues by type; `classify(request) -> type` is
    compiled too and called for each when it arrives. The next request is the one that has waited longest for its type's
    target, in microseconds (docs/handlers.md).

    ordered: for compiled handlers. Datagrams of one flow (its two addresses and ports) are handled in the order in
    which the NIC gave them, one at a time; those of different flows at the same time, as ever (docs/handlers.md).

    batch: the handler is `handler(requests, replies, lengths)`, or with `state` behind these, and gets up to that many
    requests at a time (1..32): `requests[i]` and `replies[i]` are views as above, and `lengths[i] = n` sets the length
    of reply i, which is 0 at first. What it returns is ignored, but for a negative number, which is an error of all of
    them. With compiled=False it is `handler(requests) -> replies`: a list of read-only memoryviews, and for each of
    them an object with bytes, or None. limit_us: within how many microseconds of its arrival a request is to be
    answered: batches are made so that they are, by what batches were measured to take; with early_drop (the default)
    those that cannot be are dropped, counted as batch_late. wait_us: how long a request may wait for others while a
    kthread is free (0). queue: how many may wait (docs/handlers.md).

    Raises CorelaneError for a port outside 1..65535, or types or batches that cannot be.
    """
    if callable(port) and not isinstance(port, type):
        raise CorelaneError(
            f"make handler {name_of(port)}",
            "@libos.udp is called with options, a port among them",
            "write @libos.udp(port=9000); or @libos.udp(), and give the port to Runtime.bind",
        )
    _check_udp(port, compiled=compiled, cache=cache, ordered=ordered)
    types = types_of(classify, targets_us)
    _check_ordered(ordered, types, bursts=not compiled)
    how = batching_of(batch, limit_us, wait_us, queue, early_drop)
    _check_batching(how, types, ordered=ordered)
    if types is not None and not compiled:
        raise CorelaneError(
            "sort requests by type", "Python callables get theirs in bursts", "compile the handler, or write it in C"
        )
    if state is not None and not compiled:
        raise CorelaneError("make a handler", "state is for compiled handlers", "let the Python callable close over it")

    def decorate(function: Callable[..., Any]) -> Handler:
        if not callable(function):
            raise CorelaneError("make a handler", f"{function!r} cannot be called", "decorate a function")
        kind: Kind = "request" if compiled else "foreign"
        return Handler(function, port, kind, compiled, state, cache, types=types, ordered=ordered, batching=how)

    return decorate


@typed("make a C handler")
def c_handler(
    function: Any,
    port: int | None = None,
    *,
    burst: bool = False,
    arg: Any = None,
    classify: Any = None,
    targets_us: Sequence[int] | None = None,
    ordered: bool = False,
    batch: int | None = None,
    limit_us: int | None = None,
    wait_us: int | None = None,
    queue: int | None = None,
    early_drop: bool | None = None,
) -> Handler:
    """A C function as a handler.

    function: a cffi function pointer (`cl_udp_handler` or `cl_udp_burst_handler`; the type tells which), a ctypes
    function, a numba cfunc, or an address as int. burst: for those without a type, that it is a cl_udp_burst_handler.
    arg: passed on as `void *arg`: a cffi pointer, a numpy array, an address, None. What the addresses point to is kept
    alive as long as the handler is. classify, targets_us: requests in queues by type, as for `udp`; classify may be a C
    function too, whose arg is NULL. ordered: as for `udp`, for a cl_udp_handler. batch and so on: the same, for a
    cl_udp_burst_handler. Raises CorelaneError for anything else.
    """
    check_port(port)
    types = types_of(classify, targets_us)
    if isinstance(function, ffi.CData):
        burst = _is_burst(function, burst)
    if types is not None and burst:
        raise CorelaneError(
            "sort requests by type", "a burst handler takes requests of all types at once", "give a cl_udp_handler"
        )
    how = batching_of(batch, limit_us, wait_us, queue, early_drop)
    if how is not None and not burst:
        raise CorelaneError(
            "handle requests in batches", "a cl_udp_handler takes one at a time", "give a cl_udp_burst_handler"
        )
    _check_ordered(ordered, types, bursts=burst)
    address = address_of_function(function)
    kind: Kind = "burst" if burst else "request"
    return Handler(address, port, kind, True, arg=arg, keep=(function,), types=types, ordered=ordered, batching=how)


def _check_batching(how: Batching | None, types: Types | None, *, ordered: bool) -> None:
    if how is not None and (ordered or types is not None):
        other, doing = "ordered" if ordered else "classify", "handle requests in batches"
        raise CorelaneError(doing, f"{other} serves requests in another order", f"leave out either batch or {other}")


@typed("make a handler")
def _check_udp(port: Any, *, compiled: bool, cache: bool, ordered: bool) -> None:
    check_port(port)


def _check_ordered(ordered: bool, types: Types | None, *, bursts: bool) -> None:
    if ordered and bursts:
        raise CorelaneError(
            "order datagrams by flow",
            "Python callables and burst handlers get those of many flows at a time",
            "compile the handler, or give a cl_udp_handler",
        )
    if ordered and types is not None:
        raise CorelaneError(
            "order datagrams by flow", "types are served in another order", "leave out either `ordered` or the types"
        )


def as_handler(what: Any) -> Handler:
    """A Handler as it is; a bare function as `udp()` would make it; a C function as `c_handler` would."""
    if isinstance(what, Handler):
        return what
    if callable(what) and not is_c_function(what):
        return udp()(what)
    return c_handler(what)


def check_port(port: int | None, kind: str = "UDP") -> None:
    """Raise CorelaneError unless it is None or 1..65535."""
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535):
        raise CorelaneError("bind a handler", f"port {port!r}", f"{kind} ports are 1 to 65535")


def _is_burst(function: Any, burst: bool) -> bool:
    kind = ffi.typeof(function)
    if kind.kind == "function":
        if kind == ffi.typeof("cl_udp_burst_handler") or len(kind.args) == 3:
            return True
        if kind == ffi.typeof("cl_udp_handler") or len(kind.args) == 5:
            return False
        raise CorelaneError("make a C handler", f"its type is {kind.cname}", "see cl_udp_handler in udp.h")
    if kind.kind != "pointer" and kind.kind != "primitive":
        raise CorelaneError("make a C handler", f"{kind.cname} is no function")
    return burst


def _address_of_arg(arg: Any) -> int:
    if isinstance(arg, ffi.CData):
        return int(ffi.cast("uintptr_t", arg))
    if isinstance(arg, int):
        return arg
    interface = getattr(arg, "__array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    raise CorelaneError(
        "make a C handler", f"arg is {type(arg).__name__}", "give a cffi pointer, an array, or an address"
    )

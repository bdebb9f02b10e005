"""What a service does: each handler and each piece of periodic work, as the C table has it (libos/service.h)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...runtime.errors import CorelaneError
from .._native import lib
from ..batch_work.work import Batch
from ..handlers.batching import Batching
from ..handlers.handlers import Handler, udp
from ..handlers.periodic import Periodic
from ..handlers.request_types import Types
from ..handlers.streams import StreamHandler

if TYPE_CHECKING:
    from ..handlers.compile import Build
    from ..handlers.compiled import CompiledHandler

_DOING = "compile {} ahead of time"


class Http(NamedTuple):
    """What a handler of HTTP answers, as C has it. methods: bits."""

    path: str
    methods: int
    type: str
    room: int


@dataclass(frozen=True)
class Work:
    """One thing that a service does.

    kind: CL_SERVICE_UDP, ... name: of the function in its module. compiled: compiles it. state: an array, or None.
    args: of a job, the arrays that it is called with. The rest as in C.
    """

    kind: int
    name: str
    function: Callable[..., Any]
    compiled: Callable[[Build], CompiledHandler]
    state: Any = None
    port: int = 0
    ordered: bool = False
    backlog: int = 0
    window: int = 0
    period_ns: int = 0
    types: Types | None = None
    batching: Batching | None = None
    http: Http | None = None
    args: tuple[Any, ...] = ()

    @property
    def place(self) -> tuple[str, int]:
        """Protocol and port, which only handlers of HTTP share."""
        return ("UDP" if self.kind == lib.CL_SERVICE_UDP else "TCP", self.port)


def works_of(found: Mapping[str, Any]) -> list[Work]:
    """Of names and what a module has under them: handlers, periodic work, jobs, and Work as it is. Raises CorelaneError
    for what cannot be compiled, and for two with the same port."""
    works = [what if isinstance(what, Work) else work_of(name, what) for name, what in found.items()]
    taken: dict[tuple[str, int], Work] = {}
    for work in works:
        if not work.port:
            continue
        other = taken.setdefault(work.place, work)
        before = other.name
        if other is not work and not (other.http and work.http):
            why = f"{before} serves port {work.port}, too"
            raise CorelaneError(_DOING.format(work.name), why, "give one of them another port")
    if not works:
        hint = "decorate functions with @libos.udp(port=...), @libos.tcp(port=...), @libos.every(ms=...) or @http.route"
        raise CorelaneError("compile a service ahead of time", "it has no handler and no periodic work", hint)
    if len(works) > lib.CL_SERVICE_MOST:
        why = f"it has {len(works)} handlers, and a service has {lib.CL_SERVICE_MOST} at most"
        raise CorelaneError("compile a service ahead of time", why, "make two of it")
    return works


def is_work(what: Any) -> bool:
    """Whether it is taken if nobody names what to take."""
    return isinstance(what, Handler | StreamHandler | Periodic) or _is_job(what)


def _is_job(what: Any) -> bool:
    """Whether it is a batch function with its arguments."""
    return isinstance(what, functools.partial) and isinstance(what.func, Batch)


def work_of(name: str, what: Any) -> Work:
    """Raises CorelaneError for what cannot be compiled ahead of time."""
    if isinstance(what, Handler):
        return _udp(name, what)
    if isinstance(what, StreamHandler):
        return _tcp(name, what)
    if isinstance(what, Periodic):
        return _every(name, what)
    if isinstance(what, Batch):
        return _job(name, what, (), {})
    if _is_job(what):
        return _job(name, what.func, what.args, what.keywords)
    if callable(what):
        return _udp(name, udp()(what))
    why = f"it is a {type(what).__name__}"
    raise CorelaneError(_DOING.format(name), why, "name handlers, periodic work, or functions made by libos.batch")


def check(name: str, what: Any) -> None:
    """Raise CorelaneError for a handler of plain Python, or one with a state that is no array."""
    if not what.compiled:
        hint = "let numba compile it, or name the others: corelane compile service.py:ONE,TWO"
        raise CorelaneError(_DOING.format(name), "it is plain Python (compiled=False)", hint)
    if what.state is not None and not isinstance(what.state, np.ndarray):
        why = f"its state is a {type(what.state).__name__}, which lies in this process's memory"
        raise CorelaneError(_DOING.format(name), why, "give it a numpy array")


def _check_port(name: str, what: Any, kind: str) -> int:
    if what.port is None:
        hint = f"decorate it with @libos.{kind}(port=...)"
        raise CorelaneError(_DOING.format(name), f"it names no {kind.upper()} port", hint)
    return int(what.port)


def _udp(name: str, what: Handler) -> Work:
    check(name, what)
    if isinstance(what.function, int):
        raise CorelaneError(_DOING.format(name), "it is a C function", "link it in C: docs/compile.md")

    def compiled(build: Build) -> CompiledHandler:
        from ..handlers.compile import compile_batch, compile_handler

        made = compile_handler if what.batching is None else compile_batch
        return made(what.function, what.state, cache=False, build=build)

    port = _check_port(name, what, "udp")
    kind, types = lib.CL_SERVICE_UDP, what.types
    how: dict[str, Any] = {"types": types, "batching": what.batching}
    return Work(kind, name, what.function, compiled, what.state, port, what.ordered, **how)


def _tcp(name: str, what: StreamHandler) -> Work:
    check(name, what)

    def compiled(build: Build) -> CompiledHandler:
        from ..handlers.compile import compile_stream

        return compile_stream(what.function, what.state, cache=False, build=build)

    port = _check_port(name, what, "tcp")
    kind, backlog, window = lib.CL_SERVICE_TCP, what.backlog, what.window
    return Work(kind, name, what.function, compiled, what.state, port, backlog=backlog, window=window)


def _every(name: str, what: Periodic) -> Work:
    check(name, what)

    def compiled(build: Build) -> CompiledHandler:
        from ..handlers.compile import compile_periodic

        return compile_periodic(what.function, what.state, cache=False, build=build)

    period_ns = int(what.ms * 1e6)
    return Work(lib.CL_SERVICE_EVERY, name, what.function, compiled, what.state, period_ns=period_ns)


def _job(name: str, what: Batch, given: tuple[Any, ...], named: dict[str, Any]) -> Work:
    if not what.compiled:
        raise CorelaneError(_DOING.format(name), "it is plain Python (compiled=False)", "let numba compile it")
    try:
        args = what.bind(given, named)
    except CorelaneError as error:
        hint = f"name a functools.partial of it that has its arguments, as in one = partial({what.__name__}, 1)"
        raise CorelaneError(_DOING.format(name), error.why, error.hint or hint) from error
    for arg in args:
        if isinstance(arg, np.ndarray) and not arg.flags.c_contiguous:
            raise CorelaneError(_DOING.format(name), "an array that it is given is not contiguous", "give a copy")
        if not isinstance(arg, np.ndarray | np.generic | bool | int | float | complex):
            why = f"it is given a {type(arg).__name__}, which lies in this process's memory"
            raise CorelaneError(_DOING.format(name), why, "give numbers and numpy arrays")

    def compiled(build: Build) -> CompiledHandler:
        from ..handlers.compile import compile_job

        return compile_job(what.function, args, what.options, build=build)

    arrays = tuple(arg for arg in args if isinstance(arg, np.ndarray))
    return Work(lib.CL_SERVICE_JOB, name, what.function, compiled, args=arrays)

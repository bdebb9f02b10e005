"""What a service does: each handler and each piece of periodic work, as the C table has it (libos/service.h)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.errors import CorelaneError
from .._native import lib
from ..batch_work.work import Batch
from ..handlers.handlers import Handler, udp
from ..handlers.periodic import Periodic
from ..handlers.request_types import Types
from ..handlers.streams import StreamHandler

if TYPE_CHECKING:
    from ..handlers.compile import Build, CompiledHandler

_DOING = "compile {} ahead of time"


@dataclass(frozen=True)
class Work:
    """One thing that a service does.

    kind: CL_SERVICE_UDP, ... name: of the function in its module. compiled: compiles it. The rest as in C.
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


def works_of(found: Mapping[str, Any]) -> list[Work]:
    """Of names and what a module has under them. Raises CorelaneError for what cannot be compiled, and for two with
    the same port."""
    works = [work_of(name, what) for name, what in found.items()]
    taken: dict[tuple[int, int], str] = {}
    for work in works:
        if not work.port:
            continue
        before = taken.setdefault((work.kind, work.port), work.name)
        if before != work.name:
            why = f"{before} serves port {work.port}, too"
            raise CorelaneError(_DOING.format(work.name), why, "give one of them another port")
    if not works:
        hint = "decorate functions with @libos.udp(port=...), @libos.tcp(port=...) or @libos.every(ms=...)"
        raise CorelaneError("compile a service ahead of time", "it has no handler and no periodic work", hint)
    if len(works) > lib.CL_SERVICE_MOST:
        why = f"it has {len(works)} handlers, and a service has {lib.CL_SERVICE_MOST} at most"
        raise CorelaneError("compile a service ahead of time", why, "make two of it")
    return works


def is_work(what: Any) -> bool:
    """Whether it is taken if nobody names what to take."""
    return isinstance(what, Handler | StreamHandler | Periodic)


def work_of(name: str, what: Any) -> Work:
    """Raises CorelaneError for what cannot be compiled ahead of time."""
    if isinstance(what, Handler):
        return _udp(name, what)
    if isinstance(what, StreamHandler):
        return _tcp(name, what)
    if isinstance(what, Periodic):
        return _every(name, what)
    if isinstance(what, Batch):
        return _uthread(name, what)
    if callable(what):
        return _udp(name, udp()(what))
    why = f"it is a {type(what).__name__}"
    raise CorelaneError(_DOING.format(name), why, "name handlers, periodic work, or functions made by libos.batch")


def _check(name: str, what: Any) -> None:
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
    _check(name, what)
    if isinstance(what.function, int):
        raise CorelaneError(_DOING.format(name), "it is a C function", "link it in C: docs/compile.md")

    def compiled(build: Build) -> CompiledHandler:
        from ..handlers.compile import compile_handler

        return compile_handler(what.function, what.state, cache=False, build=build)

    port = _check_port(name, what, "udp")
    kind, types = lib.CL_SERVICE_UDP, what.types
    return Work(kind, name, what.function, compiled, what.state, port, what.ordered, types=types)


def _tcp(name: str, what: StreamHandler) -> Work:
    _check(name, what)

    def compiled(build: Build) -> CompiledHandler:
        from ..handlers.compile import compile_stream

        return compile_stream(what.function, what.state, cache=False, build=build)

    port = _check_port(name, what, "tcp")
    kind, backlog, window = lib.CL_SERVICE_TCP, what.backlog, what.window
    return Work(kind, name, what.function, compiled, what.state, port, backlog=backlog, window=window)


def _every(name: str, what: Periodic) -> Work:
    _check(name, what)

    def compiled(build: Build) -> CompiledHandler:
        from ..handlers.compile import compile_periodic

        return compile_periodic(what.function, what.state, cache=False, build=build)

    period_ns = int(what.ms * 1e6)
    return Work(lib.CL_SERVICE_EVERY, name, what.function, compiled, what.state, period_ns=period_ns)


def _uthread(name: str, what: Batch) -> Work:
    _check(name, what)

    def compiled(build: Build) -> CompiledHandler:
        from ..handlers.compile import compile_periodic

        return compile_periodic(what.function, None, cache=False, build=build)

    return Work(lib.CL_SERVICE_UTHREAD, name, what.function, compiled)

"""Periodic work: a compiled or plain Python function that a runtime calls every so often (docs/handlers.md).

C calls it on a uthread of its own (libos/every.c). A plain Python one runs to completion on the kthread's own stack.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...runtime.errors import CorelaneError, check
from ...runtime.typed import typed
from .._native import ffi, lib
from .interrupts import is_interrupt
from .shape import check_periodic, name_of

LEAST_MS, MOST_MS = 0.01, 1e12
LOG_EVERY_S = 10.0

_log = logging.getLogger("corelane.libos")


@dataclass(eq=False)
class Periodic:
    """Work and its period, made by `every`; Runtime.bind or serve starts it. Calling it calls the function itself."""

    function: Callable[..., Any]
    ms: float
    state: Any = None
    compiled: bool = True
    cache: bool = True
    _started: list[tuple[Any, Any, tuple[object, ...]]] = field(default_factory=list, repr=False)

    def __call__(self, *args: Any) -> Any:
        """Call the Python function itself, for tests of it without a runtime."""
        return self.function(*args)

    @property
    def counters(self) -> dict[str, int]:
        """Of all runtimes that are not closed: `calls`, `skipped` (a call before took too long), `errors`."""
        return {name: sum(int(getattr(every, name)) for _, every, _ in self._started) for name in _COUNTED}

    def start(self, runtime: Any) -> None:
        """Called by Runtime.bind. Raises CorelaneError: it cannot be compiled, or the runtime has stopped."""
        if self.compiled:
            pointer, arg, keep = self._compile(runtime)
        else:
            check_periodic(self.function, self.state is not None)
            pointer, arg = ffi.callback("cl_every_fn", self._call), ffi.NULL
            keep = (pointer,)
        out = ffi.new("const struct cl_every **")
        what = f"start periodic work {name_of(self.function)}"
        period_ns = int(self.ms * 1e6)
        check(lib.cl_runtime_every(runtime.ptr, period_ns, pointer, arg, not self.compiled, out), what)
        runtime.name_function(pointer, name_of(self.function))
        self._started.append((runtime, out[0], keep))

    def ended(self, runtime: Any) -> None:
        """Called by Runtime.close, before the counters are gone: nothing calls the function any more."""
        self._started = [started for started in self._started if started[0] is not runtime]

    def _compile(self, runtime: Any) -> tuple[Any, Any, tuple[object, ...]]:
        from .kept import compiled
        from .warn import warn_of

        made = compiled("periodic work", self.function, self.state, cache=self.cache)
        warn_of(self.function, made.remarks)
        if made.stack_bytes:
            from ..batch_work.refuse import refuse_small_stack

            refuse_small_stack(f"start periodic work {name_of(self.function)}", made.stack_bytes, runtime.stack_bytes)
        arg = ffi.cast("void *", made.arg)
        return ffi.cast("cl_every_fn", made.address), arg, (made,)

    _logged_at = -math.inf

    def _call(self, arg: Any) -> int:
        try:
            self.function() if self.state is None else self.function(self.state)
        except BaseException as error:
            if is_interrupt(error):
                return -1
            now = time.monotonic()
            if now - self._logged_at >= LOG_EVERY_S:
                self._logged_at = now
                _log.exception("periodic work %s failed", name_of(self.function))
            return -1
        return 0


_COUNTED = ("calls", "skipped", "errors")


@typed("make periodic work")
def every(
    *, ms: float, state: Any = None, compiled: bool = True, cache: bool = True
) -> Callable[[Callable[..., Any]], Periodic]:
    """Decorator: make a function the periodic work of a runtime; `Runtime.bind` or `serve` starts it.

    It is called every `ms` milliseconds (0.01 or more; fractions count), first when one period is over, on a uthread of
    its own, until the runtime stops. Calls never overlap: what a long call misses is skipped and counted.

    compiled=True: `function()`, or `function(state)` with a state, an array say, that it may share with handlers.
    It may block (corelane.libos.numba.calls) and returns nothing or an integer; negative ones and exceptions count as
    errors. compiled=False: any Python function, of the state if one is given; it must not block; exceptions are counted
    and logged, at most once in 10 s.

    Raises CorelaneError for a period that cannot be.
    """
    if not LEAST_MS <= ms <= MOST_MS:
        raise CorelaneError("make periodic work", f"ms is {ms}", f"{LEAST_MS} or more, as in every(ms=100)")

    def decorate(function: Callable[..., Any]) -> Periodic:
        if not callable(function):
            raise CorelaneError("make periodic work", f"{function!r} cannot be called", "decorate a function")
        return Periodic(function, float(ms), state, compiled, cache)

    return decorate

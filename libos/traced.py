"""What a runtime writes down of its requests: how much, and which of it is kept on disk (trace/recorder.py)."""

from __future__ import annotations

import dataclasses
import errno
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime import paths, perf
from ..runtime.errors import ConfigError, CorelaneError, check
from ._native import lib
from .configure import TRACE_WAYS
from .options import Trace

if TYPE_CHECKING:
    from .trace.recorder import Recorder


def settled(trace: str | Trace, slo: str | Sequence[str]) -> Trace:
    """What a Runtime was given as one group. ConfigError."""
    made = Trace(mode=trace) if isinstance(trace, str) else trace
    if slo:
        made = dataclasses.replace(made, slo=(slo,) if isinstance(slo, str) else tuple(slo))
    try:
        made.check()
    except ValueError as error:
        raise ConfigError("make a runtime", str(error)) from error
    return made


def segments(trace: Trace) -> set[int]:
    """The trace segments that this process has, by their inodes; none if nobody will ask for a new one."""
    from ..runtime.trace import links

    return set(links(os.getpid())) if trace.slo else set()


class Traced:
    """A Runtime's part of it."""

    _recorder: Recorder | None = None

    @property
    def ptr(self) -> Any:
        """The `struct cl_runtime *`."""
        raise NotImplementedError

    @property
    def trace(self) -> str:
        """Which requests are written down: "sampled", "full" or "off".

        May be set, and holds a millisecond later. Of a runtime that was made with "off" that raises CorelaneError."""
        way = check(lib.cl_runtime_trace(self.ptr, 0), "ask how the runtime is traced")
        return next(mode for mode, of in TRACE_WAYS.items() if of == way)

    @trace.setter
    def trace(self, mode: str) -> None:
        if mode not in TRACE_WAYS:
            raise CorelaneError("trace the runtime", f"mode {mode!r}", f"one of: {', '.join(TRACE_WAYS)}")
        rc = lib.cl_runtime_trace(self.ptr, TRACE_WAYS[mode])
        check(rc, "trace the runtime", hint="make it with trace='sampled'" if rc == -errno.ENOENT else "")

    @property
    def recorded(self) -> Mapping[str, int]:
        """How often limits (slo) were "broken", how many traces are "kept" of that and "not_kept" for being too many,
        how many could not be written ("failed"), and the records that were "lost". Empty: there are no limits."""
        return {} if self._recorder is None else dict(self._recorder.counts)

    def _watch(self, trace: Trace, before: set[int], tell: Callable[[str, str], object]) -> None:
        """Make the recorder, if there are limits. before: `segments`, of before it was made. tell: a bound method."""
        if not trace.slo:
            return
        from ..runtime.trace import Segment, links
        from .trace.recorder import Recorder

        new = [link for inode, link in links(os.getpid()).items() if inode not in before]
        if len(new) != 1:
            why = f"{len(new)} runtimes were made in this process at this moment"
            raise CorelaneError("record what is slow", why, "make runtimes that have an slo one after the other")
        # Imported here, and not by the thread while kthreads run: libraries of numpy's start threads.
        import numpy  # noqa: F401

        # The thread must not keep a runtime that everybody else has forgotten.
        method = weakref.WeakMethod(tell)

        def told(event: str, text: str) -> None:
            if (alive := method()) is not None:
                alive(event, text)

        segment = Segment(os.open(new[0], os.O_RDONLY | os.O_CLOEXEC))
        self._recorder = Recorder(segment, trace, Path(trace.folder) if trace.folder else paths.traces(), told)

    def _let_sample(self) -> None:
        """Where the kernel lets nobody sample program counters, a signal asks for it, if that is nobody's."""
        if not perf.permitted():
            lib.cl_runtime_sample_by_signal(self.ptr)

    def _record(self) -> None:
        if self._recorder is not None:
            self._recorder.start()

    def _end_record(self) -> None:
        if self._recorder is not None:
            self._recorder.stop()

"""corelane trace --blame: who else is on the CPUs and cores of an application while its requests are recorded.

Switches of the CPUs that its kthreads have, where the kernel lets them be seen (root); else how much CPU time every
thread had between the beginning and the end. Names of an iokernel's slots, if it is attached to one.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from ...libos.trace.others import Others, Slice
from ...runtime import perf, switches
from ...runtime.errors import CorelaneError, SystemLimit
from ...runtime.trace import Segment
from ..watch import snapshot

MOST = 500_000  # switches of a recording: some 100 MB
LEAST_S = 0.001  # who used less is no neighbour


class Neighbours:
    """From construction on. socket: of an iokernel; None: the default one."""

    def __init__(self, segment: Segment, socket: str | None) -> None:
        self._segment, self._socket = segment, socket
        self._seen: list[switches.Switch] = []
        self._names: dict[int, str] = {0: ""}
        self._switches: switches.Switches | None = None
        self._before: dict[int, switches.Used] = {}
        self._kthreads: dict[int, int] = {}
        self._begin()

    def _begin(self) -> None:
        """Once there are kthreads. Of several runtimes, and of adopted ones, nothing is known beside their records."""
        with contextlib.suppress(CorelaneError):
            self._kthreads = perf.kthreads_of(self._segment.pid)
            try:
                self._switches = switches.Switches(self._cpus())
            except SystemLimit:
                self._before = switches.used()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._switches is not None:
            self._switches.close()

    def read(self) -> None:
        """What has come since the last time; who ends soon has its name asked for at once."""
        if not self._kthreads:
            self._begin()
        if self._switches is None or len(self._seen) >= MOST:
            return
        found = self._switches.read()
        for tid in {one.new for one in found} - self._names.keys():
            self._names[tid] = self._name_of(tid)
        self._seen += found

    def end(self) -> None:
        """The rest."""
        self.read()

    def others(self) -> Others:
        """What blame is to know. Once it has ended."""
        slots: dict[int, str] = {}
        with contextlib.suppress(CorelaneError):  # it is attached to none
            for app in snapshot(self._socket)["apps"]:
                if app["cores"] is not None:
                    slots |= {app["slot"] + 1 + k: f"{app['name']}.{k}" for k in range(app["kthreads"])}

        def slot(number: int) -> str:
            return slots.get(number, f"slot {number - 1}")

        if self._switches is None:
            return Others(slot, None, self._busy() if self._before else {})
        return Others(slot, self._slices())

    def _cpus(self) -> set[int]:
        found = set()
        for tid in self._kthreads:
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
                found.add(switches.cpu_of(f"/proc/{self._segment.pid}/task/{tid}"))
        return found

    def _name_of(self, tid: int) -> str:
        name, own = switches.name_of(tid), f" (process {self._segment.pid})"
        return f"{name.removesuffix(own)}, a thread of its own process" if name.endswith(own) else name

    def _slices(self) -> list[Slice]:
        out, before, stamp = [], dict[int, switches.Switch](), self._segment.tsc_of
        for one in self._seen:
            last = before.get(one.cpu)
            if last is not None and last.new and last.new not in self._kthreads:
                out.append(Slice(one.cpu, stamp(last.ns), stamp(one.ns), self._names[last.new]))
            before[one.cpu] = one
        return out

    def _busy(self) -> dict[int, list[tuple[str, float]]]:
        had: dict[int, dict[str, float]] = {}
        for tid, now in switches.used().items():
            before = self._before.get(tid)
            seconds = (now.ns - (before.ns if before else 0)) / 1e9
            if tid not in self._kthreads and seconds >= LEAST_S:
                of, name = had.setdefault(now.cpu, {}), self._name_of(tid)
                of[name] = of.get(name, 0.0) + seconds
        return {cpu: sorted(of.items(), key=lambda one: -one[1]) for cpu, of in had.items()}

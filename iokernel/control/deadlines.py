"""Deadlines of the applications of one iokernel: what promises.py decides, of what the loops and the machine say.

An application asks over its connection (PROMISE), and asks again to see what became of it. The control thread looks
some times a second while somebody has a deadline, and never otherwise.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._native import lib
from . import report
from .apps import App
from .manager import CoreManager
from .messages import line_of
from .promises import Ask, Client, Machine, Promise, Promises, Reading
from .users import Users

_STATES = {
    "measuring": lib.CL_PROMISE_MEASURING,
    "admitted": lib.CL_PROMISE_ADMITTED,
    "refused": lib.CL_PROMISE_REFUSED,
    "met": lib.CL_PROMISE_MET,
    "missed": lib.CL_PROMISE_MISSED,
}
_ANSWER = struct.Struct("=IIQQ240s")  # struct cl_promised
_NEVER = 2**64 - 1
_STAT = Path("/proc/stat")
_TICKS_S = os.sysconf("SC_CLK_TCK")  # in which /proc/stat counts


@dataclass(frozen=True, slots=True)
class Answer:
    """What an application is told: `struct cl_promised`."""

    state: int
    share_ppm: int = 0
    done: int = 0
    ends_us: int = _NEVER
    text: str = ""

    def packed(self) -> bytes:
        """As bytes."""
        return _ANSWER.pack(self.state, self.share_ppm, self.done, self.ends_us, line_of(self.text))


class Deadlines:
    """lock: held for every call that takes the `struct cl_io *`, and while this changes. apps: those that are attached.
    manager: None, cores are not managed, and nothing is promised. tell: gets an event and a line for people."""

    def __init__(
        self,
        lock: threading.Lock,
        apps: Callable[[], tuple[App, ...]],
        manager: CoreManager | None,
        users: Users,
        tell: Callable[[str, str], None],
    ) -> None:
        self._lock, self._apps, self._manager, self._users, self._tell = lock, apps, manager, users, tell
        self._io: Any = None
        self._told: list[tuple[str, str]] = []
        self._given: dict[int, int] = {}  # millionths of a core, as the loops know it
        self._promises = self._new()

    def _new(self) -> Promises:
        return Promises(
            self._read, self._machine, self._give, lambda event, text: self._told.append((event, text)), time.monotonic
        )

    def begin(self, io: Any) -> None:
        """Applications of this `struct cl_io *` may ask from now on; None: it is gone."""
        self._io = io
        self._given.clear()
        self._promises = self._new()

    def ask(self, app: App, ask: Ask) -> Answer:
        """An application asks for a deadline, or what became of it."""
        with self._lock:
            if self._io is None:
                return Answer(lib.CL_PROMISE_NONE)
            if ask.work == 0:
                promise = self._promises.of(app.id, ask.done)
            elif refusal := self._refusal(app):
                return Answer(lib.CL_PROMISE_REFUSED, text=refusal)
            else:
                promise = self._promises.ask(self._client(app), ask)
        self._say()
        return _answer(promise)

    def _refusal(self, app: App) -> str:
        """Why one that is not batch work, or has its cores otherwise, gets no promise; "": it may."""
        if app.claim is None:
            return "no policy moves cores here, so none are promised (with one: corelane up --policy delay)"
        if app.claim.kind != "batch":
            return f"{app.name} is of latency class, and deadlines are for batch work (corelane run --class batch)"
        if app.claim.guaranteed:
            return f"{app.name} has {app.claim.guaranteed} guaranteed cores (leave out the guarantee, or the deadline)"
        return ""

    def _client(self, app: App) -> Client:
        assert app.claim is not None  # or it was refused
        group, limit, where = self._users.deadline_cores(app.name, app.peer.uid)
        return Client(app.id, app.name, app.loop, float(app.claim.maximum), group, limit, where)

    def forget(self, app: int) -> None:
        """An application goes: its share is free. Before the loops forget it."""
        with self._lock:
            if self._io is not None:
                self._promises.forget(app)
                self._given.pop(app, None)

    def look(self) -> float:
        """See how all go. Returns when to be called next, on the monotonic clock; inf: when somebody has asked."""
        with self._lock:
            due = self._promises.look() if self._io is not None else float("inf")
        self._say()
        return due

    def _say(self) -> None:
        told, self._told = self._told, []
        for event, text in told:
            self._tell(event, text)

    def stats_of(self, app: int) -> dict[str, Any] | None:
        """Promises.stats_of. The lock is held."""
        return self._promises.stats_of(app)

    def stats(self) -> dict[str, Any]:
        """Promises.stats. The lock is held."""
        return self._promises.stats()

    # What Promises asks. The lock is held.

    def _read(self, app: int, counter: str) -> Reading:
        name = next((a.name for a in self._apps() if a.id == app), str(app))
        cores = report.app_core_time(self._io, app, name)
        said = report.app_counters(self._io, app, name)
        units = said["values"].get(counter) if said else None
        return Reading(said["published_s"] if said else 0.0, units, *cores)

    def _machine(self, loop: int) -> Machine:
        assert self._manager is not None  # or nobody was let ask
        cpus = self._manager.cores.of_loop(loop)
        held = {a.name: a.claim.guaranteed for a in self._apps() if a.loop == loop and a.claim and a.claim.guaranteed}
        taken = sum(a.claim.guaranteed for a in self._apps() if a.loop == loop and a.claim)
        late_s = report.late_s(self._io, loop)
        return Machine(max(0.0, float(len(cpus) - taken)), held, stolen_s(cpus) + late_s)

    def _give(self, app: int, cores: float) -> None:
        ppm = round(cores * 1e6)
        if ppm == self._given.get(app, 0):
            return
        lib.cl_io_app_promise(self._io, app, ppm)  # one that has just gone needs none
        self._given[app] = ppm


def stolen_s(cpus: tuple[int, ...]) -> float:
    """Time that the host took from these CPUs while they had work, since the machine began (proc(5), steal)."""
    ticks = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _STAT.read_text().splitlines():
            name, *numbers = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus:
                ticks += int(numbers[7])
    return ticks / _TICKS_S


def _answer(promise: Promise | None) -> Answer:
    if promise is None:
        return Answer(lib.CL_PROMISE_NONE)
    ends_s = promise.ends_in_s() if promise.open else None
    ends_us = _NEVER if ends_s is None else min(int(ends_s * 1e6), _NEVER - 1)
    done = promise.work - min(promise.left, promise.work)
    return Answer(_STATES[promise.state], round(promise.share * 1e6), done, ends_us, promise.text)

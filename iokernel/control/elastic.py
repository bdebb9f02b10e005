"""Memory that batch applications of one iokernel can give back: what memory.py decides, of what applications and the
machine say. The control thread looks some times a second while there is such an application and a limit."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...runtime.config import MemoryConfig
from .._native import lib
from . import report
from .apps import App
from .memory import BatchMemory, Holder, Room
from .resident import Residents

_PROC = Path("/proc")
_NAMES = ("elastic_held_bytes", "elastic_least_bytes", "elastic_most_bytes")  # as libos/elastic.c has them
_IDLE_LOOK_S = 1.0  # while batch applications are there, none of which has such memory
_MOST = 1 << 46  # bytes that one may say that it has


class Elastic:
    """lock: held for every call that takes the `struct cl_io *`. apps: those that are attached. tell: gets an event and
    a line for people."""

    def __init__(
        self,
        lock: threading.Lock,
        apps: Callable[[], tuple[App, ...]],
        config: MemoryConfig,
        tell: Callable[[str, str], None],
    ) -> None:
        self._lock, self._apps, self._config, self._tell = lock, apps, config, tell
        self.limits = bool(config.limit_mib or config.free_mib)
        self._io: Any = None
        self._told: list[tuple[str, str]] = []
        self._residents = Residents()
        self._memory = self._new()

    def _new(self) -> BatchMemory:
        return BatchMemory(
            read=self._read,
            room=self._room,
            resident=self._resident,
            allow=self._allow,
            deny=self._deny if self._config.stubborn != "show" else None,
            end=self._end if self._config.stubborn == "end" else None,
            tell=lambda event, text: self._told.append((event, text)),
            clock=time.monotonic,
            shrink_s=self._config.shrink_ms / 1000,
        )

    def begin(self, io: Any) -> None:
        """Applications of this `struct cl_io *` are looked at from now on; None: it is gone."""
        self._io = io
        self._residents.close()
        self._memory = self._new()

    def look(self) -> float:
        """Tell each what it may hold. Returns when to be called next, by the clock; inf: when one attaches."""
        if not self.limits:
            return math.inf
        with self._lock:
            if self._io is None:
                return math.inf
            due = self._memory.look()
            if math.isinf(due) and any(_is_batch(app) for app in self._apps()):
                due = time.monotonic() + _IDLE_LOOK_S
        told, self._told = self._told, []
        for event, text in told:
            self._tell(event, text)
        return due

    def stats_of(self, app: int) -> dict[str, Any] | None:
        """BatchMemory.stats_of. The lock is held."""
        return self._memory.stats_of(app)

    def stats(self) -> dict[str, int]:
        """BatchMemory.stats. The lock is held."""
        return self._memory.stats()

    # What BatchMemory asks. The lock is held.

    def _read(self) -> list[Holder]:
        return [holder for app in self._apps() if _is_batch(app) and (holder := self._holder(app)) is not None]

    def _holder(self, app: App) -> Holder | None:
        said = report.app_counters(self._io, app.id, app.name)
        if said is None or _NAMES[2] not in said["values"]:
            return None
        held, least, most = (min(said["values"].get(name, 0), _MOST) for name in _NAMES)
        assert app.claim is not None  # of batch class
        return Holder(app.id, app.name, app.claim.weight, held, min(least, most), most)

    def _resident(self, holder: Holder) -> int | None:
        pid = next((a.peer.pid for a in self._apps() if a.id == holder.id), 0)
        return self._residents.ask(holder.id, pid, holder.most)

    def _room(self) -> Room:
        arenas = sum(app.layout["total_bytes"] for app in self._apps())
        limit = self._config.limit_mib << 20 if self._config.limit_mib else None
        spare = available_bytes() - (self._config.free_mib << 20) if self._config.free_mib else None
        return Room(limit, arenas, spare)

    def _allow(self, app: int, limit: int) -> None:
        lib.cl_io_app_memory(self._io, app, max(limit, 1))  # 0 is no limit

    def _deny(self, app: int, denied: bool) -> None:
        lib.cl_io_app_deny(self._io, app, denied)  # one that has just gone has none

    def _end(self, app: int, times: int) -> None:
        """SIGTERM first, SIGKILL then, to the process of an application that is attached still."""
        pid = next((a.peer.pid for a in self._apps() if a.id == app), 0)
        if pid > 0 and pid != os.getpid():
            with contextlib.suppress(OSError):  # it has just ended, or is not ours to end
                os.kill(pid, signal.SIGTERM if times == 1 else signal.SIGKILL)


def _is_batch(app: App) -> bool:
    return app.claim is not None and app.claim.kind == "batch"


def available_bytes() -> int:
    """Memory of the machine that can be had without swapping (proc(5), MemAvailable)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (_PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return _MOST

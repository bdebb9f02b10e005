"""The applications of an iokernel: those that are attached, and those that a loop has not let go yet.

Admits (admission.py decides), manages and removes them. All is called in the control thread, but for `attached` and
`clear`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from ...runtime.errors import Refused, check
from ...runtime.peers import Peer
from .._native import ffi, lib
from . import report, traces
from .admission import Admission, Admitted, refused
from .apps import App, accept_message
from .cores import CoreAssigner
from .descriptors import Closer
from .kthreads import check_threads
from .manager import CoreManager
from .registry import Grant

STATES = {lib.CL_MEMBER_JOINED: "joined", lib.CL_MEMBER_READY: "ready", lib.CL_MEMBER_DRAINING: "draining"}
_RX_DROPPED = [name for name, _ in ffi.typeof("struct cl_io_app_stats").fields if name.startswith("rx_dropped_")]


class Applications:
    """The table. lock: held for every call that takes the `struct cl_io *`, and for every change of the table."""

    def __init__(
        self, lock: threading.Lock, admission: Admission, worker_cpus: Sequence[int], manager: CoreManager | None
    ) -> None:
        self._lock = lock
        self._admission = admission
        self._cores = CoreAssigner(worker_cpus)
        self._manager = manager
        self._io: Any = None
        self._apps: dict[int, App] = {}
        # A descriptor of each arena: freeing what an application has used of it takes a while, on a thread of its own.
        self._arenas: dict[int, int] = {}
        self._closer = Closer()
        self._leaving: dict[int, str] = {}  # of these some loop has not said yet that it has forgotten them
        self._states: dict[int, int] = {}  # of members of groups: CL_MEMBER_..., as they said last
        self._departed = {"apps": 0, "buffers_lost": 0, "rx_dropped": 0}

    def begin(self, io: Any) -> None:
        """Applications attach to this `struct cl_io *` from now on."""
        self._io = io

    def clear(self) -> None:
        """The `struct cl_io` is gone, and all of them with it. The lock is held; no control thread runs."""
        self._io = None
        for fd in self._arenas.values():
            self._closer.close(fd)
        self._arenas.clear()
        self._closer.end(wait=True)
        self._apps.clear()
        self._states.clear()
        self._leaving.clear()

    @property
    def attached(self) -> tuple[App, ...]:
        """In the order of their coming. Another thread holds the lock for it."""
        return tuple(self._apps.values())

    @property
    def leaving(self) -> list[str]:
        """Names of those that a loop has not let go."""
        return list(self._leaving.values())

    @property
    def departed(self) -> dict[str, int]:
        """{"apps": how many have left, "buffers_lost": by them, "rx_dropped": frames that were for them}."""
        return dict(self._departed)

    def by_id(self, app: int) -> App:
        """One that is attached. By the control thread."""
        return self._apps[app]

    def named(self, name: str) -> tuple[int, ...]:
        """Ids of the attached applications of that name, in the order of their coming."""
        return tuple(a.id for a in self._apps.values() if a.name == name)

    def state_of(self, app: App) -> str | None:
        """What a member of a group has said of itself; None: it is of none. Another thread holds the lock for it."""
        return None if app.member is None else STATES[self._states.get(app.id, lib.CL_MEMBER_JOINED)]

    def register(self, hello: Any, peer: Peer) -> Grant:
        """Register an application. Raises Refused with the reason if it may not have what it asks."""
        admitted = self._admission.admit(hello, peer, self.attached)
        grant, err = ffi.new("struct cl_io_app_grant *"), ffi.new("char[256]")
        with self._lock:
            rc = lib.cl_io_app_add(self._io, admitted.config, grant, err)
            if rc < 0 and grant.app:
                self._leaving[int(grant.app)] = admitted.name
            check(rc, f"register {admitted.name}", err)
            with contextlib.suppress(OSError):  # out of descriptors: then it takes a while here
                self._arenas[int(grant.app)] = os.dup(grant.arena_fd)
            app = self._apps[int(grant.app)] = self._made(admitted, grant, peer)
        if app.member is not None and hello.state in STATES and hello.state != lib.CL_MEMBER_JOINED:
            self._say(app.id, int(hello.state))
        fds = (int(grant.arena_fd), int(lib.cl_io_state_fd(self._io)), int(grant.doorbell_fd))
        return Grant(app.id, accept_message(self._io, app, grant.layout, self._admission.network), fds)

    def _made(self, admitted: Admitted, grant: Any, peer: Peer) -> App:
        config = admitted.config
        cpus, alone = self._place(int(grant.app), admitted)
        return App(
            id=int(grant.app),
            name=admitted.name,
            peer=peer,
            mac=bytes(ffi.buffer(config.mac)),
            ipv4=int(config.ipv4),
            loop=int(config.loop),
            cpus=cpus,
            may_spin=alone and admitted.settings.may_spin,
            claim=admitted.claim,
            note=admitted.note,
            layout=report.fields(grant.layout, "struct cl_arena_layout"),
            slot=int(grant.slot),
            since=time.monotonic(),
            member=int(grant.place) if config.members > 1 else None,
        )

    def _place(self, app: int, admitted: Admitted) -> tuple[tuple[int, ...], bool]:
        """CPUs of the kthreads, of managed ones where they begin, and whether nobody else gets these."""
        kthreads = int(admitted.config.layout.n_kthreads)
        if self._manager is not None:
            return self._manager.cores.begin(int(admitted.config.loop), kthreads), True
        return self._cores.take(app, kthreads, admitted.settings.cpus)

    def manage(self, app: int, pid: int, tids: Sequence[int], number: int) -> None:
        """Give cores to the kthreads of an application from now on. Raises Refused if these threads cannot be its."""
        known = self._apps[app]
        if known.claim is None:
            raise refused("cores are not managed here", "kthreads need not be named")
        if len(tids) != known.layout["n_kthreads"]:
            raise refused(f"{len(tids)} kthreads are named", f"{known.name} registered {known.layout['n_kthreads']}")
        check_threads(pid, tids, number)
        err = ffi.new("char[256]")
        with self._lock:
            rc = lib.cl_io_app_threads(self._io, app, pid, list(tids), len(tids), number, err)
            check(rc, f"manage the kthreads of {known.name}", err)

    def say_state(self, app: int, state: int, others: bool) -> tuple[int, int]:
        """A member is ready, or drains (Registry). Ready first: there is somebody at every moment."""
        if state not in (lib.CL_MEMBER_READY, lib.CL_MEMBER_DRAINING):
            raise refused(f"state {state} is none", "an application is ready (1), or drains (2)")
        known = self._apps[app]
        if known.member is None:
            return 0, 0
        self._say(app, state)
        # Those that are ready: of two that replace the others at the same time the later one stays.
        siblings = (a.id for a in self._apps.values() if a.name == known.name and a.peer.uid == known.peer.uid)
        replaced = [a for a in siblings if others and a != app and self._states.get(a) == lib.CL_MEMBER_READY]
        for other in replaced:
            self._say(other, lib.CL_MEMBER_DRAINING)
            with self._lock:
                check(lib.cl_io_app_ask_drain(self._io, other), f"ask application {other} to drain")
        with self._lock:
            delivered = report.app_stats(self._io, app, known.name)["rx_delivered"]
        return len(replaced), delivered

    def trace(self, name: str, pid: int, how: int, peer: Peer) -> tuple[int, dict[str, Any], int]:
        """The trace of one, for who may have it (Registry)."""
        app = traces.chosen(self.attached, name, pid)
        traces.check_may(peer, app.peer, name)
        if how > lib.CL_TRACE_FULL + 1:
            raise refused(f"way {how} to trace is none", "off, sampled or full")
        found = traces.opened(app.peer, name)
        if how and found.none:
            # ENOENT: it may be about to, so soon after it has attached, and who asks may wait.
            why = f"{name} cannot be traced: {found.why}"
            raise Refused(why, hint="start it with corelane run --trace sampled", errno=errno.ENOENT)
        if how:
            with self._lock:
                lib.cl_io_app_ask_trace(self._io, app.id, how)  # it is attached, or the connection has just ended
        answer = {"app": name, "pid": app.peer.pid, "segment": found.fd >= 0, "why": found.why}
        return app.id, answer, found.fd

    def _say(self, app: int, state: int) -> None:
        err = ffi.new("char[256]")
        with self._lock:
            check(lib.cl_io_app_state(self._io, app, state, err), f"note the state of application {app}", err)
            self._states[app] = state

    def unregister(self, app: int) -> None:
        """An application has gone: its cores and buffers are taken back."""
        with self._lock:
            left = self._apps.pop(app, None)
            self._states.pop(app, None)
            self._cores.give_back(app)
            self._leaving[app] = left.name if left else "?"
            err = ffi.new("char[256]")
            check(self._remove(app, err), f"remove application {app}", err)

    def sweep(self) -> bool:
        """Try again to remove those that leave; returns whether there are still some."""
        if not self._leaving:
            return False
        with self._lock:
            err = ffi.new("char[256]")
            for app in list(self._leaving):
                self._remove(app, err)
            return bool(self._leaving)

    def _remove(self, app: int, err: Any) -> int:
        """Have the loops forget an application. Negative: not all have; it stays among those that leave."""
        final = ffi.new("struct cl_io_app_final *")
        rc = int(lib.cl_io_app_remove(self._io, app, final, err))
        if rc == 0:
            del self._leaving[app]
            if app in self._arenas:
                self._closer.close(self._arenas.pop(app))
            self._departed["apps"] += 1
            self._departed["buffers_lost"] += int(final.buffers_lost)
            self._departed["rx_dropped"] += sum(int(getattr(final.stats, name)) for name in _RX_DROPPED)
        return rc

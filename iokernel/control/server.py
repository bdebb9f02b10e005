"""The control server: one Python thread, never on a polled core, that waits for what happens on the control socket.

One iokernel a path: a lock file beside the socket is held for as long as we run, so the kernel frees it even
after SIGKILL, and the socket file that was left behind is replaced.

Does not deal with: applications on other machines, encryption, changing a registration.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...runtime.errors import SystemLimit
from .area_requests import AreaRequests
from .connections import Connection, Connections
from .counters import Counters
from .descriptors import raise_limit
from .listener import Listener, listen
from .lock import lock, remove_stale
from .multiplexer import Multiplexer
from .policy_requests import PolicyRequests
from .registrations import Registrations
from .registry import Registry
from .requests import Requests
from .settings import Access
from .trace_requests import TraceRequests
from .turns import Turns
from .users import Users

if TYPE_CHECKING:
    from ..areas.areas import Areas

_SWEEP_S = 0.1
_LOOK_S = 1.0


class ControlServer:
    """Listens on `path` and speaks for `registry`. Construction takes the path; `serve` works until `stop`. The soft
    limit of open files of this process becomes the hard one.

    access: who may connect; users: how many connections each may have. Raises Refused if another iokernel holds the
    path, SystemLimit if it cannot be made.
    """

    def __init__(
        self,
        path: str,
        registry: Registry,
        access: Access | None = None,
        *,
        patience_s: float = 2.0,
        users: Users | None = None,
        areas: Areas | None = None,
    ) -> None:
        raise_limit()
        self.path = path
        self.counts = counts = Counters()
        self._registry = registry
        access = access or Access()
        self._stopping = False
        self._ending = threading.RLock()  # what `close` closes is not used by `stop`
        self._unfinished = False  # what `sweep` tries again
        self._next_look = 0.0
        try:
            self._lock_fd = lock(path)
        except OSError as error:
            raise SystemLimit(f"lock {path}.lock", str(error.strerror), "is its folder writable?") from error
        try:
            remove_stale(path)
            sock, strangers = listen(path, access.mode)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._multiplexer = Multiplexer()
        self._turns = Turns(self._multiplexer)
        self._strangers = strangers
        self._connections = Connections(self._multiplexer, strangers, counts, patience_s, self._ended)
        self._listener = Listener(
            sock, self._multiplexer, self._connections, strangers, access, users or Users(), self._turns, counts
        )
        self._registrations = Registrations(registry, self._connections, counts, self._listener.make_room)
        self._policies = PolicyRequests(registry, self._connections, counts)
        self._areas = AreaRequests(areas, self._connections, counts, self._turns.charge_elsewhere)
        traces = TraceRequests(registry, self._connections, counts, self._registrations)
        self._requests = Requests(
            registry, self._connections, counts, self._registrations, self._policies, self._areas, traces
        )
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for readable in (self._wake, self._policies.fd, *self._areas.jobs):
            self._multiplexer.register(readable)

    @property
    def last_error(self) -> str:
        """What failed last; "": nothing has."""
        return self.counts.last_error

    def serve(self) -> None:
        """Handle events until `stop`; then close everything. Registered applications see their iokernel go."""
        try:
            self._turns.end()
            while not self._stopping:
                for key, events in self._events():
                    self._step(functools.partial(self._dispatch, key, events), key.data)
                self._step(self._work)
                self._step(self._areas.step)
                self._step(self._connections.expire)
                self._step(self._listener.expire)
                self._step(self._sweep)
                self._step(self._look)
                self._step(self._registrations.let_end)
                self._turns.end()
        finally:
            self.close()

    def _events(self) -> Iterator[tuple[selectors.SelectorKey, int]]:
        """Wait for what happens. Where we wake up since a user has paid, what waits of his is part of this round."""
        came = False
        for event in self._multiplexer.select(self._timeout()):
            came = True
            yield event
        if not came and self._turns.due <= time.monotonic():
            self._turns.end()
            yield from self._multiplexer.select(0)

    def _step(self, what: Callable[[], None], connection: Connection | None = None) -> None:
        """One thing that is to be done. A fault of ours in it ends nothing but the connection that it was done for."""
        try:
            what()
        except Exception as error:
            self.counts.fault(error)
            if connection is not None:
                self._step(functools.partial(self._connections.close, connection))

    def _timeout(self) -> float | None:
        """How long there is nothing to do unless something happens."""
        if any(not self._turns.must_wait(connection.peer.uid) for connection in self._connections.ready):
            return 0.0
        due = min(
            *(self._connections.due, self._listener.due, self._areas.due, self._registrations.due),
            *(self._turns.due, self._next_look),
        )
        if self._unfinished:
            due = min(due, time.monotonic() + _SWEEP_S)
        return None if due == float("inf") else max(0.0, due - time.monotonic())

    def _dispatch(self, key: selectors.SelectorKey, events: int) -> None:
        connection: Connection | None = key.data
        if connection is None:
            self._dispatch_own(key.fd)
            return
        uid, begun = connection.peer.uid, time.thread_time()
        if key.fd == connection.pidfd:
            self.counts["process_ended"] += 1
            self._connections.close(connection)
        elif self._turns.must_wait(uid):
            return
        else:
            self._connections.handle(connection, events)
        self._turns.charge(uid, begun)

    def _dispatch_own(self, fd: int) -> None:
        """What is readable is none of a client's."""
        if fd == self._wake:
            os.eventfd_read(self._wake)
            self._stopping = True
        elif fd == self._policies.fd:
            self._policies.answer()
        elif fd in self._areas.jobs:
            for connection, result in self._areas.answers(fd):
                self._step(functools.partial(self._areas.answer, connection, result), connection)
        else:
            self._listener.accept()

    def _work(self) -> None:
        self._turns.take(self._connections.ready, self._take_message)

    def _take_message(self, connection: Connection) -> None:
        if connection not in self._connections:
            return  # closed in this turn: what it registered now would never be forgotten
        self._connections.ready.pop(connection, None)
        self._step(functools.partial(self._requests.take, connection), connection)
        self._connections.look(connection)

    def _ended(self, connection: Connection) -> None:
        self._areas.end(connection)
        self._registrations.end(connection)

    def _sweep(self) -> None:
        self._unfinished = self._registry.sweep()

    def _look(self) -> None:
        if (now := time.monotonic()) >= self._next_look:
            self._next_look = now + _LOOK_S  # should it fail
            self._next_look = self._registry.look()

    def look_soon(self) -> None:
        """Have the registry see to what happens by itself after this event, and not when it said. By our thread."""
        self._next_look = 0.0

    def stop(self) -> None:
        """Make `serve` return. From any thread or signal handler."""
        # Only the write tells: a flag set before it would let `serve` close the descriptor under us. It may have ended.
        with self._ending:
            if self._lock_fd >= 0:
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Give the path up. After `serve` has returned, or in its place."""
        with self._ending:
            if self._lock_fd >= 0:
                self._give_up()

    def _give_up(self) -> None:
        self._registry.end()
        for connection in self._connections:
            self._step(functools.partial(self._connections.close, connection))
        self._multiplexer.close()
        self._listener.close()
        self._strangers.end()
        os.close(self._wake)
        self._policies.close()
        self._areas.close()
        for leftover in (self.path, self.path + ".lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)
        os.close(self._lock_fd)  # last: until here nobody else could take the path
        self._lock_fd = -1

"""Applications that are registered over a connection: from HELLO to the end of the connection or of the process.

The end of a registered client's connection is the end of the application: `Registry.unregister` is called at once. So
is the end of the process that registered: a child of it may hold the connection for longer, and its thread ids are free
for others. Once a second the processes whose kthreads are managed are checked: whether one was killed and does not get
to end (lingering.py).
"""

from __future__ import annotations

import errno
import struct
import time
from collections.abc import Callable
from typing import TypeVar

from ...runtime.errors import CorelaneError
from ...runtime.peers import has_ended
from .._native import ffi, lib
from .connections import Connection, Connections, has_gone
from .counters import Counters
from .descriptors import OUT_OF_DESCRIPTORS
from .lingering import let_end
from .messages import BadMessage, message_of, text_of
from .promises import Ask
from .registry import Grant, Registry

_T = TypeVar("_T")
_LINGERS_S = 1.0


class Registrations:
    """make_room: have a descriptor more, but not from this connection; False if there is none to be had."""

    def __init__(
        self,
        registry: Registry,
        connections: Connections,
        counts: Counters,
        make_room: Callable[[Connection], bool],
    ) -> None:
        self._registry = registry
        self._connections = connections
        self._counts = counts
        self._make_room = make_room
        self._apps: dict[int, Connection] = {}
        self._next_look = 0.0

    def register(self, connection: Connection, message: bytes) -> None:
        """Answer HELLO. Raises BadMessage to refuse it."""
        if connection.app is not None:
            raise BadMessage("garbage", errno.EALREADY, "this connection is registered already")
        hello = ffi.cast("struct cl_control_hello *", ffi.from_buffer(message))
        self._forget_dead(text_of(hello.name))

        def register() -> Grant:
            self._connections.watch_process(connection)
            return self._registry.register(hello, connection.peer)

        grant = self._with_room(connection, register)
        connection.app = grant.app
        self._apps[grant.app] = connection
        # A fresh connection's send buffer is empty, so that these few hundred bytes go at once or never.
        if not self._connections.send_with(connection, grant.accept, grant.fds):
            self._counts["accept_lost"] += 1
            self._connections.close(connection)
            raise BadMessage("accept_lost", errno.EPIPE, "")
        self._counts["accepted"] += 1

    def _with_room(self, connection: Connection, call: Callable[[], _T]) -> _T:
        """Call it, again and again while descriptors are lacking and room can be made. BadMessage: it is refused."""
        while True:
            try:
                return call()
            except CorelaneError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._make_room(connection):
                    raise BadMessage("refused", error.errno or errno.EINVAL, str(error)) from error

    def _forget_dead(self, name: str) -> None:
        """An application that was killed and starts again may be faster than our look at its old connection's end."""
        for app in self._registry.named(name):
            connection = self._apps.get(app)
            if connection is not None and (has_gone(connection.sock) or has_ended(connection.pidfd)):
                self._connections.close(connection)

    def manage(self, connection: Connection, message: bytes) -> None:
        """Answer KTHREADS, of a registered application, once a registration. Raises BadMessage to refuse it."""
        said = ffi.cast("struct cl_control_kthreads *", ffi.from_buffer(message))
        if connection.app is None or connection.named:
            why = "are known already" if connection.named else "belong to a registered application"
            raise BadMessage("garbage", errno.EPROTO, f"kthreads {why}")
        if not 0 < said.n <= lib.CL_SHM_MAX_KTHREADS:
            raise BadMessage("garbage", errno.EPROTO, f"{said.n} kthreads are not 1 to {lib.CL_SHM_MAX_KTHREADS}")
        app, pid, tids, number = connection.app, connection.peer.pid, list(said.tids[0 : said.n]), int(said.signal)
        self._with_room(connection, lambda: self._registry.manage(app, pid, tids, number))
        connection.named = True
        self._counts["managed"] += 1
        self._connections.send(connection, message_of(lib.CL_CONTROL_KTHREADS_OK))

    def say_state(self, connection: Connection, message: bytes) -> None:
        """Answer STATE, of a registered application. Raises BadMessage to refuse it."""
        said = ffi.cast("struct cl_control_state *", ffi.from_buffer(message))
        if connection.app is None:
            raise BadMessage("garbage", errno.EPROTO, "a state belongs to a registered application")
        try:
            others, delivered = self._registry.say_state(connection.app, int(said.state), bool(said.others))
        except CorelaneError as error:
            raise BadMessage("refused", error.errno or errno.EINVAL, str(error)) from error
        self._counts["states"] += 1
        body = struct.pack("=IIQ", others, 0, delivered)  # of struct cl_control_state_ok
        self._connections.send(connection, message_of(lib.CL_CONTROL_STATE_OK, body))

    def promise(self, connection: Connection, message: bytes) -> None:
        """Answer PROMISE, of a registered application. Raises BadMessage to refuse it."""
        said = ffi.cast("struct cl_control_promise *", ffi.from_buffer(message)).ask
        if connection.app is None:
            raise BadMessage("garbage", errno.EPROTO, "a deadline belongs to a registered application")
        ask = Ask(int(said.work), int(said.done), int(said.within_us) / 1e6, text_of(said.counter))
        try:
            got = self._registry.promise(connection.app, ask)
        except CorelaneError as error:
            raise BadMessage("refused", error.errno or errno.EINVAL, str(error)) from error
        self._counts["promises"] += 1
        self._connections.send(connection, message_of(lib.CL_CONTROL_PROMISE_OK, got.packed()))

    def end(self, connection: Connection) -> None:
        """The connection has ended, and with it the application that it stands for, if it does."""
        if connection.app is None:
            return
        app, connection.app = connection.app, None
        del self._apps[app]
        try:
            self._registry.unregister(app)
        except CorelaneError as error:
            self._counts["unregister_failed"] += 1
            self._counts.last_error = str(error)

    def lives(self, app: int) -> bool:
        """Whether the process that registered it has not ended, as far as the kernel tells: its id is no other's."""
        connection = self._apps.get(app)
        return connection is not None and not has_ended(connection.pidfd)

    @property
    def due(self) -> float:
        """When `let_end` has something to do, on the monotonic clock; inf: never."""
        return self._next_look if any(c.named for c in self._apps.values()) else float("inf")

    def let_end(self) -> None:
        """Of processes whose kthreads are managed: those that were killed."""
        if (now := time.monotonic()) < self._next_look:
            return
        self._next_look = now + _LINGERS_S
        for connection in self._apps.values():
            if connection.named and connection.pidfd >= 0:
                self._counts["lingering"] += let_end(connection.peer.pid)

"""Requests of clients, by kind: every message is a fixed struct of runtime/control.h.

What does not fit the protocol is refused with a reason, counted, and the connection closed.
"""

from __future__ import annotations

import errno

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from .area_requests import AreaRequests
from .connections import Connection, Connections
from .counters import Counters
from .messages import BadMessage, message_of, take
from .policy_requests import PolicyRequests
from .registrations import Registrations
from .registry import Registry
from .trace_requests import TraceRequests

_MAX_UNREAD = 8 << 20  # bytes of answers that a user has not read
_LONG_ANSWERS = frozenset((lib.CL_CONTROL_STATS, lib.CL_CONTROL_MOVES, lib.CL_CONTROL_AREA))


class Requests:
    """Owned by the control thread."""

    def __init__(
        self,
        registry: Registry,
        connections: Connections,
        counts: Counters,
        registrations: Registrations,
        policies: PolicyRequests,
        areas: AreaRequests,
        traces: TraceRequests,
    ) -> None:
        self._registry = registry
        self._connections = connections
        self._counts = counts
        self._handlers = {
            lib.CL_CONTROL_HELLO: registrations.register,
            lib.CL_CONTROL_KTHREADS: registrations.manage,
            lib.CL_CONTROL_STATE: registrations.say_state,
            lib.CL_CONTROL_PROMISE: registrations.promise,
            lib.CL_CONTROL_POLICY: policies.ask,
            lib.CL_CONTROL_AREA: areas.ask,
            lib.CL_CONTROL_STATS: self._answer_stats,
            lib.CL_CONTROL_MOVES: self._answer_moves,
            lib.CL_CONTROL_TRACE: traces.ask,
        }

    def take(self, connection: Connection) -> None:
        """Handle the whole message that waits, or refuse it."""
        try:
            taken = take(connection.received)
            assert taken is not None  # it was whole
            kind, message = taken
            if connection.waits:
                raise BadMessage("greedy", errno.EBUSY, "ask again when this has been answered")
            if kind in _LONG_ANSWERS:
                self._check_read(connection)
            self._handlers[kind](connection, message)
        except BadMessage as bad:
            self._connections.refuse(connection, *bad.args)
        except Exception as error:  # a fault of ours must not end the applications of others
            text = f"the iokernel failed: {self._counts.fault(error)}"
            self._connections.refuse(connection, "internal_error", errno.EIO, text)

    def _check_read(self, connection: Connection) -> None:
        """Raises BadMessage for a client that asks on and on and does not read, and for all of such a user's."""
        uid = connection.peer.uid
        if len(connection.to_send) > lib.CL_CONTROL_MAX_REPLY:
            raise BadMessage("greedy", errno.EBUSY, "ask again when the answers have been read")
        if self._connections.unread_bytes(uid) > _MAX_UNREAD:
            text = f"user {uid} has {_MAX_UNREAD >> 20} MiB of answers that nobody has read: read them, then ask"
            raise BadMessage("greedy", errno.EBUSY, text)

    def _answer_stats(self, connection: Connection, _message: bytes) -> None:
        self._counts["stats"] += 1
        self._connections.send(connection, message_of(lib.CL_CONTROL_STATS_REPLY, self._registry.stats_json()))

    def _answer_moves(self, connection: Connection, message: bytes) -> None:
        said = ffi.cast("struct cl_control_moves *", ffi.from_buffer(message))
        try:
            body = self._registry.moves(int(said.loop), int(said.next))
        except CorelaneError as error:
            raise BadMessage("refused", error.errno or errno.EINVAL, str(error)) from error
        self._counts["moves"] += 1
        self._connections.send(connection, message_of(lib.CL_CONTROL_MOVES_OK, body))

"""The trace of an application, on a client's request: its segment, to be read, and how it is traced from now on."""

from __future__ import annotations

import errno
import json
import os

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from .connections import Connection, Connections
from .counters import Counters
from .messages import BadMessage, message_of, text_of
from .registrations import Registrations
from .registry import Registry


class TraceRequests:
    """Owned by the control thread."""

    def __init__(
        self, registry: Registry, connections: Connections, counts: Counters, registrations: Registrations
    ) -> None:
        self._registry = registry
        self._connections = connections
        self._counts = counts
        self._registrations = registrations

    def ask(self, connection: Connection, message: bytes) -> None:
        """Answer TRACE. Raises BadMessage to refuse it."""
        if connection.traced:
            raise BadMessage("greedy", errno.EBUSY, "a connection is given one trace: connect again for another")
        said = ffi.cast("struct cl_control_trace *", ffi.from_buffer(message))
        name, pid, how = text_of(said.name), int(said.pid), int(said.how)
        try:
            app, answer, fd = self._registry.trace(name, pid, how, connection.peer)
        except CorelaneError as error:
            counter = "not_allowed" if error.errno == errno.EACCES else "refused"
            raise BadMessage(counter, error.errno or errno.EINVAL, str(error)) from error
        try:
            if not self._registrations.lives(app):  # what was opened may be another process'
                raise BadMessage("refused", errno.ESRCH, f"the process of {name} has just ended")
            self._counts["traces"] += 1
            self._answer(connection, message_of(lib.CL_CONTROL_TRACE_OK, json.dumps(answer).encode()), fd)
        finally:
            if fd >= 0:
                os.close(fd)  # theirs is another

    def _answer(self, connection: Connection, message: bytes, fd: int) -> None:
        if fd < 0:
            self._connections.send(connection, message)
            return
        connection.traced = True
        if not self._connections.send_with(connection, message, [fd]):
            self._counts["trace_lost"] += 1
            self._connections.close(connection)

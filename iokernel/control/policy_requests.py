"""Another policy for cores, on a client's request. It is loaded by a thread of its own, which may take seconds."""

from __future__ import annotations

import errno
import os

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..policy import trial
from .connections import Connection, Connections
from .counters import Counters
from .messages import BadMessage, line_of, message_of, text_of
from .registry import Registry
from .worker import Worker


class PolicyRequests:
    """Owned by the control thread."""

    def __init__(self, registry: Registry, connections: Connections, counts: Counters) -> None:
        self._registry = registry
        self._connections = connections
        self._counts = counts
        self._loader = Worker()

    @property
    def fd(self) -> int:
        """Readable once a policy was loaded, until `answer`."""
        return self._loader.fd

    @property
    def busy(self) -> bool:
        """A policy is being loaded."""
        return self._loader.busy

    def ask(self, connection: Connection, message: bytes) -> None:
        """Start what POLICY asks for; `answer` says how it went. Raises BadMessage to refuse it."""
        said = ffi.cast("struct cl_control_policy *", ffi.from_buffer(message))
        spec, params = text_of(said.spec), text_of(said.params)
        uid = connection.peer.uid
        if not connection.peer.trusted:  # loading code is more than attaching
            who = "root" if os.geteuid() == 0 else f"root and user {os.geteuid()}"
            raise BadMessage("not_allowed", errno.EACCES, f"user {uid} may not choose the policy, only {who} may")
        if self._loader.busy:
            raise BadMessage("busy", errno.EBUSY, "another policy is being loaded: try again when it is")
        connection.waits = True
        self._loader.start(connection, lambda: self._registry.set_policy(spec, params))

    def answer(self) -> None:
        """Tell who asked whether its policy decides now."""
        connection, result = self._loader.result()
        connection.waits = False
        if connection not in self._connections:
            return  # it did not wait for the answer
        if isinstance(result, BaseException):
            code = result.errno if isinstance(result, CorelaneError) else 0
            text = str(result) if isinstance(result, CorelaneError) else f"{type(result).__name__}: {result}"
            self._connections.refuse(connection, "policy_refused", code or errno.EINVAL, text)
            return
        self._counts["policies"] += 1
        body = line_of(result).ljust(lib.CL_CONTROL_TEXT_BYTES, b"\0")
        self._connections.send(connection, message_of(lib.CL_CONTROL_POLICY_OK, body))

    def close(self) -> None:
        """End what is being loaded: a policy's module may take as long as it likes."""
        self._loader.close(trial.stop)

"""Storage areas, on a client's request. Threads of their own see to them (jobs.py), a user's one after the other.

Since the first one was given to a user who is not trusted, the areas are looked at every second, whoever has one:
Areas.look.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..areas.operations import WRITING, Busy
from .connections import Connection, Connections
from .counters import Counters
from .jobs import Jobs
from .messages import BadMessage, message_of, text_of

if TYPE_CHECKING:
    from ..areas.areas import Areas

_AT_ONCE = 4  # storage areas that are made at a time, and as many that are opened or deleted meanwhile
_LOOK_S = 1.0
_WAIT_S = 3.0  # for a storage area that is being made, when we stop


class AreaRequests:
    """Owned by the control thread. charge: Turns.charge_elsewhere."""

    def __init__(
        self, areas: Areas | None, connections: Connections, counts: Counters, charge: Callable[[int, float], None]
    ) -> None:
        self._areas = areas
        self._connections = connections
        self._counts = counts
        self._charge = charge
        self._quick = Jobs(Busy, _AT_ONCE)
        self._writers = Jobs(Busy, _AT_ONCE)  # making an area takes as long as writing it
        self._looks = False
        self._next_look = float("inf")  # while one is under way, too
        self.jobs = {jobs.fd: jobs for jobs in (self._quick, self._writers)}
        """By a descriptor that is readable once there are results (see `answers`)."""

    def ask(self, connection: Connection, message: bytes) -> None:
        """See to what AREA asks for, on another thread; `answer` says how it went. Raises BadMessage to refuse it."""
        areas = self._areas
        if areas is None:
            why = "this iokernel has no storage: set storage.directory or storage.device"
            raise BadMessage("refused", errno.ENODEV, why)
        said = ffi.cast("struct cl_control_area *", ffi.from_buffer(message))
        op, name, size, owner = int(said.op), text_of(said.name), int(said.bytes), text_of(said.owner)
        connection.waits = True

        def handle() -> tuple[dict[str, Any], int]:
            begun = time.thread_time()
            try:
                return areas.handle(op, name, size, owner, connection.peer)
            finally:
                self._charge(connection.peer.uid, begun)

        jobs = self._writers if op in WRITING else self._quick
        jobs.put(connection.peer.uid, connection, handle)

    def answers(self, fd: int) -> Iterator[tuple[Connection, Any]]:
        """What to `answer`, once a descriptor of `jobs` is readable: who asked, and the result."""
        for connection, result in self.jobs[fd].results():
            if connection is not None:
                yield connection, result
                continue
            self._next_look = time.monotonic() + _LOOK_S
            if isinstance(result, BaseException):
                self._counts.fault(result)

    def answer(self, connection: Connection, result: Any) -> None:
        """Tell who asked how it went."""
        connection.waits = False
        gone = connection not in self._connections
        if isinstance(result, BaseException):
            if not gone:
                code = result.errno if isinstance(result, CorelaneError) else getattr(result, "errno", None)
                self._connections.refuse(connection, "area_refused", code or errno.EIO, str(result))
            return
        answer, fd = result
        if fd < 0:
            if not gone:
                self._counts["areas"] += 1
                body = json.dumps(answer).encode()
                self._connections.send(connection, message_of(lib.CL_CONTROL_AREA_OK, body))
            return
        try:
            self._hand_over(connection, answer, fd, gone)
        finally:
            os.close(fd)  # theirs is another

    def _hand_over(self, connection: Connection, answer: dict[str, Any], fd: int, gone: bool) -> None:
        """Give a storage area's descriptor to a client. Its claim ends with the connection."""
        assert self._areas is not None  # it gave this one
        name = answer["area"]["name"]
        message = message_of(lib.CL_CONTROL_AREA_OK, json.dumps(answer).encode())
        if gone or not self._connections.send_with(connection, message, [fd]):
            self._counts["area_lost"] += 1
            self._areas.release(name)
            if not gone:
                self._connections.close(connection)
            return
        connection.areas.add(name)
        connection.deadline = float("inf")
        self._counts["areas_opened"] += 1
        if not connection.peer.trusted and not self._looks:
            self._looks = True
            self._next_look = time.monotonic() + _LOOK_S

    def end(self, connection: Connection) -> None:
        """The connection has ended: release what it has open, forget what it waits for."""
        if connection.waits:
            for jobs in self.jobs.values():
                jobs.forget(connection)
        for name in connection.areas:
            assert self._areas is not None  # it gave this one
            self._areas.release(name)

    @property
    def due(self) -> float:
        """When `step` has something to do, on the monotonic clock; inf: when a result has been taken."""
        return min(self._next_look, *(jobs.due for jobs in self.jobs.values()))

    def step(self) -> None:
        """Call again what is due."""
        if self._next_look <= time.monotonic():
            assert self._areas is not None  # somebody has one
            self._next_look = float("inf")
            self._quick.put(None, None, self._areas.look)
        for jobs in self.jobs.values():
            jobs.step()

    def close(self) -> None:
        """Wait a while for those that are under way: a stop is not held up by an area that is being written."""
        for jobs in self.jobs.values():
            jobs.close(_WAIT_S)

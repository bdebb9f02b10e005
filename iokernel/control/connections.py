"""The control connections that are open: what came in, what is to go out, and how long each has for it.

A client gets `patience_s` to finish a message that it began and to take an answer. One that asks for nothing may be
idle for longer; one that stands for an application or a storage area, for as long as it likes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ...runtime.peers import Peer, pidfd_of
from .counters import Counters
from .descriptors import Strangers
from .messages import refusal, send_with, whole
from .multiplexer import Multiplexer

_READ_BYTES = 4096
_IDLE_PATIENCES = 60  # for a client that asks for statistics now and then


@dataclass(slots=True, eq=False)
class Connection:
    sock: socket.socket
    peer: Peer
    deadline: float  # by which it must have finished the message or taken the answer; inf: nothing pending
    since: float  # it was accepted, or its last message handled
    received: bytearray = field(default_factory=bytearray)
    to_send: bytearray = field(default_factory=bytearray)
    app: int | None = None
    named: bool = False  # its kthreads are known
    pidfd: int = -1  # of the process that registered; -1: none did, or the kernel has none
    waits: bool = False  # for a policy that is being loaded, or a storage area; what else it sends is refused
    areas: set[str] = field(default_factory=set)  # storage areas that it has open
    traced: bool = False  # it was given a trace: no more of these wait in its socket, whether it reads or not
    closing: bool = False  # close once to_send is empty


def has_gone(sock: socket.socket) -> bool:
    """Whether the other end has closed, and sent nothing before. sock: does not block."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


class Connections:
    """Owned by the thread of `multiplexer`, which is told of each socket, with its Connection as data.

    strangers: reads from them and closes them. ended: called once with each connection that is closed, before the
    client sees the end.
    """

    def __init__(
        self,
        multiplexer: Multiplexer,
        strangers: Strangers,
        counts: Counters,
        patience_s: float,
        ended: Callable[[Connection], None],
    ) -> None:
        self.ready: dict[Connection, None] = {}
        """Those of which a whole message waits, in order of arrival."""
        self.patience_s = patience_s
        self._multiplexer = multiplexer
        self._strangers = strangers
        self._counts = counts
        self._ended = ended
        self._open: dict[int, Connection] = {}  # by descriptor
        self._of_user: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open.values()))

    def __contains__(self, connection: Connection) -> bool:
        """Whether it is open."""
        return connection.sock.fileno() in self._open

    def of_user(self, uid: int) -> int:
        """How many a user has open, or closed by us and not by the kernel yet."""
        return self._of_user[uid] + self._strangers.waiting(uid)

    def unread_bytes(self, uid: int) -> int:
        """Bytes of answers that a user has not read."""
        return sum(len(c.to_send) for c in self._open.values() if c.peer.uid == uid)

    def add(self, sock: socket.socket, peer: Peer) -> None:
        """One that was accepted. Its socket is ours from now on, and does not block. Raises OSError: out of
        descriptors."""
        now = time.monotonic()
        connection = Connection(sock, peer, now + self.patience_s, now)
        self._multiplexer.add(peer.uid, sock, selectors.EVENT_READ, connection)
        self._open[sock.fileno()] = connection
        self._of_user[peer.uid] += 1

    def watch_process(self, connection: Connection) -> None:
        """See the end of the client's process, whoever else holds the connection. Raises Refused if it has ended.

        Before anything of it is looked up: from here on no id of it is taken for another's.
        """
        if connection.pidfd < 0:
            connection.pidfd = pidfd_of(connection.sock, connection.peer.pid)
            if connection.pidfd >= 0:
                self._multiplexer.register(connection.pidfd, connection)

    def handle(self, connection: Connection, events: int) -> None:
        """Write and read what `events` of the selector say that can be."""
        if connection not in self:
            return  # closed by an earlier event of this batch
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if events & selectors.EVENT_READ and connection in self:
            self._read(connection)

    def _read(self, connection: Connection) -> None:
        if connection in self.ready:
            return  # what it sent before comes first
        try:
            data, descriptors = self._strangers.receive(connection.sock, connection.peer.uid, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", False
        if not data:
            self.close(connection)
            return
        if connection.closing:
            return  # refused already; it may still be sending
        if descriptors:
            self.refuse(connection, "descriptors", errno.EPERM, "an application sends no descriptors")
            return
        connection.received += data
        self.look(connection)

    def look(self, connection: Connection) -> None:
        """Whether another whole message waits. After something was received, or a message was handled."""
        if connection not in self or connection.closing:
            return
        if whole(connection.received):
            self.ready[connection] = None
        elif not connection.to_send:
            self._set_deadline(connection)

    def _set_deadline(self, connection: Connection) -> None:
        connection.deadline = time.monotonic() + self.patience_s if connection.received else float("inf")
        if connection.waits or connection.areas:
            connection.deadline = float("inf")
        elif connection.app is None and not connection.received:
            connection.deadline = time.monotonic() + _IDLE_PATIENCES * self.patience_s

    def send(self, connection: Connection, data: bytes) -> None:
        """Send an answer, now or as the client reads."""
        connection.to_send += data
        self._flush(connection)

    def send_with(self, connection: Connection, message: bytes, fds: Sequence[int]) -> bool:
        """Send an answer and descriptors, at once. False: it did not go, and the connection is of no use any more."""
        return not connection.to_send and send_with(connection.sock, message, fds)  # what is to send would go before it

    def refuse(self, connection: Connection, counter: str, code: int, text: str) -> None:
        """Say why not, with an errno, and close once that was read."""
        if connection.sock.fileno() < 0:
            return  # closed meanwhile
        self._counts[counter] += 1
        connection.closing = True
        connection.received.clear()
        self.ready.pop(connection, None)  # what it sent behind what is refused now
        self.send(connection, refusal(code, text))

    def _flush(self, connection: Connection) -> None:
        try:
            while connection.to_send:
                del connection.to_send[: connection.sock.send(connection.to_send)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close(connection)
            return
        if connection.to_send:
            connection.deadline = time.monotonic() + self.patience_s
            self._wait_for(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
            return
        self._wait_for(connection, selectors.EVENT_READ)
        if connection.closing:
            # Not closed at once: data of the client that we have not read would turn our answer into a reset.
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_WR)
            connection.deadline = time.monotonic() + self.patience_s
        elif connection.app is not None or connection.areas:
            connection.deadline = float("inf")

    def _wait_for(self, connection: Connection, events: int) -> None:
        self._multiplexer.modify(connection.peer.uid, connection.sock, events, connection)

    def close(self, connection: Connection) -> None:
        """End it, and what it stands for. Again: nothing."""
        fd = connection.sock.fileno()
        if self._open.pop(fd, None) is None:
            return
        self._of_user[connection.peer.uid] -= 1
        self.ready.pop(connection, None)
        self._multiplexer.remove(connection.peer.uid, connection.sock)
        if connection.pidfd >= 0:
            self._multiplexer.unregister(connection.pidfd)
            os.close(connection.pidfd)
            connection.pidfd = -1
        try:
            self._ended(connection)
        finally:
            # Last: who sees the end gives its kthreads back their class and CPUs, which the loop may change until then.
            self._strangers.close(connection.sock, connection.peer.uid)

    def close_gone(self, uid: int) -> bool:
        """Close those of a user whose other end has closed. False: there are none."""
        gone = [c for c in self._open.values() if c.peer.uid == uid and has_gone(c.sock)]
        for connection in gone:
            self.close(connection)
        return bool(gone)

    def close_idlest(self, but: Connection | None = None) -> bool:
        """Make room: close the one that has said nothing for longest, of the user with the most connections.

        Not one that stands for an application or a storage area, or waits for work of ours. False: there is none.
        """
        idle = [
            c
            for c in self._open.values()
            if c is not but and c.app is None and not c.areas and not c.waits and c not in self.ready
        ]
        if not idle:
            return False
        idlest = min(idle, key=lambda c: (-self._of_user[c.peer.uid], c.since))
        self._counts["made_room"] += 1
        self.close(idlest)
        return True

    @property
    def due(self) -> float:
        """When `expire` has something to do, on the monotonic clock; inf: never."""
        return min((c.deadline for c in self._open.values()), default=float("inf"))

    def expire(self) -> None:
        """Close those whose time is over."""
        now = time.monotonic()
        for connection in [c for c in self._open.values() if c.deadline <= now]:
            self._counts["timed_out"] += 1
            self.close(connection)

"""The listening socket: who may connect, and what is done when there is no room for one more.

Connections have a budget by user (users.py), and taking them is charged (turns.py). Whoever may not connect is told
why, and kept for a moment so that he can read it. Where all connections or descriptors are taken, one of those is
closed, or an idle one; where there is none the listener pauses, and who wants in waits in the kernel's queue. It pauses
for a moment behind users who have had their share, too.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
import time
from collections import Counter, deque

from ...runtime.errors import SystemLimit
from ...runtime.peers import Peer, peer_of
from .callers import Callers
from .connections import Connection, Connections
from .counters import Counters
from .descriptors import OUT_OF_DESCRIPTORS, Strangers
from .messages import refusal
from .multiplexer import Multiplexer
from .settings import Access
from .turns import STRANGERS, Turns
from .users import Users

_log = logging.getLogger("corelane.iokernel")

_MAX_CONNECTIONS = 1024
# Connections that wait to be taken. The last one waits for all before it, also for those long gone: 12 ms. With fewer,
# one process that connects again and again fills the queue in a pause or a time slice, and others find it full.
_BACKLOG = 2048
_AT_ONCE = 64  # living ones that are taken before others are served,
_WITH_GONE = 512  # and all, with those that have closed again: a millisecond or two
_MAX_REFUSED = 64  # that are kept for a moment, so that their users can read why
_LOOK_S = 0.05  # from one look at which connections of a user are left to the next
_PAUSE_S = 0.1  # after the system had no descriptor for a connection
_GREEDY_PAUSE_S = 0.005  # after connections of a user who has had more than his share, and nobody behind them
_NO_ROOM = (*OUT_OF_DESCRIPTORS, errno.ENOBUFS, errno.ENOMEM)


def listen(path: str, mode: int) -> tuple[socket.socket, Strangers]:
    """A socket that listens on a path, and what keeps its clients' descriptors off our thread. Raises SystemLimit.

    mode: permission bits of its file.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.bind(path)
        os.chmod(path, mode)  # this and the next one before listen: nobody can have connected yet
        strangers = Strangers(sock)
        sock.listen(_BACKLOG)  # whoever is turned away stands in this queue, too
    except OSError as error:
        sock.close()
        why = "the path is too long" if "too long" in str(error) else str(error.strerror)
        raise SystemLimit(f"listen on {path}", why, "choose another socket path") from error
    return sock, strangers


def most_connections() -> int:
    """Half of the descriptors is kept for what applications are given."""
    return min(_MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


class Listener:
    """Takes connections of `sock` (see `listen`), which is its own from now on. Owned by the control thread."""

    def __init__(
        self,
        sock: socket.socket,
        multiplexer: Multiplexer,
        connections: Connections,
        strangers: Strangers,
        access: Access,
        users: Users,
        turns: Turns,
        counts: Counters,
    ) -> None:
        self._sock = sock
        self._multiplexer = multiplexer
        self._connections = connections
        self._callers = Callers(sock.fileno(), drop=strangers.refused)
        self._strangers = strangers
        self._uids = frozenset((0, os.geteuid(), *access.uids))
        self._gids = frozenset(access.gids)
        self._users = users
        self._turns = turns
        self._counts = counts
        self._turned_away: deque[tuple[float, socket.socket, int]] = deque()  # until when they are kept; whose they are
        self._next_look: dict[int, float] = {}  # by user
        self._again = float("inf")  # when the pause ends
        self._paused = False  # since the last connection that was taken; that was said
        multiplexer.register(sock)

    def accept(self) -> None:
        """Take some of those that wait. After those of a user who has had his share the next ones wait for a moment.

        But not while somebody stands behind them: that may be another user, and who does not wait for room in the
        queue (a socket with a time-out) finds it full.
        """
        begun, users, living, error = time.thread_time(), Counter[int](), 0, 0
        while living < _AT_ONCE and users.total() < _WITH_GONE and not error:
            came = self._callers.take(_WITH_GONE)
            users += came.users
            error = came.error
            if came.sock is not None:
                living += 1
                self._take(came.sock)
        if users:
            self._paused = False
            self._counts["connections"] += users.total()
        if error and error != errno.EAGAIN:
            self._failed(error)
        accounts = Counter[int]()
        for uid, n in users.items():
            accounts[self._account(uid)] += n
        self._turns.charge_all(accounts, begun)
        if error == errno.EAGAIN and any(self._turns.must_wait(account) for account in accounts):
            self._pause(_GREEDY_PAUSE_S)

    def _account(self, uid: int) -> int:
        """Whom a connection is charged to. Of a user who may attach by a group it is known once he has one."""
        return uid if uid in self._uids or self._connections.of_user(uid) else STRANGERS

    def _failed(self, error: int) -> None:
        self._counts["accept_failed"] += 1
        if error in _NO_ROOM and not self.make_room():
            self._run_out(error)

    def _take(self, sock: socket.socket) -> None:
        try:
            peer = peer_of(sock)
        except OSError:  # it has gone
            self._strangers.close(sock, STRANGERS)
            return
        self._admit(sock, peer)

    def _admit(self, sock: socket.socket, peer: Peer) -> None:
        uid, budget = peer.uid, self._users.budget(peer)
        if not peer.among(self._uids, self._gids):
            text = f"user {uid} may not attach: allow it in iokernel.users or iokernel.groups"
            self._turn_away(sock, STRANGERS, "not_allowed", errno.EACCES, text)
        elif budget is not None and self._connections.of_user(uid) >= budget.connections and not self._missed(uid):
            text = f"user {uid} has {budget.connections} connections open already: close some"
            self._turn_away(sock, uid, "too_many", errno.EMFILE, f"{text}, or raise users.{uid}.connections")
        elif len(self._connections) >= most_connections() and not self._connections.close_idlest():
            text = f"{len(self._connections)} connections are open already"
            self._turn_away(sock, uid, "too_many", errno.EMFILE, text)
        else:
            try:
                self._connections.add(sock, peer)
            except OSError as error:
                self._turn_away(sock, uid, "too_many", errno.EMFILE, f"the iokernel is at its limit: {error.strerror}")

    def _missed(self, uid: int) -> bool:
        """Whether connections of his have ended that nobody has looked at, since he is held back. They are closed now;
        it is not looked again for each one that he is refused."""
        now = time.monotonic()
        if now < self._next_look.get(uid, 0.0):
            return False
        self._next_look[uid] = now + _LOOK_S
        return self._connections.close_gone(uid)

    def _turn_away(self, sock: socket.socket, account: int, counter: str, code: int, text: str) -> None:
        """Say why, and close soon. What it sends is not read."""
        self._counts[counter] += 1
        with contextlib.suppress(OSError):  # it has gone, or cannot be told
            sock.send(refusal(code, text))
            sock.shutdown(socket.SHUT_WR)
        self._turned_away.append((time.monotonic() + self._connections.patience_s, sock, account))

    def make_room(self, but: Connection | None = None) -> bool:
        """Have a descriptor more: close one that was told why it may not connect, or an idle one. False: there is
        none."""
        if self._turned_away:
            self._close_oldest()
            return True
        return self._connections.close_idlest(but)

    def _close_oldest(self) -> None:
        _, sock, account = self._turned_away.popleft()
        self._strangers.close(sock, account)

    def _run_out(self, error: int) -> None:
        """Of descriptors, say."""
        text = f"no connection can be taken: {os.strerror(error)} (raise the limit of open files, ulimit -n)"
        self._counts.last_error = text
        if not self._paused:
            _log.warning("%s", text)
        self._paused = True
        self._pause(_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        """Whoever wants in waits in the kernel's queue, and we do not spin beside it."""
        self._multiplexer.unregister(self._sock)
        self._again = time.monotonic() + seconds

    @property
    def due(self) -> float:
        """When `expire` has something to do, on the monotonic clock; inf: never."""
        return min(self._again, self._turned_away[0][0] if self._turned_away else float("inf"))

    def expire(self) -> None:
        """Close those that had time to read why, and end a pause."""
        now = time.monotonic()
        while self._turned_away and (self._turned_away[0][0] <= now or len(self._turned_away) > _MAX_REFUSED):
            self._close_oldest()
        if self._again <= now:
            self._again = float("inf")
            self._multiplexer.register(self._sock)

    def close(self) -> None:
        """No more connections. After the selector."""
        while self._turned_away:
            self._close_oldest()
        self._strangers.close(self._sock, STRANGERS)  # with those in its queue, and what they have sent

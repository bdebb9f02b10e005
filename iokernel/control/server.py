"""The control socket: who listens on it, who may speak to it, and what is done with what they say.

Runs in one Python thread, never on a polled core; policies, whose loading may take seconds, are loaded by another.
Every message of a client is a fixed struct of runtime/control.h. A client gets `patience_s` to finish a message that it
began and to take an answer; what does not fit the protocol is refused with a reason, counted, and the connection
closed. A turn handles one message of a connection, registrations before queries, and those of one user for _TURN_S:
who asks on and on delays himself. A user who is not trusted has _SHARE of this thread's time, which it may take on a
core of the applications. Connections have a budget by user (users.py); where there is none left for somebody new, an
idle one is closed. Storage areas are seen to by threads of their own (jobs.py).

The end of a registered client's connection is the end of the application: `Registry.unregister` is called at once. So
is the end of the process that registered: a child of it may hold the connection for longer, and its thread ids are free
for others. Once a second the processes whose kthreads are managed are checked: whether one was killed and does not get
to end (lingering.py).

One iokernel a path: a lock file beside the socket is held for as long as we run, so the kernel frees it even
after SIGKILL, and the socket file that was left behind is replaced.

Does not deal with: applications on other machines, encryption, changing a registration.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import logging
import os
import resource
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ...runtime.errors import CorelaneError, SystemLimit
from ...runtime.peers import Peer, has_ended, peer_of, pidfd_of
from .._native import ffi, lib
from ..areas.operations import WRITING, Busy
from ..policy import trial as policy_trial
from .descriptors import Strangers
from .jobs import Jobs
from .lingering import let_end
from .lock import lock, remove_stale
from .messages import BadMessage, is_query, line_of, message_of, refusal, send_with, take, text_of, whole
from .settings import Access
from .users import Users
from .worker import Worker

if TYPE_CHECKING:
    from ..areas.areas import Areas

_log = logging.getLogger("corelane.iokernel")

_MAX_CONNECTIONS = 1024
_BACKLOG = 512  # connections that wait to be taken: the last one waits for all before it, also for those long gone
_MAX_REFUSED = 64  # that are kept for a moment, so that their users can read why
_ACCEPT_PAUSE_S = 0.1  # after the system had no descriptor for a connection
_MAX_UNREAD = 8 << 20  # bytes of answers that a user has not read
_TURN_S = 0.005  # that a user's messages may take in a turn, the last one's end excepted
_SHARE = 0.25  # of the control thread's time that a user has in the long run who is not trusted,
_BURST_S = 0.02  # and how much of it at once
_WAIT_MOST_S = 0.5  # for one large storage area, say
_PAUSE_S = 0.002  # between two looks at what such users have to wait for
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_NO_ROOM = (*_NO_DESCRIPTOR, errno.ENOBUFS, errno.ENOMEM)
_SWEEP_S = 0.1
_LINGERS_S = 1.0
_AREA_WAIT_S = 3.0  # for a storage area that is being made, when we stop
_AREAS_AT_ONCE = 4  # storage areas that are made at a time, and as many that are opened or deleted meanwhile


@dataclass(frozen=True, slots=True)
class Grant:
    """A registration: its id, the ACCEPT message, and the descriptors that go with it (arena, state, doorbell)."""

    app: int
    accept: bytes
    fds: tuple[int, int, int]


class Registry(Protocol):
    """What the server needs of an iokernel. Called in the server's thread."""

    def register(self, hello: Any, peer: Peer) -> Grant:
        """Register the application of a `struct cl_control_hello`. Raises CorelaneError to refuse it."""

    def unregister(self, app: int) -> None:
        """Its connection has ended."""

    def manage(self, app: int, pid: int, tids: Sequence[int], number: int) -> None:
        """Its kthreads are the threads `tids` of process `pid`; signal `number` interrupts one. Or CorelaneError."""

    def set_policy(self, spec: str, params: str) -> str:
        """Have another policy decide; "name=value" settings, separated by blanks. Returns what decides now, in a line.

        Raises CorelaneError to refuse it. Called in a thread of its own, since it may compile.
        """

    def end(self) -> None:
        """The server gives up: connections end next, through no fault of their applications."""

    def sweep(self) -> bool:
        """Try again what `unregister` could not finish; returns whether something is left for the next time."""

    def find(self, name: str) -> int | None:
        """Id of the registered application of that name."""

    def stats_json(self) -> bytes:
        """Statistics as a JSON text."""

    def moves(self, loop: int, first: int) -> bytes:
        """The body of MOVES_OK: entries of a loop's log from number `first` on. Or CorelaneError."""


@dataclass(slots=True, eq=False)
class _Connection:
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
    closing: bool = False  # close once to_send is empty


def _has_gone(sock: socket.socket) -> bool:
    """Whether the other end has closed, and sent nothing before. sock: does not block."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


def _most_connections() -> int:
    """Half of the descriptors is kept for what applications are given."""
    return min(_MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


class ControlServer:
    """Listens on `path` and speaks for `registry`. Construction takes the path; `serve` works until `stop`.

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
        self.path = path
        self.counts: Counter[str] = Counter()
        self.last_error = ""
        self._registry = registry
        access = access or Access()
        self._uids = frozenset((0, os.geteuid(), *access.uids))
        self._gids = frozenset(access.gids)
        self._users = users or Users()
        self._patience_s = patience_s
        self._connections: dict[int, _Connection] = {}
        self._apps: dict[int, _Connection] = {}
        self._stopping = False
        self._ending = threading.RLock()  # what `close` closes is not used by `stop`
        self._unfinished = False
        self._next_look = 0.0
        self._ready: dict[_Connection, None] = {}  # those of which a whole message waits, in order of arrival
        self._of_user: Counter[int] = Counter()  # connections
        self._paid: dict[int, float] = {}  # when a user will have paid for what was done for him, with his share
        self._held_back = False  # something waits for that, in this turn
        self._served = False  # and something else did not have to
        self._turned_away: deque[tuple[float, socket.socket]] = deque()  # until when they are kept
        self._accept_again = float("inf")
        try:
            self._lock_fd = lock(path)
        except OSError as error:
            raise SystemLimit(f"lock {path}.lock", str(error.strerror), "is its folder writable?") from error
        try:
            remove_stale(path)
            self._listener = self._listen(access.mode)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._strangers = Strangers(self._listener)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._loader = Worker()  # of policies
        self._areas = areas
        self._area_jobs = Jobs(Busy, _AREAS_AT_ONCE)
        self._area_writers = Jobs(Busy, _AREAS_AT_ONCE)  # making an area takes as long as writing it
        self._selector = selectors.DefaultSelector()
        for readable in (self._listener, self._wake, self._loader.fd, self._area_jobs.fd, self._area_writers.fd):
            self._selector.register(readable, selectors.EVENT_READ)

    def _listen(self, mode: int) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.bind(self.path)
            os.chmod(self.path, mode)  # before listen: nobody can have connected yet
            sock.listen(_BACKLOG)  # whoever is turned away stands in this queue, too
        except OSError as error:
            sock.close()
            why = "the path is too long" if "too long" in str(error) else str(error.strerror)
            raise SystemLimit(f"listen on {self.path}", why, "choose another socket path") from error
        return sock

    def serve(self) -> None:
        """Handle events until `stop`; then close everything. Registered applications see their iokernel go."""
        try:
            while not self._stopping:
                for key, events in self._selector.select(self._timeout()):
                    self._step(functools.partial(self._dispatch, key, events), key.data)
                self._step(self._work)
                self._step(self._area_jobs.step)
                self._step(self._expire)
                self._step(self._sweep)
                self._step(self._let_end)
                if self._held_back and not self._served:
                    self._rest()
                self._held_back = self._served = False
        finally:
            self.close()

    def _step(self, what: Callable[[], None], connection: _Connection | None = None) -> None:
        """One thing that is to be done. A fault of ours in it ends nothing but the connection that it was done for."""
        try:
            what()
        except Exception as error:
            self.counts["failed"] += 1
            self.last_error = f"{type(error).__name__}: {error}"
            _log.exception("a step of the control thread failed; it goes on")
            if connection is not None:
                self._close(connection)

    def _dispatch(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fd == self._wake:
            os.eventfd_read(self._wake)
            self._stopping = True
        elif key.fd == self._loader.fd:
            self._answer_policy()
        elif key.fd == self._area_jobs.fd:
            self._answer_areas(self._area_jobs)
        elif key.fd == self._area_writers.fd:
            self._answer_areas(self._area_writers)
        elif key.fd == key.data.pidfd:
            self.counts["process_ended"] += 1
            self._close(key.data)
        elif self._must_wait(key.data.peer):
            return
        else:
            begun = time.thread_time()
            self._handle(key.data, events)
            self._charge(key.data.peer, begun)
        self._served = True

    def _rest(self) -> None:
        """All that there is must wait, and is told to us again at once: do not spin beside it."""
        time.sleep(_PAUSE_S)

    def _charge(self, peer: Peer, begun: float) -> None:
        """What the calling thread has done since it had used so much CPU time was done for a user."""
        if not peer.trusted:
            now = time.monotonic()
            paid = max(self._paid.get(peer.uid, now), now) + (time.thread_time() - begun) / _SHARE
            self._paid[peer.uid] = min(paid, now + _WAIT_MOST_S)

    def _must_wait(self, peer: Peer) -> bool:
        """Whether a user has had more than his share of our time. What he sends stays where it is for a while."""
        wait = self._paid.get(peer.uid, 0.0) > time.monotonic() + _BURST_S / _SHARE
        self._held_back |= wait
        return wait

    def _sweep(self) -> None:
        self._unfinished = self._registry.sweep()

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
        for connection in list(self._connections.values()):
            self._close(connection)
        while self._turned_away:
            self._strangers.close(self._turned_away.popleft()[1])
        self._strangers.end()
        self._selector.close()
        self._listener.close()
        os.close(self._wake)
        self._loader.close(policy_trial.stop)  # a policy's module may take as long as it likes
        for jobs in (self._area_jobs, self._area_writers):
            jobs.close(_AREA_WAIT_S)  # to make an area takes as long as writing it: a stop is not held up
        for leftover in (self.path, self.path + ".lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)
        os.close(self._lock_fd)  # last: until here nobody else could take the path
        self._lock_fd = -1

    def _timeout(self) -> float | None:
        if self._ready:
            return 0.0
        deadline = min((c.deadline for c in self._connections.values()), default=float("inf"))
        deadline = min(deadline, self._accept_again, self._area_jobs.due)
        if self._turned_away:
            deadline = min(deadline, self._turned_away[0][0])
        if self._unfinished:
            deadline = min(deadline, time.monotonic() + _SWEEP_S)
        if any(c.named for c in self._connections.values()):
            deadline = min(deadline, self._next_look)
        return None if deadline == float("inf") else max(0.0, deadline - time.monotonic())

    def _expire(self) -> None:
        now = time.monotonic()
        for connection in [c for c in self._connections.values() if c.deadline <= now]:
            self.counts["timed_out"] += 1
            self._close(connection)
        while self._turned_away and (self._turned_away[0][0] <= now or len(self._turned_away) > _MAX_REFUSED):
            self._strangers.close(self._turned_away.popleft()[1])
        if self._accept_again <= now:
            self._accept_again = float("inf")
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _let_end(self) -> None:
        """Of processes whose kthreads are managed: those that were killed."""
        if (now := time.monotonic()) < self._next_look:
            return
        self._next_look = now + _LINGERS_S
        for connection in self._connections.values():
            if connection.named and connection.pidfd >= 0:
                self.counts["lingering"] += let_end(connection.peer.pid)

    def _accept(self) -> None:
        for _ in range(64):
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self.counts["accept_failed"] += 1
                if error.errno in _NO_ROOM and not (self._close_refused() or self._close_idlest()):
                    self._pause(error)
                return
            sock.setblocking(False)
            self.counts["connections"] += 1
            if _has_gone(sock):  # who connects and closes again and again holds up those behind him: be quick
                self._strangers.close(sock)
                continue
            try:
                peer = peer_of(sock)
            except OSError:  # it has gone
                self._strangers.close(sock)
                continue
            uid, budget = peer.uid, self._users.budget(peer)
            if not peer.among(self._uids, self._gids):
                text = f"user {uid} may not attach: allow it in iokernel.users or iokernel.groups"
                self._turn_away(sock, "not_allowed", errno.EACCES, text)
            elif budget is not None and self._of_user[uid] >= budget.connections:
                text = f"user {uid} has {budget.connections} connections open already: close some"
                self._turn_away(sock, "too_many", errno.EMFILE, f"{text}, or raise users.{uid}.connections")
            elif len(self._connections) >= _most_connections() and not self._close_idlest():
                text = f"{len(self._connections)} connections are open already"
                self._turn_away(sock, "too_many", errno.EMFILE, text)
            else:
                now = time.monotonic()
                connection = _Connection(sock, peer, now + self._patience_s, now)
                self._connections[sock.fileno()] = connection
                self._of_user[uid] += 1
                self._selector.register(sock, selectors.EVENT_READ, connection)

    def _close_refused(self) -> bool:
        """Make room: close one that was told why it may not connect, if there is one."""
        if self._turned_away:
            self._strangers.close(self._turned_away.popleft()[1])
            return True
        return False

    def _close_idlest(self, but: _Connection | None = None) -> bool:
        """Make room: close the one that has said nothing for longest, of the user with the most connections.

        Not one that stands for an application or a storage area, or waits for work of ours. False: there is none.
        """
        idle = [
            c
            for c in self._connections.values()
            if c is not but and c.app is None and not c.areas and not c.waits and c not in self._ready
        ]
        if not idle:
            return False
        idlest = min(idle, key=lambda c: (-self._of_user[c.peer.uid], c.since))
        self.counts["made_room"] += 1
        self._close(idlest)
        return True

    def _pause(self, error: OSError) -> None:
        """Out of descriptors: whoever wants in waits in the kernel's queue, and we do not spin beside it."""
        self.last_error = f"no connection can be taken: {error.strerror} (raise the limit of open files, ulimit -n)"
        self._selector.unregister(self._listener)
        self._accept_again = time.monotonic() + _ACCEPT_PAUSE_S

    def _turn_away(self, sock: socket.socket, counter: str, code: int, text: str) -> None:
        """Say why, and close soon. What it sends is not read."""
        self.counts[counter] += 1
        with contextlib.suppress(OSError):  # it has gone, or cannot be told
            sock.send(refusal(code, text))
            sock.shutdown(socket.SHUT_WR)
        self._turned_away.append((time.monotonic() + self._patience_s, sock))

    def _handle(self, connection: _Connection, events: int) -> None:
        if connection.sock.fileno() not in self._connections:
            return  # closed by an earlier event of this batch
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if events & selectors.EVENT_READ and connection.sock.fileno() in self._connections:
            self._read(connection)

    def _read(self, connection: _Connection) -> None:
        if connection in self._ready:
            return  # what it sent before comes first
        try:
            data, descriptors = self._strangers.receive(connection.sock, 4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", False
        if not data:
            self._close(connection)
            return
        if connection.closing:
            return  # refused already; it may still be sending
        if descriptors:
            self._refuse(connection, "descriptors", errno.EPERM, "an application sends no descriptors")
            return
        connection.received += data
        if whole(connection.received):
            self._ready[connection] = None
        self._set_deadline(connection)

    def _set_deadline(self, connection: _Connection) -> None:
        if connection.to_send or connection in self._ready:
            return
        connection.deadline = time.monotonic() + self._patience_s if connection.received else float("inf")
        if connection.waits or connection.areas:
            connection.deadline = float("inf")
        elif connection.app is None and not connection.received and not connection.closing:
            connection.deadline = time.monotonic() + 60 * self._patience_s  # idle, asks for statistics now and then

    def _work(self) -> None:
        """Handle one message of each connection that has one, of each user within a budget: registrations first, and
        first those of processes that ask for little."""
        spent: Counter[int] = Counter()  # ns, by user
        asks = Counter(c.peer.pid for c in self._ready)
        turn = sorted(self._ready, key=lambda c: (is_query(c.received), asks[c.peer.pid]))
        for connection in turn:
            uid = connection.peer.uid
            if spent[uid] > _TURN_S * 1e9 or self._must_wait(connection.peer):
                continue  # at a later turn, before those that had theirs
            begun, charged_from = time.monotonic_ns(), time.thread_time()
            self._ready.pop(connection, None)
            self._step(functools.partial(self._take_message, connection), connection)
            ended = time.monotonic_ns()
            spent[uid] += ended - begun
            self._charge(connection.peer, charged_from)
            connection.since = ended / 1e9
            if connection.sock.fileno() in self._connections and not connection.closing:
                if whole(connection.received):
                    self._ready[connection] = None
                self._set_deadline(connection)

    def _take_message(self, connection: _Connection) -> None:
        """Handle one whole message, or refuse it."""
        try:
            taken = take(connection.received)
            assert taken is not None  # it was whole
            kind, message = taken
            if connection.waits:
                raise BadMessage("greedy", errno.EBUSY, "ask again when this has been answered")
            handle = {
                lib.CL_CONTROL_HELLO: self._register,
                lib.CL_CONTROL_STATS: self._answer_stats,
                lib.CL_CONTROL_KTHREADS: self._manage,
                lib.CL_CONTROL_POLICY: self._load_policy,
                lib.CL_CONTROL_AREA: self._ask_area,
                lib.CL_CONTROL_MOVES: self._answer_moves,
            }[kind]
            handle(connection, message)
        except BadMessage as bad:
            self._refuse(connection, *bad.args)
        except Exception as error:  # a fault of ours must not end the applications of others
            self.last_error = f"{type(error).__name__}: {error}"
            self._refuse(connection, "internal_error", errno.EIO, f"the iokernel failed: {self.last_error}")

    def _has_read(self, connection: _Connection) -> None:
        """Raises BadMessage for a client that asks on and on and does not read, and for all of such a user's."""
        uid = connection.peer.uid
        if len(connection.to_send) > lib.CL_CONTROL_MAX_REPLY:
            raise BadMessage("greedy", errno.EBUSY, "ask again when the answers have been read")
        if sum(len(c.to_send) for c in self._connections.values() if c.peer.uid == uid) > _MAX_UNREAD:
            text = f"user {uid} has {_MAX_UNREAD >> 20} MiB of answers that nobody has read: read them, then ask"
            raise BadMessage("greedy", errno.EBUSY, text)

    def _answer_stats(self, connection: _Connection, _message: bytes) -> None:
        self._has_read(connection)
        self.counts["stats"] += 1
        self._send(connection, message_of(lib.CL_CONTROL_STATS_REPLY, self._registry.stats_json()))

    def _answer_moves(self, connection: _Connection, message: bytes) -> None:
        self._has_read(connection)
        said = ffi.cast("struct cl_control_moves *", ffi.from_buffer(message))
        try:
            body = self._registry.moves(int(said.loop), int(said.next))
        except CorelaneError as error:
            raise BadMessage("refused", error.errno or errno.EINVAL, str(error)) from error
        self.counts["moves"] += 1
        self._send(connection, message_of(lib.CL_CONTROL_MOVES_OK, body))

    def _register(self, connection: _Connection, message: bytes) -> None:
        if connection.app is not None:
            raise BadMessage("garbage", errno.EALREADY, "this connection is registered already")
        hello = ffi.cast("struct cl_control_hello *", ffi.from_buffer(message))
        self._forget_dead(text_of(hello.name))
        while True:
            try:
                self._watch_process(connection)
                grant = self._registry.register(hello, connection.peer)
                break
            except CorelaneError as error:
                if error.errno not in _NO_DESCRIPTOR or not (self._close_refused() or self._close_idlest(connection)):
                    raise BadMessage("refused", error.errno or errno.EINVAL, str(error)) from error
        connection.app = grant.app
        self._apps[grant.app] = connection
        # A fresh connection's send buffer is empty, so that these few hundred bytes go at once or never.
        if connection.to_send or not send_with(connection.sock, grant.accept, grant.fds):
            self.counts["accept_lost"] += 1
            self._close(connection)
            raise BadMessage("accept_lost", errno.EPIPE, "")
        self.counts["accepted"] += 1

    def _watch_process(self, connection: _Connection) -> None:
        """See the end of the client's process, whoever else holds the connection. Raises Refused if it has ended.

        Before anything of it is looked up: from here on no id of it is taken for another's.
        """
        if connection.pidfd < 0:
            connection.pidfd = pidfd_of(connection.sock, connection.peer.pid)
            if connection.pidfd >= 0:
                self._selector.register(connection.pidfd, selectors.EVENT_READ, connection)

    def _manage(self, connection: _Connection, message: bytes) -> None:
        """The kthreads of a registered application, once a registration."""
        said = ffi.cast("struct cl_control_kthreads *", ffi.from_buffer(message))
        if connection.app is None or connection.named:
            why = "are known already" if connection.named else "belong to a registered application"
            raise BadMessage("garbage", errno.EPROTO, f"kthreads {why}")
        if not 0 < said.n <= lib.CL_SHM_MAX_KTHREADS:
            raise BadMessage("garbage", errno.EPROTO, f"{said.n} kthreads are not 1 to {lib.CL_SHM_MAX_KTHREADS}")
        try:
            self._registry.manage(connection.app, connection.peer.pid, list(said.tids[0 : said.n]), int(said.signal))
        except CorelaneError as error:
            raise BadMessage("refused", error.errno or errno.EINVAL, str(error)) from error
        connection.named = True
        self.counts["managed"] += 1
        self._send(connection, message_of(lib.CL_CONTROL_KTHREADS_OK))

    def _load_policy(self, connection: _Connection, message: bytes) -> None:
        """Start loading a policy; `_answer_policy` says how it went."""
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

    def _answer_policy(self) -> None:
        """Tell who asked whether its policy decides now."""
        connection, result = self._loader.result()
        connection.waits = False
        if connection.sock.fileno() not in self._connections:
            return  # it did not wait for the answer
        if isinstance(result, BaseException):
            code = result.errno if isinstance(result, CorelaneError) else 0
            text = str(result) if isinstance(result, CorelaneError) else f"{type(result).__name__}: {result}"
            self._refuse(connection, "policy_refused", code or errno.EINVAL, text)
            return
        self.counts["policies"] += 1
        body = line_of(result).ljust(lib.CL_CONTROL_TEXT_BYTES, b"\0")
        self._send(connection, message_of(lib.CL_CONTROL_POLICY_OK, body))

    def _ask_area(self, connection: _Connection, message: bytes) -> None:
        """See to a storage area, on another thread; `_answer_area` says how it went."""
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
                self._charge(connection.peer, begun)

        jobs = self._area_writers if op in WRITING else self._area_jobs
        jobs.put(connection.peer.uid, connection, handle)

    def _answer_areas(self, jobs: Jobs) -> None:
        for connection, result in jobs.results():
            self._step(functools.partial(self._answer_area, connection, result), connection)

    def _answer_area(self, connection: _Connection, result: Any) -> None:
        connection.waits = False
        gone = connection.sock.fileno() not in self._connections
        if isinstance(result, BaseException):
            if not gone:
                code = result.errno if isinstance(result, CorelaneError) else getattr(result, "errno", None)
                self._refuse(connection, "area_refused", code or errno.EIO, str(result))
            return
        answer, fd = result
        if fd < 0:
            if not gone:
                self.counts["areas"] += 1
                self._send(connection, message_of(lib.CL_CONTROL_AREA_OK, json.dumps(answer).encode()))
            return
        try:
            self._hand_over(connection, answer, fd, gone)
        finally:
            os.close(fd)  # theirs is another

    def _hand_over(self, connection: _Connection, answer: dict[str, Any], fd: int, gone: bool) -> None:
        """Give a storage area's descriptor to a client. Its claim ends with the connection."""
        assert self._areas is not None
        name = answer["area"]["name"]
        message = message_of(lib.CL_CONTROL_AREA_OK, json.dumps(answer).encode())
        # What is to send would go before it.
        if gone or connection.to_send or not send_with(connection.sock, message, [fd]):
            self.counts["area_lost"] += 1
            self._areas.release(name)
            if not gone:
                self._close(connection)
            return
        connection.areas.add(name)
        connection.deadline = float("inf")
        self.counts["areas_opened"] += 1

    def _forget_dead(self, name: str) -> None:
        """An application that was killed and starts again may be faster than our look at its old connection's end."""
        app = self._registry.find(name)
        connection = self._apps.get(app) if app is not None else None
        if connection is None:
            return
        if _has_gone(connection.sock) or has_ended(connection.pidfd):
            self._close(connection)

    def _refuse(self, connection: _Connection, counter: str, code: int, text: str) -> None:
        if connection.sock.fileno() < 0:
            return  # closed meanwhile
        self.counts[counter] += 1
        connection.closing = True
        connection.received.clear()
        self._send(connection, refusal(code, text))

    def _send(self, connection: _Connection, data: bytes) -> None:
        connection.to_send += data
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        try:
            while connection.to_send:
                del connection.to_send[: connection.sock.send(connection.to_send)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._close(connection)
            return
        if connection.to_send:
            connection.deadline = time.monotonic() + self._patience_s
            self._selector.modify(connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
            return
        self._selector.modify(connection.sock, selectors.EVENT_READ, connection)
        if connection.closing:
            # Not closed at once: data of the client that we have not read would turn our answer into a reset.
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_WR)
            connection.deadline = time.monotonic() + self._patience_s
        elif connection.app is not None or connection.areas:
            connection.deadline = float("inf")

    def _close(self, connection: _Connection) -> None:
        fd = connection.sock.fileno()
        if self._connections.pop(fd, None) is None:
            return
        self._of_user[connection.peer.uid] -= 1
        self._ready.pop(connection, None)
        if connection.waits:
            self._area_jobs.forget(connection)
            self._area_writers.forget(connection)
        self._selector.unregister(connection.sock)
        if connection.pidfd >= 0:
            self._selector.unregister(connection.pidfd)
            os.close(connection.pidfd)
            connection.pidfd = -1
        try:
            self._end_claims(connection)
        finally:
            # Last: who sees the end gives its kthreads back their class and CPUs, which the loop may change until then.
            self._strangers.close(connection.sock)

    def _end_claims(self, connection: _Connection) -> None:
        for name in connection.areas:
            assert self._areas is not None
            self._areas.release(name)
        if connection.app is not None:
            app, connection.app = connection.app, None
            del self._apps[app]
            try:
                self._registry.unregister(app)
            except CorelaneError as error:
                self.counts["unregister_failed"] += 1
                self.last_error = str(error)

"""The control socket: who listens on it, who may speak to it, and what is done with what they say.

Runs in one Python thread, never on a polled core. Every message of a client is a fixed struct of runtime/control.h. A
client gets `patience_s` to finish a message that it began and to take an answer; what does not fit the protocol is
refused with a reason, counted, and the connection closed. The end of a registered client's connection is the end of the
application: `Registry.unregister` is called at once.

One iokernel a path: a lock file beside the socket is held for as long as we live, so the kernel lets go of it even
after SIGKILL, and the socket file that was left behind is replaced.

Does not deal with: applications on other machines, encryption, changing a registration.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import selectors
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..runtime.errors import CorelaneError, Refused, SystemLimit
from ._native import ffi, lib

_HEADER = struct.Struct("=IHHII")  # struct cl_control_header
_SO_PEERGROUPS = 59  # asm-generic/socket.h; Linux 4.13
_HELLO_BYTES: int = ffi.sizeof("struct cl_control_hello")
_MAX_CONNECTIONS = 1024
_SWEEP_S = 0.1


@dataclass(frozen=True, slots=True)
class Peer:
    """Credentials of a client when it connected, as the kernel tells them."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int]


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

    def sweep(self) -> bool:
        """Try again what `unregister` could not finish; returns whether something is left for the next time."""

    def find(self, name: str) -> int | None:
        """Id of the registered application of that name."""

    def stats_json(self) -> bytes:
        """Statistics as a JSON text."""


@dataclass(slots=True)
class _Connection:
    sock: socket.socket
    peer: Peer
    deadline: float  # by which it must have finished the message or taken the answer; inf: nothing pending
    received: bytearray = field(default_factory=bytearray)
    to_send: bytearray = field(default_factory=bytearray)
    app: int | None = None
    closing: bool = False  # close once to_send is empty


class _Bad(Exception):
    """A message that is refused; (counter, errno, text)."""


def _lock(path: str) -> int:
    """Take the lock of a socket path; returns its descriptor. Raises Refused if another iokernel holds it."""
    while True:
        fd = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "?"
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise Refused(
                f"start an iokernel on {path}",
                f"one listens there already (pid {holder})",
                "stop it, or choose another socket path",
                errno.EADDRINUSE,
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path + ".lock").st_ino == os.fstat(fd).st_ino:  # else: its holder has just removed it
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                return fd
        os.close(fd)


def _remove_stale(path: str) -> None:
    """Remove a dead iokernel's socket file; refuse whatever else is there. Under the lock."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Refused(f"listen on {path}", "a file of another kind is there", "remove it, or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(path)
    if code not in (errno.ECONNREFUSED, errno.ENOENT):
        raise Refused(
            f"listen on {path}", "another program listens there", "choose another socket path", errno.EADDRINUSE
        )
    os.unlink(path)


class ControlServer:
    """Listens on `path` and speaks for `registry`. Construction takes the path; `serve` works until `stop`.

    mode: permission bits of the socket file. uids, gids: who may connect besides root and our own user; groups that a
    client has as supplementary ones count. Raises Refused if another iokernel holds the path, SystemLimit if it cannot
    be made.
    """

    def __init__(
        self,
        path: str,
        registry: Registry,
        *,
        mode: int = 0o600,
        uids: Collection[int] = (),
        gids: Collection[int] = (),
        patience_s: float = 2.0,
    ) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self.last_error = ""
        self._registry = registry
        self._uids = frozenset((0, os.geteuid(), *uids))
        self._gids = frozenset(gids)
        self._patience_s = patience_s
        self._connections: dict[int, _Connection] = {}
        self._apps: dict[int, _Connection] = {}
        self._stopping = False
        self._unfinished = False
        try:
            self._lock_fd = _lock(path)
        except OSError as error:
            raise SystemLimit(f"lock {path}.lock", str(error.strerror), "is its folder writable?") from error
        try:
            _remove_stale(path)
            self._listener = self._listen(mode)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)

    def _listen(self, mode: int) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.bind(self.path)
            os.chmod(self.path, mode)  # before listen: nobody can have connected yet
            sock.listen(64)
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
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fd == self._wake:
                        os.eventfd_read(self._wake)
                        self._stopping = True
                    else:
                        self._handle(key.data, events)
                self._expire()
                self._unfinished = self._registry.sweep()
        finally:
            self.close()

    def stop(self) -> None:
        """Make `serve` return. From any thread or signal handler."""
        # Only the write tells: a flag set before it would let `serve` close the descriptor under us.
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Give the path up. After `serve` has returned, or in its place."""
        if self._lock_fd < 0:
            return
        for connection in list(self._connections.values()):
            self._close(connection)
        self._selector.close()
        self._listener.close()
        os.close(self._wake)
        for leftover in (self.path, self.path + ".lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)
        os.close(self._lock_fd)  # last: until here nobody else could take the path
        self._lock_fd = -1

    def _timeout(self) -> float | None:
        deadline = min((c.deadline for c in self._connections.values()), default=float("inf"))
        if self._unfinished:
            deadline = min(deadline, time.monotonic() + _SWEEP_S)
        return None if deadline == float("inf") else max(0.0, deadline - time.monotonic())

    def _expire(self) -> None:
        now = time.monotonic()
        for connection in [c for c in self._connections.values() if c.deadline <= now]:
            self.counts["timed_out"] += 1
            self._close(connection)

    def _accept(self) -> None:
        for _ in range(16):
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # out of descriptors, or gone before we looked
                self.counts["accept_failed"] += 1
                return
            sock.setblocking(False)
            try:
                connection = _Connection(sock, _peer_of(sock), time.monotonic() + self._patience_s)
            except OSError:
                sock.close()
                continue
            self._connections[sock.fileno()] = connection
            self._selector.register(sock, selectors.EVENT_READ, connection)
            self.counts["connections"] += 1
            peer = connection.peer
            if len(self._connections) > _MAX_CONNECTIONS:
                self._refuse(connection, "too_many", errno.EMFILE, f"{_MAX_CONNECTIONS} connections are open already")
            elif peer.uid not in self._uids and not (peer.groups | {peer.gid}) & self._gids:
                text = f"user {peer.uid} may not attach: allow it in iokernel.users or iokernel.groups"
                self._refuse(connection, "not_allowed", errno.EACCES, text)

    def _handle(self, connection: _Connection, events: int) -> None:
        if connection.sock.fileno() not in self._connections:
            return  # closed by an earlier event of this batch
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if events & selectors.EVENT_READ and connection.sock.fileno() in self._connections:
            self._read(connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return
        if connection.closing:
            return  # refused already; it may still be sending
        connection.received += data
        try:
            while self._take_message(connection):
                pass
        except _Bad as bad:
            self._refuse(connection, *bad.args)
        except Exception as error:  # a fault of ours must not end the applications of others
            self.last_error = f"{type(error).__name__}: {error}"
            self._refuse(connection, "internal_error", errno.EIO, f"the iokernel failed: {self.last_error}")
        if not connection.to_send:
            connection.deadline = time.monotonic() + self._patience_s if connection.received else float("inf")
            if connection.app is None and not connection.received and not connection.closing:
                connection.deadline = time.monotonic() + 60 * self._patience_s  # idle, asks for statistics now and then

    def _take_message(self, connection: _Connection) -> bool:
        """Handle one whole message, if there is one. Raises _Bad for anything that the protocol does not know."""
        got = connection.received
        if len(got) < _HEADER.size:
            return False
        magic, version, kind, n_bytes, _ = _HEADER.unpack_from(got)
        if magic != lib.CL_CONTROL_MAGIC:
            raise _Bad("garbage", errno.EPROTO, "this is no corelane control message")
        if version != lib.CL_CONTROL_VERSION:
            text = f"this iokernel speaks control protocol {lib.CL_CONTROL_VERSION}, the application {version}"
            raise _Bad("wrong_version", errno.EPROTO, f"{text}: use the same corelane for both")
        expected = {lib.CL_CONTROL_HELLO: _HELLO_BYTES, lib.CL_CONTROL_STATS: _HEADER.size}.get(kind)
        if expected is None or n_bytes != expected:
            raise _Bad("garbage", errno.EPROTO, f"no message of type {kind} and {n_bytes} bytes exists")
        if len(got) < n_bytes:
            return False
        message = bytes(got[:n_bytes])
        del got[:n_bytes]
        if kind == lib.CL_CONTROL_STATS:
            self._answer_stats(connection)
        else:
            self._register(connection, message)
        return True

    def _answer_stats(self, connection: _Connection) -> None:
        if len(connection.to_send) > lib.CL_CONTROL_MAX_REPLY:
            raise _Bad("greedy", errno.EBUSY, "ask again when the answers have been read")
        text = self._registry.stats_json()
        header = _HEADER.pack(
            lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION, lib.CL_CONTROL_STATS_REPLY, _HEADER.size + len(text), 0
        )
        self.counts["stats"] += 1
        self._send(connection, header + text)

    def _register(self, connection: _Connection, message: bytes) -> None:
        if connection.app is not None:
            raise _Bad("garbage", errno.EALREADY, "this connection is registered already")
        hello = ffi.cast("struct cl_control_hello *", ffi.from_buffer(message))
        self._forget_dead(bytes(ffi.buffer(hello.name)).split(b"\0", 1)[0].decode(errors="replace"))
        try:
            grant = self._registry.register(hello, connection.peer)
        except CorelaneError as error:
            raise _Bad("refused", error.errno or errno.EINVAL, str(error)) from error
        connection.app = grant.app
        self._apps[grant.app] = connection
        try:
            # A fresh connection's send buffer is empty, so that these few hundred bytes go at once or never.
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", grant.fds))]
            sent = connection.sock.sendmsg([grant.accept], rights) if not connection.to_send else 0
        except OSError:
            sent = 0
        if sent != len(grant.accept):
            self.counts["accept_lost"] += 1
            self._close(connection)
            raise _Bad("accept_lost", errno.EPIPE, "")
        self.counts["accepted"] += 1

    def _forget_dead(self, name: str) -> None:
        """An application that was killed and starts again may be faster than our look at its old connection's end."""
        app = self._registry.find(name)
        connection = self._apps.get(app) if app is not None else None
        if connection is None:
            return
        try:
            ended = not connection.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            ended = False
        except OSError:
            ended = True
        if ended:
            self._close(connection)

    def _refuse(self, connection: _Connection, counter: str, code: int, text: str) -> None:
        if connection.sock.fileno() < 0:
            return  # closed meanwhile
        self.counts[counter] += 1
        message = ffi.new("struct cl_control_refuse *")
        header = message.header
        header.magic, header.version, header.type = (
            lib.CL_CONTROL_MAGIC,
            lib.CL_CONTROL_VERSION,
            lib.CL_CONTROL_REFUSE,
        )
        header.bytes = ffi.sizeof("struct cl_control_refuse")
        message.code = code
        line = text.replace("\n", " ").encode()[: lib.CL_CONTROL_TEXT_BYTES - 1]
        ffi.memmove(message.text, line, len(line))
        connection.closing = True
        connection.received.clear()
        self._send(connection, bytes(ffi.buffer(message)))

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
        elif connection.app is not None:
            connection.deadline = float("inf")

    def _close(self, connection: _Connection) -> None:
        fd = connection.sock.fileno()
        if self._connections.pop(fd, None) is None:
            return
        self._selector.unregister(connection.sock)
        connection.sock.close()
        if connection.app is not None:
            app, connection.app = connection.app, None
            del self._apps[app]
            try:
                self._registry.unregister(app)
            except CorelaneError as error:
                self.counts["unregister_failed"] += 1
                self.last_error = str(error)


def _peer_of(sock: socket.socket) -> Peer:
    pid, uid, gid = struct.unpack("=iii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    groups: frozenset[int] = frozenset()
    with contextlib.suppress(OSError):  # more than 256 groups, or an old kernel: only the primary group counts
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
        groups = frozenset(struct.unpack(f"={len(raw) // 4}I", raw))
    return Peer(pid, uid, gid, groups)

"""How many descriptors there are, and those whose last close may take long: what strangers send along a control
connection, and arenas.

The protocol has no descriptors in this direction. The last close of a stranger's descriptor may block for as long as
the stranger likes (SO_LINGER on a TCP socket), and a descriptor that waits in a socket is closed with it. So the
control thread closes neither: Linux 6.16 and newer refuse such descriptors at the sender (SO_PASSRIGHTS); elsewhere
threads that nobody waits for close them, and the sockets. Each user has one for himself, and whoever blocks it has what
is his closed late, and nothing of others'. What waits there counts among his connections. The last close of an arena
takes as long as freeing what was used.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import queue
import resource
import socket
import threading
from collections import defaultdict

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_SO_PASSRIGHTS = 83  # asm-generic/socket.h; Linux 6.16
_SCM_MAX_FD = (
    253  # the most that one message carries (include/net/scm.h); beyond the buffer the kernel would close them
)
_ROOM = socket.CMSG_SPACE(_SCM_MAX_FD * array.array("i").itemsize)


def raise_limit() -> None:
    """This process may open as many as the system lets it: three a managed kthread, one a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Closer:
    """Closes descriptors on a thread of its own, which begins with the first."""

    def __init__(self) -> None:
        self._to_close: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._given = self._closed = 0  # each written by one thread

    @property
    def waiting(self) -> int:
        """Descriptors that are not closed yet."""
        return self._given - self._closed

    def close(self, fd: int) -> None:
        """Close it soon."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="corelane-closer", daemon=True)
            self._thread.start()
        self._given += 1
        self._to_close.put(fd)

    def end(self, *, wait: bool) -> None:
        """No more will come. wait: until all are closed; else what blocks goes on in its thread, which ends with it."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._to_close.put(-1)
            if wait:
                thread.join()

    def _work(self) -> None:
        while (fd := self._to_close.get()) >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)
            self._closed += 1


class Strangers:
    """How descriptors of clients of one listening socket are kept off the thread that owns this. account: a user, or
    what stands for several (turns.STRANGERS)."""

    def __init__(self, listener: socket.socket) -> None:
        self.refused = _refuse(listener)
        """The kernel refuses them at the sender: nothing that may block ever reaches us."""
        self._closers: defaultdict[int, Closer] = defaultdict(Closer)  # by account

    def receive(self, sock: socket.socket, account: int, n_bytes: int) -> tuple[bytes, bool]:
        """As socket.recv; and whether descriptors came along. They are being closed."""
        if self.refused:
            return sock.recv(n_bytes), False
        data, rights, _flags, _address = sock.recvmsg(n_bytes, _ROOM, socket.MSG_CMSG_CLOEXEC)
        fds = array.array("i")
        for level, kind, body in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(body[: len(body) - len(body) % fds.itemsize])
        for fd in fds:
            self._closers[account].close(fd)
        return data, bool(fds)

    def close(self, sock: socket.socket, account: int) -> None:
        """Close a client's connection, or the listening socket, with whatever was sent there and nobody has read."""
        if self.refused:
            sock.close()
        else:
            self._closers[account].close(sock.detach())

    def waiting(self, account: int) -> int:
        """Descriptors of an account that are not closed yet."""
        return self._closers[account].waiting if account in self._closers else 0

    def end(self) -> None:
        """No more will come."""
        for closer in self._closers.values():
            closer.end(wait=False)


def _refuse(listener: socket.socket) -> bool:
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)  # inherited by what is accepted
    except OSError:
        return False
    return True

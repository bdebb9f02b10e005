"""A control socket's path is one iokernel's: the lock beside it, and the file that a dead one left behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat

from ...runtime.errors import Refused


def lock(path: str) -> int:
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


def remove_stale(path: str) -> None:
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

"""Who is at the other end of a control connection, as the kernel tells it."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from .errors import ConfigError, Refused, SystemLimit

_SO_PEERGROUPS = 59  # asm-generic/socket.h; Linux 4.13
_SO_PEERPIDFD = 77  # the same; Linux 6.5


def trusted(uid: int) -> bool:
    """Whether that is root, or the user that we run as."""
    return uid in (0, os.geteuid())


@dataclass(frozen=True, slots=True)
class Peer:
    """Credentials of a client when it connected, as the kernel tells them."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int]

    @property
    def trusted(self) -> bool:
        """See `trusted`."""
        return trusted(self.uid)

    def among(self, uids: Container[int], gids: Iterable[int]) -> bool:
        """Whether it is one of these users, or a member of one of these groups."""
        return self.uid in uids or not (self.groups | {self.gid}).isdisjoint(gids)


def peer_of(sock: socket.socket) -> Peer:
    """Who connected. OSError if it has gone."""
    pid, uid, gid = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    groups: frozenset[int] = frozenset()
    with contextlib.suppress(OSError):  # more than 256 groups, or an old kernel: only the primary group counts
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
        groups = frozenset(struct.unpack(f"={len(raw) // 4}I", raw))
    return Peer(pid, uid, gid, groups)


def user_ids(names: Iterable[str | int], option: str) -> tuple[int, ...]:
    """Numbers of users, given by name or number. ConfigError for a name that this machine does not know."""
    import pwd

    return _ids(names, lambda name: pwd.getpwnam(name).pw_uid, option)


def group_ids(names: Iterable[str | int], option: str) -> tuple[int, ...]:
    """The same of groups."""
    import grp

    return _ids(names, lambda name: grp.getgrnam(name).gr_gid, option)


def _ids(names: Iterable[str | int], find: Callable[[str], int], option: str) -> tuple[int, ...]:
    ids = []
    for name in names:
        try:
            number = isinstance(name, int) or (name.isascii() and name.isdigit())
            ids.append(int(name) if number else find(str(name)))
        except KeyError:
            raise ConfigError(option, f"{name!r} does not exist on this machine") from None
    return tuple(ids)


def pidfd_of(sock: socket.socket, pid: int) -> int:
    """A descriptor that becomes readable when the client's process ends; -1: this kernel has none (before 5.3).

    Raises Refused if it has ended, SystemLimit without a descriptor to be had.
    """
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        pass  # Linux before 6.5
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise Refused(f"process {pid} has just ended", hint="start it again", errno=errno.ESRCH) from None
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", 0)
        if number in (errno.EMFILE, errno.ENFILE):
            raise SystemLimit(f"watch process {pid}", os.strerror(number), "ulimit -n", number) from error
        return -1


def has_ended(pidfd: int) -> bool:
    """Whether the process has ended, every thread of it. -1, of a kernel without pidfds: False."""
    if pidfd < 0:
        return False
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))

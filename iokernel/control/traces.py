"""The trace segments of attached applications (runtime/trace.h), for clients who ask for one: who may, and opening it.

An application does not send its segment: descriptors do not come in this direction (descriptors.py). It is opened
where the process has it, as a reader of the same user would open it. What is given out is read-only, and is a trace
segment or nothing: a memory file, made under the name that such ones have, which cannot shrink. A process' links are
its own words: none is opened before it is known to be a memory file, which opens without waiting.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from ...runtime.errors import CorelaneError, Refused
from ...runtime.peers import Peer
from ...runtime.trace import LINK, Segment
from .apps import App

_MOST = 1024  # descriptors of a process that are looked at: a few ms; a runtime's segment is among its first


@dataclass(frozen=True, slots=True)
class Opened:
    """fd: the caller's to close; -1: `why`. none: it is known that there is none."""

    fd: int
    why: str = ""
    none: bool = False


def chosen(apps: Iterable[App], name: str, pid: int) -> App:
    """The one that is meant. Raises Refused."""
    named = [app for app in apps if app.name == name]
    found = [app for app in named if pid in (0, app.peer.pid)]
    if not found:
        why = f"no application of the name {name} is attached" + (f" by process {pid}" if named else "")
        raise Refused(why, hint="corelane ps lists them", errno=errno.ENOENT)
    if len(found) > 1:
        pids = ", ".join(str(app.peer.pid) for app in found)
        raise Refused(f"{len(found)} processes have the name {name}", hint=f"ask for one of {pids}", errno=errno.EINVAL)
    return found[0]


def check_may(peer: Peer, owner: Peer, name: str) -> None:
    """Raises Refused unless it is the application's user, root or the user that we run as."""
    if peer.uid != owner.uid and not peer.trusted:
        why = f"user {peer.uid} may not trace {name}, which is of user {owner.uid}"
        raise Refused(why, hint="ask as that user or as root", errno=errno.EACCES)


def opened(owner: Peer, name: str) -> Opened:
    """The segment of the application of that name in a process. Whether the process is still the one that attached is
    the caller's to check, afterwards."""
    found: list[tuple[int, str]] = []
    if owner.pid <= 0:
        return Opened(-1, "its process cannot be seen from the iokernel: it is in another PID namespace")
    try:
        # A process that nobody may look into, its user neither, belongs to root there (PR_SET_DUMPABLE).
        if os.stat(f"/proc/{owner.pid}").st_uid != owner.uid:
            return Opened(-1, "its process lets nobody look into it")
        with os.scandir(f"/proc/{owner.pid}/fd") as links:
            for link in itertools.islice(links, _MOST):
                if (fd := _open(link.path)) >= 0:
                    found.append((fd, _name(fd)))
    except PermissionError:
        _close(found)
        return Opened(-1, f"the iokernel, user {os.geteuid()}, may not look into a process of user {owner.uid}")
    except (FileNotFoundError, ProcessLookupError):
        _close(found)
        return Opened(-1, "its process has ended", none=True)
    mine = [fd for fd, of in found if of == name]
    _close([one for one in found if one[0] not in mine[:1]])
    return Opened(mine[0]) if mine else Opened(-1, "no runtime of it traces", none=True)


def _open(link: str) -> int:
    """A trace segment behind a link of a process, to be read. -1: it is something else."""
    try:
        if os.readlink(link) != LINK:
            return -1
        place = os.open(link, os.O_PATH | os.O_CLOEXEC)  # nothing is opened by this but the link
    except FileNotFoundError:  # closed meanwhile
        return -1
    try:
        at = os.fstat(place)
        if not stat.S_ISREG(at.st_mode) or at.st_dev != _memory_device():
            return -1
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)


def _name(fd: int) -> str:
    """Whose it is, as it says; "": it is no segment."""
    try:
        with Segment(os.dup(fd)) as segment:
            return segment.name
    except CorelaneError:
        return ""


def _memory_device() -> int:
    """Where memory files are: no path leads there."""
    fd = os.memfd_create("corelane-look", os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


def _close(found: Iterable[tuple[int, str]]) -> None:
    for fd, _ in found:
        os.close(fd)

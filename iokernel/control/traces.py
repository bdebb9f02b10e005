"""The trace segments of attached applications (runtime/trace.h), for clients who ask for one: who may, and opening it.

An application does not send its segment: descriptors do not come in this direction (descriptors.py). It is opened
where the process has it, as a reader of the same user would open it. What is given out is read-only, and is a trace
segment or nothing: a memory file, made under the name that such ones have, which cannot shrink. What is none is
neither opened nor asked (runtime/memory_files.py). They are looked at one after the other, so that a process full of
them takes few descriptors of ours.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass

from ...runtime.errors import CorelaneError, Refused
from ...runtime.memory_files import FIRST, open_at, places
from ...runtime.peers import Peer
from ...runtime.trace import LINK, Segment
from .apps import App


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
    if owner.pid <= 0:
        return Opened(-1, "its process cannot be seen from the iokernel: it is in another PID namespace")
    try:
        # A process that nobody may look into, its user neither, belongs to root there (PR_SET_DUMPABLE).
        if os.stat(f"/proc/{owner.pid}").st_uid != owner.uid:
            return Opened(-1, "its process lets nobody look into it")
        for _, place in places(owner.pid, LINK, FIRST):
            if (fd := _open(place, name)) >= 0:
                return Opened(fd)
    except PermissionError:
        return Opened(-1, f"the iokernel, user {os.geteuid()}, may not look into a process of user {owner.uid}")
    except (FileNotFoundError, ProcessLookupError):
        return Opened(-1, "its process has ended", none=True)
    return Opened(-1, "no runtime of it traces", none=True)


def _open(place: int, name: str) -> int:
    """The trace segment of that name, to be read. -1: it is something else."""
    fd = open_at(place)
    try:
        if _name(fd) == name:
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return -1


def _name(fd: int) -> str:
    """Whose it is, as it says; "": it is no segment."""
    try:
        with Segment(os.dup(fd)) as segment:
            return segment.name
    except CorelaneError:
        return ""

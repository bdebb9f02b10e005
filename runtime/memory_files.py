"""Memory files (memfd_create(2)) that a process has open, for others to read.

What /proc says of a descriptor is the process's own word: it may have a pipe, or a file of a file system of its own
(FUSE), under the path that a memory file has. To open the pipe, or to ask that file system anything, takes as long as
the process likes. So a file is known for a memory file by the number of its mount, which the kernel tells and for which
nobody else is asked.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator

FIRST = 1024
"""Descriptors of a process that are looked at where it is not trusted: a few ms. A runtime's files are among its first.
"""


def link_of(name: str) -> str:
    """What /proc shows of a memory file of that name."""
    return f"/memfd:{name} (deleted)"


def places(pid: int, link: str, most: int | None = None) -> Iterator[tuple[str, int]]:
    """The memory files of a process with that link, among the first `most` descriptors (all) that it has: the path of
    each in /proc, and a descriptor of it for `open_at`, which is closed before the next one is found.

    Raises OSError if the process has ended or lets us not look into it.
    """
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in itertools.islice(entries, most):
            try:
                if os.readlink(entry.path) != link:
                    continue
                place = os.open(entry.path, os.O_PATH | os.O_CLOEXEC)  # nothing is opened by this but the link
            except FileNotFoundError:  # closed meanwhile
                continue
            try:
                if _mount_of(place) == _memory_mount():
                    yield entry.path, place
            finally:
                os.close(place)


def open_at(place: int) -> int:
    """A descriptor to read it by."""
    return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)


def _mount_of(fd: int) -> bytes:
    with open(f"/proc/self/fdinfo/{fd}", "rb") as said:
        return next((line for line in said.read().splitlines() if line.startswith(b"mnt_id:")), b"")


@functools.cache
def _memory_mount() -> bytes:
    """Where memory files are: no path leads there."""
    fd = os.memfd_create("corelane-look", os.MFD_CLOEXEC)
    try:
        return _mount_of(fd)
    finally:
        os.close(fd)

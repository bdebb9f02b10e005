"""Where a node's persistent log lies: in a file, or in a storage area of the iokernel (docs/storage.md).

A log is made once, by hand (`make_log_file`, `make_log_area`; `corelane raft init`), and never by a node that starts:
one that found none and made one would have amnesia: it would not know what it acknowledged and whom it voted for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....drivers.blk.area import AreaBlk
from ....drivers.blk.blk import Blk
from ....drivers.blk.file import FileBlk, create
from ....libos.storage.log.cut import SUPERBLOCKS_BYTES, begins_as_log, refuse_cut
from ....libos.storage.log.log import format_area, format_device, format_if_new
from ....runtime.errors import CorelaneError, check
from ..._native import ffi, lib

_LOST = (
    "what this replica acknowledged may be gone, so it must not vote: take it out of the group, and bring in a node "
    "with another id and an empty log"
)

_NONE = (
    "make one with `corelane raft init` if the node is new; if its log was lost, the node must not come back under its "
    "id: take it out of the group, and bring in one with another id"
)

_NO_LOG = (
    "is it a log? Look at the name, and make one with `corelane raft init` if the node is new; a node whose log is "
    "lost must not come back under its id"
)

_BLANK = "its superblocks, at offsets 0 and 4096, are zero"

CLAIM_WAIT_S = 2.0
"""How long a claim may stay with a node that was killed a moment ago before somebody else is said to have it."""

Disk = Callable[[Blk], Blk]
"""Puts something around a log's device, such as drivers.blk.FaultBlk, and returns that."""


def _name_durably(made: str, path: str) -> None:
    """Give a file its name, also for after a crash of the machine. It never takes the place of one that is there."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.link(made, path)
        try:
            os.fsync(folder)
        except OSError as error:
            with contextlib.suppress(OSError):  # of a file system that takes nothing any more
                Path(path).unlink()
            hint = f"mend the file system, and delete {path} if it is there"
            why = f"its folder cannot be synced: {error.strerror}"
            raise CorelaneError(f"make the log {path}", why, hint, error.errno or 0) from error
    finally:
        os.close(folder)


SNAPSHOTS = 4
"""A log has room for two snapshots, each of this part of it."""


def snapshot_bytes(size: int) -> int:
    """Room for a snapshot in a log of `size` bytes."""
    return size // SNAPSHOTS & ~4095


class NodeLog:
    """An open log for C: `ptr` on the device `blk`. Close it after the runtime has stopped."""

    def __init__(self, blk: Blk, disk: Disk | None) -> None:
        self.blk = disk(blk) if disk else blk
        self.ptr: Any = None

    def _open(self, what: str) -> None:
        """Recover it. Whatever the reason, the device is closed if that fails."""
        try:
            self._recover(what)
        except BaseException:
            self.blk.close()
            raise

    def _recover(self, what: str) -> None:
        out, err = ffi.new("struct cl_log **"), ffi.new("char[256]")
        config = ffi.new("struct cl_log_config *", {"blk": self.blk.ptr})
        rc = lib.cl_log_open_wait(config, out, ffi.NULL, err)
        check(rc, f"open the log {what}", err, self._hint() if rc == -errno.EBADMSG else "")
        self.ptr = out[0]

    def _hint(self) -> str:
        try:
            head = self.blk.read(0, SUPERBLOCKS_BYTES)
        except CorelaneError:  # there may be one
            return _LOST
        return _lost_or_none(head)

    def close(self) -> None:
        """Finish what is in flight and close. Twice is allowed.

        Raises CorelaneError if what is written last fails. A log that had failed before has told its node.
        """
        log, self.ptr = self.ptr, None
        if log is None:
            return
        had_failed = lib.cl_log_error(log) != 0
        err = ffi.new("char[256]")
        rc = lib.cl_log_close(log, err)
        self.blk.close()
        if not had_failed:
            check(rc, "close the node's log", err, "the next start recovers what is there, as after a crash")


def _lost_or_none(head: bytes) -> str:
    return _LOST if begins_as_log(head) else _NO_LOG


class LogFile(NodeLog):
    """A log in a file. Raises CorelaneError if there is none, or none that is whole."""

    def __init__(self, path: str, disk: Disk | None = None, *, sqpoll: bool = False) -> None:
        if not Path(path).exists():
            raise CorelaneError(f"open the log {path}", "there is none", _NONE, errno.ENOENT)
        refuse_cut(path, _lost_or_none)
        super().__init__(FileBlk(path, sqpoll=sqpoll), disk)
        self._open(path)


class LogArea(NodeLog):
    """A log in the storage area `name` of the iokernel on `socket`, which is claimed until the log is closed."""

    def __init__(self, socket: str, name: str, disk: Disk | None = None, *, sqpoll: bool = False) -> None:
        super().__init__(_claimed(socket, name, sqpoll), disk)
        try:
            new = not any(self.blk.read(0, SUPERBLOCKS_BYTES))
        except CorelaneError:
            new = False  # recovery does with one of them, or says what cannot be read
        if new:
            self.blk.close()
            raise CorelaneError(f"open the log in storage area {name}", f"there is none: {_BLANK}", _NONE, errno.ENOENT)
        self._open(f"in storage area {name}")


def make_log_device(path: str, *, force: bool = False) -> int:
    """Make an empty log of a block device; its bytes. Raises CorelaneError, also if it is not zero, but for force."""
    return format_device(path, snapshots=SNAPSHOTS, force=force)


def make_log_file(path: str, size: int) -> None:
    """Make an empty log of `size` bytes in a new file. Raises CorelaneError, also if there is one.

    The file gets its name when it has been formatted, so whatever has the name is a log, or damaged. Until then it is
    PATH.NUMBER.new, which only a process that was killed leaves behind. Of two that make one log, one is refused.
    """
    if Path(path).exists():
        raise _taken(path)
    if not Path(path).parent.is_dir():
        raise CorelaneError(f"make the log {path}", f"there is no folder {Path(path).parent}", "make it first")
    made = f"{path}.{secrets.token_hex(4)}.new"
    try:
        create(made, size)
        with contextlib.closing(FileBlk(made)) as blk:
            format_area(blk, snapshot_bytes=snapshot_bytes(size))
        _name_durably(made, path)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise CorelaneError(f"make the log {path}", error.strerror or str(error), errno=error.errno or 0) from error
    finally:
        with contextlib.suppress(OSError):
            Path(made).unlink()


def _taken(path: str) -> CorelaneError:
    return CorelaneError(
        f"make the log {path}", "there is a file of that name", "delete it if it is not needed", errno.EEXIST
    )


def make_log_area(socket: str, name: str) -> int:
    """Make an empty log in a storage area that is zero throughout, as it is when it is made; its bytes.

    Raises CorelaneError, also if there is a log.
    """
    with contextlib.closing(_claimed(socket, name, False)) as blk:
        if not format_if_new(blk, snapshot_bytes=snapshot_bytes(blk.size_bytes)):
            raise CorelaneError(
                f"make a log in storage area {name}",
                f"it is not empty: its first {SUPERBLOCKS_BYTES} bytes are not zero, or not readable",
                "if what it holds is not needed, delete the area and make it again",
            )
        return blk.size_bytes


def _claimed(socket: str, name: str, sqpoll: bool) -> AreaBlk:
    deadline = time.monotonic() + CLAIM_WAIT_S
    while True:
        try:
            return AreaBlk(socket, name, sqpoll=sqpoll)
        except CorelaneError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= deadline:
                raise
        time.sleep(0.01)

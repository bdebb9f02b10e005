"""Where a node's persistent log lies: in a file, or in a storage area of the iokernel (docs/storage.md)."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...drivers.blk import Blk
from ...drivers.blk_area import AreaBlk
from ...drivers.blk_file import FileBlk, create
from ...libos.log import format_area, format_if_new
from ...runtime.errors import CorelaneError, check
from .._native import ffi, lib

_LOST = (
    "what this replica acknowledged may be gone, so it must not vote: take it out of the group, and bring in a node "
    "with another id and an empty log"
)

CLAIM_WAIT_S = 2.0
"""How long a claim may stay with a node that was killed a moment ago before somebody else is said to have it."""

Disk = Callable[[Blk], Blk]
"""Puts something around a log's device, such as drivers.blk.FaultBlk, and returns that."""


def _name_durably(old: str, new: str) -> None:
    """Rename a file, also for after a crash of the machine."""
    os.rename(old, new)
    folder = os.open(Path(new).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def snapshot_bytes(size: int) -> int:
    """Room for a snapshot in a log of `size` bytes, which has two of them."""
    return size // 4 & ~4095


class NodeLog:
    """An open log for C: `ptr` on the device `blk`. Close it after the runtime has stopped."""

    def __init__(self, blk: Blk, disk: Disk | None) -> None:
        self.blk = disk(blk) if disk else blk
        self.ptr: Any = None

    def _open(self, what: str) -> None:
        out, err = ffi.new("struct cl_log **"), ffi.new("char[256]")
        config = ffi.new("struct cl_log_config *", {"blk": self.blk.ptr})
        rc = lib.cl_log_open_wait(config, out, ffi.NULL, err)
        check(rc, f"open the log {what}", err, _LOST if rc == -errno.EBADMSG else "")
        self.ptr = out[0]

    def close(self) -> None:
        """Finish what is in flight and close. Twice is allowed."""
        log, self.ptr = self.ptr, None
        if log is not None:
            lib.cl_log_close(log)
            self.blk.close()


class LogFile(NodeLog):
    """A log in a file, made if it is not there.

    A file gets its name when it has been formatted: until then it is PATH.new, which the next start replaces. So a node
    that is killed while it makes its log starts again, and a file of that name that is no log is damaged, not new.
    """

    def __init__(self, path: str, size: int, disk: Disk | None = None, *, sqpoll: bool = False) -> None:
        fresh = not Path(path).exists()
        made = f"{path}.new" if fresh else path
        if fresh:
            if Path(made).exists():
                if Path(made).stat().st_size:
                    FileBlk(made).close()  # refused while another process is making it
                Path(made).unlink()
            create(made, size)
        super().__init__(FileBlk(made, sqpoll=sqpoll), disk)
        try:
            if fresh:
                format_area(self.blk, snapshot_bytes=snapshot_bytes(size))
                _name_durably(made, path)
            self._open(path)
        except BaseException:
            self.blk.close()
            raise


class LogArea(NodeLog):
    """A log in the storage area `name` of the iokernel on `socket`, which is claimed until the log is closed.

    An area that was never formatted is zero throughout, and is given a log; anything else has to be one.
    """

    def __init__(self, socket: str, name: str, disk: Disk | None = None, *, sqpoll: bool = False) -> None:
        super().__init__(_claimed(socket, name, sqpoll), disk)
        try:
            format_if_new(self.blk, snapshot_bytes=snapshot_bytes(self.blk.size_bytes))
            self._open(f"in storage area {name}")
        except BaseException:
            self.blk.close()
            raise


def _claimed(socket: str, name: str, sqpoll: bool) -> AreaBlk:
    deadline = time.monotonic() + CLAIM_WAIT_S
    while True:
        try:
            return AreaBlk(socket, name, sqpoll=sqpoll)
        except CorelaneError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= deadline:
                raise
        time.sleep(0.01)

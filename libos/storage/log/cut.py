"""Log files that end within their superblocks: too short to be opened as a block device, which would say why."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from ....runtime.errors import CorelaneError
from ..._native import ffi, lib

SUPERBLOCKS_BYTES = 2 * lib.CL_LOG_BLOCK_BYTES


def begins_as_log(head: bytes) -> bool:
    """Whether one of the superblocks among these bytes, the first of a device, has the mark of a log."""
    at = ffi.offsetof("struct cl_log_disk_super", "magic")
    mark = lib.CL_LOG_SUPER_MAGIC.to_bytes(ffi.sizeof("uint64_t"), "little")
    return any(head.startswith(mark, block + at) for block in (0, lib.CL_LOG_BLOCK_BYTES))


def _from_a_copy(_head: bytes) -> str:
    return "restore it from a copy"


def refuse_cut(path: str | os.PathLike[str], hint: Callable[[bytes], str] = _from_a_copy) -> None:
    """Raise CorelaneError, with EBADMSG, if a log's file is shorter than its superblocks. Of others opening judges.

    hint: what to do about it, of what there is of the file.
    """
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size >= SUPERBLOCKS_BYTES:
            return
        with open(path, "rb") as file:
            head = file.read(SUPERBLOCKS_BYTES)
    except OSError:
        return
    why = f"the file was cut short, or is no log: it ends at offset {about.st_size}, in the superblocks"
    first = ffi.new("struct cl_log_disk_super *")
    ffi.memmove(first, head, min(len(head), ffi.sizeof(first[0])))
    there = len(head) >= ffi.offsetof("struct cl_log_disk_super", "snapshot_offset")  # what lies behind area_bytes
    if there and first.magic == lib.CL_LOG_SUPER_MAGIC:
        why += f", and by the first of these it should be {first.area_bytes} bytes long"
    raise CorelaneError(f"open the log {os.fspath(path)}", why, hint(head), errno.EBADMSG)

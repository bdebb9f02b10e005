"""Loop devices: a part of a file or disk as a block device of its own, beyond whose end no write goes (linux/loop.h).

That guards against mistakes alone. Whoever has a descriptor for writing may give the device another part, up to the
whole file or disk, and needs no capability for that: never give one to who may not touch the rest.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from pathlib import Path

from ...runtime.errors import SystemLimit

_CTL_GET_FREE, _CONFIGURE, _CLR_FD, _SET_DIRECT_IO = 0x4C82, 0x4C0A, 0x4C01, 0x4C08
_AUTOCLEAR, _DIRECT_IO = 4, 16
_RETRIES = 50  # others take free devices, too, and one that was just let go of is busy for a moment


def missing() -> str:
    """Why there are no loop devices here, in one line; empty if there are."""
    if not os.path.exists("/dev/loop-control"):
        return "the kernel has no loop devices (/dev/loop-control): modprobe loop"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "/dev/loop-control may not be opened: run as root"
    return ""


def attach(fd: int, offset: int, size: int, block_bytes: int = 512) -> tuple[int, str]:
    """Bytes offset..offset+size of an open file or device as a loop device: its descriptor, read and write, and path.

    offset, size: multiples of block_bytes, which is its sector: with one that is smaller than that of what it is made
    of it has no direct I/O. The device goes away with its last descriptor. Raises SystemLimit.
    """
    why = missing()
    if why:
        raise SystemLimit("cannot make a loop device", why)
    # struct loop_config: fd, block size, struct loop_info64 (device, inode, rdevice, offset, sizelimit, number, two
    # unused words, flags, file and crypt names and key, two words), reserved.
    # Direct I/O is asked for here already: until it has it, others find a loop device without (below.c).
    flags, name = _AUTOCLEAR | _DIRECT_IO, b"corelane"
    info = struct.pack("<QQQQQIIII64s64s32sQQ", 0, 0, 0, offset, size, 0, 0, 0, flags, name, b"", b"", 0, 0)
    config = struct.pack("<II", fd, block_bytes) + info + bytes(64)
    with open("/dev/loop-control", "rb+", buffering=0) as control:
        for attempt in range(_RETRIES):
            number = fcntl.ioctl(control, _CTL_GET_FREE)
            path = f"/dev/loop{number}"
            try:
                loop = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise SystemLimit("cannot make a loop device", f"{path}: {error.strerror}") from error
            try:
                fcntl.ioctl(loop, _CONFIGURE, config)
                break
            except OSError as error:
                os.close(loop)
                if error.errno != errno.EBUSY or attempt == _RETRIES - 1:
                    raise SystemLimit("cannot make a loop device", f"{path}: {error.strerror}") from error
                time.sleep(0.01)
    with contextlib.suppress(OSError):  # through the page cache then, which file.c finds out
        fcntl.ioctl(loop, _SET_DIRECT_IO, 1)
    return loop, path


def parts(path: str) -> list[int]:
    """Offsets of the loop devices that there are over parts of a file or device, whoever made them."""
    out = []
    for loop in Path("/sys/block").glob("loop*/loop"):
        with contextlib.suppress(OSError, ValueError):  # it went away while we looked
            if (loop / "backing_file").read_bytes().rstrip(b"\n") == os.fsencode(path):  # anybody's, any bytes
                out.append(int((loop / "offset").read_text()))
    return out

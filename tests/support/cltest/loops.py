"""What a process does to a loop device that it may write to."""

from __future__ import annotations

import fcntl
import struct

_SET_STATUS64, _GET_STATUS64 = 0x4C04, 0x4C05
_INFO = "<QQQQQIIII64s64s32sQQ"  # struct loop_info64 of linux/loop.h
_OFFSET, _SIZE_LIMIT = 3, 4


def move_loop(fd: int, offset: int, size: int) -> None:
    """Have the loop device be bytes offset..offset+size of what it was made of; size 0: up to its end."""
    info = list(struct.unpack(_INFO, fcntl.ioctl(fd, _GET_STATUS64, bytes(struct.calcsize(_INFO)))))
    info[_OFFSET], info[_SIZE_LIMIT] = offset, size
    fcntl.ioctl(fd, _SET_STATUS64, struct.pack(_INFO, *info))

"""Which pages of memory are there, by what the kernel says (mincore(2))."""

from __future__ import annotations

import ctypes
import mmap


def missing(address: int, length: int) -> int:
    """Pages of [address, address + length) that have no memory. Of a shared file's: that nobody has touched."""
    first = address - address % mmap.PAGESIZE
    length += address - first
    found = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(first), ctypes.c_size_t(length), found) == 0, ctypes.get_errno()
    return sum(not page & 1 for page in found)

"""The table of areas at the start of a raw device: two copies, written in turn, each with a checksum.

    bytes 0..64 KiB      copy 0: header, then the entries
    64 KiB..128 KiB      copy 1
    1 MiB..              the areas

The newer of the copies that are whole counts. A change is written over the older one by one durable write: power loss
at any byte of it leaves the newer one as it was. A device that is zero is given an empty table first, whose every half
is known, so that one that was torn then is told from something else that lies there. All numbers are little-endian.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ..drivers.blk import Blk, BlkError
from ..runtime.errors import CorelaneError
from .areas import Area

COPY_BYTES = 64 << 10
DATA_OFFSET = 1 << 20
_MAGIC = b"corelane areas\0\0"
_VERSION = 1
_HEADER = struct.Struct("<16sIIQQ")  # magic, version, entries, generation, bytes of the device
_ENTRY = struct.Struct("<64sQQII")  # name, offset, bytes, owner, 0
_CRC = struct.Struct("<I")  # last four bytes of the copy, over all before them
MAX_AREAS = (COPY_BYTES - _HEADER.size - _CRC.size) // _ENTRY.size


@dataclass(frozen=True, slots=True)
class Table:
    """generation: counts changes. damaged: one copy could not be read, or is not whole."""

    generation: int
    areas: tuple[Area, ...]
    damaged: bool = False


def encode(table: Table, device_bytes: int) -> bytes:
    """One copy."""
    out = bytearray(_HEADER.pack(_MAGIC, _VERSION, len(table.areas), table.generation, device_bytes))
    for a in table.areas:
        out += _ENTRY.pack(a.name.encode(), a.offset, a.size, a.owner, 0)
    out += bytes(COPY_BYTES - _CRC.size - len(out))
    return bytes(out) + _CRC.pack(zlib.crc32(out))


def decode(copy: bytes, device_bytes: int) -> Table | None:
    """A copy's table; None if it is not whole. Raises CorelaneError for one that is whole and not usable here."""
    magic, version, n, generation, of_bytes = _HEADER.unpack_from(copy)
    if magic != _MAGIC or _CRC.unpack(copy[-_CRC.size :])[0] != zlib.crc32(copy[: -_CRC.size]):
        return None
    if version != _VERSION or n > MAX_AREAS:
        raise CorelaneError("table of areas", f"its version is {version}, and this corelane knows {_VERSION}")
    if of_bytes > device_bytes:
        raise CorelaneError("table of areas", f"it is of a device of {of_bytes} bytes, and this one has {device_bytes}")
    areas = []
    for i in range(n):
        name, offset, size, owner, _ = _ENTRY.unpack_from(copy, _HEADER.size + i * _ENTRY.size)
        areas.append(Area(name.split(b"\0", 1)[0].decode(), owner, size, offset))
    return Table(generation, tuple(areas))


def load(blk: Blk) -> Table:
    """The table of a device; an empty one for a device whose first megabyte is zero.

    Raises CorelaneError if neither copy is whole: the device holds something else, or was damaged.
    """
    copies: list[Table | None] = []
    for i in range(2):
        try:
            copies.append(decode(blk.read(i * COPY_BYTES, COPY_BYTES), blk.size_bytes))
        except BlkError:
            copies.append(None)
    whole = [c for c in copies if c is not None]
    if whole:
        newest = max(whole, key=lambda c: c.generation)
        # A device that has seen one change only has one copy.
        return Table(newest.generation, newest.areas, damaged=len(whole) == 1 and newest.generation > 1)
    if not _blank(blk):
        why = "its first megabyte is neither zero nor a table of areas"
        raise CorelaneError("table of areas", why, "if it may be overwritten, write zeros there", errno.EBADMSG)
    return Table(0, ())


def _blank(blk: Blk) -> bool:
    """Whether a device is zero, but for pieces of the first table that `prepare` writes."""
    found, first = blk.read(0, DATA_OFFSET), bytes(COPY_BYTES) + encode(Table(1, ()), blk.size_bytes)
    first += bytes(DATA_OFFSET - len(first))
    step = blk.atomic_bytes
    pieces = ((found[i : i + step], first[i : i + step]) for i in range(0, DATA_OFFSET, step))
    return all(piece == wanted or not any(piece) for piece, wanted in pieces)


def prepare(blk: Blk) -> Table:
    """`load`, and give a device that is zero its first table."""
    table = load(blk)
    return table if table.generation else store(blk, table, ())


def store(blk: Blk, before: Table, areas: Sequence[Area]) -> Table:
    """Write a change; it is on the disk when this returns. Raises BlkError: old or new holds, which is not known."""
    if len(areas) > MAX_AREAS:
        raise CorelaneError("table of areas", f"it has room for {MAX_AREAS}", "delete some", errno.ENOSPC)
    table = Table(before.generation + 1, tuple(areas))
    blk.write(table.generation % 2 * COPY_BYTES, encode(table, blk.size_bytes), durable=True)
    return table

"""The table of areas at the start of a raw device: two copies of it, each with a checksum.

    bytes 0..64 KiB      copy 0: header, then the entries
    64 KiB..128 KiB      copy 1
    1 MiB..              the areas

All numbers are little-endian. Both copies are the same unless a change is under way. A change is written to one of them
and, once it is on the disk there, to the other, and is done only then. So every copy that is whole holds the last
change that was done, or the next one:

    power goes in the first write     the other copy has the table before; nobody was told of the change
    between the writes, or in the     the first copy has the change, and it counts, since it is the newer one
    second one
    a copy rots or cannot be read     the other one is as good

Before anything is made of a table both copies are made the same again, the one that is bad or older first: what was
found at one start is found at every later one. A change, too, looks at both first, and writes a bad one first, so that
one is whole at any time. A device that is zero is given an empty table; its every byte is known, so a first table that
was torn is told from something else that lies there.

Version 1 wrote one copy a change, by turns. There the copy that cannot be used may be the newer one, and is refused.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...drivers.blk.blk import Blk, BlkError
from ...runtime.errors import CorelaneError
from .areas import Area

COPY_BYTES = 64 << 10
DATA_OFFSET = 1 << 20
_MAGIC = b"corelane areas\0\0"
_VERSION = 2
_BY_TURNS = 1
_HEADER = struct.Struct("<16sIIQQ")  # magic, version, entries, generation, bytes of the device
_ENTRY = struct.Struct("<64sQQII")  # name, offset, bytes, owner, 0
_CRC = struct.Struct("<I")  # last four bytes of the copy, over all before them
MAX_AREAS = (COPY_BYTES - _HEADER.size - _CRC.size) // _ENTRY.size


@dataclass(frozen=True, slots=True)
class Table:
    """generation: counts changes; 0: the device has no table yet."""

    generation: int
    areas: tuple[Area, ...]
    version: int = _VERSION


@dataclass(frozen=True, slots=True)
class _Copy:
    """table: None if the copy is not whole, and `why` then says what is wrong with it."""

    slot: int
    table: Table | None
    why: str = ""

    def __str__(self) -> str:
        return f"copy {self.slot} of the table of areas, at offset {self.slot * COPY_BYTES},"


_ZERO = "is zero"
_OTHER = "is something else"
_UNREADABLE = "cannot be read"


def encode(table: Table, device_bytes: int) -> bytes:
    """One copy."""
    out = bytearray(_HEADER.pack(_MAGIC, table.version, len(table.areas), table.generation, device_bytes))
    for a in table.areas:
        out += _ENTRY.pack(a.name.encode(), a.offset, a.size, a.owner, 0)
    out += bytes(COPY_BYTES - _CRC.size - len(out))
    return bytes(out) + _CRC.pack(zlib.crc32(out))


def decode(copy: bytes, device_bytes: int, at: int = 0) -> Table:
    """A copy's table; it lies at `at`. Raises ValueError if it is not whole, CorelaneError if it is of no use here."""
    magic, version, n, generation, of_bytes = _HEADER.unpack_from(copy)
    if magic != _MAGIC:
        raise ValueError(_OTHER if any(copy) else _ZERO)
    if _CRC.unpack(copy[-_CRC.size :])[0] != zlib.crc32(copy[: -_CRC.size]):
        raise ValueError("has a wrong checksum")
    if version not in (_BY_TURNS, _VERSION) or n > MAX_AREAS:
        why = f"its version is {version}, and this corelane knows up to {_VERSION}"
        raise CorelaneError(f"table of areas at offset {at}", why, "use a newer corelane")
    if of_bytes > device_bytes:
        why = f"it is of a device of {of_bytes} bytes, and this one has {device_bytes}"
        raise CorelaneError(f"table of areas at offset {at}", why, "use the device as large as it was")
    areas = []
    for i in range(n):
        name, offset, size, owner, _ = _ENTRY.unpack_from(copy, _HEADER.size + i * _ENTRY.size)
        areas.append(Area(name.split(b"\0", 1)[0].decode(), owner, size, offset))
    return Table(generation, tuple(areas), version)


def _read(blk: Blk, slot: int) -> _Copy:
    at = slot * COPY_BYTES
    try:
        return _Copy(slot, decode(blk.read(at, COPY_BYTES), blk.size_bytes, at))
    except BlkError as error:
        return _Copy(slot, None, f"{_UNREADABLE} ({os.strerror(error.errno)})")
    except ValueError as error:
        return _Copy(slot, None, str(error))


def _write(blk: Blk, table: Table, copies: Sequence[_Copy]) -> None:
    """Write a table to copies, one after another, each on the disk before the next. Raises BlkError."""
    for copy in copies:
        blk.write(copy.slot * COPY_BYTES, encode(table, blk.size_bytes), durable=True)


def _damaged(copy: _Copy, whole: _Copy) -> str:
    if copy.table is None:
        return f"{copy} {copy.why}; it is written anew from copy {whole.slot}"
    what = f"is older than copy {whole.slot}: power went while the table was changed, or the disk lost a write"
    return f"{copy} {what}; it is written anew"


def _instead(copy: _Copy) -> str:
    """How to erase a copy, so that the other one counts."""
    return f"dd if=/dev/zero of=DEVICE bs={COPY_BYTES} seek={copy.slot} count=1 conv=notrunc"


def load(blk: Blk) -> tuple[Table, list[_Copy], list[str]]:
    """What counts on a device; the copies that do not hold it, in the order to write them; what is wrong with them.

    A device whose first megabyte is zero has a table of generation 0. Raises CorelaneError, with the offset, if
    it cannot be known what counts: no copy is whole, or the newer one may be the one that is not.
    """
    copies = [_read(blk, slot) for slot in range(2)]
    held = [(copy.table.generation, copy, copy.table) for copy in copies if copy.table is not None]
    if not held:
        _check_blank(blk, copies)
        return Table(0, ()), copies, []
    _, newest, table = max(held, key=lambda h: h[0])
    other = copies[1 - newest.slot]
    if table.version == _BY_TURNS and other.table is None and other.why != _ZERO:
        why = f"{other} {other.why}, and it may have held a newer table than copy {newest.slot}"
        hint = f"start again if the error may pass; to go without it, and a change perhaps: {_instead(other)}"
        raise CorelaneError("table of areas", why, hint, errno.EBADMSG)
    if other.table is not None and other.table.generation == table.generation and other.table.areas != table.areas:
        why = f"{newest} and copy {other.slot}, at offset {other.slot * COPY_BYTES}, differ and are of one generation"
        hint = f"erase the one that is not to count, as this does: {_instead(other)}"
        raise CorelaneError("table of areas", why, hint, errno.EBADMSG)
    counts = replace(table, version=_VERSION)
    stale = [copy for copy in (other, newest) if copy.table != counts]
    notes = [_damaged(other, newest)] if other.table is None or (other in stale and newest not in stale) else []
    return counts, stale, notes


def _check_blank(blk: Blk, copies: Sequence[_Copy]) -> None:
    """Refuse a device that is not zero, but for pieces of the first table that `prepare` writes."""
    damaged = "; ".join(f"{copy} {copy.why}" for copy in copies)
    hint = f"start again if the error may pass; zeros over the first {DATA_OFFSET} bytes give up all areas"
    if any(copy.why.startswith(_UNREADABLE) for copy in copies):
        raise CorelaneError("table of areas", damaged, hint, errno.EIO)
    found, first = blk.read(0, DATA_OFFSET), 2 * encode(Table(1, ()), blk.size_bytes)
    first += bytes(DATA_OFFSET - len(first))
    step = blk.atomic_bytes
    zeros = bytes(step)
    for at in range(0, DATA_OFFSET, step):
        piece = found[at : at + step]
        if piece in (zeros, first[at : at + step]):
            continue
        if any(copy.why not in (_ZERO, _OTHER) for copy in copies):
            raise CorelaneError("table of areas", damaged, hint, errno.EBADMSG)
        why = f"its first megabyte is neither zero nor a table of areas, from offset {at} on"
        raise CorelaneError("table of areas", why, "if it may be overwritten, write zeros there", errno.EBADMSG)


def prepare(blk: Blk) -> tuple[Table, list[str]]:
    """`load`, give a device that is zero its first table, and make both copies the same; and what was wrong with them.

    Raises CorelaneError, if a copy cannot be written, too: what is found now might then not be found again.
    """
    table, stale, notes = load(blk)
    if not table.generation:
        table = Table(1, ())
    try:
        _write(blk, table, stale)
    except BlkError as error:
        hint = "no area is given out before both copies are the same; copy the device to one that can be written"
        raise CorelaneError("table of areas", "; ".join([str(error), *notes]), hint, error.errno) from error
    return table, notes


def store(blk: Blk, before: Table, areas: Sequence[Area]) -> tuple[Table, list[str]]:
    """Write a change; it is on the disk, twice, when this returns. The new table; what was wrong with the old copies.

    Raises BlkError: old or new holds, which is not known until the table is read by `prepare`.
    """
    if len(areas) > MAX_AREAS:
        raise CorelaneError("table of areas", f"it has room for {MAX_AREAS}", "delete some", errno.ENOSPC)
    table = Table(before.generation + 1, tuple(areas))
    copies = sorted((_read(blk, slot) for slot in range(2)), key=lambda copy: copy.table == before)
    notes = [f"{copy} {copy.why or 'is another one'}; it is written anew" for copy in copies if copy.table != before]
    _write(blk, table, copies)
    return table, notes

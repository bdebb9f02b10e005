"""The table of areas on a device: no change that was done is lost, whatever is cut off, rots or cannot be read."""

from __future__ import annotations

import contextlib
import errno
import itertools
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cltest import soak

from corelane.drivers.blk import file as blk_file
from corelane.drivers.blk.blk import Blk, BlkError, BlkFaults, FaultBlk, memory_blk
from corelane.iokernel.areas import table as areas_table
from corelane.iokernel.areas.areas import Area
from corelane.iokernel.areas.device import DeviceStore, open_device
from corelane.iokernel.areas.table import COPY_BYTES, Table
from corelane.runtime.errors import CorelaneError

MIB, UNIT, SECTOR = 1 << 20, 4096, 512
COPY = COPY_BYTES // SECTOR  # pieces


def tables(n: int) -> list[list[Area]]:
    """What the table holds after each of n changes."""
    return [[Area(f"area{j}", j, UNIT * (i + 1), MIB * (j + 1)) for j in range(i + 1)] for i in range(n)]


OLD, NEW = tables(2)


def pieces(*parts: int, each: int) -> list[int]:
    """After which pieces of a change power goes, by how many pieces its parts have: around the ends of each part, and
    one in `each` between them. After all, in make soak."""
    ends = [0, *itertools.accumulate(parts)]
    around = {end + n for end in ends for n in (-1, 0, 1, 2)}
    step = soak.examples(each, 1)
    return [cut for cut in range(1, ends[-1] + 1) if cut in around or cut % step == 0]


def disk(size: int = 2 * MIB, seed: int = 1) -> FaultBlk:
    return FaultBlk(memory_blk(size, atomic_bytes=SECTOR), BlkFaults(), seed=seed)


def holding(blk: Blk, areas: list[Area]) -> Table:
    """The table of a device after one change."""
    return areas_table.store(blk, areas_table.prepare(blk)[0], areas)[0]


def copies(blk: Blk) -> tuple[bytes, bytes]:
    return blk.read(0, COPY_BYTES), blk.read(COPY_BYTES, COPY_BYTES)


def put(blk: Blk, slot: int, copy: bytes) -> None:
    blk.write(slot * COPY_BYTES, copy, durable=True)


def change(blk: Blk, table: Table, areas: list[Area]) -> bool:
    """Whether the change was done."""
    try:
        areas_table.store(blk, table, areas)
    except BlkError:
        return False
    return True


def crash(blk: FaultBlk) -> None:
    blk.crash()
    blk.set(BlkFaults())


def rot(blk: FaultBlk, slot: int) -> None:
    blk.rot(slot * COPY_BYTES, COPY_BYTES, bits=3)


def unread(blk: FaultBlk, slot: int) -> None:
    blk.unreadable(slot * COPY_BYTES + 8 * UNIT, UNIT)


def erase(blk: FaultBlk, slot: int) -> None:
    put(blk, slot, bytes(COPY_BYTES))


SOAK = pytest.mark.soak(short=True, takes_s=5)
HARM = pytest.mark.parametrize("harm", [rot, unread, erase])
SLOTS = pytest.mark.parametrize("slot", [0, 1])
Harm = Callable[[FaultBlk, int], None]


@SOAK
def test_a_table_is_the_old_or_the_new_one_after_power_went_at_any_piece_of_a_change():
    for cut in pieces(COPY, COPY, each=9):
        with disk(seed=cut) as blk:
            table = holding(blk, OLD)
            blk.set(BlkFaults(cut_after=cut))
            done = change(blk, table, NEW)
            crash(blk)
            found, _ = areas_table.prepare(blk)
            assert list(found.areas) in (OLD, NEW)
            assert not done or list(found.areas) == NEW
            # What is found once is found again, and what is written next, whatever was left.
            assert copies(blk)[0] == copies(blk)[1]
            areas_table.store(blk, found, [])
            assert areas_table.prepare(blk) == (Table(found.generation + 1, ()), [])


@SOAK
@SLOTS
@HARM
def test_a_change_beside_a_bad_copy_is_whole_after_power_went_at_any_piece(slot: int, harm: Harm):
    """The copy went bad while the iokernel ran: the good one is not written before the bad one is whole."""
    for cut in pieces(COPY, COPY, each=29):
        with disk(seed=cut) as blk:
            table = holding(blk, OLD)
            harm(blk, slot)
            blk.set(BlkFaults(cut_after=cut))
            done = change(blk, table, NEW)
            crash(blk)
            found, _ = areas_table.prepare(blk)
            assert list(found.areas) in (OLD, NEW)
            assert not done or list(found.areas) == NEW


@SLOTS
@HARM
@pytest.mark.parametrize("changes", [1, 2, 3])
def test_one_bad_copy_loses_nothing_is_told_of_and_written_anew(slot: int, harm: Harm, changes: int):
    with disk() as blk:
        table, _ = areas_table.prepare(blk)
        for areas in tables(changes):
            table, notes = areas_table.store(blk, table, areas)
            assert notes == []
        harm(blk, slot)
        found, notes = areas_table.prepare(blk)
        assert found == table
        assert len(notes) == 1
        assert f"copy {slot} of the table of areas, at offset {slot * COPY_BYTES}" in notes[0]
        harm(blk, 1 - slot)  # the other has what is needed again
        assert areas_table.prepare(blk)[0] == table
        assert areas_table.prepare(blk) == (table, [])


@SLOTS
@HARM
def test_a_copy_that_went_bad_is_told_of_and_mended_by_the_next_change(slot: int, harm: Harm):
    with disk() as blk:
        table = holding(blk, OLD)
        harm(blk, slot)
        table, notes = areas_table.store(blk, table, NEW)
        assert len(notes) == 1
        assert f"at offset {slot * COPY_BYTES}" in notes[0]
        assert areas_table.prepare(blk) == (table, [])


@SOAK
@SLOTS
@HARM
def test_power_may_go_again_while_a_table_is_mended(slot: int, harm: Harm):
    """Between the copies of a change, and with one bad: each piece of what the next start writes."""
    for cut in pieces(COPY, each=29):
        with disk(seed=cut) as blk:
            table = holding(blk, OLD)
            if harm is erase:  # power went between the copies
                put(blk, slot, areas_table.encode(Table(table.generation + 1, tuple(NEW)), blk.size_bytes))
                wanted = NEW
            else:
                harm(blk, slot)
                wanted = OLD
            blk.set(BlkFaults(cut_after=cut))
            try:
                areas_table.prepare(blk)
            except CorelaneError as error:
                assert "cannot write" in str(error)
            crash(blk)
            assert list(areas_table.prepare(blk)[0].areas) == wanted


@SLOTS
def test_a_table_that_cannot_be_mended_is_not_served(slot: int):
    """It may have a change that nobody was told of: that may not come and go."""
    with disk() as blk:
        table = holding(blk, OLD)
        put(blk, slot, areas_table.encode(Table(table.generation + 1, tuple(NEW)), blk.size_bytes))
        blk.set(BlkFaults(write_error=1, survive=0))
        with pytest.raises(CorelaneError, match=f"at {(1 - slot) * COPY_BYTES}.*no area is given out before"):
            areas_table.prepare(blk)
        crash(blk)
        found, notes = areas_table.prepare(blk)
        assert list(found.areas) == NEW
        assert "is older than" in notes[0]


@pytest.mark.parametrize("first", [rot, unread])
@pytest.mark.parametrize("second", [rot, unread])
def test_two_bad_copies_are_refused_with_offset_and_reason(first: Harm, second: Harm):
    reasons = {rot: "has a wrong checksum", unread: r"cannot be read \(Input/output error\)"}
    with disk() as blk:
        table = holding(blk, OLD)
        before = copies(blk)
        first(blk, 0)
        second(blk, 1)
        match = rf"at offset 0, {reasons[first]}; copy 1 .*, at offset 65536, {reasons[second]} \(start again if"
        for _ in range(2):
            with pytest.raises(CorelaneError, match=match):
                areas_table.prepare(blk)
        for slot in range(2):
            put(blk, slot, before[slot])
        assert areas_table.prepare(blk) == (table, [])


def test_copies_that_contradict_each_other_are_refused():
    with disk() as blk:
        table = holding(blk, OLD)
        put(blk, 1, areas_table.encode(replace(table, areas=tuple(NEW)), blk.size_bytes))
        with pytest.raises(CorelaneError, match="at offset 0, and copy 1, at offset 65536, differ"):
            areas_table.prepare(blk)
        erase(blk, 0)  # as the hint says
        assert list(areas_table.prepare(blk)[0].areas) == NEW


@SLOTS
def test_a_table_of_version_1_is_taken_over_unless_its_newer_copy_may_be_bad(slot: int):
    with disk() as blk:
        older, newer = (Table(g, tuple(areas), version=1) for g, areas in ((6 + slot, OLD), (7 + slot, NEW)))
        for table in (older, newer):
            put(blk, table.generation % 2, areas_table.encode(table, blk.size_bytes))
        bad = newer.generation % 2
        rot(blk, bad)
        with pytest.raises(CorelaneError, match=f"at offset {bad * COPY_BYTES}, has a wrong checksum, and it may have"):
            areas_table.prepare(blk)
        put(blk, bad, areas_table.encode(newer, blk.size_bytes))
        assert areas_table.prepare(blk) == (Table(newer.generation, tuple(NEW)), [])
        assert copies(blk)[0] == copies(blk)[1] == areas_table.encode(Table(newer.generation, tuple(NEW)), 2 * MIB)


@SOAK
@SLOTS
def test_power_may_go_while_a_table_of_version_1_is_taken_over(slot: int):
    for cut in pieces(COPY, COPY, each=17):
        with disk(seed=cut) as blk:
            for table in (Table(6 + slot, tuple(OLD), version=1), Table(7 + slot, tuple(NEW), version=1)):
                put(blk, table.generation % 2, areas_table.encode(table, blk.size_bytes))
            blk.set(BlkFaults(cut_after=cut))
            try:
                areas_table.prepare(blk)
            except CorelaneError as error:
                assert "cannot write" in str(error)
            crash(blk)
            try:
                found = areas_table.prepare(blk)[0]
            except CorelaneError as error:  # the older one was torn
                assert f"at offset {slot * COPY_BYTES}, has a wrong checksum" in str(error)
                erase(blk, slot)
                found = areas_table.prepare(blk)[0]
            assert list(found.areas) == NEW


def test_a_table_of_another_version_or_a_larger_device_is_refused_with_its_offset():
    with disk() as blk:
        table = holding(blk, OLD)
        put(blk, 1, areas_table.encode(replace(table, version=3), blk.size_bytes))
        with pytest.raises(CorelaneError, match="at offset 65536: its version is 3"):
            areas_table.prepare(blk)
        put(blk, 0, areas_table.encode(table, 4 * MIB))
        with pytest.raises(CorelaneError, match=f"at offset 0: it is of a device of {4 * MIB} bytes"):
            areas_table.prepare(blk)


@SOAK
def test_a_first_table_that_was_torn_is_made_good():
    for cut in pieces(COPY, COPY, each=9):
        with disk(seed=cut) as blk:
            blk.set(BlkFaults(cut_after=cut))
            try:
                areas_table.prepare(blk)
            except CorelaneError as error:
                assert "cannot write" in str(error)
            crash(blk)
            assert areas_table.prepare(blk)[0] == Table(1, ())
            assert areas_table.prepare(blk) == (Table(1, ()), [])


@pytest.mark.parametrize("case", range(30))
def test_a_table_survives_torn_and_failed_writes_and_rot(seed: int, case: int):
    rng = random.Random(seed + case)
    with disk(seed=seed + case) as blk:
        table = areas_table.prepare(blk)[0]
        may_be: list[list[Area]] = [[]]
        for areas in tables(8):
            blk.set(BlkFaults(write_error=0.5 if rng.random() < 0.5 else 0))
            if change(blk, table, areas):
                may_be = [areas]
            else:
                may_be.append(areas)  # and nobody changes it until it was read again
            crash(blk)
            if may_be == [areas] and rng.random() < 0.5:  # with one that was cut off it would be the second harm
                rng.choice([rot, unread, erase])(blk, rng.randrange(2))
            table = areas_table.prepare(blk)[0]
            assert list(table.areas) in may_be
            may_be = [list(table.areas)]


def test_a_full_table_is_refused():
    with memory_blk(4 * MIB) as blk:
        table, _ = areas_table.prepare(blk)
        with pytest.raises(CorelaneError, match="it has room for"):
            areas_table.store(blk, table, [Area("a", 0, UNIT)] * (areas_table.MAX_AREAS + 1))
        table, _ = areas_table.store(blk, table, [Area("a", 0, UNIT)] * areas_table.MAX_AREAS)
        assert areas_table.prepare(blk) == (table, [])
        assert len(table.areas) == areas_table.MAX_AREAS


@SLOTS
@HARM
def test_an_area_keeps_its_extent_and_its_bytes_beside_a_bad_copy(slot: int, harm: Harm):
    blk = disk(8 * MIB)
    store = DeviceStore(blk, "/nonexistent")
    store.create("raft-1", 0, MIB)
    store.create("raft-2", 0, MIB)
    before = store.areas()
    blk.write(before[1].offset, b"V" * UNIT, durable=True)
    harm(blk, slot)
    told: list[str] = []
    store = DeviceStore(blk, "/nonexistent", tell=told.append)
    assert store.areas() == before
    assert store.notes == told
    assert f"at offset {slot * COPY_BYTES}" in told[0]
    store.create("other", 0, MIB)
    assert [a.offset for a in store.areas()] == [MIB, 2 * MIB, 3 * MIB]
    assert blk.read(2 * MIB, UNIT) == b"V" * UNIT
    assert len(told) == 1
    store.close()


def test_a_store_whose_table_could_not_be_written_changes_nothing_more_and_hides_what_may_be_deleted():
    blk = disk(4 * MIB)
    store = DeviceStore(blk, "/nonexistent")
    store.create("a", 0, UNIT)
    store.create("b", 0, UNIT)
    a, b = store.areas()
    blk.set(BlkFaults(write_error=1, survive=0))
    with pytest.raises(BlkError):
        store.delete(a)
    assert store.areas() == [b]
    blk.set(BlkFaults())
    with pytest.raises(CorelaneError, match="restart the iokernel"):
        store.create("c", 0, UNIT)
    assert len(store.notes) == 1
    assert "nothing is changed any more" in store.notes[0]
    crash(blk)
    assert DeviceStore(blk, "/nonexistent").areas() == [a, b]
    store.close()


@pytest.mark.parametrize("what", ["grow", "create"])
def test_an_area_stays_as_it_was_when_a_change_of_another_kind_fails(what: str):
    blk = disk(4 * MIB)
    store = DeviceStore(blk, "/nonexistent")
    store.create("a", 0, UNIT)
    before = store.areas()
    blk.set(BlkFaults(cut_after=1 + 2 * UNIT // SECTOR))  # in the table, behind the zeros
    with pytest.raises(BlkError):
        store.grow(before[0], 2 * UNIT) if what == "grow" else store.create("b", 0, UNIT)
    assert store.areas() == before
    store.close()


@SOAK
@pytest.mark.parametrize("what", ["grow", "create"])
def test_what_a_table_names_is_zero_on_the_disk_whenever_power_goes(what: str):
    """The bytes of the one who had it before do not come back once the table says whose they are now."""
    there = 0
    for cut in pieces(2 * UNIT // SECTOR, COPY, COPY, each=29):
        blk = disk(seed=cut)
        store = DeviceStore(blk, "/nonexistent")
        store.create("a", 0, UNIT)
        blk.write(MIB + UNIT, b"s" * 2 * UNIT, durable=True)  # behind it: whose area is deleted
        # Of what is in the disk's cache nothing survives: what is to survive has to be flushed.
        blk.set(BlkFaults(cut_after=cut, survive=0))
        with contextlib.suppress(BlkError):
            store.grow(store.areas()[0], 3 * UNIT) if what == "grow" else store.create("b", 0, 2 * UNIT)
        crash(blk)
        found = DeviceStore(blk, "/nonexistent").areas()
        assert found[0].offset == MIB
        if found[-1].offset + found[-1].size == MIB + 3 * UNIT:
            assert blk.read(MIB + UNIT, 2 * UNIT) == bytes(2 * UNIT), f"power went at piece {cut}"
            there += 1
        store.close()
    assert there > 0


@SLOTS
def test_a_file_in_a_disks_place_is_mended_too(tmp_path: Path, slot: int):
    path = tmp_path / "disk"
    blk_file.create(path, 4 * MIB)
    store = open_device(str(path))
    store.create("a", 7, MIB)
    before = store.areas()
    store.close()
    with open(path, "rb+") as file:
        file.seek(slot * COPY_BYTES + 40)
        file.write(b"\xff")
    store = open_device(str(path))
    assert store.areas() == before
    assert "has a wrong checksum" in store.notes[0]
    store.close()
    store = open_device(str(path))
    assert (store.areas(), store.notes) == (before, [])
    store.close()
    for at in (40, COPY_BYTES + 40):
        with open(path, "rb+") as file:
            file.seek(at)
            file.write(b"\xff")
    found = path.read_bytes()
    with pytest.raises(CorelaneError, match=r"at offset 0, .*at offset 65536") as caught:
        open_device(str(path))
    assert caught.value.errno == errno.EBADMSG
    assert path.read_bytes() == found
    assert zlib.crc32(found[: COPY_BYTES - 4]) != int.from_bytes(found[COPY_BYTES - 4 : COPY_BYTES], "little")

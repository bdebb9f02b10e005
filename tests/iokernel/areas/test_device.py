"""Storage areas on a raw device: who gets at them, and where they lie."""

from __future__ import annotations

import errno
import os
import random

import pytest
from cltest import wait_until
from cltest.areas import CREATE, DELETE, LIST, MIB, OPEN, UNIT, device
from cltest.loops import move_loop

from corelane.drivers.blk import file as blk_file
from corelane.drivers.blk import loop as blk_loop
from corelane.drivers.blk.area import AreaBlk
from corelane.drivers.blk.blk import memory_blk
from corelane.iokernel import Iokernel
from corelane.iokernel.areas import table as areas_table
from corelane.iokernel.areas.areas import Area, Areas
from corelane.iokernel.areas.device import DeviceStore, gaps, open_device
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError, Refused


@pytest.mark.parametrize("sector", [512, UNIT])
def test_an_area_has_the_sectors_of_its_device_and_direct_io(tmp_path, sector):
    if why := blk_loop.missing():
        pytest.skip(why)
    blk_file.create(tmp_path / "disk", 16 * MIB)
    with open(tmp_path / "disk", "rb+") as file:
        fd, loop = blk_loop.attach(file.fileno(), 0, 16 * MIB, sector)
    store = open_device(loop)
    store.create("log", 0, MIB)
    (area,) = store.areas()
    with blk_file.FileBlk(store.open(area)[0]) as blk:
        assert blk.info().direct
        assert blk.atomic_bytes == sector
    store.close()
    os.close(fd)


def test_a_device_without_loop_devices_is_for_those_who_are_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(blk_loop, "missing", lambda: "there are none")
    path = str(tmp_path / "sock")
    store = device(tmp_path)
    with Iokernel(path, areas=Areas(store), poll="block"):
        control.area(path, CREATE, "log", MIB)
        with pytest.raises(CorelaneError, match=r"storage\.trusted = true") as caught:
            AreaBlk(path, "log")
        assert caught.value.errno == errno.EPERM
    store.close()
    store = device(tmp_path, trusted=True)
    with Iokernel(path, areas=Areas(store), poll="block"):
        control.area(path, CREATE, "more", MIB)
        with AreaBlk(path, "log") as log, AreaBlk(path, "more") as more:
            assert log.size_bytes == more.size_bytes == MIB
            log.write(0, b"l" * UNIT, durable=True)
            assert more.read(0, UNIT) == bytes(UNIT)
            with pytest.raises(CorelaneError, match="another client"):
                AreaBlk(path, "log")
    store.close()
    assert (tmp_path / "disk").read_bytes()[MIB : MIB + UNIT] == b"l" * UNIT


def test_an_area_whose_loop_device_was_moved_is_still_in_use(tmp_path):
    if why := blk_loop.missing():
        pytest.skip(why)
    store = device(tmp_path)
    store.create("log", 0, MIB)
    area = store.areas()[0]
    fd, limited = store.open(area)
    assert limited
    move_loop(fd, 8 * MIB, MIB)
    assert blk_loop.parts(str(tmp_path / "disk")) == [8 * MIB]
    assert store.in_use(area)
    with pytest.raises(Refused, match="another process has it open"):
        store.open(area)
    os.close(fd)
    wait_until(lambda: not store.in_use(area), what="the loop device to go away")
    store.close()


@pytest.mark.parametrize("still_trusted", [True, False])
def test_a_trusted_claim_outlives_the_iokernel(tmp_path, monkeypatch, still_trusted):
    """The one who has the area goes on; a new iokernel gives it to nobody else, nor away, until he lets go of it."""
    monkeypatch.setattr(blk_loop, "missing", lambda: "there are none")
    path = str(tmp_path / "sock")
    store = device(tmp_path, trusted=True)
    with Iokernel(path, areas=Areas(store), poll="block"):
        control.area(path, CREATE, "log", MIB)
        control.area(path, CREATE, "more", MIB)
        held = AreaBlk(path, "log")
    store.close()
    store = device(tmp_path, trusted=still_trusted)
    with held, Iokernel(path, areas=Areas(store), poll="block"):
        held.write(0, b"l" * UNIT, durable=True)
        for ask in (OPEN, DELETE):
            with pytest.raises(CorelaneError, match="open") as caught:
                control.area(path, ask, "log")
            assert caught.value.errno == errno.EBUSY
        used = {a["name"]: a["in_use"] for a in control.area(path, LIST)[0]["areas"]}
        assert used == {"log": True, "more": False}
        if still_trusted:
            with AreaBlk(path, "more") as more:
                more.write(0, b"m" * UNIT, durable=True)
        held.close()
        assert not any(a["in_use"] for a in control.area(path, LIST)[0]["areas"])
        if still_trusted:
            with AreaBlk(path, "log") as log:
                assert log.read(0, UNIT) == b"l" * UNIT
    store.close()


def test_a_device_that_holds_something_else_is_refused(tmp_path):
    blk_file.create(tmp_path / "disk", 4 * MIB)
    with open(tmp_path / "disk", "rb+") as file:
        file.write(b"\0" * 1080 + b"\x53\xef")  # a file system's magic
    with pytest.raises(CorelaneError, match="neither zero nor a table"):
        device(tmp_path)
    device_before = (tmp_path / "disk").read_bytes()
    with pytest.raises(CorelaneError):
        device(tmp_path)
    assert (tmp_path / "disk").read_bytes() == device_before


def test_a_device_is_found_again_as_it_was(tmp_path):
    store = device(tmp_path)
    store.create("a", 7, 2 * MIB)
    store.create("b", 8, 3 * MIB)
    store.delete(store.areas()[0])
    before = store.areas()
    store.close()
    store = device(tmp_path)
    assert store.areas() == before == [Area("b", 8, 3 * MIB, 3 * MIB)]
    assert store.notes == []
    store.close()


def test_extents_never_overlap_whatever_is_made_grown_and_deleted(seed):
    rng = random.Random(seed)
    store = DeviceStore(memory_blk(32 * MIB), "/nonexistent")
    made = 0
    for _ in range(150):
        areas = store.areas()
        kind = rng.random()
        try:
            if kind < 0.5 or not areas:
                made += 1
                store.create(f"a{made}", 0, rng.randint(1, 300) * UNIT)
            elif kind < 0.7:
                area = rng.choice(areas)
                store.grow(area, area.size + rng.randint(1, 100) * UNIT)
            else:
                store.delete(rng.choice(areas))
        except CorelaneError as error:
            assert error.errno == errno.ENOSPC
        at = areas_table.DATA_OFFSET
        for area in sorted(store.areas(), key=lambda a: a.offset):
            assert area.offset >= at
            at = area.offset + area.size
        assert at <= 32 * MIB
        taken = sum(a.size for a in store.areas())
        assert taken + sum(n for _, n in gaps(store.areas(), 32 * MIB)) == 31 * MIB
    assert made > 50
    store.close()

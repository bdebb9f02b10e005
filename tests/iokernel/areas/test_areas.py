"""Storage areas: what one who has one may do, and that nobody gets more. What becomes of a device's table:
test_table.py."""

from __future__ import annotations

import errno
import os

import pytest
from cltest import open_descriptors, wait_until
from cltest.areas import CREATE, DELETE, GROW, LIST, MIB, OPEN, ROOT, UNIT, delete_soon

from corelane.drivers.blk import file as blk_file
from corelane.drivers.blk.area import AreaBlk
from corelane.drivers.blk.blk import BlkError
from corelane.iokernel import Iokernel
from corelane.iokernel.areas.areas import Areas
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError


def test_an_area_is_made_opened_written_and_found_again(serving):
    answer, fd, _ = control.area(serving, CREATE, "log", 4 * MIB)
    assert fd == -1
    assert answer["area"]["bytes"] == 4 * MIB
    with AreaBlk(serving, "log") as blk:
        assert blk.size_bytes == 4 * MIB
        assert blk.read(0, MIB) == bytes(MIB)
        blk.write(4 * MIB - UNIT, b"a" * UNIT, durable=True)
        listed = control.area(serving, LIST)[0]
        assert [(a["name"], a["uid"], a["in_use"]) for a in listed["areas"]] == [("log", os.geteuid(), True)]
    with AreaBlk(serving, "log") as blk:
        assert blk.read(4 * MIB - UNIT, UNIT) == b"a" * UNIT


def test_a_second_claimant_is_refused_until_the_first_is_gone(serving):
    control.area(serving, CREATE, "log", MIB)
    _, fd, claim = control.area(serving, OPEN, "log")
    with pytest.raises(CorelaneError, match="another client has it open") as caught:
        AreaBlk(serving, "log")
    assert caught.value.errno == errno.EBUSY
    with pytest.raises(CorelaneError, match="end that one"):
        control.area(serving, DELETE, "log")
    # A client whose connection ends, and which keeps the descriptor all the same, is still in nobody's way but its own.
    os.close(claim)

    def refused_for_the_descriptor() -> bool:
        with pytest.raises(CorelaneError, match=r"another (client|process) has it open") as error:
            AreaBlk(serving, "log")
        return "process" in str(error.value)

    wait_until(refused_for_the_descriptor, what="the claim of the connection to end")
    os.close(fd)

    def opened() -> bool:
        try:
            AreaBlk(serving, "log").close()
        except CorelaneError:
            return False
        return True

    wait_until(opened, what="the descriptor's claim to end")


def test_a_claim_outlives_the_iokernel(store, tmp_path):
    path = str(tmp_path / "sock")
    with Iokernel(path, areas=Areas(store), poll="block"):
        control.area(path, CREATE, "log", MIB)
        _, fd, claim = control.area(path, OPEN, "log")
    with Iokernel(path, areas=Areas(store), poll="block"):
        with pytest.raises(CorelaneError, match="another process has it open"):
            control.area(path, OPEN, "log")
        assert control.area(path, LIST)[0]["areas"][0]["in_use"]
    os.close(fd)
    os.close(claim)


def test_a_descriptor_ends_where_the_area_ends(serving):
    control.area(serving, CREATE, "one", MIB)
    control.area(serving, CREATE, "two", MIB)
    with AreaBlk(serving, "one") as one, AreaBlk(serving, "two") as two:
        for at in range(0, MIB, 64 << 10):
            one.write(at, b"1" * (64 << 10))
            two.write(at, b"2" * (64 << 10))
        one.flush()
        two.flush()
        assert one.read(0, MIB) == b"1" * MIB
        assert two.read(0, MIB) == b"2" * MIB
        with pytest.raises(BlkError):
            one.write(MIB, b"3" * UNIT)


def test_what_is_given_back_comes_back_as_zeros(serving):
    control.area(serving, CREATE, "old", 8 * MIB)
    with AreaBlk(serving, "old") as blk:
        for at in range(0, 8 * MIB, MIB):
            blk.write(at, b"secret! " * (MIB // 8))
        blk.flush()
    delete_soon(lambda: control.area(serving, DELETE, "old"))
    control.area(serving, CREATE, "new", 8 * MIB)
    with AreaBlk(serving, "new") as blk:
        for at in range(0, 8 * MIB, MIB):
            assert blk.read(at, MIB) == bytes(MIB)


def test_an_area_grows_and_keeps_what_it_holds(serving):
    control.area(serving, CREATE, "log", MIB)
    with AreaBlk(serving, "log") as blk:
        blk.write(0, b"k" * UNIT, durable=True)
    assert control.area(serving, GROW, "log", 3 * MIB)[0]["area"]["bytes"] == 3 * MIB
    with AreaBlk(serving, "log") as blk:
        assert blk.size_bytes == 3 * MIB
        assert blk.read(0, 2 * UNIT) == b"k" * UNIT + bytes(UNIT)
    for size in (MIB, 3 * MIB):
        with pytest.raises(CorelaneError, match=f"it has 3145728 bytes already, and {size} are not more") as caught:
            control.area(serving, GROW, "log", size)
        assert caught.value.errno == errno.EINVAL


def test_what_an_area_grows_into_is_zeros_whoever_had_it(store):
    areas = Areas(store)
    for name in ("annas", "berts"):  # one behind the other on a device
        areas.handle(CREATE, name, 2 * MIB, "", ROOT)
    _, fd = areas.handle(OPEN, "berts", 0, "", ROOT)
    with blk_file.FileBlk(fd) as blk:
        for at in (0, MIB):
            blk.write(at, b"secret! " * (MIB // 8))
        blk.flush()
    areas.release("berts")
    delete_soon(lambda: areas.handle(DELETE, "berts", 0, "", ROOT))
    areas.handle(GROW, "annas", 4 * MIB, "", ROOT)
    _, fd = areas.handle(OPEN, "annas", 0, "", ROOT)
    with blk_file.FileBlk(fd) as blk:
        assert blk.read(0, 4 * MIB) == bytes(4 * MIB)


@pytest.mark.parametrize(
    ("op", "name", "size", "match", "code"),
    [
        (CREATE, "a/b", MIB, "a name is 1 to 47", errno.EINVAL),
        (CREATE, "..", MIB, "a name is 1 to 47", errno.EINVAL),
        (CREATE, "", MIB, "a name is 1 to 47", errno.EINVAL),
        (CREATE, "there", MIB, "it exists already", errno.EEXIST),
        (CREATE, "odd", 1000, "no multiple of 4096", errno.EINVAL),
        (CREATE, "none", 0, "it would have no bytes", errno.EINVAL),
        (GROW, "there", MIB + 1000, "no multiple of 4096", errno.EINVAL),
        (CREATE, "big", 10 * MIB, "1048576 of 10485760 bytes in use", errno.EDQUOT),
        (GROW, "there", 11 * MIB, "too many", errno.EDQUOT),
        (GROW, "nobody", MIB, "there is none", errno.ENOENT),
        (OPEN, "nobody", 0, "there is none", errno.ENOENT),
        (77, "there", 0, "there is no operation 77", errno.EPROTO),
    ],
)
def test_what_makes_no_sense_is_refused(serving, op, name, size, match, code):
    control.area(serving, CREATE, "there", MIB)
    with pytest.raises(CorelaneError, match=match) as caught:
        control.area(serving, op, name, size)
    assert caught.value.errno == code
    assert len(control.area(serving, LIST)[0]["areas"]) == 1


def test_an_iokernel_without_storage_says_so(tmp_path):
    path = str(tmp_path / "sock")
    with Iokernel(path, poll="block"), pytest.raises(CorelaneError, match=r"set storage\.directory or storage\.device"):
        control.area(path, LIST)


def test_what_cannot_be_locked_is_let_go_of(store, monkeypatch):
    """As on a file system without locks."""
    store.create("log", 0, MIB)
    (area,) = store.areas()

    def fails(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("corelane.iokernel.areas.areas.fcntl.flock", fails)
    monkeypatch.setattr("corelane.iokernel.areas.device.fcntl.fcntl", fails)
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(OSError, match="No locks available"):
            store.open(area)
    assert open_descriptors() == before

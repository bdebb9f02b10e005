"""Storage areas: who gets what, and that nobody gets more. What becomes of a device's table: test_table.py."""

from __future__ import annotations

import errno
import itertools
import os
import random
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import open_descriptors, wait_until
from cltest.control import answer, connect, kind_of, refusal, stats
from cltest.loops import file_system, loop_device, mounted, move_loop

from corelane.drivers.blk import file as blk_file
from corelane.drivers.blk import loop as blk_loop
from corelane.drivers.blk.area import AreaBlk
from corelane.drivers.blk.blk import BlkError, memory_blk
from corelane.iokernel import Access, Iokernel
from corelane.iokernel._native import ffi, lib
from corelane.iokernel.areas import table as areas_table
from corelane.iokernel.areas.areas import Area, Areas, DirectoryStore, Store
from corelane.iokernel.areas.device import DeviceStore, gaps, open_device
from corelane.iokernel.areas.operations import Busy
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError, Refused
from corelane.runtime.peers import Peer

MIB, UNIT = 1 << 20, 4096
ROOT = Peer(1, 0, 0, frozenset())
ANNA, BERT = Peer(2, 12001, 1, frozenset()), Peer(3, 12002, 1, frozenset())
LIST, CREATE, GROW = lib.CL_CONTROL_AREA_LIST, lib.CL_CONTROL_AREA_CREATE, lib.CL_CONTROL_AREA_GROW
DELETE, OPEN = lib.CL_CONTROL_AREA_DELETE, lib.CL_CONTROL_AREA_OPEN


def device(tmp_path: Path, size: int = 16 * MIB, *, trusted: bool = False) -> DeviceStore:
    """A file in a disk's place."""
    if not (tmp_path / "disk").exists():
        blk_file.create(tmp_path / "disk", size)
    return open_device(str(tmp_path / "disk"), trusted=trusted)


def made(request: pytest.FixtureRequest, tmp_path: Path, *, trusted: bool) -> Iterator[Store]:
    if request.param == "device" and (why := blk_loop.missing()):
        pytest.skip(why)
    folder = str(tmp_path / "d")
    kind = request.param
    store: Store = DirectoryStore(folder, 15 * MIB) if kind == "directory" else device(tmp_path, trusted=trusted)
    yield store
    store.close()


@pytest.fixture(params=["directory", "device"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    yield from made(request, tmp_path, trusted=False)


@pytest.fixture(params=["directory", "device"])
def shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """One that gives areas to all users."""
    yield from made(request, tmp_path, trusted=True)


@pytest.fixture
def serving(store: Store, tmp_path: Path) -> Iterator[str]:
    """Socket of an iokernel that gives out areas."""
    path = str(tmp_path / "sock")
    with Iokernel(path, areas=Areas(store, quota=10 * MIB), mode="block"):
        yield path


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
    with Iokernel(path, areas=Areas(store), mode="block"):
        control.area(path, CREATE, "log", MIB)
        _, fd, claim = control.area(path, OPEN, "log")
    with Iokernel(path, areas=Areas(store), mode="block"):
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

    def deleted() -> bool:
        try:
            control.area(serving, DELETE, "old")
        except CorelaneError as error:
            assert error.errno == errno.EBUSY
            return False
        return True

    wait_until(deleted, what="the area to be free again")
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

    def deleted() -> bool:
        try:
            areas.handle(DELETE, "berts", 0, "", ROOT)
        except CorelaneError as error:
            assert error.errno == errno.EBUSY
            return False
        return True

    wait_until(deleted, what="the area to be free again")
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
    with Iokernel(path, mode="block"), pytest.raises(CorelaneError, match=r"set storage\.directory or storage\.device"):
        control.area(path, LIST)


def test_an_area_is_its_owners(shared_store):
    areas = Areas(shared_store)
    areas.handle(CREATE, "annas", MIB, "", ANNA)
    areas.handle(CREATE, "berts", MIB, "12002", ROOT)
    assert [a["name"] for a in areas.handle(LIST, "", 0, "", ANNA)[0]["areas"]] == ["annas"]
    assert [a["uid"] for a in areas.handle(LIST, "", 0, "", ROOT)[0]["areas"]] == [12001, 12002]
    for op in (GROW, DELETE, OPEN):
        with pytest.raises(CorelaneError, match="it is not user 12001's") as caught:
            areas.handle(op, "berts", 2 * MIB, "", ANNA)
        assert caught.value.errno == errno.EACCES
    with pytest.raises(CorelaneError, match="may not make one for another"):
        areas.handle(CREATE, "more", MIB, "12002", ANNA)
    with pytest.raises(CorelaneError, match="there is no user"):
        areas.handle(CREATE, "more", MIB, "nobody-of-that-name", ROOT)
    _, fd = areas.handle(OPEN, "berts", 0, "", BERT)
    os.close(fd)


def test_quota_and_capacity_are_kept(shared_store):
    areas = Areas(shared_store, quota=6 * MIB)
    areas.handle(CREATE, "a", 5 * MIB, "", ANNA)
    with pytest.raises(CorelaneError) as caught:
        areas.handle(CREATE, "b", 2 * MIB, "", ANNA)
    assert caught.value.errno == errno.EDQUOT
    areas.handle(CREATE, "b", 6 * MIB, "", BERT)
    with pytest.raises(CorelaneError) as caught:
        areas.handle(CREATE, "c", 5 * MIB, "", ROOT)
    assert caught.value.errno == errno.ENOSPC
    assert areas.handle(LIST, "", 0, "", ROOT)[0]["largest_bytes"] == 4 * MIB
    areas.handle(CREATE, "c", 4 * MIB, "", ROOT)
    areas.handle(DELETE, "b", 0, "", BERT)
    areas.handle(CREATE, "d", 6 * MIB, "", BERT)


def test_by_default_no_user_takes_all_that_there_is(shared_store):
    areas = Areas(shared_store, quota_areas=3)
    with pytest.raises(CorelaneError, match="user 12001 has 0 of 7864320 bytes in use besides") as caught:
        areas.handle(CREATE, "a", 8 * MIB, "", ANNA)
    assert caught.value.errno == errno.EDQUOT
    assert areas.handle(LIST, "", 0, "", ANNA)[0]["quota_bytes"] == 7864320
    for i in range(3):
        areas.handle(CREATE, f"a{i}", UNIT, "", ANNA)
    with pytest.raises(CorelaneError, match=r"user 12001 has 3 areas already \(raise storage\.quota_areas") as caught:
        areas.handle(CREATE, "more", UNIT, "", ANNA)
    assert caught.value.errno == errno.EDQUOT
    assert areas.handle(LIST, "", 0, "", ROOT)[0]["quota_bytes"] == 0
    areas.handle(CREATE, "roots", 14 * MIB, "", ROOT)


def test_an_area_grows_to_the_quota_and_no_further(shared_store):
    areas = Areas(shared_store, quota=6 * MIB)
    areas.handle(CREATE, "other", MIB, "", ANNA)
    areas.handle(CREATE, "log", MIB, "", ANNA)
    with pytest.raises(CorelaneError, match="1048576 of 6291456 bytes in use besides") as caught:
        areas.handle(GROW, "log", 5 * MIB + UNIT, "", ANNA)
    assert caught.value.errno == errno.EDQUOT
    assert areas.handle(GROW, "log", 5 * MIB, "", ANNA)[0]["area"]["bytes"] == 5 * MIB


@pytest.mark.parametrize(
    ("owner", "match"),
    [
        ("²", "there is no user '²'"),
        ("-1", "there is no user '-1'"),
        ("a\0b", "there is no user"),
        ("1" * 5000, "there is no user"),
        ("4294967295", "user ids are numbers from 0 to 4294967294"),
        ("99999999999999", "user ids are numbers from 0 to 4294967294"),
    ],
)
def test_an_owner_who_cannot_be_one_is_refused_before_anything_is_written(tmp_path, owner, match):
    folder, disk = DirectoryStore(str(tmp_path / "d")), memory_blk(4 * MIB)
    (tmp_path / "disk").touch()  # what claims would be on
    table = DeviceStore(disk, str(tmp_path / "disk"))
    writes = disk.stats().writes
    for store in (folder, table):
        with pytest.raises(Refused, match=match) as caught:
            Areas(store).handle(CREATE, "log", MIB, owner, ROOT)
        assert caught.value.errno == errno.EINVAL
        assert store.areas() == []
    assert os.listdir(tmp_path / "d") == []
    assert disk.stats().writes == writes
    Areas(table).handle(CREATE, "log", MIB, "4294967294", ROOT)
    assert [a.owner for a in DeviceStore(disk, "/nonexistent").areas()] == [4294967294]
    table.close()


def test_a_folder_that_others_write_in_is_refused_and_leftovers_go(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(CorelaneError, match="chmod 700"):
        DirectoryStore(str(tmp_path / "open"))
    (tmp_path / "own").mkdir(mode=0o700)
    for name in ("a@0.area.77.new", "a@0.area", "note"):
        (tmp_path / "own" / name).write_bytes(bytes(UNIT))
    assert DirectoryStore(str(tmp_path / "own")).areas() == [Area("a", 0, UNIT)]
    assert sorted(os.listdir(tmp_path / "own")) == ["a@0.area", "note"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user: run as root")
def test_a_folder_of_another_user_is_refused_and_nothing_in_it_touched(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    (folder / "a@0.area.77.new").touch()
    os.chown(folder, 65534, 65534)
    with pytest.raises(CorelaneError, match="it belongs to user 65534, who may put there what he likes") as caught:
        DirectoryStore(str(folder))
    assert caught.value.errno == errno.EPERM
    assert f"chown 0 {folder}" in str(caught.value)
    assert os.listdir(folder) == ["a@0.area.77.new"]


def test_what_is_no_regular_file_is_no_area(tmp_path):
    (tmp_path / "secret").write_bytes(b"s" * UNIT)
    folder = tmp_path / "d"
    folder.mkdir(mode=0o700)
    (folder / "link@0.area").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe@0.area")
    (folder / "dir@0.area").mkdir()
    store = DirectoryStore(str(folder))
    assert store.areas() == []
    said = "is no regular file, and so no area"
    assert sorted(store.notes) == [f"{folder}/{name}@0.area {said}" for name in ("dir", "link", "pipe")]
    with pytest.raises(CorelaneError, match="File exists"):
        Areas(store).handle(CREATE, "link", MIB, "0", ROOT)
    assert (tmp_path / "secret").read_bytes() == b"s" * UNIT


@pytest.mark.parametrize("kind", ["link", "pipe", "dir"])
def test_what_takes_the_place_of_an_areas_file_is_not_opened(tmp_path, kind):
    store = DirectoryStore(str(tmp_path / "d"))
    store.create("log", 0, MIB)
    area, path = store.areas()[0], tmp_path / "d" / "log@0.area"
    path.rename(tmp_path / "secret")
    if kind == "link":
        path.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    for what in (store.open, store.in_use):
        with pytest.raises(Refused, match=r"log@0\.area is no regular file") as caught:
            what(area)
        assert caught.value.errno == errno.EPERM


def test_a_crash_while_an_area_of_a_folder_is_made_leaves_it_whole_or_not_at_all(tmp_path):
    """What a crash between the calls of drivers/blk/create.c leaves: zeros without a name, and a file of two names."""
    store = DirectoryStore(str(tmp_path / "d"))
    store.create("old", 7, MIB)
    (tmp_path / "d" / "old@7.area").write_bytes(b"o" * MIB)
    (tmp_path / "d" / "half@7.area.77.new").write_bytes(bytes(UNIT))
    os.link(tmp_path / "d" / "old@7.area", tmp_path / "d" / "old@7.area.78.new")
    store.close()
    store = DirectoryStore(str(tmp_path / "d"))
    assert store.areas() == [Area("old", 7, MIB)]
    assert os.listdir(tmp_path / "d") == ["old@7.area"]
    assert (tmp_path / "d" / "old@7.area").read_bytes() == b"o" * MIB


@pytest.mark.parametrize("what", ["iterdir", "stat"])
def test_a_folder_that_cannot_be_read_is_an_error_and_no_shorter_listing(tmp_path, monkeypatch, what):
    store = DirectoryStore(str(tmp_path / "d"))
    store.create("a", 0, MIB)

    def fails(path: Path, **_options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(Path, what, fails)
    with pytest.raises(OSError, match="Input/output error"):
        Areas(store).handle(LIST, "", 0, "", ROOT)
    store.close()
    with pytest.raises((CorelaneError, OSError), match="Input/output error"):
        DirectoryStore(str(tmp_path / "d"))


def test_a_folder_has_one_iokernel(tmp_path):
    """Two would each delete what the other's clients have open, and what it is making."""
    folder = str(tmp_path / "d")
    first = DirectoryStore(folder)
    (tmp_path / "d" / "a@0.area.77.new").write_bytes(bytes(UNIT))
    with pytest.raises(CorelaneError, match="another iokernel has it") as caught:
        DirectoryStore(folder)
    assert caught.value.errno == errno.EBUSY
    assert os.listdir(folder) == ["a@0.area.77.new"]
    ends = threading.Timer(0.1, first.close)  # as one that was killed and is started again at once
    ends.start()
    DirectoryStore(folder).close()
    assert os.listdir(folder) == []
    ends.join()


def test_what_is_opened_while_an_area_is_deleted_keeps_it(tmp_path, monkeypatch):
    """Between the look whether somebody has it and the deletion."""
    store = DirectoryStore(str(tmp_path / "d"))
    store.create("log", 0, MIB)
    (area,) = store.areas()
    path = tmp_path / "d" / "log@0.area"
    with blk_file.FileBlk(path) as blk:
        monkeypatch.setattr(store, "in_use", lambda _area: False)
        with pytest.raises(Refused, match="another process has it open") as caught:
            Areas(store).handle(DELETE, "log", 0, "", ROOT)
        assert caught.value.errno == errno.EBUSY
        blk.write(0, b"x" * UNIT, durable=True)
    assert path.read_bytes()[:UNIT] == b"x" * UNIT
    store.delete(area)
    assert not path.exists()
    store.close()


def test_an_area_whose_user_was_killed_a_moment_ago_is_had(serving):
    """What is registered with io_uring goes with its locks a while after the process."""
    control.area(serving, CREATE, "log", MIB)
    for ask in (OPEN, DELETE):
        _, fd, claim = control.area(serving, OPEN, "log")
        os.close(claim)
        ends = threading.Timer(0.1, os.close, [fd])
        ends.start()
        _, again, claim = control.area(serving, ask, "log")
        ends.join()
        if ask == OPEN:
            os.close(again)
            os.close(claim)
    assert control.area(serving, LIST)[0]["areas"] == []


def test_what_somebody_has_is_busy_at_once(store):
    """Whoever waits for it is the control thread's jobs, and not the one thread that opens areas."""
    areas = Areas(store)
    store.create("log", 0, MIB)
    fd, _ = store.open(store.areas()[0])
    for op in (OPEN, DELETE):
        with pytest.raises(Busy) as caught:
            areas.handle(op, "log", 0, "", ROOT)
        assert caught.value.errno == errno.EBUSY
    os.close(fd)
    areas.handle(OPEN, "log", 0, "", ROOT)
    with pytest.raises(Refused, match="another client has it open") as refused:
        areas.handle(OPEN, "log", 0, "", ROOT)
    assert not isinstance(refused.value, Busy), "it will have it for longer than a moment"


def message(op: int, name: str, size: int = 0) -> bytes:
    ask = ffi.new("struct cl_control_area *", {"op": op, "bytes": size, "name": name.encode()})
    header = ask.header
    header.magic, header.version = lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION
    header.type, header.bytes = lib.CL_CONTROL_AREA, ffi.sizeof("struct cl_control_area")
    return bytes(ffi.buffer(ask))


def test_many_who_ask_for_a_busy_area_hold_nobody_up(serving):
    """Who has it keeps the descriptor, and has ended the connection."""
    for name in ("busy", "free"):
        control.area(serving, CREATE, name, MIB)
    _, fd, claim = control.area(serving, OPEN, "busy")
    os.close(claim)
    wait_until(lambda: stats(serving)["control"]["areas_opened"] == 1)
    asking = [connect(serving) for _ in range(40)]
    for sock in asking:
        sock.sendall(message(OPEN, "busy"))
    with AreaBlk(serving, "free"):
        assert not select.select(asking, [], [], 0)[0], "all of them wait, and it did not wait for one of them"
    for sock in asking:
        assert "another process has it open" in refusal(sock)
        sock.close()
    os.close(fd)


@pytest.fixture
def writing(store, monkeypatch) -> tuple[threading.Event, threading.Event]:
    """`begun, go`: what is written for a new area stops at its first byte, until `go` is set."""
    begun, go = threading.Event(), threading.Event()

    def stopping(function):
        def wait(*args, **options):
            if isinstance(store, DirectoryStore) or args[2:] == (1,):  # the queue of zeros
                begun.set()
                assert go.wait(60)
            return function(*args, **options)

        return wait

    if isinstance(store, DirectoryStore):
        monkeypatch.setattr(blk_file, "create", stopping(blk_file.create))
        monkeypatch.setattr(blk_file, "grow", stopping(blk_file.grow))
    else:
        monkeypatch.setattr(store._blk, "write", stopping(store._blk.write))
    return begun, go


def test_nothing_waits_behind_the_making_of_an_area(serving, store, writing):
    begun, go = writing
    go.set()
    control.area(serving, CREATE, "there", MIB)
    control.area(serving, CREATE, "old", MIB)
    begun.clear()
    go.clear()
    with connect(serving) as maker:
        maker.sendall(message(CREATE, "big", 4 * MIB))
        assert begun.wait(60)
        assert [a["name"] for a in control.area(serving, LIST)[0]["areas"]] == ["old", "there"]
        AreaBlk(serving, "there").close()
        control.area(serving, DELETE, "old")
        go.set()
        assert kind_of(answer(maker)) == lib.CL_CONTROL_AREA_OK
    assert sorted(a.name for a in store.areas()) == ["big", "there"]


def test_what_is_being_made_or_grown_is_nobody_elses_meanwhile(store, writing):
    begun, go = writing
    areas = Areas(store, quota=10 * MIB)
    go.set()
    areas.handle(CREATE, "log", MIB, "", ROOT)
    for op, name, size in ((GROW, "log", 8 * MIB), (CREATE, "new", 2 * MIB)):
        begun.clear()
        go.clear()
        maker = threading.Thread(target=areas.handle, args=(op, name, size, "", ROOT))
        maker.start()
        assert begun.wait(60)
        if op == GROW:
            for other in (GROW, OPEN, DELETE):
                with pytest.raises(Refused, match="it is being made, grown or deleted") as caught:
                    areas.handle(other, name, 9 * MIB, "", ROOT)
                assert caught.value.errno == errno.EBUSY
        else:
            with pytest.raises(Refused, match="it is being made, grown or deleted"):
                areas.handle(CREATE, name, MIB, "12002", ROOT)
        with pytest.raises(Refused) as caught:
            areas.handle(CREATE, "more", 6 * MIB, "", ROOT)
        assert caught.value.errno == errno.EDQUOT, "its bytes count before they are written"
        with pytest.raises(Refused) as caught:
            areas.handle(CREATE, "more", 8 * MIB, "12002", ROOT)
        assert caught.value.errno == errno.ENOSPC
        go.set()
        maker.join()
    assert {a.name: a.size for a in store.areas()} == {"log": 8 * MIB, "new": 2 * MIB}


def test_what_is_being_deleted_is_opened_by_nobody(store, monkeypatch):
    """Between the look whether somebody has it and its end: on a device another area may lie there then."""
    areas = Areas(store)
    areas.handle(CREATE, "log", MIB, "", ROOT)
    delete = store.delete

    def look(area: Area) -> None:
        for op in (OPEN, GROW, DELETE):
            with pytest.raises(Refused, match="it is being made, grown or deleted"):
                areas.handle(op, "log", 2 * MIB, "", ROOT)
        delete(area)

    monkeypatch.setattr(store, "delete", look)
    areas.handle(DELETE, "log", 0, "", ROOT)
    with pytest.raises(Refused, match="there is none"):
        areas.handle(OPEN, "log", 0, "", ROOT)


def test_several_users_make_areas_at_a_time(store, writing):
    begun, go = writing
    areas = Areas(store)
    makers = []
    for i, owner in enumerate(("12001", "12002", "12003")):
        begun.clear()
        maker = threading.Thread(target=areas.handle, args=(CREATE, f"a{i}", 2 * MIB, owner, ROOT))
        maker.start()
        makers.append(maker)
        if i == 0 or isinstance(store, DirectoryStore):  # a device has one queue for zeros
            assert begun.wait(60)
    go.set()
    for maker in makers:
        maker.join()
    found = sorted(store.areas(), key=lambda a: a.offset)
    assert sorted(a.name for a in found) == ["a0", "a1", "a2"]
    for before, after in itertools.pairwise(found):
        assert isinstance(store, DirectoryStore) or before.offset + before.size <= after.offset


def test_an_area_is_not_larger_than_what_it_takes_up(tmp_path):
    """Its user may lengthen its file by a hole, and must not leave others without room by that."""
    store = DirectoryStore(str(tmp_path / "d"), 4 * MIB)
    store.create("log", 0, MIB)
    os.truncate(tmp_path / "d" / "log@0.area", 1 << 40)
    total, free = store.space()
    assert total == 4 * MIB
    assert 2 * MIB <= free <= 3 * MIB
    store.create("other", 7, 2 * MIB)
    store.close()


CACHES = r"/.*: a loop device has no direct I/O .* \(make the loop device, .*, or give the iokernel a folder or device"


def test_a_device_that_goes_through_a_page_cache_is_refused(tmp_path):
    """All areas on it would share the one opening that is told of a write that failed, once."""
    blk_file.create(tmp_path / "disk", 16 * MIB)
    with loop_device(tmp_path / "disk", cached=True) as loop:
        with pytest.raises(CorelaneError, match=f"storage.device {CACHES}") as caught:
            open_device(loop)
        assert caught.value.errno == errno.EOPNOTSUPP
        with blk_file.FileBlk(loop):
            pass  # it was let go of


@pytest.mark.root
def test_a_file_or_folder_that_goes_through_a_page_cache_is_refused(tmp_path):
    with file_system(tmp_path / "at", tmp_path / "image", cached=True, size=16 * MIB) as at:
        blk_file.create(at / "disk", 8 * MIB)
        with pytest.raises(CorelaneError, match=f"storage.device {CACHES}"):
            open_device(str(at / "disk"))
        with pytest.raises(CorelaneError, match=f"storage.directory {CACHES}") as caught:
            DirectoryStore(str(at / "areas"))
        assert caught.value.errno == errno.EOPNOTSUPP
        with blk_file.FileBlk(at / "disk"):
            pass


@pytest.mark.root
def test_what_may_go_through_a_page_cache_is_said(tmp_path):
    """Of a raw device, whose applications would then all write through it, more is asked."""
    with file_system(tmp_path / "at", tmp_path / "image", cached=True, size=16 * MIB) as at:
        for name in ("lower", "upper", "work"):
            (at / name).mkdir()
        options = f"lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work"
        with mounted(tmp_path / "over", "none", "-t", "overlay", "-o", options) as over:
            blk_file.create(over / "disk", 8 * MIB)
            stores = [
                (f"storage.device {over}/disk", open_device(str(over / "disk"))),
                (f"storage.directory {over}/areas", DirectoryStore(str(over / "areas"))),
            ]
            for what, store in stores:
                (note,) = store.notes
                assert note.startswith(f"{what}: it is not known whether it lies on a loop device without direct I/O")
                store.create("log", 0, MIB)
                store.close()
            refused = pytest.raises(CorelaneError, match=r"it is not known .* \(give the iokernel another device, or")
            with loop_device(over / "disk", cached=False) as loop, refused:
                open_device(loop)


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
    with Iokernel(path, areas=Areas(store), mode="block"):
        control.area(path, CREATE, "log", MIB)
        with pytest.raises(CorelaneError, match=r"storage\.trusted = true") as caught:
            AreaBlk(path, "log")
        assert caught.value.errno == errno.EPERM
    store.close()
    store = device(tmp_path, trusted=True)
    with Iokernel(path, areas=Areas(store), mode="block"):
        control.area(path, CREATE, "more", MIB)
        with AreaBlk(path, "log") as log, AreaBlk(path, "more") as more:
            assert log.size_bytes == more.size_bytes == MIB
            log.write(0, b"l" * UNIT, durable=True)
            assert more.read(0, UNIT) == bytes(UNIT)
            with pytest.raises(CorelaneError, match="another client"):
                AreaBlk(path, "log")
    store.close()
    assert (tmp_path / "disk").read_bytes()[MIB : MIB + UNIT] == b"l" * UNIT


# A client of another user, which says what it was answered: asks for AREA on SOCKET.
CLIENT = """
import os, sys
from corelane.iokernel._native import lib
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for op in (lib.CL_CONTROL_AREA_CREATE, lib.CL_CONTROL_AREA_OPEN):
    try:
        answer, fd, _ = control.area(sys.argv[1], op, sys.argv[2], 1 << 20)
        print("done", fd >= 0)
    except CorelaneError as error:
        print(error.errno, error)
"""


def as_another_user(areas: Areas, path: str, name: str) -> list[str]:
    os.chmod(os.path.dirname(path), 0o755)
    with Iokernel(path, areas=areas, mode="block", access=Access(mode=0o666, uids=(65534,))):
        args = [sys.executable, "-c", CLIENT, path, name]
        done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user: run as root")
def test_a_device_gives_no_area_to_another_user(tmp_path, socket_path):
    """Who may write to a loop device may enlarge it: test_who_may_write_to_a_loop_device_may_enlarge_it."""
    store = device(tmp_path)
    name = "a" * 47
    store.create(name, 65534, MIB)  # when clients were trusted
    said = as_another_user(Areas(store), socket_path, name)
    for line in said:
        assert line.startswith(f"{errno.EOPNOTSUPP} storage area {name}: refused by the iokernel: storage area")
        assert "on a device user 65534 would get at all areas (set storage.directory: the kernel keeps" in line
        assert "; or storage.trusted = true: all clients are trusted)" in line
    assert len(said) == 2
    assert store.areas() == [Area(name, 65534, MIB, areas_table.DATA_OFFSET)]
    store.close()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user: run as root")
def test_another_user_has_areas_of_a_folder_or_if_trusted(shared_store, socket_path):
    assert as_another_user(Areas(shared_store), socket_path, "log") == ["done False", "done True"]
    assert [a.owner for a in shared_store.areas()] == [65534]


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
    with Iokernel(path, areas=Areas(store), mode="block"):
        control.area(path, CREATE, "log", MIB)
        control.area(path, CREATE, "more", MIB)
        held = AreaBlk(path, "log")
    store.close()
    store = device(tmp_path, trusted=still_trusted)
    with held, Iokernel(path, areas=Areas(store), mode="block"):
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

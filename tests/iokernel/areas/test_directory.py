"""Storage areas as files of a folder: what else is in it, and what a crash leaves there."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from cltest import wait_until
from cltest.areas import CREATE, DELETE, LIST, MIB, OPEN, ROOT, UNIT

from corelane.drivers.blk import file as blk_file
from corelane.iokernel import Access, Iokernel
from corelane.iokernel.areas.areas import Area, Areas, DirectoryStore
from corelane.iokernel.control import area_requests, listener
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError, Refused
from corelane.runtime.peers import Peer


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


def test_what_a_user_writes_beyond_an_area_is_cut_off(tmp_path):
    """Else one user would take what all have."""
    store = DirectoryStore(str(tmp_path / "d"), 4 * MIB)
    store.create("log", 7, MIB)
    fd, _ = store.open(store.areas()[0])
    os.pwrite(fd, b"x" * 3 * MIB, 0)
    assert store.areas() == [Area("log", 7, MIB)]
    assert os.fstat(fd).st_size == MIB
    assert store.space() == (4 * MIB, 3 * MIB)
    os.pwrite(fd, b"x", 3 * MIB)
    store.grow(Area("log", 7, MIB), 2 * MIB)
    assert store.areas() == [Area("log", 7, 2 * MIB)]
    assert os.pread(fd, 3 * MIB, 0) == b"x" * MIB + bytes(MIB)
    store.close()
    os.close(fd)


def test_areas_are_looked_at_once_a_stranger_has_one(tmp_path, socket_path, monkeypatch):
    monkeypatch.setattr(area_requests, "_LOOK_S", 0.01)
    monkeypatch.setattr(listener, "peer_of", lambda _sock: Peer(os.getpid(), 12001, 1, frozenset()))
    store = DirectoryStore(str(tmp_path / "d"))
    store.create("log", 12001, MIB)
    with Iokernel(socket_path, areas=Areas(store), poll="block", access=Access(uids=(12001,))):
        _, fd, claim = control.area(socket_path, OPEN, "log")
        for _ in range(2):
            os.pwrite(fd, b"x" * MIB, MIB)
            wait_until(lambda: os.fstat(fd).st_size == MIB)
        os.close(fd)
        os.close(claim)
    store.close()


def test_what_is_deleted_during_a_look_is_left_out(tmp_path, monkeypatch):
    store = DirectoryStore(str(tmp_path / "d"))
    store.create("log", 7, MIB)
    (area,) = store.areas()
    paths = list((tmp_path / "d").iterdir())
    monkeypatch.setattr(Path, "iterdir", lambda _folder: iter(paths))
    store.delete(area)
    assert store.areas() == []
    assert not store.in_use(area)
    store.close()


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

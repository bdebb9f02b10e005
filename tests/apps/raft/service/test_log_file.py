"""A node's log: made once, whole or not at all, and never by a node that starts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from corelane.apps.raft.service import logs
from corelane.apps.raft.service.logs import LogArea, LogFile, make_log_area, make_log_file
from corelane.drivers.blk.blk import Blk, BlkFaults, FaultBlk
from corelane.drivers.blk.file import create
from corelane.iokernel import Iokernel
from corelane.iokernel._native import lib
from corelane.iokernel.areas.areas import Areas, DirectoryStore
from corelane.libos.storage.log.log import Log
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError

SIZE = 1 << 20


class _Killed(Exception):
    """Stands for the end of the process."""


def test_it_is_made_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    make_log_file(str(path), SIZE)
    assert path.stat().st_size == SIZE
    assert [p.name for p in tmp_path.iterdir()] == ["1.log"]
    for _ in range(2):
        LogFile(str(path)).close()


def test_one_whose_folder_cannot_be_synced_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.log"

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(CorelaneError, match=r"make the log .*: its folder cannot be synced: Input/output"):
            make_log_file(str(path), SIZE)
    assert not list(tmp_path.iterdir())
    make_log_file(str(path), SIZE)


def test_where_nothing_can_be_taken_back_the_reason_is_said_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that an error has made read-only."""

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    path = tmp_path / "1.log"
    for call in ("fsync", "link"):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, read_only)
            patched.setattr(Path, "unlink", read_only)
            with pytest.raises(CorelaneError, match=r"make the log .*1\.log: .*Read-only file system") as refused:
                make_log_file(str(path), SIZE)
        assert refused.value.errno == errno.EROFS
        assert ("delete" in str(refused.value)) == path.exists() == (call == "fsync")
        for left in tmp_path.iterdir():
            left.unlink()


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.log")
    with pytest.raises(CorelaneError, match="is neither a file nor a block device"):
        LogFile(str(tmp_path / "1.log"))


def test_a_log_that_another_makes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.log"
    slow, quick = SIZE, 2 * SIZE
    formatted = logs.format_area

    def overtaken(blk: Blk, *, snapshot_bytes: int) -> None:
        formatted(blk, snapshot_bytes=snapshot_bytes)
        monkeypatch.setattr(logs, "format_area", formatted)
        make_log_file(str(path), quick)
        with Log.open(path) as log:
            log.append(b"acknowledged")

    monkeypatch.setattr(logs, "format_area", overtaken)
    with pytest.raises(CorelaneError, match="there is a file of that name"):
        make_log_file(str(path), slow)
    assert path.stat().st_size == quick
    with Log.open(path) as log:
        assert [r.data for r in log.records()] == [b"acknowledged"]
    assert [p.name for p in tmp_path.iterdir()] == ["1.log"]


def test_a_half_made_one_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise _Killed

    monkeypatch.setattr(logs, "format_area", killed)
    path = tmp_path / "1.log"
    with pytest.raises(_Killed):
        make_log_file(str(path), SIZE)
    assert not list(tmp_path.iterdir())


def test_a_node_that_finds_no_log_does_not_make_one(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    with pytest.raises(CorelaneError, match="there is none") as refused:
        LogFile(str(path))
    assert "another id" in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_never_made_a_log(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    create(str(path), SIZE)
    before = path.read_bytes()
    with pytest.raises(CorelaneError, match="there is a file of that name"):
        make_log_file(str(path), SIZE)
    with pytest.raises(CorelaneError, match="open the log"):
        LogFile(str(path))
    assert path.read_bytes() == before


ADVICE = "take it out of the group"


@pytest.mark.parametrize("content", [b"", b"peers = 1\n", b"text\n" * 4000, bytes(SIZE)])
def test_of_what_is_no_log_it_is_asked_whether_it_is_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "1.log"
    path.write_bytes(content)
    with pytest.raises(CorelaneError, match=r"is it a log\?") as refused:
        LogFile(str(path))
    assert ADVICE not in str(refused.value)


@pytest.mark.parametrize("left", [200, 5000, SIZE // 2, SIZE])
def test_of_a_log_that_was_cut_short_or_damaged_the_node_is_to_be_taken_out(tmp_path: Path, left: int) -> None:
    path = tmp_path / "1.log"
    make_log_file(str(path), SIZE)
    with path.open("r+b") as file:
        file.truncate(left)
        for superblock in (0, 4096) if left == SIZE else ():
            file.seek(superblock + 60)
            file.write(b"damage")
    with pytest.raises(CorelaneError, match=ADVICE):
        LogFile(str(path))


def test_a_last_write_that_fails_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "1.log")
    make_log_file(path, SIZE)
    disks: list[FaultBlk] = []

    def bad(inner: Blk) -> Blk:
        disks.append(FaultBlk(inner))
        return disks[-1]

    log = LogFile(path, bad)
    disks[0].set(BlkFaults(write_error=1.0))
    with pytest.raises(CorelaneError, match=r"close the node's log: .*offset"):
        log.close()
    log.close()
    LogFile(path).close()  # the device was closed


def test_an_area_is_made_a_log_once(tmp_path: Path) -> None:
    socket = str(tmp_path / "sock")
    with Iokernel(socket, areas=Areas(DirectoryStore(str(tmp_path / "d"), 64 << 20), 32 << 20), poll="block"):
        control.area(socket, lib.CL_CONTROL_AREA_CREATE, "raft-1", 4 << 20)
        with pytest.raises(CorelaneError, match="there is none"):
            LogArea(socket, "raft-1")
        assert make_log_area(socket, "raft-1") == 4 << 20
        LogArea(socket, "raft-1").close()
        with pytest.raises(CorelaneError, match="not empty"):
            make_log_area(socket, "raft-1")
        LogArea(socket, "raft-1").close()

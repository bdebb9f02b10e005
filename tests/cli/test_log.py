"""corelane log check, dump and create, on good files and on bad ones."""

from __future__ import annotations

import errno
import json
import os
import struct
from pathlib import Path
from typing import Literal

import pytest

from corelane.apps.raft.service.logs import LogFile
from corelane.cli import log as log_command
from corelane.cli.main import main
from corelane.drivers.blk.blk import FaultBlk
from corelane.drivers.blk.file import FileBlk
from corelane.libos._native import ffi, lib
from corelane.libos.storage.log.log import Log, LogDamaged
from corelane.runtime.errors import CorelaneError, ProtocolError

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed log of 20 records, each in a flush of its own, with a vote."""
    path = tmp_path / "log"
    assert main(["log", "create", str(path), "--mib", "1"]) == 0
    with Log.open(path) as log:
        for i in range(1, 21):
            assert log.append(b"record %d" % i, tag=i * 10) == i
        log.set_meta(b"vote")
    return path


def damage(path: Path, index: int) -> int:
    """Flip a bit of a record's data; the offset of its flush."""
    with Log.open(path, on_damage="read-only") as log:
        offset = next(iter(log.records(index))).offset
    with path.open("r+b") as file:
        file.seek(offset + 36)
        byte = file.read(1)[0] ^ 4
        file.seek(offset + 36)
        file.write(bytes([byte]))
    return offset


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    got = json.loads(capsys.readouterr().out)
    assert isinstance(got, dict)
    return got


def test_a_good_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    before = path.read_bytes()
    assert main(["log", "check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "20 (20 read back), indexes 1 to 20" in out
    assert "end      clean" in out
    assert main(["log", "check", str(path), "--json"]) == 0
    got = said(capsys)
    assert (got["tail"], got["readable"], got["damaged"], got["meta"]) == ("clean", 20, False, b"vote".hex())
    assert path.read_bytes() == before


def test_dump(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["log", "dump", str(path), "--first", "5", "--count", "2", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["index"], r["tag"], bytes.fromhex(r["data"])) for r in rows] == [
        (5, 50, b"record 5"),
        (6, 60, b"record 6"),
    ]
    assert main(["log", "dump", str(path)]) == 0
    assert "record 20" in capsys.readouterr().out
    assert main(["log", "dump", str(path), "--first", "21"]) == 1
    assert "the records are 1 to 20" in capsys.readouterr().err


def test_damage_before_the_end(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offset = damage(path, 7)
    before = path.read_bytes()
    capsys.readouterr()
    assert main(["log", "check", str(path)]) == 1
    out = capsys.readouterr().out
    assert f"damage at offset {offset}, where index 7 was to come" in out
    assert "LOST     indexes 7 to 20" in out
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert "record 6" in shown.out
    assert "record 7" not in shown.out
    assert "damage" in shown.err
    assert path.read_bytes() == before


FLUSH = {"lsn": 8, "place": 16, "epoch": 24, "first_index": 32, "durable_lsn": 40, "durable_index": 48, "records": 60}


@pytest.mark.parametrize("field", FLUSH)
@pytest.mark.parametrize("index", [1, 7])
def test_no_word_of_a_flushs_header_is_believed_without_its_checksum(path: Path, field: str, index: int) -> None:
    """Each record of these is in a block of its own, behind the header of its flush."""
    with Log.open(path, on_damage="read-only") as log:
        offset = next(iter(log.records(index))).offset // 4096 * 4096
    whole = path.read_bytes()
    at = offset + FLUSH[field]
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with Log.open(path, on_damage="read-only") as log:
        assert log.report.tail == "damaged"
        assert f"damage at offset {offset}, where index {index} was to come" in log.report.why
        assert "the header of the flush has a wrong checksum" in log.report.why


def test_sectors_that_cannot_be_read(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Opening refuses with offset and reason; check goes on, and says what can be read and what lies behind."""
    with Log.open(path, on_damage="read-only") as log:
        offset = next(iter(log.records(7))).offset // 4096 * 4096
    capsys.readouterr()
    with FaultBlk(FileBlk(path)) as blk:
        blk.unreadable(offset + 512, 512)
        why = f"the block at offset {offset} cannot be read: Input/output error"
        with pytest.raises(LogDamaged, match=why) as caught:
            Log(blk)
        assert "corelane log check" in str(caught.value)
        with Log(blk, on_damage="read-only") as log:
            assert log_command.check(log, as_json=False) == 1
            assert log.report.beyond_flushes > 0
        out = capsys.readouterr().out
        assert "records  6 (6 read back)" in out
        assert f"UNREADABLE 1 blocks of 4096 bytes, one at offset {offset}" in out
        assert "later flushes" in out
        assert f"at offset {offset} cannot be read" in out
        blk.unreadable(offset, 4096, on=False)
        with Log(blk, on_damage="read-only") as log:
            blk.unreadable(offset, 4096)
            assert log_command.check(log, as_json=True) == 1
            got = said(capsys)
            assert got["readable"] == 6
            assert f"at offset {offset} failed: Input/output error" in str(got["read_error"])


def test_a_damaged_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "with_snapshot"
    Log.create(path, 2 * MIB, snapshot_bytes=1000)
    with Log.open(path) as log:
        log.append(b"one")
        log.save_snapshot(1, [b"state" * 100])
    assert main(["log", "check", str(path)]) == 0
    whole = path.read_bytes()
    at = whole.index(b"state")
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    capsys.readouterr()
    assert main(["log", "check", str(path)]) == 1
    said = capsys.readouterr().out
    assert f"of the snapshot of index 1, at offset {at & ~4095}, is damaged" in said
    with Log.open(path) as log, pytest.raises(CorelaneError, match=f"at offset {at & ~4095}"):
        list(log.read_snapshot())


@pytest.mark.parametrize("bad", [50, 54])
def test_what_was_truncated_is_not_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: int) -> None:
    path = tmp_path / "log"
    Log.create(path, MIB)
    with Log.open(path) as log:
        for i in range(100):
            log.append(b"given up %d" % i)
        log.truncate(50)
        assert [log.append(b"new record") for _ in range(5)] == [50, 51, 52, 53, 54]
    capsys.readouterr()
    assert main(["log", "check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["acknowledged_index"] == 54
    damage(path, bad)
    assert main(["log", "check", str(path)]) == 1
    assert f"LOST     indexes {bad} to 54 at least" in capsys.readouterr().out


def test_a_refused_create_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "log")
    assert main(["log", "create", path, "--mib", "1", "--snapshot-mib", "1"]) == 1
    assert os.listdir(tmp_path) == []
    assert main(["log", "create", path, "--mib", "4", "--snapshot-mib", "1"]) == 0
    assert main(["log", "create", path, "--mib", "4"]) == 1
    assert "File exists" in capsys.readouterr().err
    assert main(["log", "check", path]) == 0


def test_what_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes(MIB))
    assert main(["log", "check", str(path)]) == 1
    said = capsys.readouterr().err
    assert f"open the log {path}: there is no log: neither of the superblocks is whole" in said
    assert "at offset 0 (it is zero) and at offset 4096 (it is zero)" in said
    path.write_bytes(b"something" * (MIB // 9 + 1))
    assert main(["log", "check", str(path)]) == 1
    assert "at offset 0 (it is something else) and at offset 4096 (it is something else)" in capsys.readouterr().err
    assert main(["log", "check", str(tmp_path / "missing")]) == 1
    assert capsys.readouterr().err.endswith(f"open {tmp_path}/missing: No such file or directory\n")


@pytest.mark.parametrize("version", [0, 4, 2**32 - 1])
@pytest.mark.parametrize("slots", [(0,), (1,), (0, 1)], ids=str)
def test_a_format_of_another_version_is_refused(
    path: Path, slots: tuple[int, ...], version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever superblock says so, and whatever the other one does: only the first of them that says so is named."""
    image = bytearray(path.read_bytes())
    for slot in slots:
        head = ffi.new("struct cl_log_disk_super *")
        ffi.memmove(head, image[slot * 4096 :], 512)
        assert head.generation & 1 == slot
        head.version, head.crc = version, 0
        seed = lib.cl_crc32c(0, struct.pack("<QQQ", slot, 0, 0), 24)
        head.crc = lib.cl_crc32c(seed, head, 512)
        image[slot * 4096 : slot * 4096 + 512] = ffi.buffer(head)[:]
    path.write_bytes(image)
    why = f"the superblock at offset {slots[0] * 4096} is of format version {version}, and this program knows versions"
    ways: tuple[Literal["refuse", "cut", "read-only"], ...] = ("refuse", "cut", "read-only")
    for on_damage in ways:
        with pytest.raises(ProtocolError, match=why) as raised:
            Log.open(path, on_damage=on_damage)
        assert raised.value.errno == errno.EPROTO
    capsys.readouterr()
    for action in ("check", "dump"):
        assert main(["log", action, str(path)]) == 1
        assert f"open the log {path}: {why}" in capsys.readouterr().err
    assert path.read_bytes() == image


@pytest.mark.parametrize("left", [600_000, 8192, 8191, 4096, 100, 31, 0])
def test_a_file_that_was_cut_short(path: Path, capsys: pytest.CaptureFixture[str], left: int) -> None:
    """It says where the file ends, and how long it should be if that can still be read; nothing of it is changed."""
    os.truncate(path, left)
    before = path.read_bytes()
    capsys.readouterr()
    for action in ("check", "dump"):
        assert main(["log", action, str(path)]) == 1
        said = capsys.readouterr().err
        assert f"open the log {path}: " in said
        assert "cut short" in said
        assert f"it ends at offset {left // 4096 * 4096 if left >= 8192 else left}" in said
        assert (f"{MIB} bytes long" in said) == (left >= 32)
        assert "device" not in said
    assert path.read_bytes() == before
    with pytest.raises(CorelaneError, match="cut short") as raised:
        LogFile(str(path))
    assert raised.value.errno == errno.EBADMSG
    assert ("must not vote" if left else "must not come back under its id") in str(raised.value)


@pytest.mark.parametrize("mib", [["--mib", "1" + "0" * 18], ["--mib", "1", "--snapshot-mib", "1" + "0" * 18]])
def test_sizes_that_nothing_has_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], mib: list[str]) -> None:
    assert main(["log", "create", str(tmp_path / "new"), *mib]) == 2
    assert f"argument {mib[-2]}: '{mib[-1]}' is not a whole number from" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_one_owner_at_a_time(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Log.open(path):
        assert main(["log", "check", str(path)]) == 1
        assert str(path) in capsys.readouterr().err

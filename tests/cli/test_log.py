"""corelane log check, dump and create, on good files and on bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corelane.cli.main import main
from corelane.libos.log import Log

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


def test_what_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes(MIB))
    assert main(["log", "check", str(path)]) == 1
    assert "neither of the superblocks, at offsets 0 and 4096, is whole" in capsys.readouterr().err
    assert main(["log", "check", str(tmp_path / "missing")]) == 1
    assert "missing" in capsys.readouterr().err


def test_one_owner_at_a_time(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Log.open(path):
        assert main(["log", "check", str(path)]) == 1
        assert str(path) in capsys.readouterr().err

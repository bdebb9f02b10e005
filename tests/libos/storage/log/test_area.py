"""The log in storage areas: made in a new one, found again, one claimant at a time, and damage refused."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.apps.raft.service import logs
from corelane.cli.main import main
from corelane.drivers.blk import loop as blk_loop
from corelane.drivers.blk.area import AreaBlk
from corelane.drivers.blk.blk import Blk, FaultBlk
from corelane.drivers.blk.file import create
from corelane.iokernel import Iokernel
from corelane.iokernel._native import lib
from corelane.iokernel.areas.areas import Areas, DirectoryStore
from corelane.iokernel.areas.device import open_device
from corelane.libos.storage.log.log import Log, LogDamaged, format_if_new
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError

MIB, UNIT = 1 << 20, 4096


@pytest.fixture(params=["directory", "device"])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Socket of an iokernel with an area "log" that was never formatted."""
    if request.param == "device":
        if why := blk_loop.missing():
            pytest.skip(why)
        create(tmp_path / "disk", 8 * MIB)
    folder, disk = str(tmp_path / "areas"), str(tmp_path / "disk")
    path = str(tmp_path / "sock")
    store = open_device(disk) if request.param == "device" else DirectoryStore(folder)
    with Iokernel(path, areas=Areas(store), poll="block"):
        control.area(path, lib.CL_CONTROL_AREA_CREATE, "log", 2 * MIB)
        yield path
    store.close()


def test_a_log_survives_close_and_reopen_and_has_one_claimant(serving: str) -> None:
    with Log.open_area("log", serving, snapshot_bytes=64 * UNIT) as log:
        assert log.extend([b"one", b"two"]) == [1, 2]
        log.save_snapshot(1, [b"state"])
        with pytest.raises(CorelaneError, match="another client has it open") as caught:
            Log.open_area("log", serving)
        assert caught.value.errno == errno.EBUSY
        assert log.append(b"three") == 3
    with Log.open_area("log", serving) as log:
        assert [record.data for record in log.records()] == [b"one", b"two", b"three"]
        assert b"".join(log.read_snapshot()) == b"state"
        assert log.report.tail == "clean"


def test_a_log_uses_what_its_area_grew_by(serving: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Log.open_area("log", serving) as log:
        log.extend([b"x" * 5000] * 20)
        before = log.free_bytes
    control.area(serving, lib.CL_CONTROL_AREA_GROW, "log", 4 * MIB)
    assert main(["log", "check", "log", "--area", "--socket", serving]) == 0
    assert f"unused   {2 * MIB:,} bytes" in capsys.readouterr().out
    with Log.open_area("log", serving) as log:
        assert (log.report.grown_bytes, log.report.unused_bytes) == (2 * MIB, 0)
        assert log.free_bytes == before + 2 * MIB
        while log.free_bytes > before:
            log.extend([b"y" * 50000] * 4)
    with Log.open_area("log", serving) as log:
        assert [r.data[:1] for r in log.records()][:21] == [b"x"] * 20 + [b"y"]
        assert log.report.tail == "clean"


def test_the_tool_reads_an_area(serving: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "check", "log", "--area", "--socket", serving]) != 0
    assert "there is no log" in capsys.readouterr().err
    with AreaBlk(serving, "log") as blk:
        assert blk.read(0, MIB) == bytes(MIB)  # reading made no log
    with Log.open_area("log", serving) as log:
        log.append(b"one")
    capsys.readouterr()
    assert main(["log", "check", "log", "--area", "--socket", serving, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["readable"] == 1
    assert main(["log", "dump", "log", "--area", "--socket", serving, "--json"]) == 0
    assert bytes.fromhex(json.loads(capsys.readouterr().out)["data"]) == b"one"


def test_damage_is_refused_with_offset_and_reason(serving: str) -> None:
    with Log.open_area("log", serving) as log:
        log.extend([b"x" * 5000] * 3)
        offset = next(log.records()).offset // UNIT * UNIT  # of the flush
    with AreaBlk(serving, "log") as blk:
        supers, flush = blk.read(0, 2 * UNIT), blk.read(offset, UNIT)
        blk.write(offset, b"\xff" + flush[1:])
    with pytest.raises(LogDamaged, match=f"damage at offset {offset}"):
        Log.open_area("log", serving)
    with AreaBlk(serving, "log") as blk:
        blk.write(offset, flush)
        blk.write(0, b"\xff" * 2 * UNIT)
    with pytest.raises(
        CorelaneError, match=r"neither of the superblocks is whole: at offset 0 \(it is something else\)"
    ):
        Log.open_area("log", serving)
    with AreaBlk(serving, "log") as blk:
        blk.write(0, bytes(2 * UNIT))  # lost, not new
    with pytest.raises(CorelaneError, match=f"the block at offset {offset} is not"):
        Log.open_area("log", serving)
    with AreaBlk(serving, "log") as blk:
        blk.write(0, supers)
    with Log.open_area("log", serving) as log:
        assert log.durable_index == 3


def test_a_device_of_zeros_alone_is_new(serving: str) -> None:
    with AreaBlk(serving, "log") as blk:
        blk.write(2 * MIB - UNIT, bytes(UNIT - 1) + b"x")
        with pytest.raises(CorelaneError, match=f"the block at offset {2 * MIB - UNIT} is not"):
            format_if_new(blk)
        blk.write(2 * MIB - UNIT, bytes(UNIT))
        assert format_if_new(blk)
        assert not format_if_new(blk)


def test_a_wrapped_area_is_let_go_with_what_wraps_it(serving: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CLAIM_WAIT_S", 0.0)

    def wrap(blk: Blk) -> Blk:
        return FaultBlk(blk, seed=1)

    logs.make_log_area(serving, "log")
    log = logs.LogArea(serving, "log", wrap)
    with pytest.raises(CorelaneError, match="another client has it open"):
        logs.LogArea(serving, "log")
    log.close()
    monkeypatch.setattr(logs, "CLAIM_WAIT_S", 20.0)
    logs.LogArea(serving, "log").close()

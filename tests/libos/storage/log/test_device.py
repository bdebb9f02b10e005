"""Logs on whole block devices, by the commands that make them; a loop device stands for a disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.apps.raft.service.logs import LogFile
from corelane.cli.main import main
from corelane.drivers.blk import loop as blk_loop
from corelane.drivers.blk.file import create
from corelane.libos.storage.log.log import Log

SIZE = 4 << 20
COMMANDS = [["log", "create", "{}", "--json"], ["raft", "init", "--log", "{}", "--json"]]


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    if why := blk_loop.missing():
        pytest.skip(why)
    path = tmp_path / "disk"
    create(path, SIZE)
    with path.open("rb+") as file:
        fd, name = blk_loop.attach(file.fileno(), 0, SIZE)
    yield name
    os.close(fd)


def run(command: list[str], device: str, *more: str) -> int:
    return main([word.format(device) for word in command] + list(more))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_that_is_zero_is_made_a_log_of_its_size(command, device: str, capsys) -> None:
    assert run(command, device) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == SIZE
    with Log.open(device) as log:
        log.append(b"one")
    LogFile(device).close()
    assert main(["log", "check", device]) == 0
    assert not list(Path("/dev").glob(Path(device).name + ".*"))


@pytest.mark.parametrize("command", COMMANDS)
def test_one_that_holds_a_log_is_not_made_one_but_by_force(command, device: str, capsys) -> None:
    assert run(command, device) == 0
    with Log.open(device) as log:
        log.append(b"one")
        assert run(command, device, "--force") == 1, "somebody has it"
    assert run(command, device) == 1
    said = capsys.readouterr().err
    assert "the block at offset 0 is not zero" in said
    assert said.count("\n") == 2
    with Log.open(device) as log:
        assert [r.data for r in log.records()] == [b"one"]
    assert run(command, device, "--force") == 0
    with Log.open(device) as log:
        assert not list(log.records())


@pytest.mark.parametrize("at", [1024, 65536])
def test_one_that_may_hold_a_file_system_is_not_made_a_log(at: int, device: str, capsys) -> None:
    with open(device, "rb+") as disk:
        disk.seek(at)
        disk.write(b"magic")
    for command in COMMANDS:
        assert run(command, device) == 1
        assert f"the block at offset {at // 4096 * 4096} is not zero" in capsys.readouterr().err


def test_a_size_is_for_files_and_force_for_devices(device: str, tmp_path: Path, capsys) -> None:
    assert run(COMMANDS[0], device, "--mib", "1") == 2
    assert run(COMMANDS[1], device, "--size", "1M") == 2
    for command in COMMANDS:
        assert run(command, str(tmp_path / "new"), "--force") == 2
    assert capsys.readouterr().err.count("\n") == 4
    assert not (tmp_path / "new").exists()

"""corelane areas, against an iokernel in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.cli.main import main
from corelane.drivers.blk.blk import memory_blk
from corelane.iokernel import Iokernel
from corelane.iokernel.areas.areas import Areas, DirectoryStore
from corelane.iokernel.areas.device import DeviceStore


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "sock")
    with Iokernel(path, areas=Areas(DirectoryStore(str(tmp_path / "d"), 64 << 20), 32 << 20), poll="block"):
        yield path


def test_areas_are_made_listed_grown_and_deleted(socket, capsys):
    assert main(["areas", "create", "log", "2M", "--socket", socket]) == 0
    assert main(["areas", "--socket", socket]) == 0
    told = capsys.readouterr().out
    assert f"2.0 MiB  user {os.geteuid()}" in told
    assert "directory: 64 MiB, largest free" in told
    assert main(["areas", "grow", "log", "4MiB", "--socket", socket, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["area"]["bytes"] == 4 << 20
    assert main(["areas", "list", "--json", "--socket", socket]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(a["name"], a["bytes"], a["in_use"]) for a in listed["areas"]] == [("log", 4 << 20, False)]
    assert main(["areas", "--socket", socket, "delete", "log"]) == 0
    assert main(["areas", "--socket", socket, "--json"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "deleted log"
    assert json.loads(out[1])["areas"] == []


def test_damage_is_in_the_listing(tmp_path, capsys):
    path = str(tmp_path / "sock")
    with memory_blk(4 << 20) as blk:
        DeviceStore(blk, "/nonexistent")
        blk.write(0, b"\xff" * 4096, durable=True)
        with Iokernel(path, areas=Areas(DeviceStore(blk, "/nonexistent")), poll="block"):
            assert main(["areas", "--socket", path]) == 0
            assert main(["areas", "--socket", path, "--json"]) == 0
    *text, listed = capsys.readouterr().out.splitlines()
    note = "copy 0 of the table of areas, at offset 0, is something else; it is written anew from copy 1"
    assert text[-1] == f"note: {note}"
    assert json.loads(listed)["notes"] == [note]


def test_refusals_are_one_sentence(socket, capsys):
    assert main(["areas", "create", "log", "64M", "--socket", socket]) == 1
    assert "raise storage.quota_mib" in capsys.readouterr().err
    assert main(["areas", "delete", "log", "--socket", socket, "--json"]) == 1
    assert "there is none" in json.loads(capsys.readouterr().out)["error"]["why"]
    assert main(["areas", "create", "log", "much", "--socket", socket]) == 2
    assert "'much' is no size" in capsys.readouterr().err

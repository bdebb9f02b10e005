"""corelane raft: a log, the table of the status. The rest is in tests/apps/raft/test_serve.py, by running groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corelane.apps.raft.logs import LogFile
from corelane.cli.main import main
from corelane.cli.raft import status_text


def test_a_log_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "1.log"
    assert main(["raft", "init", "--log", str(path), "--size", "2M", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"log": str(path), "area": None, "bytes": 2 << 20}
    LogFile(str(path)).close()
    assert main(["raft", "init", "--log", str(path), "--size", "2M"]) == 1
    assert "there is a file of that name" in capsys.readouterr().err
    assert main(["raft", "init", "--log", str(tmp_path / "none" / "1.log")]) == 1
    said = capsys.readouterr().err
    assert f"there is no folder {tmp_path / 'none'}" in said
    assert ".new" not in said


@pytest.mark.parametrize("words", [[], ["--log", "a", "--area", "b"]])
def test_one_place_is_given(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["raft", "init", *words]) == 1
    assert "give one of them" in capsys.readouterr().err
    assert main(["raft", "init", "--log", "a", "--size", "little"]) == 2
    assert "is no size" in capsys.readouterr().err


def test_the_status_says_to_whom_a_leader_sends() -> None:
    members = {"voters": [1, 2, 3], "outgoing": [], "learners": []}
    numbers = {"term": 4, "leader": 1, "commit": 9, "applied": 9, "durable": 9, "members": members, "why": ""}
    words = {**numbers, "state": "running", "replicate": {"to": "majority"}}
    text = status_text({1: {"id": 1, "role": "leader", **words}, 2: {"id": 2, "role": "follower", **words}, 3: None})
    head, leader, follower, silent = (line.split() for line in text.splitlines())
    assert head[-3:] == ["SENDS", "TO", "STATE"]
    assert leader[-3:] == ["voter", "majority", "running"]
    assert follower[-3:] == ["voter", "-", "running"]
    assert silent == ["3", "no", "answer", *"-" * 8]

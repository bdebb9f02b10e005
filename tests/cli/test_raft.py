"""corelane raft: a log, the table of the status. The rest is in tests/apps/raft/service/test_serve.py, by running
groups."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from corelane.apps.raft.service.logs import LogFile
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


@pytest.mark.parametrize("size", ["0", "0G", "9" * 13 + "G", "9" * 30, "-5", "1X"])
def test_a_log_of_no_size_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str], size: str) -> None:
    assert main(["raft", "init", "--log", str(tmp_path / "log"), f"--size={size}"]) == 2
    assert f"{size!r} is no size" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "finding"),
    [
        ("init --log a --size 4097", "--size is no multiple of 4096 bytes"),
        ("add 9 --peers 1=127.0.0.1:1", "add node 9: it is not among the peers"),
        ("snapshot restore none --id 9 --voters 1,2 --log a", "restore node 9: it is none of the voters"),
        ("snapshot restore none --id 1 --voters 1,1 --log a", "the voters are not distinct ids"),
    ],
)
def test_words_that_nothing_can_be_done_with_are_wrong_usage(
    words: str, finding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["raft", *words.split()]) == 2
    assert finding in capsys.readouterr().err


def test_when_nobody_tells_its_clock_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        peers = f"1=127.0.0.1:{silent.getsockname()[1]}"
        assert main(["raft", "clock", "--peers", peers, "--timeout", "0.1"]) == 1
    assert "ask the nodes: none answers" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--log", "a", "--area", "b"]])
def test_one_place_is_given(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["raft", "init", *words]) == 2
    assert "give one of them" in capsys.readouterr().err
    assert main(["raft", "init", "--log", "a", "--size", "little"]) == 2
    assert "is no size" in capsys.readouterr().err


def test_the_status_says_to_whom_a_leader_sends() -> None:
    members = {"voters": [1, 2, 3], "outgoing": [], "learners": []}
    numbers = {"term": 4, "leader": 1, "commit": 9, "applied": 9, "durable": 9, "members": members, "why": ""}
    digests = {"version": 4, "settings": "5", "first_voters": "7"}
    words = {**numbers, "state": "running", "replicate": {"to": "majority"}, "digests": digests}
    text = status_text({1: {"id": 1, "role": "leader", **words}, 2: {"id": 2, "role": "follower", **words}, 3: None})
    head, leader, follower, silent = (line.split() for line in text.splitlines())
    assert head[-3:] == ["SENDS", "TO", "STATE"]
    assert leader[-3:] == ["voter", "majority", "running"]
    assert follower[-3:] == ["voter", "-", "running"]
    assert silent == ["3", "no", "answer", *"-" * 8]


def test_the_status_says_whom_the_leader_refuses_and_why() -> None:
    members = {"voters": [1, 2, 3], "outgoing": [], "learners": []}
    numbers = {"term": 4, "leader": 1, "commit": 9, "applied": 9, "durable": 9, "members": members, "why": ""}
    words = {**numbers, "state": "running", "replicate": {"to": "all"}}
    stands_alone = {**words, "role": "pre-candidate"}

    def digests(settings: str, first_voters: str, version: int = 4) -> dict[str, dict[str, Any]]:
        return {"digests": {"version": version, "settings": settings, "first_voters": first_voters}}

    group = {
        1: {"id": 1, "role": "leader", **words, **digests("5", "7")},
        2: {"id": 2, **stands_alone, **digests("6", "7")},
        3: {"id": 3, **stands_alone, **digests("5", "8")},
        4: {"id": 4, **stands_alone, **digests("5", "0000")},
        5: {"id": 5, **stands_alone, **digests("6", "8"), "state": "stopped", "why": "its disk failed"},
        6: {"id": 6, **stands_alone, **digests("6", "7", version=5)},
        7: {"id": 7, **stands_alone},  # of before there were any
    }
    ends = ["STATE", "running", "settings", "voters", "running", "its disk failed", "version", "version"]
    lines = status_text(group).splitlines()
    assert all(line.endswith(end) for line, end in zip(lines, ends, strict=True)), lines
    assert "refused by node 1: it was started with other group settings" in lines[2]
    assert "refused by node 1: its group began with other voters" in lines[3]
    assert all("refused by node 1: it is of another version" in line for line in lines[6:8])
    assert "refused" not in status_text({n: s for n, s in group.items() if n != 1})
    untold = {"digests": {"settings": "5", "first_voters": "7"}}  # a version of before the number was told
    for leads, follows in ((untold, untold), (group[1], untold), ({"digests": {}}, {"digests": {}})):
        also = {1: {**group[1], "digests": leads["digests"]}, 2: {**group[2], "digests": follows["digests"]}}
        assert "refused" not in status_text(also)
    other = {**group[2], "digests": {"settings": "6", "first_voters": "7"}}
    assert "group settings, or it is of another version" in status_text({1: group[1], 2: other})

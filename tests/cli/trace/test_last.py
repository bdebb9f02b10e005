"""corelane trace last: what was kept where a limit was broken, its list, and what is said where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from maderequests import HZ, NAMES, Made

from corelane.cli.main import main
from corelane.cli.trace import last
from corelane.libos.trace.kept import Head, keep
from corelane.libos.trace.slo import Broken
from corelane.runtime._native import lib
from corelane.runtime.trace import Records

BROKEN = Broken("p99=20us", "UDP 9000", 31.25, 3000, 60, 1000007, 10**9)
HEAD = Head(42, "kv", HZ, "full", 1, tuple(NAMES), BROKEN, 1_700_000_000.0, 0, 0)


def slow_mutex() -> Records:
    made = Made(3000, 1)
    some = made.some(0.02)
    made.us["blocked"][some] += 30
    made.what[some] = lib.CL_TRACE_WAITS_MUTEX
    return made.records()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With two traces, where they are looked for."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    where = tmp_path / "corelane" / "traces"
    keep(where, HEAD, Made(20, 1).records(), 1 << 22, 9)
    keep(where, replace(HEAD, name="web", at=HEAD.at + 60, more=12), slow_mutex(), 1 << 22, 9)
    return where


def test_the_last_one_is_explained(folder: Path, capsys: Any) -> None:
    assert main(["trace", "last"]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[0] == "UDP 9000: p99 was 31.2 us of 3,000 requests (limit p99=20us)"
    assert lines[1].startswith("2023-11-1")
    assert lines[2].startswith("limits were broken 12 times more")
    assert "process 42 (web) writes down all: 3,000 requests" in said
    assert "handler / wait: mutex 30" in said, "the slowest"
    assert "handler / wait: mutex makes 9" in said, "and blame"
    assert main(["trace", "last", "--blame"]) == 0
    assert "SERVICE" not in capsys.readouterr().out


def test_an_older_one_by_a_part_of_its_name(folder: Path, capsys: Any) -> None:
    assert main(["trace", "last", "kv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["app"], found["messages"], found["broken"]["slo"]) == ("kv", 20, "p99=20us")
    for name in (found["file"], Path(found["file"]).name, Path(found["file"]).stem):
        assert main(["trace", "last", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == found


def test_the_list_names_what_was_broken(folder: Path, capsys: Any) -> None:
    (folder / "20240101T000000.000Z-bad-7.trace").write_bytes(b"nothing")
    assert main(["trace", "last", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "WHEN", "APPLICATION", "WHAT"]
    assert [line.split()[0].split("-")[1] for line in lines[1:]] == ["kv", "web", "bad"]
    assert lines[2].endswith("UDP 9000: p99 was 31.2 us of 3,000 requests (limit p99=20us)")
    assert "it is none" in lines[3]
    assert main(["trace", "last", "--list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one.get("app") for one in found["kept"]] == ["kv", "web", None]


def test_it_is_written_for_perfetto(folder: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out.json"
    assert main(["trace", "last", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["out"] == str(out)
    events = json.loads(out.read_text())["traceEvents"]
    assert "wait: mutex" in {event["name"] for event in events}


def test_a_folder_without_any(tmp_path: Path, capsys: Any) -> None:
    assert main(["trace", "last", "--list", "--folder", str(tmp_path)]) == 0
    assert f"nothing is kept in {tmp_path}" in capsys.readouterr().out
    assert main(["trace", "last", "--folder", str(tmp_path)]) == 1
    assert "no limit was broken, or nobody set one (corelane run ... --slo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("last", "2023"), 1, "2 traces are called so"),
        (("last", "db"), 1, "there is no such trace in"),
        (("last", "./none.trace"), 1, "No such file"),
        (("first",), 2, "corelane trace last [NAME]"),
        (("--list",), 2, "corelane trace last [NAME]"),
        (("last", "a", "b"), 2, "corelane trace last [NAME]"),
        (("last", "--pid", "7"), 2, "leave --app and --pid out"),
        (("last", "--flame", "x.html"), 1, "where its kthreads were was not sampled (leave --flame out)"),
    ],
)
def test_what_cannot_be_explained_is_said(
    words: tuple[str, ...], code: int, said: str, folder: Path, capsys: Any
) -> None:
    assert main(["trace", *words]) == code
    assert said in capsys.readouterr().err


def test_how_long_ago() -> None:
    times = {-5: "0 s", 119: "119 s", 120: "2 minutes", 7200: "2 hours", 200_000: "2 days"}
    assert {s: last._ago(s).removesuffix(" ago") for s in times} == times

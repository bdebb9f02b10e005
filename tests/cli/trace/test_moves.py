"""How a recording of `trace` ends, and where it goes, with logs that are made up. What it makes of entries:
test_recording.py; with an iokernel: ../test_managed_cores.py."""

from __future__ import annotations

import argparse
import json
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.cli.main import main
from corelane.cli.trace import moves as trace
from corelane.iokernel._native import ffi, lib
from corelane.runtime.errors import CorelaneError

KV, JOB, CPU, HZ = 3, 7, 5, 1_000_000_000


def entry(tsc: int, old: int, new: int, what: int) -> bytes:
    return struct.pack("=QIHHBBBxI5IHxx", tsc, CPU, old, new, what, lib.CL_IO_STEP_PARKED, 0, 0, *[0] * 5, 0)


def move(tsc: int, old: int, new: int) -> bytes:
    return entry(tsc, old, new, lib.CL_IO_LOG_WANTED) + entry(tsc + 100, new, new, lib.CL_IO_LOG_DONE)


class Iokernel:
    """Answers of an iokernel: one each look. `ends`: it is gone after the last one."""

    def __init__(self, *answers: tuple[bytes, int], ends: bool = False) -> None:
        self.answers, self.ends, self.asked = list(answers), ends, 0

    def snapshot(self, path: str, wait_s: float = 0) -> dict[str, Any]:
        self.asked += 1
        if self.ends and not self.answers:
            raise CorelaneError(f"no iokernel listens on {path}")
        apps = [
            {"name": n, "slot": s - 1, "kthreads": 1, "age_s": 60.0, "cores": {}} for n, s in (("kv", KV), ("job", JOB))
        ]
        policy = {"name": "mine", "ejected": "it looped"}
        return {"apps": apps, "cores": {"allocators": [{"loop": 0}], "policy": policy}}


class Log:
    """Stands for trace._Log."""

    begin_tsc, hz = 1000, HZ

    def __init__(self, kernel: Iokernel) -> None:
        self._kernel, self.tsc, self.lost = kernel, self.begin_tsc, 0

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self) -> bytes:
        if not self._kernel.answers:
            if self._kernel.ends:
                raise CorelaneError("cannot receive from the iokernel: Connection reset by peer")
            raise KeyboardInterrupt  # a test that went on would last for its time
        data, self.lost = self._kernel.answers.pop(0)
        self.tsc += 10_000
        return data


@pytest.fixture
def recorded(monkeypatch: Any, capsys: Any) -> Any:
    """`recorded(kernel, *args)`: exit code of the command, its document, and what it said."""

    def run(kernel: Iokernel, *args: str) -> tuple[int, dict[str, Any], str]:
        monkeypatch.setattr(trace, "snapshot", kernel.snapshot)
        monkeypatch.setattr(trace, "_Log", lambda path, loop: Log(kernel))
        monkeypatch.setattr(trace.time, "sleep", lambda s: None)
        code = main(["trace", "--socket", "x.sock", "--seconds", "1000", "--json", *args])
        said = capsys.readouterr()
        documents = [d for d in map(json.loads, said.out.splitlines()) if "moves" in d]
        return code, documents[0] if documents else {}, said.out + said.err

    return run


def test_ctrl_c_ends_it_after_a_last_look(monkeypatch: Any) -> None:
    kernel = Iokernel((move(1100, JOB, KV), 0), (move(5000, KV, JOB), 0))
    sleeps = iter([None, KeyboardInterrupt])

    def interrupted(_: float) -> None:
        if next(sleeps):
            raise KeyboardInterrupt

    monkeypatch.setattr(trace, "snapshot", kernel.snapshot)
    monkeypatch.setattr(trace, "_Log", lambda path, loop: Log(kernel))
    monkeypatch.setattr(trace.time, "sleep", interrupted)
    recording = trace.record("x.sock", [0], 1000)
    assert (len(recording.moves), recording.ended) == (4, False)


def test_a_recording_is_kept_when_the_iokernel_ends(recorded: Any, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    code, document, said = recorded(Iokernel((move(1100, JOB, KV), 0), ends=True), "--out", str(out))
    assert code == 1
    assert "the iokernel on x.sock has ended" in said
    assert (document["ended"], document["moves"], document["out"]) == (True, 1, str(out))
    assert any(e["name"] == "parked: job.0 to kv.0" for e in json.loads(out.read_text())["traceEvents"])


def test_it_ends_with_as_many_entries_as_are_kept(monkeypatch: Any, recorded: Any) -> None:
    monkeypatch.setattr(trace, "MOST", 4)
    kernel = Iokernel(*[(move(1100 + 1000 * n, JOB, KV), 0) for n in range(9)])
    code, document, said = recorded(kernel)
    assert (code, document["entries"]) == (0, 4)
    assert "ended after 4 entries, which is as many as are kept" in said


def test_lost_entries_are_told_and_who_decides_in_place_of_a_policy(monkeypatch: Any, recorded: Any) -> None:
    monkeypatch.setattr(trace, "MOST", 4)
    code, document, _ = recorded(Iokernel((move(1100, JOB, KV), 0), (move(5000, KV, JOB), 12)))
    assert (code, document["lost"], document["policy"]) == (0, 12, "delay")
    assert document["pairs"] == [
        {"from": "job.0", "to": "kv.0", "moves": 1},
        {"from": "kv.0", "to": "job.0", "moves": 1},
    ]


@pytest.mark.parametrize(
    ("out", "why"), [("", "Is a directory"), ("none/t.json", "No such file or directory"), ("/proc/x.json", "")]
)
def test_a_file_that_cannot_be_written_is_refused_first(recorded: Any, tmp_path: Path, out: str, why: str) -> None:
    kernel = Iokernel()
    code, document, said = recorded(kernel, "--out", str(tmp_path / out))
    assert (code, document, kernel.asked) == (1, {}, 0)
    assert "give --out a file that can be written" in said
    assert why in said
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_is_written_to_and_stays(recorded: Any, tmp_path: Path) -> None:
    """`--out /dev/null`, by root; and a link, which another may have put there."""
    device, real = tmp_path / "device", tmp_path / "real"
    device.symlink_to("/dev/null")
    (tmp_path / "t.json.new").symlink_to(real)
    real.write_text("precious")
    for out in ("/dev/null", str(device), str(tmp_path / "t.json")):
        kernel = Iokernel((move(1100, JOB, KV), 0), ends=True)
        assert recorded(kernel, "--out", out)[1]["out"] == out
        assert stat.S_ISCHR(os.lstat("/dev/null").st_mode)
    assert device.is_symlink()
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"] is not None
    assert real.read_text() == "precious"


def test_the_table_is_shown_where_the_file_fails_in_the_end(monkeypatch: Any, recorded: Any, tmp_path: Path) -> None:
    def full(recording: Any) -> Iterator[dict[str, Any]]:
        yield {}
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trace, "events", full)
    monkeypatch.setattr(trace, "MOST", 2)
    code, document, said = recorded(Iokernel((move(1100, JOB, KV), 0)), "--out", str(tmp_path / "t.json"))
    assert (code, document["moves"], "out" in document) == (1, 1, False)
    assert "No space left on device" in said
    assert list(tmp_path.iterdir()) == []


def test_entries_of_another_size_are_refused(monkeypatch: Any) -> None:
    """Of an iokernel of another version."""
    log = object.__new__(trace._Log)
    said = ffi.new("struct cl_control_moves_ok *", {"entry_bytes": 40, "n": 1})
    freed: list[Any] = []

    class Library:
        @staticmethod
        def cl_control_moves(*_: Any) -> int:
            return 0

        cl_control_free = staticmethod(freed.append)

    log.__dict__ |= {
        "_lib": Library, "_ffi": ffi, "_said": said, "_path": "x.sock", "_ask": argparse.Namespace(), "_fd": -1,
        "_entries": [ffi.NULL], "_err": ffi.NULL, "_check": lambda *_: 0,
    }  # fmt: skip
    with pytest.raises(CorelaneError, match="its entries have 40 bytes: it is of another version"):
        log.read()
    assert freed == [ffi.NULL]

"""A benchmark that is ended by a signal leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from cltest.children import die_with_parent
from cltest.waiting import wait_until

from corelane.cli import bench, packetdrill, unwinding
from corelane.cli.unwinding import REPEAT_S, Terminated, unwind_at_sigterm

WAIT_S = 100.0


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_benchmark_that_is_ended_leaves_no_folder(number: int, code: int, said: str, tmp_path: Path) -> None:
    """As `timeout` and a terminal end it: by a signal to all its processes, `timeout` by one to the first before."""
    command = [sys.executable, "-m", "corelane.cli.main", "bench", "raft_fail", "--seconds", "600", "--folder", "."]
    with (
        tempfile.TemporaryDirectory(prefix="cl-") as short,  # a path of a socket may have 107 bytes
        (tmp_path / "errors").open("w+") as errors,
    ):
        folder = Path(short)
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"TMPDIR": str(folder), "PYTHONFAULTHANDLER": "1"},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            wait_until(lambda: list(folder.glob("corelane-raft-*")) or process.poll() is not None, WAIT_S)
            wait_until(lambda: list(folder.glob("corelane-bench-*")) or process.poll() is not None, WAIT_S)
            assert process.poll() is None
            if number == signal.SIGTERM:
                os.kill(process.pid, number)
            os.killpg(process.pid, number)
            ended = process.wait(WAIT_S)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        text = errors.read()
        print(text)
        assert (ended, text.splitlines()[-1]) == (code, f"corelane bench: {said}")
        assert list(folder.iterdir()) == []


@pytest.fixture
def sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_what_comes_soon_after_the_first_is_left_out(sigterm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(unwinding, "time", SimpleNamespace(monotonic=lambda: now_s))
    unwind_at_sigterm()
    with pytest.raises(Terminated):
        signal.raise_signal(signal.SIGTERM)
    now_s += REPEAT_S / 2
    signal.raise_signal(signal.SIGTERM)
    now_s += REPEAT_S / 2
    with pytest.raises(Terminated):  # also where the first exception was lost, as in a callback of C
        signal.raise_signal(signal.SIGTERM)


def test_one_that_is_ignored_stays_so(sigterm: None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    unwind_at_sigterm()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_commands_that_make_folders_and_namespaces_unwind() -> None:
    assert bench.UNWINDS
    assert packetdrill.UNWINDS

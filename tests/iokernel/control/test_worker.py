"""One slow function in a thread of its own: its result, and that closing does not wait for what does not end."""

from __future__ import annotations

import select
import threading
from pathlib import Path

import pytest
from cltest import wait_until

from corelane.iokernel.control.worker import Worker
from corelane.iokernel.policy import policy
from corelane.iokernel.policy import trial as policy_trial

ENDLESS = """
import os, pathlib, subprocess, sys, threading

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
pathlib.Path({path!r}).write_text(f"{{os.getpid()}} {{child.pid}}\\n")
threading.Event().wait()
"""


def gone(pid: int) -> bool:
    """There is no such process, or only what is left of it until somebody asks how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_result_and_exception_come_back_with_the_tag():
    def fail() -> None:
        raise SystemExit(3)

    worker = Worker()
    for tag, function in (("fine", lambda: 5), ("fails", fail)):
        worker.start(tag, function)
        assert worker.busy
        assert select.select([worker.fd], [], [], 60)[0]
        name, result = worker.result()
        assert name == tag
        assert result == 5 if tag == "fine" else isinstance(result, SystemExit)
        assert not worker.busy
    worker.close()


@pytest.mark.parametrize("begun", [True, False])
def test_closing_kills_a_trial_that_does_not_end(tmp_path, monkeypatch, begun):
    """Also one whose process has not been started when it is closed, and with what the policy's module has started."""
    said = tmp_path / "pids"
    (tmp_path / f"endless_import_{begun}.py").write_text(ENDLESS.format(path=str(said)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(policy_trial, "PATIENCE_S", 3600.0)
    worker = Worker()
    worker.start("policy", lambda: policy.load(f"endless_import_{begun}:f"))
    if begun:
        wait_until(lambda: said.exists() and said.read_text().endswith("\n"), 60, "the trial to begin")
    closing = threading.Thread(target=worker.close, args=(policy_trial.stop,), daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    if begun:
        for pid in map(int, said.read_text().split()):
            wait_until(lambda pid=pid: gone(pid), 60, f"process {pid} to be gone")

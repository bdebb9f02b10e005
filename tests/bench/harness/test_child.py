"""Commands that a benchmark starts and waits for (bench/harness/child.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from corelane.bench.harness.child import told
from corelane.runtime.errors import CorelaneError


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_command_is_waited_for_and_ended(tmp_path: Path) -> None:
    words = 'import os, time; print("coming", os.getcwd()); print("now ready", flush=True); time.sleep(100)'
    with told(python(words), "ready", cwd=tmp_path) as pid:
        assert Path(f"/proc/{pid}/cwd").resolve() == tmp_path
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_line_that_is_half_there_is_not_it() -> None:
    words = 'import sys, time; sys.stdout.write("ready"); sys.stdout.flush(); time.sleep(100)'
    with pytest.raises(CorelaneError, match="does not say that it is ready"), told(python(words), "ready", timeout_s=1):
        pytest.fail("it was not waited for")


def test_a_command_that_ends_too_early_is_an_error() -> None:
    words = 'print("hello")'
    with pytest.raises(CorelaneError, match="ended before it was ready"), told(python(words), "ready"):
        pytest.fail("it was not waited for")


def test_nothing_is_waited_for_if_nothing_is_asked() -> None:
    with told(python("import time; time.sleep(100)"), "") as pid:
        os.kill(pid, 0)

"""A process that is killed while it is traced: its reader has what it wrote down until then, and ends by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import wait_until
from cltest.examples import EXAMPLES

from corelane.runtime.errors import CorelaneError
from corelane.runtime.trace import Segment


@pytest.fixture
def slow() -> Iterator[subprocess.Popen[str]]:
    """examples/slow.py under its load; its end is the test's."""
    command = [sys.executable, str(EXAMPLES / "slow.py"), "long", "--seconds", "600"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            while (line := child.stderr.readline()) and f"process {child.pid} is slow" not in line:
                pass
            assert line, "it has ended"
            yield child
        finally:
            child.kill()


def test_what_it_wrote_until_then_is_read(slow: subprocess.Popen[str]) -> None:
    with Segment.of_process(slow.pid) as segment:
        wait_until(lambda: len(segment.read().messages) > 0, 60.0, "requests")
        slow.kill()
        slow.wait()
        assert segment.read().garbage == 0
        assert len(segment.read().messages) == 0
        assert sum(ring.garbage for ring in segment.counts()) == 0
    with pytest.raises(CorelaneError, match="there is no such process"):
        Segment.of_process(slow.pid)


@pytest.mark.parametrize("how", [[], ["--blame"], ["--profile", "2"]], ids=["slowest", "blame", "profile"])
def test_the_command_that_watches_it_ends(slow: subprocess.Popen[str], how: list[str]) -> None:
    command = [sys.executable, "-m", "corelane.cli.main", "trace", "--pid", str(slow.pid), *how]
    command += [] if "--profile" in how else ["--seconds", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        try:
            maps = Path(f"/proc/{watching.pid}/maps")
            wait_until(lambda: "corelane-trace" in maps.read_text(), 60.0, "it to be watched")
            slow.kill()
            slow.wait()
            said, errors = watching.communicate(timeout=120)
        finally:
            watching.kill()
    assert "Traceback" not in errors
    assert f"process {slow.pid}" in said + errors
    if "--profile" not in how:  # which needs the process to name what it ran
        assert watching.returncode == 0, errors

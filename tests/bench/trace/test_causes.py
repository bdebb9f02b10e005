"""Each cause of examples/slow.py, run for real on a load that is drawn, is the one that blame names (bench/trace).

Only what was really there is judged. No time is asserted.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cltest.examples import EXAMPLES

from corelane.bench.trace.causes import CAUSES, TRIES, judged
from corelane.libos.trace import blame

SEED = int(os.environ.get("CORELANE_SEED", "1"))


@pytest.mark.parametrize("word", CAUSES)
@pytest.mark.soak(takes_s=10)
def test_the_cause_is_named(word: str) -> None:
    one = judged(word, random.Random(f"{SEED} {word}"))
    lines = "\n".join(line for found in one.found for line in blame.lines_of(found))
    print(f"{one.load}: {one.told}, machine {one.machine_us:.0f} us: {one.right}\n{lines}")
    if one.right is None:
        pytest.skip(f"the machine stood still for longer than the cause took, or it hardly came, {TRIES} times")
    assert one.right


def test_words_are_those_of_the_example() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "slow.py"), "haste"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    for word in CAUSES:
        assert f"'{word}'" in done.stderr or f" {word}" in done.stderr or f"{word}," in done.stderr


@pytest.mark.parametrize("word", ["log", pytest.param("core", marks=pytest.mark.soak(takes_s=5))])
def test_one_that_is_ended_leaves_no_files(word: str, tmp_path: Path) -> None:
    places = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / "slow.py"), word, "--seconds", "600"]
    slow = subprocess.Popen(command, cwd=tmp_path, env=places, stderr=subprocess.PIPE, text=True)
    assert slow.stderr is not None
    try:
        while "is slow" not in (line := slow.stderr.readline()):
            assert line, "it has ended"
        slow.terminate()
        assert slow.wait(60) == 128 + signal.SIGTERM
    finally:
        slow.kill()
        slow.communicate()
    assert list(tmp_path.iterdir()) == []

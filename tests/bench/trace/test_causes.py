"""Each cause of examples/slow.py, run for real on a load that is drawn, is the one that blame names (bench/trace).

Only what was really there is judged. No time is asserted.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

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

"""TCP against lwIP, in one process, over a wire in memory and on a virtual clock: what both make of anything.

lwIP is Debian's liblwip-dev as it is. A round follows from its seed, which a failure prints. What was found has its
seed in FOUND.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cltest import soak

HEADERS = Path("/usr/include/lwip")
# Seeds of rounds in which something was wrong, and what.
FOUND = {
    140: "we sent beyond lwIP's window: what it said again had an old number, so its window did not count",
    3235: "the same",
}


@pytest.fixture
def rounds(c_program: Callable[..., Callable[..., str]]) -> Callable[[int, int], str]:
    """Rounds from a seed on."""
    if not HEADERS.exists():
        pytest.skip("needs lwIP: apt-get install liblwip-dev")
    flags = {"cflags": ["-isystem", str(HEADERS)], "libs": ["-llwip"]}
    return c_program("tests/libos/net/tcp/c/fuzz_lwip.c", one_thread=True, **flags)


@pytest.mark.soak(short=True, takes_s=60)
def test_no_byte_is_wrong_and_nothing_is_left(rounds: Callable[[int, int], str], seed: int) -> None:
    print(f"seeds from {seed} on")
    assert rounds(seed, soak.examples(100, 20_000)) == "ok\n"


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_is_right_now(rounds: Callable[[int, int], str], seed: int) -> None:
    assert rounds(seed, 1) == "ok\n"

"""Each two calls on a socket in each state, on Linux' sockets and on ours: the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import INSIDE, KEEPS_ROLES, OURS, run

PARTS = 5
TRIES = 5  # Linux, too, lets what is sent to the same machine wait for a moment, one time in some ten thousand


def differences(binary: Path, part: int, config: str) -> set[tuple[str, str]]:
    """What Linux' sockets said and ours did not, each with what ours said."""
    words = (str(part), str(PARTS))
    linux, ours = (
        run(binary, address, *words, config=config).splitlines()
        for address, config in (("127.0.0.1", ""), (OURS, config))
    )
    assert linux[-1] == "end"
    return {
        (theirs, mine) for theirs, mine in zip(linux, ours, strict=True) if theirs != mine and not _role(theirs, mine)
    }


def _role(theirs: str, mine: str) -> bool:
    """Linux did not listen or connect where we do, and what comes behind it cannot be the same."""
    for call, here in (("starts_to_listen", "0"), ("connects_again", "EINPROGRESS")):
        before, refused, _ = theirs.partition(f"{call} EINVAL")
        if KEEPS_ROLES and refused and mine.startswith(f"{before}{call} {here}"):
            return True
    return False


@pytest.mark.parametrize("config", ["", ",poll=block,kthreads=3"], ids=["one-kthread", "three"])
@pytest.mark.parametrize(
    "part", [pytest.param(i, marks=() if i == 2 else pytest.mark.soak(takes_s=2)) for i in range(PARTS)]
)
def test_two_calls_in_each_state_return_what_linux_returns(
    stock: Callable[[str], Path], part: int, config: str
) -> None:
    binary = stock("behind")
    differing = differences(binary, part, INSIDE + config)
    for _ in range(TRIES - 1):
        if differing:
            differing &= differences(binary, part, INSIDE + config)
    assert not differing

"""Calls drawn from a seed, on Linux' sockets and on ours: the same results. What differs is shown with its seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cltest import soak

from .conftest import INSIDE, KEEPS_ROLES, OURS, run

STEPS = 400


def compare(binary: Path, seed: int, config: str) -> None:
    linux, ours = (
        run(binary, address, str(seed), str(STEPS), str(int(KEEPS_ROLES)), config=config).splitlines()
        for address, config in (("127.0.0.1", ""), (OURS, config))
    )
    assert linux[-1] == "end", f"seed {seed}: on Linux {linux[-1]}"
    differs = next((i for i, (a, b) in enumerate(zip(linux, ours, strict=False)) if a != b), None)
    assert differs is None, (
        f"seed {seed}, {config}, line {differs}: {linux[max(0, differs - 20) : differs + 1]}, here {ours[differs]!r}"
    )
    assert len(linux) == len(ours)


@pytest.mark.parametrize("config", ["", ",poll=block,kthreads=3"], ids=["one-kthread", "three"])
@pytest.mark.parametrize(
    "seed",
    [*range(1, 10), 135, 20240942, 7006768],  # the last three have differed
)
def test_drawn_calls_return_what_linux_returns(stock: Callable[[str], Path], seed: int, config: str) -> None:
    compare(stock("fuzz"), seed, INSIDE + config)


@pytest.mark.soak(short=True, takes_s=10)
def test_calls_drawn_anew(stock: Callable[[str], Path], seed: int) -> None:
    """Other seeds each time: that of a difference is in what is said."""
    for i in range(soak.examples(25, 500)):
        compare(stock("fuzz"), seed + i, INSIDE + (",poll=block,kthreads=3" if i % 2 else ""))

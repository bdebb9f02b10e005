"""The transport between nodes (channel.h): once or not at all over any network, through deaths; and its timing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Make = Callable[..., Callable[..., str]]
PROGRAM = "tests/apps/raft/transport/c/channel.c"
SOURCES = [
    *(f"apps/raft/transport/{name}.c" for name in ("channel", "hello", "kept", "pieces", "receive")),
    "libos/storage/crc32c.c",
]


def test_what_lasts_arrives_once_through_loss_doubling_and_restarts(c_program: Make, seed: int) -> None:
    said = c_program(PROGRAM, SOURCES, one_thread=True)("lossy", seed, 100).split()
    totals = dict(zip(said[::2], map(int, said[1::2]), strict=True))
    assert all(totals.values()), totals  # each of these happened in the seeds that were drawn


CASES = (
    "overtaken again wide probed reorders steady",
    "begun idle slow cut mended reborn",
)


@pytest.mark.parametrize("case", " ".join(CASES).split())
def test_when_what_is_sent(c_program: Make, case: str) -> None:
    c_program(PROGRAM, SOURCES, one_thread=True)(case)

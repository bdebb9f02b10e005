"""Frames that nobody correct sends: each is refused and counted, and none breaks a node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Make = Callable[..., Callable[..., str]]
PROGRAM = "tests/apps/raft/node/c/fuzz_frames.c"
CHANNEL = "tests/apps/raft/transport/c/fuzz_channel.c"
CHANNEL_SOURCES = [
    *(f"apps/raft/transport/{name}.c" for name in ("channel", "hello", "kept", "pieces", "receive")),
    "libos/storage/crc32c.c",
]


def test_mutated_frames(c_program: Make, seed: int) -> None:
    said = c_program(PROGRAM, one_thread=True)(20_000, seed)
    assert "20000 inputs" in said
    assert int(said.split()[2]) > 1000, said  # what is behind the checks was reached


@pytest.mark.soak(takes_s=30)
def test_fuzz_frames(c_fuzzer: Make) -> None:
    run = c_fuzzer(PROGRAM, cflags=["-DFUZZER"])
    run(f"-runs={20_000}", "-seed=1", "-max_len=1200", "-max_total_time=40")


def test_mutated_datagrams(c_program: Make, seed: int) -> None:
    said = c_program(CHANNEL, CHANNEL_SOURCES, one_thread=True)(20_000, seed)
    assert "20000 inputs" in said
    assert int(said.split()[2]) > 100, said  # with right numbers it went on: what is behind the checks was reached


@pytest.mark.soak(takes_s=10)
def test_fuzz_datagrams(c_fuzzer: Make) -> None:
    run = c_fuzzer(CHANNEL, CHANNEL_SOURCES, cflags=["-DFUZZER"])
    run(f"-runs={20_000}", "-seed=1", "-max_len=700", "-max_total_time=40")

"""The memory of the entries."""

from __future__ import annotations

from collections.abc import Callable

Make = Callable[..., Callable[..., str]]


def test_entries_take_no_page_faults(c_program: Make) -> None:
    """A log of the default size is filled for the first time: its 64 MiB were touched when they were taken."""
    entries, faults = map(int, c_program("tests/apps/raft/core/c/entries.c", one_thread=True)().split())
    assert entries > 60_000
    assert faults < 16  # untouched large pages would be 32

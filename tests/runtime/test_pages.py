"""Large pieces of memory: whole when they are taken, so that nobody waits for a page of them later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Make = Callable[..., Callable[..., str]]
LARGE = 2 << 20


@pytest.fixture
def pages(c_program: Make) -> Callable[[int], list[int] | None]:
    """Run tests/runtime/c/pages.c; what it printed, or None without memory."""
    run = c_program("tests/runtime/c/pages.c", one_thread=True)

    def taken(size: int) -> list[int] | None:
        said = run(size).split()
        return None if said == ["none"] else [int(word) for word in said]

    return taken


@pytest.mark.parametrize("size", [LARGE, LARGE + 1, 3 * LARGE, 100_000_000])
def test_pages_are_zero_aligned_and_there_when_they_are_given(
    pages: Callable[[int], list[int] | None], size: int
) -> None:
    """Writing to all of it takes no page fault: but for a few of the program's own."""
    start, nonzero, faults = pages(size) or (-1, -1, -1)
    assert (start, nonzero) == (0, 0)
    assert 0 <= faults < 8


def test_a_small_piece_is_zero_and_not_touched(pages: Callable[[int], list[int] | None]) -> None:
    """Many small ones of which little is used take no memory."""
    _, nonzero, faults = pages(LARGE - 4096) or (-1, -1, -1)
    assert nonzero == 0
    assert faults > 100


@pytest.mark.parametrize("size", [2**64 - 1, 2**64 - LARGE])
def test_a_size_beyond_the_numbers_gives_none(pages: Callable[[int], list[int] | None], size: int) -> None:
    """Rounded up to whole pages it would be a small one."""
    assert pages(size) is None

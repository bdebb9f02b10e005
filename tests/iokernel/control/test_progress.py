"""How fast work goes, of counts that are published at other moments than core time is read (progress.py)."""

from __future__ import annotations

import pytest

from corelane.iokernel.control.progress import Progress


def test_core_time_is_taken_to_grow_evenly_between_two_reads() -> None:
    progress = Progress()
    assert (progress.rate, progress.pace, progress.units) == (0.0, 0.0, 0)
    progress.note(10.0, 1.0, 9.9, 0)
    progress.note(11.0, 2.0, 10.5, 100)
    assert progress.seen_core_s == pytest.approx(0.5)
    assert progress.rate == pytest.approx(200)
    assert progress.pace == pytest.approx(100 / 0.6)


@pytest.mark.parametrize(("published_s", "units"), [(11.5, 50), (10.5, 200), (10.0, 300), (11.5, None)])
def test_what_is_old_or_goes_back_tells_nothing(published_s: float, units: int | None) -> None:
    progress = Progress()
    progress.note(10.0, 1.0, 9.9, 0)
    progress.note(11.0, 2.0, 10.5, 100)
    progress.note(12.0, 2.5, published_s, units)
    assert (progress.units, len(progress.samples)) == (100, 2)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    progress = Progress()
    for tick in range(100):
        at_s, done = tick / 4, tick * 10 if tick < 50 else 500 + (tick - 50) * 40
        progress.note(at_s, at_s / 2, at_s, done)
    assert progress.pace == pytest.approx(160)
    assert progress.rate == pytest.approx(320)
    assert len(progress.samples) < 20


def test_what_was_published_later_than_now_takes_no_more_room() -> None:
    """Its time is the application's own word."""
    progress = Progress()
    for tick in range(100):
        progress.note(tick / 4, tick / 8, 2**64 / 1e9 + tick, tick)
    assert len(progress.samples) < 20
    assert progress.rate == pytest.approx(8)

"""What is measured between two looks of the canary."""

from __future__ import annotations

import io

import pytest

from corelane.bench.harness.jitter import LOST_MOST, Gaps
from corelane.bench.harness.session import Session


def look(lost_fraction: float) -> list[Gaps]:
    """A second of a core that lost so much."""
    return [Gaps(0, 1.0, 1, 1e6, {1e6: (1, 1e9 * lost_fraction)})]


@pytest.mark.parametrize(
    ("before", "after", "quiet"),
    [(0.0, 0.0, True), (LOST_MOST, LOST_MOST, True), (3 * LOST_MOST, 0.0, False), (0.0, 3 * LOST_MOST, False)],
)
def test_it_was_quiet_if_both_looks_together_were(
    before: float, after: float, quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session("hostile", cores=[0], progress=io.StringIO())
    looks = iter((look(before), look(after)))
    monkeypatch.setattr(session, "_look", lambda seconds: next(looks))
    assert session.watched(lambda: "value") == ("value", quiet)
    counted = session.canary.document()
    assert (counted["slices"], counted["left_out"]["slices"]) == ((2, 0) if quiet else (0, 2))

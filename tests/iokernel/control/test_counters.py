"""A fault without an end is counted each time, and fills no log."""

from __future__ import annotations

import logging

import pytest

from corelane.iokernel.control import counters
from corelane.iokernel.control.counters import Counters


def fail(of: Counters, text: str) -> str:
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        return of.fault(error)


def test_a_fault_is_told_once_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 5.0
    monkeypatch.setattr(counters.time, "monotonic", lambda: now)
    counts = Counters()
    with caplog.at_level(logging.ERROR, "corelane.iokernel"):
        for i in range(1000):
            assert fail(counts, f"number {i}") == f"RuntimeError: number {i}"
        assert len(caplog.records) == 1
        assert "RuntimeError: number 0" in caplog.text
        assert "raise RuntimeError(text)" in caplog.text
        now += 61.0
        fail(counts, "later")
    assert counts["failed"] == 1001
    assert counts.last_error == "RuntimeError: later"
    assert [r.getMessage() for r in caplog.records][1].endswith("(999 times more since it was told)")


def test_another_fault_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    counts = Counters()
    with caplog.at_level(logging.ERROR, "corelane.iokernel"):
        fail(counts, "here")
        try:
            raise RuntimeError("at another line")
        except RuntimeError as error:
            counts.fault(error)
        try:
            int("no number")
        except ValueError as error:
            counts.fault(error)
    assert len(caplog.records) == 3

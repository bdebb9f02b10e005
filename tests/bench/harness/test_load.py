"""What `Load.measure` asks of a generator, and when others look on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from corelane.bench.harness import load


def test_a_look_begins_when_connections_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    class Generator:
        def begin(self, rate: float, seconds: float, warmup_s: float, windows: int) -> None:
            said.append((rate, pytest.approx(seconds), pytest.approx(warmup_s), windows))

        def begins_s(self) -> float | None:
            said.append("connections")
            return 8.0 if said.count("connections") == 2 else None

        def wait(self) -> None:
            said.append("requests")

        def result(self) -> Any:
            return None

    @contextlib.contextmanager
    def look() -> Iterator[None]:
        said.append("look")
        yield
        said.append("look ends")

    monkeypatch.setattr(load.time, "sleep", said.append)
    monkeypatch.setattr(load.time, "monotonic", lambda: 7.5)
    monkeypatch.setattr(load, "point_of", lambda result, busy_s: None)
    load.Load(Generator()).measure(1000.0, 0.02, meanwhile=look(), accepted_s=0.03)
    begins = [(1000.0, 0.017, 0.033, 1), "connections", 0.001, "connections", 0.5]
    assert said == [*begins, "look", "requests", "look ends"]

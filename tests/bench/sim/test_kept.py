"""Kept code is compiled again once any source of the simulator has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.bench.sim import kept


def double(x: int) -> int:
    return 2 * x


def test_it_is_compiled_again_when_another_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    misses = []
    for stamp in ("as it is", "as it is", "changed"):
        monkeypatch.setattr(kept, "stamp", lambda _also, stamp=stamp: stamp)
        made = kept.kept()(double)
        assert made(3) == 6
        misses.append(made.stats.cache_misses.total())
    assert misses == [1, 0, 1]


def test_every_source_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_HERE", tmp_path)
    stamps = set()
    for text in ("N = 1", "N = 2"):
        (tmp_path / "state.py").write_text(text)
        stamps.add(kept.stamp.__wrapped__())
    assert len(stamps) == 2

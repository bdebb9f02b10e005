"""The canary beside a disk that writes."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from corelane.bench.harness.diskcanary import beside_writes, note_disk
from corelane.bench.harness.session import Session
from corelane.runtime.errors import CorelaneError

CORES = sorted(os.sched_getaffinity(0))[:2]


@pytest.mark.skipif(len(CORES) < 2, reason="it takes two cores")
def test_a_core_is_watched_while_the_other_one_writes(tmp_path: Path) -> None:
    found = beside_writes(tmp_path, CORES, 0.3)
    assert found.gaps.cpu == CORES[0]
    assert found.gaps.polls > 0
    assert found.writes > 0
    assert f"{found.long_gaps} gaps of 1 ms or more" in str(found)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(len(CORES) < 2, reason="it takes two cores")
def test_the_document_says_what_the_disk_takes(tmp_path: Path) -> None:
    session = Session("log", seconds=1.0, progress=io.StringIO())
    note_disk(session, tmp_path)
    assert session.settings["beside_disk_writes"]["seconds"] > 0
    assert "all arms on the disk have that" in session.notes[0]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises((CorelaneError, OSError)):
        beside_writes(tmp_path / "missing", CORES, 0.01)

"""What `corelane bench raft_fail` counts of a kill. No speed is asserted."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from corelane.bench import raft_fail
from corelane.bench.harness.plot import lint
from corelane.bench.harness.session import Session
from corelane.bench.raft import nodes
from corelane.bench.raft_fail import Kill, longest_gap_ms


@pytest.fixture
def session() -> Session:
    made = Session("raft_fail", seconds=0.1)
    if len(made.cores) < 2:
        pytest.skip("needs two cores")
    return made


@pytest.mark.root
@pytest.mark.parametrize(
    ("arm", "least"),
    [(raft_fail.DISK, 2), (raft_fail.MOVED, 1), pytest.param(raft_fail.LOADED, 1, marks=pytest.mark.soak(takes_s=3))],
)
def test_every_kill_has_a_new_leader_and_a_client_that_goes_on(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: str, least: int
) -> None:
    monkeypatch.setattr(raft_fail, "LEAST_KILLS", least)
    monkeypatch.setattr(nodes, "BYTES", {"log": 32 << 20, "memory": 4 << 20, "relay": 4 << 20})
    tried = raft_fail.slot(session, tmp_path, arm, 0.0, random.Random(1))
    kills = [kill for kill in tried if kill is not None]
    assert len(kills) == least
    for kill in kills:
        assert kill.no_leader_ms > 0
        assert kill.client_gap_ms >= raft_fail.PUT_MS
        assert 0 <= kill.unanswered <= raft_fail.PUTS


def test_the_gap_is_the_longest_between_two_acknowledgements() -> None:
    puts = raft_fail.PUTS
    even = [(i + 1) * raft_fail.PUT_MS / 1e3 for i in range(puts)]
    assert longest_gap_ms(even) == pytest.approx(raft_fail.PUT_MS)
    lost = [math.inf if 100 <= i < 130 else time for i, time in enumerate(even)]
    assert longest_gap_ms(lost) == pytest.approx(31 * raft_fail.PUT_MS)
    late = [0.2 if 100 <= i < 130 else time for i, time in enumerate(even)]  # all answered at once, later
    assert longest_gap_ms(late) == pytest.approx(31 * raft_fail.PUT_MS)


def test_a_gap_may_come_first() -> None:
    assert longest_gap_ms([math.inf] * 598 + [0.2995, 0.3]) == pytest.approx(299.5)


def test_a_gap_that_does_not_end_is_endless() -> None:
    ended = [0.1, 0.1005] + [math.inf] * (raft_fail.PUTS - 2)
    assert longest_gap_ms(ended) == math.inf
    assert longest_gap_ms([math.inf] * raft_fail.PUTS) == math.inf


def test_the_figure_is_of_the_disk_and_of_the_tail(session: Session) -> None:
    kills = {
        raft_fail.TMPFS: [Kill(1.0, 1.0, 0, 1)],
        raft_fail.DISK: [Kill(float(n), 2.0, 0, 1) for n in range(100, 0, -1)],
        raft_fail.MOVED: [Kill(1000.0, 1000.0, 0, 3)],
    }
    raft_fail.judge(session, kills)
    assert session.figures["raft-fail.no_leader_ms"]["value"] == 99.0
    raft_fail.judge(session, {**kills, raft_fail.DISK: kills[raft_fail.DISK][1:]})
    assert session.figures["raft-fail.no_leader_ms"]["value"] is None
    assert "99 kills, the worst 99.0 ms" in session.figures["raft-fail.no_leader_ms"]["reason"]
    raft_fail.add_row(session, raft_fail.DISK, kills[raft_fail.DISK], 0)
    raft_fail.add_row(session, raft_fail.MOVED, kills[raft_fail.MOVED], 3)
    row, moved = session.arms
    assert (row["n"], row["no_leader_p50_ms"], row["no_leader_p99_ms"]) == (100, 50.0, 99.0)
    assert (row["client_gap_p99_ms"], row["several_terms"], moved["several_terms"]) == (2.0, 0, 1)
    assert (row["discarded"], moved["discarded"]) == (0, 3)


def test_kills_of_one_that_led_no_more_are_kept_as_such(session: Session, monkeypatch, tmp_path: Path) -> None:
    made = iter([None, Kill(1.0, 1.0, 0, 1), None, None, Kill(2.0, 1.0, 0, 1)])
    monkeypatch.setattr(raft_fail, "one_kill", lambda *_: next(made))
    monkeypatch.setattr(raft_fail, "Group", MagicMock())
    monkeypatch.setattr(raft_fail, "client_of", MagicMock())
    tried = raft_fail.slot(session, tmp_path, raft_fail.DISK, 0.0, random.Random(1))
    assert [kill and kill.no_leader_ms for kill in tried] == [None, 1.0, None, None, 2.0]


def test_an_arm_of_which_no_gap_ended_is_said_and_not_drawn() -> None:
    arms = [
        {"name": "disk", "n": 2, "no_leader_ms": [20.0, 30.0], "client_gap_ms": [25.0, math.inf]},
        {"name": "disk, cores moved", "n": 2, "no_leader_ms": [21.0, 22.0], "client_gap_ms": [math.inf, math.inf]},
    ]
    document: dict[str, Any] = {"bench": "raft_fail", "arms": arms, "settings": {"message": "put", "election_ms": 10}}
    canvas = raft_fail.plot(document)
    text = "disk, cores moved: none that ended, longest time between acknowledged puts."
    assert text in canvas.captions
    assert not [c for c in lint(canvas.figure, canvas.expect) if "empty" in c or "outside" in c]

"""What `corelane bench embed` counts. No speed is asserted."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from corelane.bench.embed import embed
from corelane.bench.embed.embed import Turn
from corelane.bench.harness.plot import lint
from corelane.bench.harness.session import Session
from corelane.runtime.errors import CorelaneError


@pytest.fixture
def session() -> Session:
    made = Session("embed", seconds=0.1)
    if len(made.cores) < 2:
        pytest.skip("needs two cores")
    return made


def result(offered: int, answered: int, seconds: float = 1.0, windows: int = 2) -> Any:
    """A turn's, all of it in as many equal windows."""
    parts = [
        SimpleNamespace(offered=offered // windows, answered=answered // windows, percentile_us=lambda _: 20.0)
        for _ in range(windows)
    ]
    counts = {"sent": offered, "late": 0, "dropped": 0, "wrong": 0, "errors": 0}
    return SimpleNamespace(offered=offered, answered=answered, seconds=seconds, windows=parts, **counts)


@pytest.mark.soak(takes_s=15)
def test_both_changes_happen_under_load_and_only_one_loses_requests(session: Session, monkeypatch: Any) -> None:
    monkeypatch.setattr(embed, "RATE_RPS", 2000.0)
    lost = {}
    for arm in (embed.REPLACE, embed.RESTART):
        got = embed.turn(session, arm, 6.0)
        assert got.over_s, "one change in 6 s"
        assert got.result.offered > 10_000
        lost[arm] = got.lost
    assert lost[embed.REPLACE] == 0
    assert lost[embed.RESTART] > 0


def test_what_is_known_of_losses_is_of_servers_and_of_the_iokernel() -> None:
    made = MagicMock()
    made.kernel.stats.return_value = {
        "apps": [],
        "departed": {"rx_dropped": 5},
        "loops": [{"up_dropped_not_ours": 3}, {"up_dropped_not_ours": 4}],
    }
    servers = [MagicMock(ended={"dropped": {"arp_not_ours": 1, "tx_dropped_full": 2}}), MagicMock(ended={})]
    assert embed.all_dropped(made, servers) == {"tx_dropped_full": 2, "ring_full": 5, "not_attached": 7}


def test_the_figure_is_of_replacements_and_of_enough(session: Session) -> None:
    few = [Turn(result(100, 100), [0.5] * 9, [0.1] * 9), Turn(result(100, 98), [0.5] * 10, [0.1] * 10)]
    embed.judge(session, few)
    assert session.figures["embed.replace_lost"]["value"] is None
    assert "19 replacements, with 2 requests lost" in session.figures["embed.replace_lost"]["reason"]
    few[0].over_s.append(0.9)
    embed.judge(session, few)
    assert (session.figures["embed.replace_lost"]["value"], session.figures["embed.replace_lost"]["met"]) == (2, False)
    few[1].result = result(100, 100)
    embed.judge(session, few)
    assert (session.figures["embed.replace_lost"]["value"], session.figures["embed.replace_lost"]["met"]) == (0, True)


def test_a_row_has_all_turns_one_after_the_other(session: Session) -> None:
    dropped = [Counter(tx_dropped_full=7, ring_full=2), Counter(tx_dropped_full=1)]
    turns = [
        Turn(result(100, 90), [0.5], [0.25], dropped[0]),
        Turn(result(200, 200), [0.5], [0.75], dropped[1]),
    ]
    embed.add_row(session, "arm", turns)
    (row,) = session.arms
    assert (row["changes"], row["lost"], row["offered"], row["answered"]) == (2, 10, 300, 290)
    assert row["over_s"] == [0.5, 1.5]
    assert row["change_p50_s"] == 0.5
    assert row["because"] == "2 ring_full, 8 tx_dropped_full"
    assert row["window_lost"] == [5, 5, 0, 0]


def test_a_replacement_that_leaves_the_old_one_is_none() -> None:
    made, old, new = MagicMock(), MagicMock(), MagicMock()
    made.run.return_value = new
    new.await_event.return_value = {"members": 1, "left": 0, "text": "all other members of echo have ended"}
    assert embed.replaced(made, old) is new
    new.await_event.return_value = {"members": 1, "left": 1, "text": "1 still drain"}
    with pytest.raises(CorelaneError, match="1 still drain"):
        embed.replaced(made, old)


def test_the_plot_says_all() -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")
    arms = [
        {"name": name, "sent": 300, "changes": 2, "lost": lost, "window_lost": [0, lost], "window_p99_us": [20.0, p99]}
        for name, lost, p99 in ((embed.REPLACE, 0, 30.0), (embed.RESTART, 99_000, None))
    ]
    document: dict[str, Any] = {"bench": "embed", "arms": arms, "settings": {"message": "echo", "window_s": 0.1}}
    canvas = embed.plot(document)
    assert "ended, then started: 2 changes, 99,000 lost" in canvas.captions[-1]
    assert not [c for c in lint(canvas.figure, canvas.expect) if "empty" in c or "outside" in c]

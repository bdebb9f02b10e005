"""What `corelane bench stealing` makes of its arms, without running them."""

from __future__ import annotations

import io

import pytest

from corelane.bench import stealing
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session


@pytest.mark.parametrize(
    ("set_bytes", "name"), [(0, "0 B"), (512, "512 B"), (4096, "4 KiB"), (524288, "512 KiB"), (4194304, "4 MiB")]
)
def test_sets_are_named_as_people_do(set_bytes: int, name: str) -> None:
    assert stealing.size_name(set_bytes) == name


def test_gain_and_cost_are_taken_pair_by_pair() -> None:
    """Stealing has half of the throughput in two rounds of three, and data that moved takes 1.5 times as long."""
    rates = {
        "skewed, 4 KiB, stealing": (50.0, 50.0, 200.0),
        "skewed, 4 KiB, no stealing": (100.0, 100.0, 100.0),
        "even, 4 KiB, stealing": (90.0,) * 3,
        "even, 4 KiB, no stealing": (90.0,) * 3,
        "locality, 4 KiB, home": (300.0,) * 3,
        "locality, 4 KiB, home, 16 tables": (300.0,) * 3,
        "locality, 4 KiB, moved": (200.0,) * 3,
    }
    points = {name: [Point(r, r, 10, 10, p50_us=1.0, p99_us=2.0) for r in of] for name, of in rates.items()}
    session = Session("stealing", seconds=0.1, progress=io.StringIO())
    assert stealing._compare(session, "4 KiB", points) == (0.5, 1.5)
    assert any(note.startswith("skewed flows of 4 KiB") and "0.5 (0.5 .. 2)" in note for note in session.notes)


def tables(place: str, kthread: int) -> set[int]:
    """All that the requests of a kthread's flows touch."""
    number = ("flow", *stealing.LOCALITY).index(place)
    flows = range(kthread * stealing.FLOWS, (kthread + 1) * stealing.FLOWS)
    return {stealing.table_of(number, flow, drawn) for flow in flows for drawn in range(64)}


def test_only_whose_data_a_request_touches_differs_between_arms_of_locality() -> None:
    """At home no two kthreads share a table; moved, both touch all of as many."""
    for place, many in (("flow", stealing.FLOWS), ("home", 8), ("home, 16 tables", 16)):
        one, other = tables(place, 0), tables(place, 1)
        assert len(one) == len(other) == many
        assert not one & other, place
        assert max(one | other) < stealing.TABLES
    assert tables("moved", 0) == tables("moved", 1) == set(range(16))


def test_with_its_own_table_a_flow_stays_at_it() -> None:
    assert all(stealing.table_of(0, flow, drawn) == flow for flow in range(2 * stealing.FLOWS) for drawn in range(64))

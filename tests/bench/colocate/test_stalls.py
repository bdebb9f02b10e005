"""What colocate says of a slot's tail from the iokernel's log of moves and the gaps of its loop."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter

import pytest

from corelane.bench._native import lib
from corelane.bench.colocate import colocate
from corelane.bench.colocate import stalls as colocate_stalls
from corelane.bench.colocate.stalls import PARTS, LongMove, Stalls
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.iokernel.control.moves import Move
from corelane.runtime.clock import default_clock
from corelane.runtime.hist import Hist

TICKS_US = default_clock().hz / 1e6
ASK, EVICT = lib.CL_IO_STEP_REQUEST, lib.CL_IO_STEP_EVICT
BASE = (7 << 32) - 50  # its low words wrap in the middle of a move


def done(step: int, seen: float, **at_us: float) -> Move:
    """A move that was decided at BASE and whose end the loop saw `seen` us later."""

    def word(us: float) -> int:
        return (BASE + round(us * TICKS_US)) % (1 << 32)

    stamps = {name: word(us) for name, us in at_us.items()}
    return Move(BASE + round(seen * TICKS_US), 1, 1, lib.CL_IO_LOG_DONE, step, decided=word(0), **stamps)


@pytest.mark.parametrize(
    ("at_us", "part"),
    [
        ({"stored": 4000, "lost": 4001, "left": 4002, "back": 4003}, PARTS[0]),
        ({"stored": 1, "lost": 4000, "left": 4001, "back": 4002}, PARTS[1]),
        ({"stored": 1, "lost": 2, "left": 4000, "back": 4001}, PARTS[2]),
        ({"stored": 1, "lost": 2, "left": 3, "back": 4000}, PARTS[3]),
        ({"stored": 1, "lost": 2, "left": 3, "back": 4}, PARTS[4]),
        ({"stored": 1, "lost": -300, "left": 9000, "back": 4000}, PARTS[3]),  # stamps of other moves
    ],
)
def test_the_longest_move_and_what_took_most_of_it(at_us: dict[str, float], part: str) -> None:
    quick = done(ASK, 3, stored=0.1, lost=1, left=1.2, back=2)
    begun = Move(BASE, 2, 1, lib.CL_IO_LOG_WANTED, ASK)
    found = colocate_stalls.longest([quick, begun, done(ASK, 4010, **at_us), quick])
    assert found.us == pytest.approx(4010, rel=1e-3)
    assert (found.step, found.part) == ("ask", part)


def test_a_wake_begins_with_its_own_entry() -> None:
    """The stamps of its end are those of the hand-over before, but for the last."""
    woken = Move(BASE + round(900_000 * TICKS_US), 1, 1, lib.CL_IO_LOG_WOKEN, lib.CL_IO_STEP_WAKE)
    end = done(lib.CL_IO_STEP_WAKE, 900_070, stored=1, lost=900_060, left=900_061, back=900_068)
    found = colocate_stalls.longest([done(ASK, 20, stored=1, lost=2, left=3, back=19), woken, end])
    assert (found.step, found.part) == ("wake", PARTS[3])
    assert found.us == pytest.approx(70, rel=0.01)
    assert colocate_stalls.longest([end]) == LongMove()  # its beginning was before the slot


def test_nothing_moved() -> None:
    assert colocate_stalls.longest([]) == LongMove()
    assert Stalls().row()["longest_move_us"] == 0
    assert Stalls().sentence().count("move") == 0


def test_moves_are_counted_by_the_last_step() -> None:
    moves = [done(ASK, 3), done(ASK, 4), done(EVICT, 900), Move(BASE, 2, 1, lib.CL_IO_LOG_WANTED, ASK)]
    assert colocate_stalls.by_step(moves) == {"ask": 2, "evict": 1}


def gaps(*us: int, seconds: float = 0.1) -> Stalls:
    hist = Hist()
    hist.record_all(1000 * one for one in us)
    return Stalls(Counter(evicted=1), Counter(ask=10), colocate_stalls.gaps_of(hist, seconds), waited_us=sum(us) / 2)


def test_the_gaps_of_the_loop_make_a_p99() -> None:
    """A gap of 4 ms in a tenth of a second: a request in 25 waits, and one in a hundred for 3 ms and more."""
    assert gaps(4000).gaps_p99_us == pytest.approx(3000, rel=0.01)
    assert gaps(20, 20).gaps_p99_us == 0
    both = gaps(4000) + gaps(20)
    assert both.gaps_p99_us == pytest.approx(2000, rel=0.01)  # of twice the time
    row = both.row()
    assert row["loop_gap_us"] == pytest.approx(4000, rel=0.01)
    assert row["evicted"] == 2
    assert row["stalls"]["moves_by_step"] == {"ask": 20}
    assert row["stalls"]["loop_gaps_us"] == pytest.approx(4020, rel=0.01)
    assert row["stalls"]["loop_waited_us"] == pytest.approx(2010)


@pytest.mark.parametrize(("p99_us", "noted"), [(999.0, False), (3496.0, True), (math.inf, True)])
def test_a_row_says_what_its_slots_saw(p99_us: float, noted: bool) -> None:
    session = Session("colocate", seconds=0.1)
    point = Point(5e4, 5e4, 100, 100, p99_us=p99_us, window_p99_us=(9.0,))
    colocate.add_row(session, "ours", 5e4, [colocate.Beside(point, 1.0, gaps(4000))] * 2)
    (row,) = session.arms
    assert row["loop_gaps_p99_us"] == pytest.approx(3000, rel=0.01)
    assert [text for text in session.notes if "the loop's gaps there make a p99 of 3,0" in text] == session.notes
    assert bool(session.notes) is noted


def test_linux_has_no_loop() -> None:
    session = Session("colocate", seconds=0.1)
    colocate.add_row(session, "Linux", 5e4, [colocate.Beside(Point(5e4, 5e4, 1, 1, window_p99_us=(9.0,)), 1.0)])
    assert "loop_gap_us" not in session.arms[0]


def test_the_kernel_keeps_account_of_who_waits() -> None:
    """Of nobody there is none, nor of a thread that is gone; two threads count together."""
    assert math.isnan(colocate_stalls.waited_us([]))
    assert math.isnan(colocate_stalls.waited_us([2**30]))
    me = threading.get_native_id()
    one, two = colocate_stalls.waited_us([me]), colocate_stalls.waited_us([me, me], os.getpid())
    assert two >= 2 * one >= 0

"""How a kthread that sleeps in an epoll of its own is woken by another process: every interleaving, in a model.

The waker has a futex, the park word; the kthread sleeps on a descriptor, `fd`; the herald (drivers/port/herald.c)
sleeps on the futex and writes the descriptor. The kthread's side is that of tests/support/parking.py.
"""

from __future__ import annotations

import parking
import pytest
from tso import Graph, explore, without

GENERATION = [  # cl_port_parked
    ("load", "generation", "g"),
    ("add", "g", 1),
    ("exchange", "generation", "$g", "old"),
]
KTHREAD = [*parking.SET_WORD, *GENERATION, *parking.LOOK, *parking.SLEEP, *parking.RISE, *parking.WORK]
WAKER = [*parking.wake([("wake", "word")]), "end", ("fence",)]  # of another process: a futex is all that it has
ANEW = ("if", "g", "!=", "$seen", "call")
HERALD = [
    ("set", "last", 0),
    ("set", "seen", 0),
    "top",
    ("load", "generation", "g"),
    ("load", "word", "v"),
    ("if", "v", "==", 1, "keep"),
    ("if", "v", "!=", "$last", "call"),
    ANEW,
    ("goto", "keep"),
    "call",
    ("exchange", "fd", 1, "before"),
    ("wake", "fd"),
    "keep",
    ("set", "last", "$v"),
    ("set", "seen", "$g"),
    ("wait", "generation", "$g", "word", "$v"),
    ("goto", "top"),
]
MEMORY = {"word": 0, "work": 0, "fd": 0, "generation": 0}


def unrest(kthread: list, herald: list, wakers: int) -> tuple[Graph, list]:
    """The states, and those from which it never comes to be that all work is done and everybody sleeps."""
    graph = explore([kthread, herald, *[WAKER] * wakers], MEMORY)

    return graph, graph.never(lambda v: parking.idle(v) and v.asleep[:2] == ("fd", "generation word"))


@pytest.mark.parametrize("wakers", [1, pytest.param(2, marks=pytest.mark.soak(short=False, takes_s=20))])
def test_no_wake_up_is_lost_on_its_way_through_the_herald(wakers: int) -> None:
    graph, bad = unrest(KTHREAD, HERALD, wakers)
    assert len(graph.states) > 500
    assert not bad


def test_it_needs_the_generation() -> None:
    """Else a kthread that parks and is woken between two looks of the herald is not noticed."""
    assert unrest(KTHREAD, without(HERALD, ANEW), 1)[1]


def test_the_generation_is_raised_before_work_is_looked_for() -> None:
    look, rest = parking.LOOK[:2], parking.LOOK[2:]
    late = [*parking.SET_WORD, *look, *GENERATION, *rest, *parking.SLEEP, *parking.RISE, *parking.WORK]
    assert unrest(late, HERALD, 1)[1]

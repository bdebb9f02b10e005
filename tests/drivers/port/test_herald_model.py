"""How a kthread that sleeps in an epoll of its own is woken by another process: every interleaving, in a model.

The waker has a futex, the park word; the kthread sleeps on a descriptor, `fd`; the herald (drivers/port/herald.c)
sleeps on the futex and writes the descriptor. The kthread's side is that of tests/libos/sched/test_adopt_model.py.
"""

from __future__ import annotations

import pytest
from tso import Graph, explore

KTHREAD = [
    "park",
    ("store", "word", 1),
    ("fence",),
    ("load", "generation", "g"),  # cl_port_parked
    ("add", "g", 1),
    ("exchange", "generation", "$g", "old"),
    ("load", "work", "seen"),
    ("if", "seen", "==", 0, "sleep"),
    ("store", "word", 0),
    ("goto", "work"),
    "sleep",
    ("wait", "fd", 0),
    ("choose", "look"),  # cl_wakefd_look
    ("exchange", "fd", 0, "calls"),
    "look",
    ("load", "work", "seen"),
    ("if", "seen", "==", 1, "rise"),
    ("load", "word", "now"),
    ("if", "now", "==", 0, "rise"),
    ("goto", "sleep"),
    "rise",
    ("exchange", "word", 0, "was"),
    ("if", "was", "==", 1, "work"),
    ("exchange", "fd", 0, "calls"),
    "work",
    ("exchange", "work", 0, "seen"),
    ("goto", "park"),
]
WAKER = [  # of another process: a futex is all that it has
    ("store", "work", 1),
    ("fence",),
    ("load", "word", "seen"),
    ("if", "seen", "==", 0, "end"),
    ("exchange", "word", 0, "was"),
    ("if", "was", "==", 0, "end"),
    ("wake", "word"),
    "end",
    ("fence",),
]
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

    def rests(v):
        return v.drained and v.memory["work"] == 0 and v.memory["fd"] == 0 and v.asleep[:2] == ("fd", "generation word")

    return graph, graph.never(rests)


@pytest.mark.parametrize("wakers", [1, pytest.param(2, marks=pytest.mark.soak(short=False, takes_s=20))])
def test_no_wake_up_is_lost_on_its_way_through_the_herald(wakers: int) -> None:
    graph, bad = unrest(KTHREAD, HERALD, wakers)
    assert len(graph.states) > 500
    assert not bad


def test_it_needs_the_generation() -> None:
    """Else a kthread that parks and is woken between two looks of the herald is not noticed."""
    assert unrest(KTHREAD, [i for i in HERALD if i != ANEW], 1)[1]


def test_the_generation_is_raised_before_work_is_looked_for() -> None:
    at = KTHREAD.index(("load", "generation", "g"))
    raising, look = KTHREAD[at : at + 3], KTHREAD[at + 3 : at + 5]
    assert unrest([*KTHREAD[:at], *look, *raising, *KTHREAD[at + 5 :]], HERALD, 1)[1]

"""How an adopted kthread sleeps in its thread's epoll: every interleaving with those who wake it, in a model.

The descriptor is `fd`, which is readable while it is not 0: the parker's eventfd. An event loop sleeps on it
(epoll_wait) and turns the kthread when it is readable, or by chance, since other descriptors of the loop wake it, too.
What a turn does is libos/sched/idle.c (cl_park_kthread, cl_rise) and libos/sched/wakefd.c.
"""

from __future__ import annotations

import pytest
from tso import Graph, explore

TAKE = [("exchange", "fd", 0, "calls")]  # read() of the eventfd
PARK = [
    "park",
    ("store", "word", 1),  # cl_park_begin
    ("fence",),
    ("load", "work", "seen"),  # cl_work_visible
    ("if", "seen", "==", 0, "sleep"),
    ("store", "word", 0),  # cl_park_cancel
    ("goto", "work"),
]
SLEEP = [
    "sleep",
    ("choose", "turn"),  # another descriptor of the loop was readable
    ("wait", "fd", 0),
    "turn",  # cl_rise; each so many turns it first takes what a waker has written late (cl_wakefd_look)
    ("choose", "look"),
    *TAKE,
    "look",
    ("load", "work", "seen"),
    ("if", "seen", "==", 1, "rise"),
    ("load", "word", "now"),
    ("if", "now", "==", 0, "rise"),
    ("goto", "sleep"),
]
RISE = [
    "rise",
    ("exchange", "word", 0, "was"),
    ("if", "was", "==", 1, "work"),
    *TAKE,
]
WORK = [
    "work",
    ("exchange", "work", 0, "seen"),
    ("goto", "park"),
]
KTHREAD = [*PARK, *SLEEP, *RISE, *WORK]

# cl_park_wake, after work was published.
WAKE = [
    ("store", "work", 1),
    ("fence",),
    ("load", "word", "seen"),
    ("if", "seen", "==", 0, "end"),
    ("exchange", "word", 0, "was"),
    ("if", "was", "==", 0, "end"),
    ("exchange", "fd", 1, "before"),  # write() to the eventfd
    ("wake", "fd"),
]
WAKER = [*WAKE, "end", ("fence",)]
TWICE = [*WAKE, "end", *[("store", "work", 1), ("fence",), ("load", "word", "seen"), ("if", "seen", "==", 0, "last")],
         ("exchange", "word", 0, "was"), ("if", "was", "==", 0, "last"), ("exchange", "fd", 1, "before"),
         ("wake", "fd"), "last", ("fence",)]  # fmt: skip
MEMORY = {"word": 0, "work": 0, "fd": 0}


def run(kthread: list, *wakers: list) -> Graph:
    return explore([kthread, *wakers], MEMORY)


def unrest(graph: Graph) -> list:
    """States from which it never comes to be that all work is done and the loop sleeps, and stays asleep."""
    return graph.never(lambda v: v.drained and v.memory["work"] == 0 and v.memory["fd"] == 0 and v.asleep[0] == "fd")


@pytest.mark.parametrize("wakers", [[WAKER], [WAKER, WAKER], [TWICE], [TWICE, WAKER]])
def test_no_wake_up_is_lost_and_none_stays(wakers: list) -> None:
    graph = run(KTHREAD, *wakers)
    assert len(graph.states) > 100
    assert not unrest(graph)


def without(program: list, instruction: tuple) -> list:
    at = program.index(instruction)
    return program[:at] + program[at + 1 :]


def test_each_fence_is_needed() -> None:
    assert unrest(run(without(KTHREAD, ("fence",)), WAKER))
    assert unrest(run(KTHREAD, without(WAKER, ("fence",))))


def test_work_is_looked_for_after_the_word_is_set() -> None:
    early = [("load", "work", "seen"), *[i for i in PARK if i != ("load", "work", "seen")]]
    early = ["park", *[i for i in early if i != "park"]]
    assert unrest(run([*early, *SLEEP, *RISE, *WORK], WAKER))


def test_a_write_that_comes_late_is_taken_by_turns_for_nothing() -> None:
    """Else the descriptor would stay readable, and the loop would never sleep again."""
    never = [i for i in SLEEP if i not in [*TAKE, ("choose", "look")]]
    assert unrest(run([*PARK, *never, *RISE, *WORK], WAKER))


def test_what_is_taken_for_nothing_is_taken_before_the_checks() -> None:
    """Taken after them it may be what a waker has written since."""
    first = [i for i in SLEEP if i not in [*TAKE, ("choose", "look"), "look", ("goto", "sleep")]]
    late = [*first, ("choose", "sleep"), *TAKE, ("goto", "sleep")]
    assert unrest(run([*PARK, *late, *RISE, *WORK], WAKER))

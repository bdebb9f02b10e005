"""How an adopted kthread sleeps in its thread's epoll: every interleaving with those who wake it, in a model.

The descriptor is `fd`, which is readable while it is not 0: the parker's eventfd. An event loop sleeps on it
(epoll_wait) and turns the kthread when it is readable, or by chance, since other descriptors of the loop wake it, too.
"""

from __future__ import annotations

import pytest
from parking import KTHREAD, LOOK, RISE, SET_WORD, SLEEP, TAKE, WORK, idle, wake
from tso import Graph, explore, without

# write() to the eventfd
WRITE = [("exchange", "fd", 1, "before"), ("wake", "fd")]
WAKER = [*wake(WRITE), "end", ("fence",)]
TWICE = [*wake(WRITE), "end", *wake(WRITE, "last"), "last", ("fence",)]
MEMORY = {"word": 0, "work": 0, "fd": 0}


def run(kthread: list, *wakers: list) -> Graph:
    return explore([kthread, *wakers], MEMORY)


def unrest(graph: Graph) -> list:
    """States from which it never comes to be that all work is done and the loop sleeps, and stays asleep."""
    return graph.never(lambda v: idle(v) and v.asleep[0] == "fd")


@pytest.mark.parametrize("wakers", [[WAKER], [WAKER, WAKER], [TWICE], [TWICE, WAKER]])
def test_no_wake_up_is_lost_and_none_stays(wakers: list) -> None:
    graph = run(KTHREAD, *wakers)
    assert len(graph.states) > 100
    assert not unrest(graph)


def test_each_fence_is_needed() -> None:
    assert unrest(run(without(KTHREAD, ("fence",)), WAKER))
    assert unrest(run(KTHREAD, without(WAKER, ("fence",))))


def test_work_is_looked_for_after_the_word_is_set() -> None:
    early = ["park", LOOK[0], *without(SET_WORD, "park"), *LOOK[1:]]
    assert unrest(run([*early, *SLEEP, *RISE, *WORK], WAKER))


def test_a_write_that_comes_late_is_taken_by_turns_for_nothing() -> None:
    """Else the descriptor would stay readable, and the loop would never sleep again."""
    never = without(SLEEP, *TAKE, ("choose", "look"))
    assert unrest(run([*SET_WORD, *LOOK, *never, *RISE, *WORK], WAKER))


def test_what_is_taken_for_nothing_is_taken_before_the_checks() -> None:
    """Taken after them it may be what a waker has written since."""
    first = without(SLEEP, *TAKE, ("choose", "look"), "look", ("goto", "sleep"))
    late = [*first, ("choose", "sleep"), *TAKE, ("goto", "sleep")]
    assert unrest(run([*SET_WORD, *LOOK, *late, *RISE, *WORK], WAKER))

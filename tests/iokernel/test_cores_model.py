"""The hand-over of a core (docs/cores.md): every interleaving of a model, with and without a kthread that dies.

One core. Y has requests now and then and parks without them; X always has work. L is the loop: it delivers requests,
decides, and writes the words of runtime/shm.h. Instructions are those of drivers/port_cores.c and iokernel/move.c, in
their order; time-outs are choices, so whatever holds here holds for every duration.
"""

from __future__ import annotations

import pytest
from tso import Program, View, explore

Y, X = 1, 2  # owners; also indices of threads
RUNNING, PARKED, PARKED_HOT, ASIDE, ASIDE_HOT = range(5)


def granted(me: int, back: str, label: str) -> Program:
    """Go back if there is a grant not yet acted on, and it is still ours. The grant is looked at before the owner: one
    that comes after both changes the futex's value."""
    return [
        ("load", f"grant_{'xy'[me == Y]}", "n"),
        ("load", "owner", "o"),
        ("if", "n", "==", "$g", f"no_{label}_{me}"),
        ("if", "o", "==", me, back),
        f"no_{label}_{me}",
    ]


def kthread(me: int, other: int, work: Program, idle: Program) -> Program:
    """What both sides share: look, step aside, wait hot or cold, come back."""
    mine, theirs = "xy"[me == Y], "xy"[other == Y]
    return [
        "run",
        ("load", f"look_{mine}", "l"),
        ("if", "l", "==", 0, "work"),
        ("load", "owner", "o"),
        ("if", "o", "!=", me, "aside"),
        ("load", f"grant_{mine}", "g"),  # lost and won before it looked, or won before the grant was to be seen
        ("store", f"acted_{mine}", "$g"),
        ("goto", "work"),
        "aside",  # g is the last grant that it acted on, always: one that it has not acted on ends every wait
        ("store", f"park_{mine}", ASIDE_HOT),
        ("fence",),  # before the look at `wake`: either we see it, or the loop sees that we do not run
        ("load", "wake", "w"),
        ("if", "w", "==", 0, "waiting"),
        ("wake", f"grant_{theirs}"),
        "waiting",
        *granted(me, "back", "waiting"),
        ("choose", "waiting"),  # sixteen yields came back at once, or not
        ("store", f"park_{mine}", ASIDE),
        ("fence",),
        *granted(me, "back", "cold"),
        "cold",
        ("wait", f"grant_{mine}", "$n"),
        ("goto", "waiting"),
        "back",
        ("load", f"grant_{mine}", "g"),
        ("store", f"park_{mine}", RUNNING),
        ("store", f"acted_{mine}", "$g"),
        ("goto", "run"),
        "work",
        *work,
        ("goto", "run"),
        *idle,
    ]


HANDLE = [
    ("load", "tail", "t"),
    ("load", "head", "h"),
    ("if", "t", "==", "$h", "idle"),
    ("add", "h", 1),
    ("store", "head", "$h"),
]
PARK = [
    "idle",
    ("store", "park_y", PARKED_HOT),
    ("fence",),  # park before the last look
    ("load", "tail", "t"),
    ("if", "t", "!=", "$h", "cancel"),
    ("load", "owner", "o"),  # lost while it worked, and the loop saw it running: it is to wake the owner
    ("if", "o", "==", Y, "parked"),
    ("load", "wake", "w"),
    ("if", "w", "==", 0, "parked"),
    ("wake", "grant_x"),
    "parked",
    *granted(Y, "back", "parked"),
    ("choose", "parked"),
    ("store", "park_y", PARKED),
    ("fence",),
    ("load", "tail", "t"),
    ("if", "t", "!=", "$h", "cancel"),
    *granted(Y, "back", "asleep"),
    ("wait", "grant_y", "$n"),
    ("goto", "parked"),
    "cancel",
    ("store", "park_y", RUNNING),
    ("fence",),  # running before the look at the owner
    ("load", "owner", "o"),
    ("if", "o", "==", Y, "back"),
    ("goto", "aside"),
]
BATCH: Program = [("load", "look_x", "l")]


def give(to: int, park: str, fence: bool = True) -> Program:
    """The loop changes the owner, and wakes the new one if nobody runs who would step aside for it."""
    mine, theirs = "xy"[to == Y], "xy"[to != Y]
    done = f"given_{mine}"
    return [
        ("store", f"look_{mine}", 0),
        ("store", "wake", 0),
        ("store", "owner", to),
        ("set", "owner", to),
        ("set", "moving", int(to == Y)),
        ("add", f"n_{mine}", 1),
        ("store", f"grant_{mine}", f"$n_{mine}"),
        *([("fence",)] if fence else []),  # owner before the look at how it waits: one that goes cold now sees it
        ("load", f"park_{mine}", park),
        ("if", park, "==", PARKED, f"cold_{mine}"),
        ("if", park, "!=", ASIDE, done),
        f"cold_{mine}",
        ("store", "wake", 1),
        done,
        ("store", f"look_{theirs}", 1),
        ("fence",),
        ("load", f"park_{theirs}", "q"),
        ("if", "q", "==", RUNNING, "loop"),
        ("wake", f"grant_{mine}"),
        ("goto", "loop"),
    ]


def late(to: int, evict: bool) -> Program:
    """The new owner has not said that it runs. If it runs all the same, it is to look; else time passes, and the loop
    wakes it. Falls through, to where the loop goes on, when it has."""
    mine = "xy"[to == Y]
    settled = f"begun_{mine}"
    return [
        ("load", f"acted_{mine}", "a"),
        ("if", "a", "==", f"$n_{mine}", settled),
        ("load", f"park_{mine}", "q"),
        ("if", "q", "!=", RUNNING, f"missing_{mine}"),
        ("store", f"look_{mine}", 1),
        ("goto", "loop"),
        f"missing_{mine}",
        *([("wake", f"grant_{mine}")] if evict else []),
        ("goto", "loop"),
        settled,
        ("store", f"look_{mine}", 0),
        ("set", "moving", 0),
    ]


def loop(frames: int, evict: bool = True, fence: bool = True) -> Program:
    """Deliver `frames` one after the other; each round look at everything and act on it."""
    return [
        ("set", "owner", X),
        ("set", "sent", 0),
        ("set", "n_x", 0),
        ("set", "n_y", 0),
        ("set", "moving", 0),
        ("set", "roused", -1),
        "loop",
        ("if", "sent", "==", frames, "look"),
        ("choose", "look"),
        ("add", "sent", 1),
        ("store", "tail", "$sent"),
        "look",
        *([("fence",)] if fence else []),  # frames before the park word: L_FENCE
        ("load", "park_y", "p"),
        ("load", "head", "h"),
        ("if", "owner", "==", Y, "with_y"),
        ("if", "h", "==", "$sent", "with_x"),
        *give(Y, "p"),
        "with_x",  # X has it, and Y wants nothing: has X begun?
        *late(X, evict),
        ("goto", "loop"),
        "with_y",
        ("if", "moving", "==", 0, "settled"),
        *late(Y, evict),
        "settled",
        ("if", "p", "==", RUNNING, "loop"),
        ("if", "p", "==", ASIDE, "loop"),
        ("if", "p", "==", ASIDE_HOT, "loop"),
        ("if", "h", "!=", "$sent", "rouse"),
        *give(X, "p"),
        "rouse",  # it has its core, sleeps, and frames came: once until it has taken one
        ("if", "roused", "==", "$h", "loop"),
        ("set", "roused", "$h"),
        ("add", "n_y", 1),
        ("store", "grant_y", "$n_y"),
        ("if", "p", "==", PARKED_HOT, "loop"),
        ("wake", "grant_y"),
        ("goto", "loop"),
    ]


MEMORY = {
    **{f"{word}_{k}": 0 for word in ("look", "grant", "park", "acted") for k in "xy"},
    "owner": X,
    "wake": 0,
    "tail": 0,
    "head": 0,
    "park_y": PARKED_HOT,
}


def without(program: Program, at: int) -> Program:
    """The program without its at-th fence."""
    fences = [i for i, item in enumerate(program) if item == ("fence",)]
    return [item for i, item in enumerate(program) if i != fences[at]]


def served(frames: int):
    return lambda v: v.memory["head"] == frames


def x_runs(v: View) -> bool:
    return v.memory["owner"] == X and v.memory["park_x"] == RUNNING


def y_program() -> Program:
    return [("set", "h", 0), ("set", "g", 0), ("goto", "idle"), *kthread(Y, X, HANDLE, PARK)]


def x_program() -> Program:
    return [("set", "g", 0), *kthread(X, Y, BATCH, [])]


def explored(*, evict: bool = False, mortal: tuple[int, ...] = (), fences: tuple[int, ...] = ()):
    """The graph with one request. fences: for L, Y and X the fence to leave out, -1 for none."""
    programs = [loop(1, evict), y_program(), x_program()]
    for thread, at in enumerate(fences):
        if at >= 0:
            programs[thread] = without(programs[thread], at)
    return explore(programs, MEMORY, mortal=mortal)


def test_nothing_is_lost_without_time_outs():
    """The hand-shake alone, whatever the timing: the request is served, and X gets its core back. Eviction is for
    kthreads that do not answer, not for races."""
    graph = explored()
    assert len(graph.states) > 100_000
    assert not graph.never(served(1))
    assert not graph.never(x_runs)


def test_a_kthread_that_dies_anywhere_stops_nobody():
    graph = explored(evict=True, mortal=(X,))
    assert not graph.never(served(1))
    assert not [v for v in graph.never(x_runs) if v.alive[X]]


def test_the_model_sees_what_eviction_is_for():
    assert explored(mortal=(X,)).never(served(1))


@pytest.mark.parametrize("fences", [(1, -1, -1), (-1, 2, -1)], ids=["grant to park word", "park word to queues"])
def test_the_model_sees_a_fence_that_is_missing(fences):
    """Without the loop's fence between grant and second look, or the kthread's between park word and last look, one
    sleeps on although the core is its own. (Leaving out the one after ASIDE_HOT, or the last of the loop, is seen too;
    the others repeat what a system call nearby does anyway.)"""
    assert explored(fences=fences).never(x_runs)

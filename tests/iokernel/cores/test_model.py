"""The hand-over of a core (docs/cores.md) in the interleavings of the C code: c/handover_model.c says what is in it.

A thread may be put aside for another one at every load, store that is seen, fence and call. In `evicted` that is all
there is; elsewhere it happens in the middle of something `cuts` times on a path, and at any time between two rounds,
probes or waits. `make model` has more of them, and takes minutes and gigabytes; so has `make soak`. The mutants are
the same code with one fault put in, all of them in one program, and must be found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest
from cltest.mutants import Model, Mutant, Program, finding

# Compiled into the program, by the name of a macro; the rest of the library is linked, without what the model replaces.
OWN = {
    "SIGNALS_C": "iokernel/state/signals.c",
    "CORES_C": "iokernel/cores/cores.c",
    "THREAD_C": "iokernel/cores/thread.c",
    "YIELD_WAIT_C": "iokernel/cores/yield_wait.c",
    "FLOWS_C": "iokernel/cores/flows.c",
    "STEPS_C": "iokernel/cores/steps.c",
    "MOVE_C": "iokernel/cores/move.c",
    "QUANTUM_C": "iokernel/cores/quantum.c",
    "DEMAND_C": "iokernel/cores/demand.c",
    "ALLOCATE_C": "iokernel/cores/allocate.c",
    "WAKE_C": "iokernel/loop/wake.c",
    "IOKERNEL_IDLE_C": "iokernel/loop/idle.c",
    "PORT_CORES_C": "drivers/port/cores.c",
    "CEDE_C": "libos/sched/cede.c",
    "INTERRUPT_C": "libos/sched/interrupt.c",
    "SCHED_IDLE_C": "libos/sched/idle.c",
}
REPLACED = (
    *(f"iokernel/cores/{name}.c" for name in ("overrun", "starved", "dying", "blocked")),
    "iokernel/loop/round.c",
    "iokernel/loop/loop.c",
)
FLAGS = ("-O1", "-g0")
LIMIT_S = 900  # for a machine that does much else
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # most of its time goes into finding states in big tables

# Scenario: how much of it is explored; and the time-outs that it takes at most until the latency application is
# served, until the batch application runs, and until no move is under way: none where no wake-up depends on one.
# `ends`: of times, on a path; what is to be must come about from where `left` of them have not been used. depth=0:
# without store buffers.
CHECKED = {
    "asked": ("cuts=1", 0, 0, 0),
    "asked_in_loop": ("cuts=1", 0, 0, 0),
    "loop_sleeps": ("cuts=1", 0, 0, 0),
    "spawned_from_outside": ("cuts=1 frames=2", 0, 0, 0),
    "own_timer": ("cuts=1", 0, 0, 0),
    "fickle_policy": ("cuts=0", 0, 0, 0),
    "computes_on": ("cuts=1 ends=1 left=1 depth=0", 0, 0, 1),
    "interrupted": ("cuts=1 ends=1 left=1", 1, 1, 1),
    "evicted": ("ends=3 left=2", 2, 2, 2),
    "stolen_from": ("cuts=0 ends=4 left=4", 1, 2, 1),
    "robbed_in_handler": ("cuts=0 ends=4 left=4", 2, 3, 2),
    "batch_dies": ("cuts=0 ends=1 left=1", 1, 1, 1),
    "latency_dies": ("cuts=0 ends=1 left=1", 1, 1, 1),
    "batch_stops": ("cuts=0 ends=2 left=2 depth=0", 2, 1, 1),
    "latency_stops": ("cuts=0 ends=5 left=5 depth=0", 1, 5, 1),
}
LONG = {"evicted", "computes_on", "fickle_policy", "own_timer", "stolen_from", "latency_stops"}  # make soak has these
FURTHER = {
    "asked": ("cuts=2", 0, 0, 0),
    "interrupted": ("cuts=1 ends=2 left=2", 1, 1, 1),
    "batch_stops": ("cuts=1 ends=2 left=2 depth=0", 2, 1, 1),
    "evicted": ("ends=4 left=2", 2, 2, 2),
    "batch_dies": ("cuts=1 ends=2 left=2", 1, 1, 1),
    "latency_dies": ("cuts=1 ends=2 left=2", 1, 1, 1),
    "latency_stops": ("cuts=1 ends=6 left=6 depth=0", 1, 6, 1),
}

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("CORELANE_SANITIZE")),
    reason="has stacks of its own, which the sanitizers do not follow; it runs plain",
)

# What comes next where a kthread that waits for a core gets one.
UNTIL_OWNED = "\n        if (owns(a, k))\n            break;"

MUTANTS = {
    "a grant that was not acted on counts as seen": Mutant(
        "PORT_CORES_C",
        "port->waiters[k].seen = port_lines(a, k)->signals.acted;",
        "port->waiters[k].seen = cl_load_acquire(&slot_of(a, k)->grant);",
        "asked",
        "cuts=1",
        soak=True,
    ),
    "who cedes wakes nobody": Mutant("PORT_CORES_C", "w->woke = wake_owner(a, k);", "(void)0;", "asked"),
    "a grant that came while one got up by itself is not acted on at a look": Mutant(
        "PORT_CORES_C",
        "act(a, k);        /* a grant that came while k got up by itself */\n    return false;",
        "return false;",
        "computes_on",
        "cuts=1 ends=1 left=1 depth=0",
        soak=True,
    ),
    "nor after RUNNING": Mutant(
        "PORT_CORES_C",
        f"say(a, k, CL_KTHREAD_RUNNING);\n        act(a, k);{UNTIL_OWNED}",
        f"say(a, k, CL_KTHREAD_RUNNING);{UNTIL_OWNED}",
        "asked",
    ),
    "acted before RUNNING": Mutant(
        "PORT_CORES_C",
        f"say(a, k, CL_KTHREAD_RUNNING);\n        act(a, k);{UNTIL_OWNED}",
        f"act(a, k); say(a, k, CL_KTHREAD_RUNNING);{UNTIL_OWNED}",
        "asked",
        "cuts=1",
    ),
    "no second look after RUNNING": Mutant(
        "PORT_CORES_C", f"act(a, k);{UNTIL_OWNED}", "act(a, k);\n        break;", "own_timer", "cuts=1"
    ),
    "no look between the park word and sleep": Mutant(
        "PORT_CORES_C",
        "say(a, k, state);\n        *said = state;\n        return;",
        "say(a, k, state); *said = state;",
        "own_timer",
        "cuts=2",
        soak=True,
    ),
    "one is forgotten and not demoted": Mutant(
        "STEPS_C", "io_move_demote(loop, from, core)", "false", "evicted", "cuts=0 ends=3 left=2"
    ),
    "a wake is not made again": Mutant(
        "STEPS_C", "!waits_for_old || core->stage == 2", "false", "batch_dies", "cuts=0 ends=2 left=2"
    ),
    "a new owner that no wake reaches is not signalled": Mutant(
        "STEPS_C", "io_thread_signal(loop, k, a->signal) < 0", "true", "stolen_from", "cuts=0 ends=4 left=4"
    ),
    "nor one that waits in the handler": Mutant(
        "INTERRUPT_C",
        "pthread_sigmask(SIG_UNBLOCK, &mine, NULL);",
        "(void)0;",
        "robbed_in_handler",
        "cuts=0 ends=4 left=4",
    ),
    "a new owner is not woken": Mutant(
        "MOVE_C",
        "begin_owner(loop, core, k, asleep && running);",
        "(void)0;",
        "asked",
    ),
    "an owner that parked is not woken": Mutant(
        "MOVE_C",
        "begin_owner(loop, core, k, false);",
        "(void)0;",
        "asked",
        "cuts=1",
    ),
    "who read its grant too soon does not look again": Mutant(
        "MOVE_C", "park == CL_KTHREAD_RUNNING", "false", "asked", "cuts=1 frames=2", soak=True
    ),
    "a wake without a new grant": Mutant(
        "MOVE_C",
        "bump(k);\n    begin(c, core, NULL, CL_IO_STEP_WAKE, now);",
        "begin(c, core, NULL, CL_IO_STEP_WAKE, now);",
        "spawned_from_outside",
        "cuts=1 frames=2",
    ),
    "the bell is not rung": Mutant("PORT_CORES_C", "a->never_sleeps", "true", "spawned_from_outside"),
    "no last look before sleep": Mutant(
        "IOKERNEL_IDLE_C", "io_round(loop, now)", "false", "spawned_from_outside", "cuts=1"
    ),
    "the grant before the owner": Mutant(
        "MOVE_C",
        "cl_store_release(&core->state->owner, io_owner_word(k));\n    if (k)\n        bump(k);",
        "if (k) bump(k); cl_store_release(&core->state->owner, io_owner_word(k));",
        "asked",
        "cuts=2",  # one is between its two looks while the loop is between its two stores
        soak=True,
    ),
    "the wake is left to one who parked meanwhile": Mutant(
        "MOVE_C", "running = false;", "(void)0;", "fickle_policy", "cuts=1 depth=0", soak=True
    ),
}
# Of which function the fence is left out, and where it shows; where only make soak looks, that finds it.
FENCES = {
    "io_move": ("asked", "cuts=0"),
    "stalled": ("evicted", "ends=4 left=2"),
    "sleep_unless_work": ("spawned_from_outside", "cuts=1"),
}


MODEL = Model(
    "tests/iokernel/cores/c/handover_model.c",
    OWN,
    FLAGS,
    MUTANTS,
    variable="il_mutant",
    replaced=REPLACED,
    options="cuts=0",
)


@pytest.fixture(scope="module")
def model(c_program: Program) -> Callable[..., str]:
    """The code as it is."""
    return MODEL.build(c_program)


@pytest.fixture(scope="module")
def mutants(c_program: Program) -> Callable[..., str]:
    """The same with all faults in, of which `mutant=N` chooses one."""
    return MODEL.build_mutants(c_program)


@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize(
    ("scenario", "checked"),
    [
        *(
            pytest.param(name, checked, id=name, marks=[pytest.mark.soak(takes_s=15)] if name in LONG else ())
            for name, checked in CHECKED.items()
        ),
        *(
            pytest.param(name, further, id=f"{name} further", marks=pytest.mark.soak(takes_s=60))
            for name, further in FURTHER.items()
        ),
    ],
)
def test_every_interleaving_within_the_bounds_leads_on(
    model: Callable[..., str], scenario: str, checked: tuple[str, int, int, int]
) -> None:
    options, served, runs, ended = checked
    said = model(scenario, *options.split(), timeout_s=LIMIT_S, env=HUGE_PAGES)
    print(said)
    took = [int(n) for n in re.findall(r"(\d+) time-outs at most", said)]
    assert len(took) == 4
    assert took[0] <= served
    assert took[1] <= runs
    assert took[3] <= ended


@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize("name", MODEL.names(takes_s=60))
def test_a_fault_is_found(mutants: Callable[..., str], name: str) -> None:
    MODEL.finds(mutants, name, timeout_s=LIMIT_S, env=HUGE_PAGES)


@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize(
    "function",
    [pytest.param(f, marks=[pytest.mark.soak(takes_s=10)] if FENCES[f][0] in LONG else ()) for f in FENCES],
)
def test_a_fence_that_is_missing_is_found(model: Callable[..., str], function: str) -> None:
    scenario, options = FENCES[function]
    how = {"timeout_s": LIMIT_S, "env": HUGE_PAGES}
    assert "found: " in finding(model, scenario, *options.split(), f"without_fence_of={function}", **how)


@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.soak(takes_s=60)
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("asked", "cuts=3"),
        ("asked", "cuts=1 frames=2"),
        ("own_timer", "cuts=2"),
        ("loop_sleeps", "cuts=2"),
        ("spawned_from_outside", "cuts=2 frames=2"),
        ("fickle_policy", "cuts=1 depth=0"),
        ("anybody_dies", "cuts=0 ends=3 left=3"),
    ],
)
def test_more_of_it(model: Callable[..., str], scenario: str, options: str) -> None:
    print(model(scenario, *options.split(), timeout_s=LIMIT_S, env=HUGE_PAGES))

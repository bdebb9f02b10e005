"""The hand-over of a core (docs/cores.md) in all interleavings, within bounds, of the C code: c/handover_model.c.

Here a thread is in the middle of something while the others are at rest, or is put aside for another once on a path.
CORELANE_MODEL=full has more of that, more time-outs and more requests, and takes minutes and gigabytes. The mutants are
the same code with one fault put in, all of them in one program, and must be found.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cltest import ProgramFailed
from cltest.cbuild import ROOT, setup_py

PROGRAM = "tests/iokernel/c/handover_model.c"
# Compiled into the program, by the name of a macro; the rest of the library is linked, without what the model replaces.
OWN = {
    "SIGNALS_C": "iokernel/signals.c",
    "CORES_C": "iokernel/cores.c",
    "THREAD_C": "iokernel/thread.c",
    "MOVE_C": "iokernel/move.c",
    "ALLOCATE_C": "iokernel/allocate.c",
    "WAKE_C": "iokernel/wake.c",
    "IOKERNEL_IDLE_C": "iokernel/idle.c",
    "PORT_CORES_C": "drivers/port_cores.c",
    "ASIDE_C": "libos/sched/aside.c",
    "INTERRUPT_C": "libos/sched/interrupt.c",
    "SCHED_IDLE_C": "libos/sched/idle.c",
}
REPLACED = ("iokernel/squat.c", "iokernel/spare.c", "iokernel/loop.c")
FULL = os.environ.get("CORELANE_MODEL") == "full"

# Scenario: how much of it is explored; and the time-outs that it takes at most until the latency application is served
# and until the batch application runs: none where no wake-up depends on one. `ends`: of times, on a path; what is to be
# must come about from where `left` of them have not been used.
AT_REST = "together=1"
CHECKED = {
    "asked": ("cuts=1", 0, 0),
    "asked_in_loop": (AT_REST, 0, 0),
    "loop_sleeps": (AT_REST, 0, 0),
    "own_timer": (AT_REST, 0, 0),
    "interrupted": (f"{AT_REST} ends=2 left=2", 1, 1),
    "evicted": (f"{AT_REST} ends=4 left=2", 2, 2),
    "batch_dies": (f"{AT_REST} ends=2 left=2", 1, 1),
    "latency_dies": (f"{AT_REST} ends=2 left=2", 1, 1),
    "batch_stops": (f"{AT_REST} ends=2 left=2 depth=0", 2, 1),
    "latency_stops": (f"{AT_REST} ends=3 left=3 depth=0", 1, 3),
}

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("CORELANE_SANITIZE")),
    reason="has stacks of its own, which the sanitizers do not follow; it runs plain",
)
Program = Callable[..., Callable[..., str]]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A fault: `old`, which is there once, becomes `new`: a statement, or an expression. It shows in `scenario`."""

    macro: str
    old: str
    new: str
    scenario: str
    options: str = AT_REST
    full: bool = False  # takes long

    def text(self, number: int) -> str:
        if self.old.endswith(";"):
            return f"{{ if (il_mutant == {number}) {{ {self.new} }} else {{ {self.old} }} }}"
        return f"(il_mutant == {number} ? ({self.new}) : ({self.old}))"


MUTANTS = {
    "a grant that was not acted on counts as seen": Mutant(
        "PORT_CORES_C",
        "port->waiters[k].seen = port_lines(a, k)->signals.acted;",
        "port->waiters[k].seen = cl_load_acquire(&slot_of(a, k)->grant);",
        "asked",
        "cuts=1",
    ),
    "who steps aside wakes nobody": Mutant("PORT_CORES_C", "w->woke = wake_owner(a, k);", "(void)0;", "asked"),
    "one is forgotten and not demoted": Mutant(
        "MOVE_C", "io_move_demote(loop, from, core)", "false", "evicted", f"{AT_REST} ends=3 left=2"
    ),
    "a wake is not made again": Mutant(
        "MOVE_C", "!waits_for_old || core->stage == 2", "false", "batch_dies", f"{AT_REST} ends=2 left=2"
    ),
    "the grant before the owner": Mutant(
        "MOVE_C",
        "cl_store_release(&core->state->owner, slot_of(k));\n    if (k)\n        bump(k);",
        "if (k) bump(k); cl_store_release(&core->state->owner, slot_of(k));",
        "asked",
        "cuts=2",  # one is between its two looks while the loop is between its two stores
        full=True,
    ),
    "the wake is left to one who parked meanwhile": Mutant(
        "MOVE_C", "running = false;", "(void)0;", "fickle_policy", "cuts=1", full=True
    ),
    "no second look after RUNNING": Mutant(
        "PORT_CORES_C", "if (owns(a, k))\n            break;", "break;", "own_timer", "cuts=1"
    ),
}
FENCES = {"io_move": "asked"}  # of which function one is left out, and where it shows


def others() -> list[Path]:
    """The library's sources but those that the model compiles itself, or replaces."""
    own = {*OWN.values(), *REPLACED}
    return [path for path in setup_py().c_sources() if path.as_posix() not in own]


@pytest.fixture(scope="module")
def model(c_program: Program) -> Callable[..., str]:
    """The code as it is."""
    return c_program(PROGRAM, sources=others(), cflags=("-O1", "-g0"))


@pytest.fixture(scope="module")
def mutants(c_program: Program) -> Callable[..., str]:
    """The same with all faults in, of which `mutant=N` chooses one."""
    folder = ROOT / "build" / "ctest" / "mutants"
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-O1", "-g0", *(f"-iquote{folder}" for folder in ("iokernel", "drivers", "libos/sched"))]
    for macro, name in OWN.items():
        text = (ROOT / name).read_text()
        for number, (what, mutant) in enumerate(MUTANTS.items(), 1):
            if mutant.macro == macro:
                assert text.count(mutant.old) == 1, f"the code of {what!r} has changed: mend the mutant"
                text = text.replace(mutant.old, mutant.text(number))
        copy = folder / f"{macro}.c"
        if not copy.exists() or copy.read_text() != text:
            new = folder / f"{macro}.{os.getpid()}"
            new.write_text(text)
            new.replace(copy)
        flags.append(f'-D{macro}="{copy}"')
    return c_program(PROGRAM, sources=others(), cflags=flags)


@pytest.mark.parametrize("scenario", CHECKED)
def test_every_interleaving_within_the_bounds_leads_on(model: Callable[..., str], scenario: str) -> None:
    options, served, runs = CHECKED[scenario]
    said = model(scenario, *options.split(), timeout_s=100)
    print(said)
    took = [int(n) for n in re.findall(r"(\d+) time-outs at most", said)]
    assert len(took) == 4
    assert took[0] <= served
    assert took[1] <= runs
    assert took[3] <= max(served, runs)


def found(program: Callable[..., str], *args: str) -> str:
    """What the model found, which it must."""
    with pytest.raises(ProgramFailed) as failure:
        program(*args, timeout_s=600 if FULL else 100)
    assert "exit status 2" in str(failure.value), "it was not looked through"
    return str(failure.value)


@pytest.mark.timeout(700 if FULL else 120)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(m.full and not FULL, reason="takes long: CORELANE_MODEL=full"))
        for name, m in MUTANTS.items()
    ],
)
def test_a_fault_is_found(mutants: Callable[..., str], name: str) -> None:
    mutant = MUTANTS[name]
    number = list(MUTANTS).index(name) + 1
    assert "found: " in found(mutants, mutant.scenario, *mutant.options.split(), f"mutant={number}")


@pytest.mark.parametrize("function", FENCES)
def test_a_fence_that_is_missing_is_found(model: Callable[..., str], function: str) -> None:
    assert "it can never be" in found(model, FENCES[function], AT_REST, f"without_fence_of={function}")


@pytest.mark.timeout(700)
@pytest.mark.skipif(not FULL, reason="takes minutes and gigabytes: CORELANE_MODEL=full")
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("asked", "together=2 cuts=255"),
        ("asked", "cuts=2"),
        ("asked", f"{AT_REST} frames=2"),
        ("own_timer", "cuts=1"),
        ("fickle_policy", "cuts=1"),
        ("loop_sleeps", "cuts=1"),
        ("anybody_dies", f"{AT_REST} ends=3 left=3"),
    ],
)
def test_more_of_it(model: Callable[..., str], scenario: str, options: str) -> None:
    print(model(scenario, *options.split(), timeout_s=600))

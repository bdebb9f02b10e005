"""Flows and the order of bursts (libos/net/flow.h, order.c) in all interleavings: c/flow_model.c says what is in it.

The mutants are the same code with one fault put in, all of them in one program, and must be found.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from cltest.mutants import Model, Mutant, Program

# Compiled into the program, by the name of a macro; the rest of the library is linked.
OWN = {
    "FLOW_H": "libos/net/flow.h",
    "ORDER_C": "libos/net/order.c",
    "ORDERED_C": "libos/net/ordered.c",
    "RECEIVE_C": "libos/net/receive.c",
    "HANDLER_C": "libos/net/handler.c",
}
FLAGS = ("-O1", "-g0", "-Wno-unused-function", "-ftrivial-auto-var-init=zero")  # what was on a stack before is no state
SCENARIOS = {
    "bursts": False,
    "longer_bursts": True,
    "two_flows": True,
    "two_queues": True,
    "three_kthreads": True,
    "steered": True,
    "steered_in_bursts": True,
    "steered_on": True,
    "woken": False,
}  # whether only make soak has it

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("CORELANE_SANITIZE")),
    reason="has stacks of its own, which the sanitizers do not follow; it runs plain",
)

MUTANTS = {
    "a burst is put after the lock was dropped": Mutant(
        "RECEIVE_C",
        "cl_order_receive(&o, victim);\n    cl_spin_unlock(&victim->rx_lock);",
        "cl_spin_unlock(&victim->rx_lock); cl_order_receive(&o, victim);",
        "bursts",
    ),
    "a flow that runs is put into a ready queue": Mutant(
        "FLOW_H", "f->state == CL_FLOW_IDLE", "f->state != CL_FLOW_READY", "bursts"
    ),
    "what came while it ran is forgotten": Mutant(
        "FLOW_H", "f->state == CL_FLOW_AGAIN || f->taken || f->first", "f->taken != NULL", "bursts"
    ),
    "what is left of a turn is forgotten": Mutant(
        "FLOW_H", "if (f->taken)\n        return;", "(void)0;", "longer_bursts"
    ),
    "a holder does not say that it holds": Mutant("FLOW_H", "f->state = CL_FLOW_RUNNING;", "(void)0;", "woken"),
    "a wake while it runs is forgotten": Mutant("FLOW_H", "f->state = CL_FLOW_AGAIN;", "(void)0;", "woken"),
    "a thief takes, and leaves in place": Mutant(
        "ORDERED_C",
        "cl_ordered_publish(q, &half);",
        "cl_ready_push(theirs, &half); cl_ready_push(own, &half);",
        "bursts",
    ),
    "older frames of other queues do not go first": Mutant("ORDER_C", "!settle(o, victim, number)", "false", "steered"),
    "nor those that somebody is just putting": Mutant("ORDER_C", "!lock_all_but(nif, victim)", "false", "steered"),
    "not the oldest of them first": Mutant("ORDER_C", "number = of;", "(void)0;", "steered_on"),
    "what a check has taken has no steering": Mutant(
        "ORDER_C", "*number = q->stash_steering;", "*number = 0;", "steered"
    ),
}


MODEL = Model("tests/libos/net/c/flow_model.c", OWN, FLAGS, MUTANTS, variable="mutant")


@pytest.fixture(scope="module")
def model(c_program: Program) -> Callable[..., str]:
    """The code as it is."""
    return MODEL.build(c_program)


@pytest.fixture(scope="module")
def mutants(c_program: Program) -> Callable[..., str]:
    """The same with all faults in, of which `mutant=N` chooses one."""
    return MODEL.build_mutants(c_program)


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(name, marks=[pytest.mark.soak(takes_s=25)] if soak else ()) for name, soak in SCENARIOS.items()],
)
def test_every_interleaving_keeps_the_order_and_leads_on(model: Callable[..., str], scenario: str) -> None:
    said = model(scenario)
    print(said)
    assert int(said.split()[0]) > 5_000, "it was not explored"


@pytest.mark.parametrize("name", MODEL.names())
def test_a_fault_is_found(mutants: Callable[..., str], name: str) -> None:
    MODEL.finds(mutants, name)

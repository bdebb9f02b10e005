"""Sockets, waiters and poll sets in all interleavings: c/sockets_model.c says what is in it.

The mutants are the same code with one fault put in, all of them in one program, and must be found.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from cltest.mutants import Model, Mutant, Program

# Compiled into the program, by the name of a macro; the rest of the library is linked.
OWN = {
    "POLL_C": "libos/net/poll.c",
    "SOCKET_C": "libos/net/socket.c",
    "QUEUE_C": "libos/net/queue.c",
    "SOCKETS_C": "libos/net/tcp/sockets.c",
    "VISITS_C": "libos/net/tcp/visits.c",
    "STREAM_C": "libos/net/tcp/stream.c",
    "ACCEPT_C": "libos/net/tcp/accept.c",
}
FLAGS = (
    "-O1",
    "-g0",
    "-Wno-unused",
    "-Wno-unused-parameter",  # of calls that the model's macros leave out
    "-ftrivial-auto-var-init=zero",  # what was on a stack before is no state
)
SCENARIOS = {  # how many states there are at least: fewer would mean that it was not explored
    "alone": 2_000,
    "block": 20_000,
    "timed": 40_000,
    "edge": 20_000,
    "edge_timed": 50_000,
    "edge_no_switch": 50_000,
    "level": 20_000,
    "edge_and_block": 30_000,
    "write": 2_000,
    "write_edge": 50_000,
    "close": 2_000,
    "reset": 10_000,
    "stop": 10_000,
    "accept_block": 1_000,
    "accept_timed": 1_500,
    "accept_edge": 20_000,
    "accept_level": 5_000,
    "accept_edge_and_block": 2_000,
    "accept_close": 4_000,
    "udp_block": 1_000,
    "udp_edge": 30_000,
    "udp_level": 10_000,
    "udp_edge_and_block": 3_000,
    "udp_errors": 80_000,
    "udp_close": 200,
    "udp_stop": 4_000,
}
MUTANTS = {
    "a visit is put on the list behind the wake": Mutant(
        "VISITS_C",
        "(cl_tcp_hold(c))",
        "({ (void)withdraw(s, v); bool held = cl_tcp_hold(c); ex_pause(NULL, 1); put_visit(s, v); held; })",
        "alone",
    ),
    "the end is asked for behind the wake": Mutant(
        "VISITS_C",
        "if (c)\n        cl_store_relaxed(&s->ending, (uint32_t)how);",
        "(void)0;",
        "close",
        also=(
            (
                "if (ours)\n        cl_tcp_visit(c, end_own, s);",
                "if (c) cl_store_relaxed(&s->ending, (uint32_t)how); if (ours) cl_tcp_visit(c, end_own, s);",
            ),
        ),
    ),
    "acceptors are told of a connection before it waits for them": Mutant(
        "ACCEPT_C",
        "enqueue(l, s);\n    cl_stream_tell(l, CL_STREAM_DATA);",
        "cl_stream_tell(l, CL_STREAM_DATA); cl_spin_lock(l->guard); enqueue(l, s); cl_spin_unlock(l->guard);",
        "accept_edge",
    ),
    "one connection is for no acceptor": Mutant("SOCKETS_C", "cl_min(n, 1u)", "0", "accept_block"),
    "visits outlive their connection": Mutant(
        "VISITS_C",
        "cl_stream_tell(s, CL_STREAM_OVER);\n    fail_visits(left);",
        "cl_stream_tell(s, CL_STREAM_OVER);",
        "reset",
    ),
    "a poll set is told of a datagram before its readers may take it": Mutant(
        "SOCKET_C",
        "post ? cl_sem_give(&s->queue->filled) : NULL",
        "NULL",
        "udp_edge",
        also=(("if (reader)\n        cl_uthread_ready(reader);", "if (post) cl_sem_post(&s->queue->filled);"),),
    ),
    "who may not wait for a turn is not told of it": Mutant(
        "VISITS_C", "s->gave_up ? cl_pollable_notify(&s->watch) : NULL", "NULL", "edge_no_switch"
    ),
    "nor if the turn comes just then": Mutant(
        "VISITS_C",
        "cl_store_relaxed(&s->gave_up, true);",
        "(void)0;",
        "edge_no_switch",
        also=(
            (
                "return back ? -EDEADLK : 0;",
                "ex_pause(NULL, 1); cl_store_relaxed(&s->gave_up, back); return back ? -EDEADLK : 0;",
            ),
        ),
    ),
    "who waits is not posted for": Mutant("SOCKETS_C", "take_waiters(s, CL_STREAM_IN, bits)", "0", "block"),
    "a set does not list again what it has told of": Mutant(
        "POLL_C", "if (!m->listed)\n        enlist(p, m);", "if (!p->n_members) enlist(p, m);", "edge"
    ),
    "who sleeps on a set is not counted": Mutant("POLL_C", "if (*again)\n        p->waiting++;", "(void)0;", "level"),
}

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("CORELANE_SANITIZE")),
    reason="has stacks of its own, which the sanitizers do not follow; it runs plain",
)
MODEL = Model("tests/libos/net/tcp/c/sockets_model.c", OWN, FLAGS, MUTANTS, variable="mutant")


@pytest.fixture(scope="module")
def model(c_program: Program) -> Callable[..., str]:
    """The code as it is."""
    return MODEL.build(c_program)


@pytest.fixture(scope="module")
def mutants(c_program: Program) -> Callable[..., str]:
    """The same with all faults in, of which `mutant=N` chooses one."""
    return MODEL.build_mutants(c_program)


LONG = {"udp_errors"}  # make soak has it


@pytest.mark.parametrize(
    "scenario", [pytest.param(s, marks=[pytest.mark.soak(takes_s=5)] if s in LONG else ()) for s in SCENARIOS]
)
def test_nobody_is_forgotten_in_any_interleaving(model: Callable[..., str], scenario: str) -> None:
    said = model(scenario)
    print(said)
    assert int(said.split()[0]) >= SCENARIOS[scenario], "it was not explored"


@pytest.mark.parametrize("name", MODEL.names())
def test_a_fault_is_found(mutants: Callable[..., str], name: str) -> None:
    MODEL.finds(mutants, name)

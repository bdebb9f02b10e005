"""What clients of RESP see when leadership moves: redirects, transactions, WATCH, blocking commands, leases.

Mistakes that seeds of the simulation do not show (../sim/test_resp.py) are found by a scenario.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cltest import CBuild, ProgramFailed
from cltest.planted import Planted

Make = Callable[..., Callable[..., str]]

PROGRAM = "tests/apps/raft/node/c/ahead_scenarios.c"
AHEAD = "apps/raft/node/ahead.c"
SCENARIOS = (
    *("moved", "multi", "blocked", "watch", "lease", "no_lease"),
    *("unseen", "overtaken", "late", "snapshot"),
)
# By what is wrong then: the change, the scenario, and what it says.
MISTAKES = {
    "takes any epoch for its own that a query finds": (
        ("get64(reply) != a->epoch", "!get64(reply)"),
        "unseen",
        r"GET k\s+is answered \$3\s+old",
    ),
    "makes its engine though its epoch is over": (
        ("    if (m->epoch != a->epoch) {\n        a->lost = true;\n        return;\n    }\n", ""),
        "overtaken",
        "executes commands in an epoch that is over",
    ),
    "takes answers of a former epoch for those of this one": (
        (
            "    if (token->words[1] != a->epoch) {\n        cl_count(&a->count.late, 1);\n        return;\n    }\n",
            "",
        ),
        "late",
        r"is told \+OK\s+before it is committed",
    ),
    "goes on making its engine from a pass that a snapshot has ended": (
        (" || m->images != a->images", ""),
        "snapshot",
        r"DBSIZE\s+is answered",
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios(c_program: Make, scenario: str) -> None:
    run = c_program(PROGRAM, one_thread=True)
    assert run(scenario) == "ok\n"


@pytest.fixture(scope="module")
def build() -> Callable[[str], Callable[..., str]]:
    """build(name): the program with that mistake in it."""
    changes = {name: [(AHEAD, *change)] for name, (change, _, _) in MISTAKES.items()}
    planted = Planted(CBuild("plain"), "ahead", changes)
    return lambda name: planted.program(PROGRAM, name)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name: str, build: Callable[[str], Callable[..., str]]) -> None:
    _, scenario, shows = MISTAKES[name]
    with pytest.raises(ProgramFailed, match=shows):
        build(name)(scenario)

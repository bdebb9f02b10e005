"""Clients that speak RESP to simulated groups, by seeds: what they are told is linearizable, and mistakes are found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from cltest import CBuild, ProgramFailed
from cltest.planted import build_with, planted

from corelane.apps.raft.sim.world import run, run_many

AHEAD = "apps/raft/node/ahead.c"
MACHINE = "apps/raft/node/resp_machine.c"
SEEDS = "tests/apps/raft/sim/c/seeds.c"
MODE = 3  # CL_RAFT_SIM_RESP


def shards(each: int, most: int) -> list[object]:
    """From which seed on: the first, and in make soak the others."""
    return [1, *(pytest.param(1 + n, marks=pytest.mark.soak(takes_s=10)) for n in range(each, most, each))]


@pytest.mark.parametrize("first", shards(50, 1500))
@pytest.mark.parametrize("nodes", [3, 5])
def test_seeds(nodes, first):
    result = run_many(first, 50, nodes, mode="resp")
    assert not result.failed, f"{result.reason}\n{result.trace[-20_000:]}"
    assert result.ops_under_faults > 50 * result.runs
    assert result.unanswered_runs < result.runs * 0.2
    assert result.cut_short == 0
    for name in (
        "epochs_opened",
        "epochs_lost",
        "connections_ended",
        "moved",
        "swaps",
        "swaps_refused",
        "reads_by_lease",
        "snapshots_made",
        "snapshots_installed",
        "crashes",
        "deposed_leaders",
    ):
        assert result.counts[name] > 10, name


def test_seeds_of_seven():
    """Entries of a former epoch come often enough to be seen where more nodes pass leadership around."""
    result = run_many(51, 50, 7, mode="resp")
    assert not result.failed, f"{result.reason}\n{result.trace[-20_000:]}"
    assert result.units_refused > 0


@pytest.mark.parametrize("first", shards(100, 3000))
def test_seeds_of_one(first):
    """Who begins alone, and takes others in."""
    result = run_many(first, 100, 1, mode="resp")
    assert not result.failed, f"{result.reason}\n{result.trace[-20_000:]}"
    assert result.counts["lost_nodes"] > 0
    assert result.counts["member_changes"] > 0


def test_a_seed_is_one_run():
    once, again = run(7, mode="resp"), run(7, mode="resp")
    assert once.counts == again.counts
    assert once.ops_answered > 0


@dataclass(frozen=True)
class Mistake:
    """Old texts become new ones in `file`. `seed` finds that; `shows` is a regex of what it says."""

    file: str
    changes: tuple[tuple[str, str], ...]
    seed: int
    shows: str = "not linearizable"


MISTAKES = {
    "answers reads before a query has found its epoch": Mistake(
        AHEAD,
        (
            (
                '    cl_raft_node_query(a->config.node, (const uint8_t *)"", 0, &token);\n',
                "    uint8_t mine[8];\n    put64(mine, a->epoch);\n"
                "    raft_ahead_answer(a, &token, CL_RAFT_OK, mine, sizeof mine);\n",
            ),
        ),
        872,
    ),
    "answers writes before they are committed": Mistake(
        AHEAD,
        (
            (
                "    a->left -= bytes;\n",
                "    a->left -= bytes;\n    if (last)\n        cl_resp_durable(a->front, a->unit);\n",
            ),
        ),
        1,
    ),
    "answers what comes later before what comes first": Mistake(
        AHEAD, (("    uint64_t unit = 0;\n    for (;", "    uint64_t unit = i->unit;\n    for (;"),), 23
    ),
    "keeps the engine of a leadership that was lost for the next one": Mistake(
        AHEAD,
        (
            ("    if (led)\n        take_over(a);\n", ""),
            (
                "    take_over(a);\n    a->state = RAFT_AHEAD_LEADS;",
                "    if (cl_resp_unit(a->front))\n        a->unit = cl_resp_unit(a->front);\n    else\n"
                '        take_over(a);\n    cl_resp_elsewhere(a->front, "", "", 0);\n    a->state = RAFT_AHEAD_LEADS;',
            ),
        ),
        8,
    ),
    "applies what a former leader has done, though its place was lost": Mistake(
        MACHINE,
        (("get64(p + 8) != m->epoch || get64(p + 16) != m->next", "!m"),),
        103,
        shows="not linearizable|cannot be applied|no command begins|state-machine safety",
    ),
}


@pytest.fixture(scope="module")
def builder() -> CBuild:
    return CBuild("plain")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name, builder, tmp_path):
    mistake = MISTAKES[name]
    seeds: Callable[..., str] = build_with(builder, tmp_path, SEEDS, planted(tmp_path, mistake.file, mistake.changes))
    with pytest.raises(ProgramFailed) as caught:
        seeds(MODE, mistake.seed, 1, 5)
    reason = str(caught.value).rpartition("seed ")[2]
    assert re.search(mistake.shows, reason), reason

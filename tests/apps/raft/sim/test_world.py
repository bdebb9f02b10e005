"""Whole clusters from seeds: what must hold holds, a seed is one run, every fault happens, known mistakes are found."""

from __future__ import annotations

import pytest

from corelane.apps.raft.sim.world import MUTANTS, Result, run, run_many
from corelane.runtime.errors import CorelaneError

SEEDS = 10_000  # of 5 nodes, of the core alone as of the real node; most are left to make soak


def some(seeds: int) -> list[object]:
    """How many seeds: so many, and twenty times as many in make soak."""
    return [seeds, pytest.param(20 * seeds, marks=pytest.mark.soak(takes_s=10))]


def shards(few: int, each: int) -> list[object]:
    """How many seeds from which one on: a few, and in make soak all."""
    soak = pytest.mark.soak(takes_s=10)
    return [(1, few), *(pytest.param(1 + n, each, marks=soak) for n in range(0, SEEDS, each))]


def expect(result: Result) -> None:
    assert not result.failed, f"{result.reason}\n{result.trace[-20_000:]}"


def expect_work(result: Result) -> None:
    """Clients were answered while there were faults: a world in which nothing gets done shows nothing."""
    assert result.ops_under_faults > 25 * result.runs
    assert result.unanswered_runs < result.runs * 0.2
    assert result.cut_short == 0


@pytest.mark.parametrize(("first", "each"), shards(500, 1000))
def test_seeds_of_five_nodes(first, each):
    result = run_many(first, each, 5)
    expect(result)
    expect_work(result)
    assert result.runs == each
    # Everything that can happen does, in every shard.
    for name in (
        "elections",
        "entries_committed",
        "entries_truncated",
        "ops_answered",
        "ops_unknown",
        "ops_retried",
        "crashes",
        "partitions",
        "one_way_cuts",
        "stalls",
        "transfers",
        "member_changes",
        "forced_changes",
        "slow_disks",
        "hung_disks",
        "all_slow",
        "yielded_leaders",
        "failed_disks",
        "rotten_disks",
        "lost_nodes",
        "replaced_nodes",
        "deposed_leaders",
        "outrun_leaders",
        "amnesiac_nodes",
        "reads_by_lease",
        "thrifty_batches",
        "overtaken",
        "snapshots_made",
        "snapshots_installed",
        "datagrams_lost",
        "datagrams_duplicated",
        "datagrams_cut",
    ):
        assert result.counts[name] > 10, name


@pytest.mark.parametrize(("first", "each"), shards(125, 250))
def test_seeds_of_five_real_nodes(first, each):
    """The real node and log, on block devices with torn and lost writes, errors, no space, rot and latency."""
    result = run_many(first, each, 5, mode="node")
    expect(result)
    expect_work(result)
    for name in (
        "crashes",
        "kills",
        "late_power_cuts",
        "hung_disks",
        "all_slow",
        "yielded_leaders",
        "failed_disks",
        "full_disks",
        "lost_nodes",
        "replaced_nodes",
        "amnesiac_nodes",
        "outrun_leaders",
        "reads_by_lease",
        "thrifty_batches",
        "overtaken",
        "wall_jumps",
        "other_peers",
        "amnesiac_starts",
        "remade_logs",
        "datagrams_sent_again",
        "ops_answered",
        "snapshots_made",
        "snapshots_installed",
        "member_changes",
        "entries_truncated",
    ):
        assert result.counts[name] > 0, name
    assert result.crashes - result.kills > result.late_power_cuts
    assert result.runs == each


@pytest.mark.parametrize("seeds", some(50))
@pytest.mark.parametrize("nodes", [1, 3, 7])
def test_seeds_of_other_sizes_of_real_nodes(nodes, seeds):
    result = run_many(1, seeds if nodes > 1 else seeds // 2, nodes, mode="node")
    expect(result)
    expect_work(result)


@pytest.mark.parametrize("seeds", some(25))
@pytest.mark.parametrize("nodes", [1, 3, 5, 7])
def test_seeds_of_real_nodes_with_the_key_value_store(nodes, seeds):
    """Its answers are judged; the replicas' stores are the same after each entry, through snapshots and restarts."""
    result = run_many(1, seeds, nodes, mode="kv")
    expect(result)
    for name in ("ops_answered", "snapshots_made", "crashes"):
        assert result.counts[name] > 50, name
    assert nodes == 1 or result.counts["snapshots_installed"] > 10


@pytest.mark.parametrize("seeds", some(50))
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 7, 9])
def test_seeds_of_other_sizes(nodes, seeds):
    expect(run_many(1, 4 * seeds if nodes in (3, 7) else seeds, nodes))


def test_long_runs(seed):
    expect(run_many(seed, 10, 5, steps=50_000))


LONG = [("node", 3, 199603008), ("kv", 3, 199500015), ("core", 2, 94100048)]


@pytest.mark.parametrize("seeds", [2, pytest.param(60, marks=pytest.mark.soak(takes_s=8))])
@pytest.mark.parametrize(("mode", "nodes", "first"), LONG)
def test_long_runs_whose_logs_filled_for_good(mode, nodes, first, seeds):
    """Areas filled with what fruitless terms and truncations left, and rings with what their snapshots covered."""
    expect(run_many(first, seeds, nodes, mode=mode, steps=40_000))


def test_a_seed_is_one_run():
    once, again, traced = run(77), run(77), run(77, trace=True)
    assert once.counts == again.counts == traced.counts
    assert run(78).hash != once.hash
    together = run_many(70, 40)
    assert run_many(70, 40, threads=2).counts == together.counts
    alone = run(90, mode="node").counts
    assert run(90, mode="node").counts == alone


def test_every_failure_can_be_read():
    result = run_many(1, 50, mutant="no-sessions", threads=2)
    assert result.failed
    assert f"seed {result.failed_seed} with 5 nodes" in result.reason
    assert "not linearizable" in result.reason
    for word in ("starts", "leads term", "APPEND term", "answered", "history:", "!!"):
        assert word in result.trace


# The first seed, which is not 1 where those before it took seconds and found nothing; how many seeds find a mistake at
# the latest; what shows it. Outcomes only: nobody looks into disks at promises, so a mistake has to have consequences.
CONSEQUENCES = "election safety|leader completeness|state-machine safety|log matching|linearizable|restored|no progress"
MISTAKES = [
    ("vote-not-kept", "core", False, 1, 10, "votes for"),
    ("vote-not-kept", "core", True, 1400, 10_000, "election safety|linearizable"),
    ("early-durable", "core", False, 1, 10, "acknowledges entry"),
    ("early-durable", "core", True, 1, 300, CONSEQUENCES),
    ("stale-durable", "core", False, 1, 500, "acknowledges entry|not on stable storage"),
    ("ignored-error", "core", False, 1, 1000, "durability"),
    ("ignored-error", "core", True, 400, 3000, CONSEQUENCES),
    ("early-answer", "core", False, 1, 10, "linearizable"),
    ("unasked-read", "core", False, 1, 1000, "linearizable"),
    ("early-read", "core", False, 1, 5000, "linearizable"),
    ("no-sessions", "core", False, 1, 10, "linearizable"),
    ("lost-sessions", "core", False, 1, 500, "state machine|linearizable"),
    ("rot-cut", "core", True, 1, 500, CONSEQUENCES),
    ("rot-adopted", "core", True, 1, 100, CONSEQUENCES),
    ("rot-cut", "node", False, 1, 100, "durability|" + CONSEQUENCES),
    ("rot-cut", "node", True, 240, 500, CONSEQUENCES),
]


@pytest.mark.parametrize(("mutant", "mode", "outcomes_only", "first", "most", "shows"), MISTAKES)
def test_mistakes_of_a_driver_are_found(mutant, mode, outcomes_only, first, most, shows):
    result = run_many(first, most, mode=mode, mutant=mutant, outcomes_only=outcomes_only)
    assert result.failed, f"{most} seeds did not find {mutant}"
    assert any(word in result.reason for word in shows.split("|")), result.reason


def test_every_mistake_is_tried():
    assert {m for m, *_ in MISTAKES} == set(MUTANTS)


def test_what_cannot_be_simulated():
    with pytest.raises(CorelaneError, match="1 to 9"):
        run(1, nodes=10)
    with pytest.raises(CorelaneError, match="choose one of"):
        run_many(1, 1, mode="nothing")

"""Whole clusters from seeds: what must hold holds, a seed is one run, every fault happens, known mistakes are found."""

from __future__ import annotations

import pytest

from corelane.apps.raft.sim.world import MUTANTS, Result, run, run_many
from corelane.runtime.errors import CorelaneError

# (nodes, seed, mode): what a seed once found. Whether it still shows that depends on the draws, which change with the
# simulation (docs/raft-simulation.md).
FOUND = {
    (3, 485, "core"): "no leader ever again: who is left out by an uncommitted configuration did not campaign",
    (3, 8422, "core"): "the same after a restart, when the commit index is not known",
    (3, 7155, "core"): "a snapshot begun anew waited for ever for a receiver that had kept the old transfer's chunks",
    (3, 28456, "core"): "a snapshot's receiver that began anew, its word of it lost, was sent only what came later",
    (3, 700096613, "core"): "a snapshot of what was not durable yet dropped nothing, and nothing did later: a full log",
    (7, 13297, "core"): "a follower whose log was full had no reason to make a snapshot",
    (7, 12483, "core"): "a leader whose log was full had none",
    (5, 9030372, "core"): "a follower whose log was full said to each append without entries that it had room: a storm",
    (5, 553, "core"): "followers whose logs were full to the last entry reported all the room there is",
    (5, 5002111, "core"): "a history with many operations of unknown outcome was undecided",
    (3, 9014637, "core"): "another, of 3 known and 19 unknown ones",
    (3, 732, "node"): "areas full of entries that could not be committed: those of all replicas that were left",
    (5, 583, "node"): "the answer to what a node forwarded in an earlier life went to another client",
    (5, 3532, "node"): "a query that was passed on by who led no more, and was lost, kept its place for ever",
    (7, 21000041, "node"): "a leader that applied ahead of its slow disk filled its log and never made a snapshot",
    (7, 21000092, "node"): "a follower that did",
    (5, 2612, "node"): "a node that joined filled its area before the entry that added it, and could make no snapshot",
    (3, 337, "node"): "votes filled areas in which nothing could be trimmed: nobody could vote any more",
    (3, 8015147, "node"): "a leader that had joined and compacted before it knew of any members could send no snapshot",
    (5, 8006199, "node"): "bits that rot in a flush, in the only later one that tells of it, and in a superblock",
    (5, 2475, "node"): "each chunk that was refused brought all chunks again: a storm",
    (5, 810009143, "node"): "after a cut a transport's window held frames of which none could become whole",
    (3, 810023044, "node"): "the same in a smaller group",
    (3, 28000082, "core"): "a write of the bare model that had hung ended when somebody should have led",
    (5, 9500001024, "core"): "a joint configuration was not left, as the log was full at the last commit",
    (1, 810000058, "kv"): "who began a group without logs alone, was replaced and started again: a second group",
    (1, 294, "kv"): "nothing was committed after a joint configuration that the outgoing voters had not all of",
}

SHARDS = 10
SEEDS = 10_000  # of 5 nodes, in all shards together; of the bare core as of the real node


def expect(result: Result) -> None:
    assert not result.failed, f"{result.reason}\n{result.trace[-20_000:]}"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_seeds_of_five_nodes(shard):
    each = SEEDS // SHARDS
    result = run_many(1 + shard * each, each, 5)
    expect(result)
    assert result.runs == each
    assert result.cut_short == 0
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
        "forgetful_nodes",
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


@pytest.mark.parametrize("shard", range(SHARDS))
def test_seeds_of_five_real_nodes(shard):
    """The real node and log, on block devices with torn and lost writes, errors, no space, rot and latency."""
    each = SEEDS // SHARDS
    result = run_many(1 + shard * each, each, 5, mode="node")
    expect(result)
    for name in (
        "crashes",
        "hung_disks",
        "all_slow",
        "yielded_leaders",
        "failed_disks",
        "full_disks",
        "lost_nodes",
        "replaced_nodes",
        "forgetful_nodes",
        "reads_by_lease",
        "thrifty_batches",
        "overtaken",
        "wall_jumps",
        "other_peers",
        "forgotten_lives",
        "remade_logs",
        "datagrams_sent_again",
        "ops_answered",
        "snapshots_made",
        "snapshots_installed",
        "member_changes",
        "entries_truncated",
    ):
        assert result.counts[name] > 0, name
    assert result.runs == each


@pytest.mark.parametrize("nodes", [1, 3, 7])
def test_seeds_of_other_sizes_of_real_nodes(nodes):
    expect(run_many(1, 1000 if nodes > 1 else 100, nodes, mode="node"))


@pytest.mark.parametrize("nodes", [1, 3, 5, 7])
def test_seeds_of_real_nodes_with_the_key_value_store(nodes):
    """Its answers are judged; the replicas' stores are the same after each entry, through snapshots and restarts."""
    result = run_many(1, 400, nodes, mode="kv")
    expect(result)
    for name in ("ops_answered", "snapshots_made", "crashes"):
        assert result.counts[name] > 100, name
    assert nodes == 1 or result.counts["snapshots_installed"] > 10


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 7, 9])
def test_seeds_of_other_sizes(nodes):
    expect(run_many(1, 1000 if nodes in (3, 7) else 100, nodes))


@pytest.mark.parametrize("entry", FOUND, ids=lambda e: f"{e[0]}-nodes-seed-{e[1]}-{e[2]}")
def test_seeds_that_once_failed(entry):
    nodes, seed, mode = entry
    expect(run(seed, nodes, mode=mode, trace=True))


def test_long_runs(seed):
    expect(run_many(seed, 10, 5, steps=50_000))


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


# How many seeds find a mistake at the latest, and what shows it. Outcomes only: nobody looks into disks at promises, so
# a mistake has to have consequences.
CONSEQUENCES = "election safety|leader completeness|state-machine safety|log matching|linearizable|restored|no progress"
MISTAKES = [
    ("vote-not-kept", "core", False, 10, "votes for"),
    ("vote-not-kept", "core", True, 10_000, "election safety|linearizable"),
    ("early-durable", "core", False, 10, "acknowledges entry"),
    ("early-durable", "core", True, 300, CONSEQUENCES),
    ("stale-durable", "core", False, 500, "acknowledges entry|not on stable storage"),
    ("ignored-error", "core", False, 1000, "durability"),
    ("ignored-error", "core", True, 3000, CONSEQUENCES),
    ("early-answer", "core", False, 10, "linearizable"),
    ("unasked-read", "core", False, 1000, "linearizable"),
    ("early-read", "core", False, 5000, "linearizable"),
    ("no-sessions", "core", False, 10, "linearizable"),
    ("lost-sessions", "core", False, 500, "state machine|linearizable"),
    ("rot-cut", "core", True, 500, CONSEQUENCES),
    ("rot-adopted", "core", True, 100, CONSEQUENCES),
    ("rot-cut", "node", False, 100, "durability|" + CONSEQUENCES),
    ("rot-cut", "node", True, 500, CONSEQUENCES),
]


@pytest.mark.parametrize(("mutant", "mode", "outcomes_only", "most", "shows"), MISTAKES)
def test_mistakes_of_a_driver_are_found(mutant, mode, outcomes_only, most, shows):
    result = run_many(1, most, mode=mode, mutant=mutant, outcomes_only=outcomes_only)
    assert result.failed, f"{most} seeds did not find {mutant}"
    assert any(word in result.reason for word in shows.split("|")), result.reason


def test_every_mistake_is_tried():
    assert {m for m, *_ in MISTAKES} == set(MUTANTS)


def test_what_cannot_be_simulated():
    with pytest.raises(CorelaneError, match="1 to 9"):
        run(1, nodes=10)
    with pytest.raises(CorelaneError, match="choose one of"):
        run_many(1, 1, mode="nothing")

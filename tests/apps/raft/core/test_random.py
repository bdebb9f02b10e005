"""Clusters of cores under arbitrary orders of delivery, loss, duplicates, writes, crashes, cuts, changes of members."""

from __future__ import annotations

import random

import pytest
from cltest import soak
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlab import Lab, random_run


def end_quietly(lab: Lab) -> None:
    """Everything works again: one leader comes, and all of its group have applied the same."""
    lab.heal()
    for node in lab.nodes.values():
        if node.down:
            node.restart()
    lab.tick(60)
    leader = lab.leader()
    assert leader is not None
    group = leader.core.status()["members"]
    for id in group.voters | group.learners:
        assert lab[id].state == leader.state
    assert leader.state == lab.committed


@pytest.mark.soak(short=True, takes_s=60)
@given(seed=st.integers(0, 1 << 32), nodes=st.sampled_from([1, 2, 3, 5]), lease=st.booleans())
@settings(max_examples=soak.examples(3, 100))
def test_safe_and_live_whatever_happens(seed, nodes, lease):
    lab = Lab(nodes, seed=seed, lease_reads=int(lease))
    random_run(lab, random.Random(seed), 1500)
    end_quietly(lab)


@pytest.mark.soak(short=True, takes_s=60)
@given(seed=st.integers(0, 1 << 32), spare=st.integers(1, 3))
@settings(max_examples=soak.examples(3, 100))
def test_safe_and_live_while_members_change(seed, spare):
    lab = Lab(3, seed=seed, spare=spare)
    random_run(lab, random.Random(seed), 1500, change=True)
    end_quietly(lab)


@pytest.mark.parametrize("nodes", [3, pytest.param(5, marks=pytest.mark.soak(takes_s=3))])
def test_random_runs_do_commit(nodes, seed):
    """The runs above would hold for nodes that do nothing."""
    committed = leaders = 0
    for i in range(3):
        lab = Lab(nodes, seed=seed + i)
        random_run(lab, random.Random(seed + i), 1500)
        committed += len(lab.committed)
        leaders += len(lab.leaders)
    assert committed > 15
    assert leaders > 3

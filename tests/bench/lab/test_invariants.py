"""Each policy holds what it says that it holds; and the checker finds who does not."""

import pytest
from cltest import soak

from corelane.bench.lab import invariants, loads, policy
from corelane.bench.lab.world import Machine, World

HEAD = "from corelane.bench.lab.acts import *\nfrom corelane.bench.lab.table import *\n"
MINE = "def mine(view, jobs, cores, kinds, memory):\n"
SEEDS = range(1, 1 + soak.examples(30, 60))


SHORT = ("edf", "elasticflow", "round_robin", "synergy", "tiresias")  # make soak has the others


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.soak(short=n in SHORT, takes_s=5)) for n in policy.names()]
)
def test_a_policy_holds_what_it_says(name):
    assert not invariants.check(name, SEEDS)


@pytest.mark.parametrize(("name", "seed"), [("elasticflow", 3264)])
def test_what_was_once_broken_holds(name, seed):
    """A job was promised 66.9 us and took 68.9: others did more than was planned, and the plan made anew had no way."""
    assert not invariants.check(name, [seed])


def watched(chosen, at, work, cores=1, **columns):
    load = loads.Load((loads.Kind(),), loads.jobs(at, work, **columns))
    return World(load, Machine(cores), buckets=1, watched=True).run(chosen)


def test_a_broken_promise_is_found(write_policy):
    text = MINE + (
        "    if view.idle >= 0 and view.n_waiting:\n"
        "        jobs[view.waiting[0]].promised = PROMISED\n        give(view, cores, view.idle, view.waiting[0])\n"
    )
    ran = watched(policy.load(write_policy(HEAD + text)), [0, 0], [10.0, 10.0], deadline_ns=15)
    (said,) = invariants.broken(ran, {"promises": True})
    assert said == "job 1 was promised 15 ns and took 20"
    assert not invariants.broken(ran, {"conserving": True})


def test_a_core_that_idles_beside_work_is_found(write_policy):
    late = MINE + (
        "    if view.event == ARRIVED:\n        wake_at(view, view.now_ns + 7)\n"
        "    elif view.idle >= 0 and view.n_waiting:\n        give(view, cores, view.idle, view.waiting[0])\n"
    )
    ran = watched(policy.load(write_policy(HEAD + late)), [0], [10.0])
    assert invariants.broken(ran, {"conserving": True}) == [
        "a core was idle for 7 ns beside a job that it would have sufficed for"
    ]
    assert invariants.broken(ran, {"waits_ns": 7}) == []
    assert len(invariants.broken(ran, {"waits_ns": 6})) == 1


def test_who_is_behind_its_share_is_found():
    """Two jobs on one core, first come first served: the second one is behind by half of the first one's work."""
    ran = watched(policy.load("fifo"), [0, 0], [100.0, 100.0])
    assert invariants.broken(ran, {"behind_ns": 50}) == []
    assert len(invariants.broken(ran, {"behind_ns": 49})) == 1
    weighted = watched(policy.load("fifo"), [0, 0], [100.0, 100.0], weight=[1.0, 3.0])
    assert len(invariants.broken(weighted, {"behind_ns": 74})) == 1
    assert invariants.broken(weighted, {"behind_ns": 75}) == []


def test_who_lacks_its_part_of_a_resource_is_found():
    """Of two jobs on two cores one demands all of a resource, and one its half: by demand it has a third."""
    kinds = tuple(loads.Kind(phases=(loads.Phase(demand=(d, 0, 0, 0)),)) for d in (2.0, 1.0))
    load = loads.Load(kinds, loads.jobs([0, 0], [100.0, 100.0], [0, 1]))
    machine = Machine(2, capacity=(1.0, 1.0, 1.0, 1.0))
    ran = World(load, machine, buckets=1, watched=True).run(policy.load("fifo"))
    (said,) = invariants.broken(ran, {"floor": True})
    assert said == "a job lacked 33.3 % of its floor of a resource"


def test_nobody_may_use_more_than_it_can():
    """A job of one core at most is not behind on four cores that it has one of."""
    ran = watched(policy.load("fifo"), [0], [100.0], cores=4)
    assert invariants.broken(ran, {"behind_ns": 0}) == []


def test_small_loads_are_many_and_differ():
    made = [invariants.small(seed) for seed in range(40)]
    assert {machine.cores for _, machine in made} == set(range(1, 9))
    assert any(kind.min_cores > 1 for load, _ in made for kind in load.kinds)
    assert any(kind.max_cores > kind.min_cores for load, _ in made for kind in load.kinds)

"""The engine on worlds small enough to compute by hand."""

import numpy as np
import pytest

from corelane.bench.lab import loads, policy, world
from corelane.bench.lab import table as t
from corelane.bench.lab.loads import Kind, Phase
from corelane.bench.lab.world import Costs
from corelane.runtime.errors import CorelaneError

HEAD = """
from corelane.bench.lab.acts import *
from corelane.bench.lab.table import *
"""

QUANTA = (
    HEAD
    + """
def mine(view, jobs, cores, kinds, memory, quantum=10):
    if view.event == QUANTUM and view.n_waiting:
        give(view, cores, view.core, waits_longest(view, jobs))
    elif view.idle >= 0 and view.n_waiting:
        cores[view.idle].quantum_ns = quantum
        give(view, cores, view.idle, waits_longest(view, jobs))
        wake_at(view, view.now_ns)
"""
)

ALL = (
    HEAD
    + """
def mine(view, jobs, cores, kinds, memory):
    "Every core to the job that waits longest."
    if view.n_waiting and view.n_idle == view.n_cores:
        job = waits_longest(view, jobs)
        for c in range(view.n_cores):
            give(view, cores, c, job)
"""
)


def test_first_come_first_served(run):
    ran = run([0, 10, 20], [100.0, 100.0, 100.0], cores=2)
    assert ran.completion_ns.tolist() == [100, 100, 180]
    assert ran.wait_ns.tolist() == [0, 0, 80]
    assert ran.jobs["attained_ns"].tolist() == [100, 100, 100]
    assert (ran.end_ns, ran.gifts, ran.refused) == (200, 3, 0)


def test_a_core_of_another_speed(run):
    assert run([0, 0], [100.0, 100.0], cores=2, speeds=(1.0, 0.5)).completion_ns.tolist() == [100, 200]


def test_a_gang_waits_for_all_of_its_cores_and_goes_on_by_the_slowest(run, write_policy):
    gang = Kind(min_cores=2, max_cores=2)
    ran = run([0, 5, 6], [100.0, 100.0, 10.0], (Kind(), gang), kind=[0, 1, 0], cores=2, speeds=(1.0, 0.5))
    # The gang waits until both are idle, and the third job may not overtake it, and then gets the slower core.
    assert ran.completion_ns.tolist() == [100, 95 + 100, 194 + 20]
    spec = write_policy(HEAD + "def mine(view, jobs, cores, kinds, memory):\n    give(view, cores, 0, view.first)\n")
    ran = run([0], [100.0], (gang,), cores=2, chosen=spec)
    assert not ran.over.any()
    assert np.isinf(ran.completion_ns).all()


def test_nobody_has_more_cores_than_it_can_use(run, write_policy):
    ran = run([0], [100.0], (Kind(max_cores=2),), cores=3, chosen=write_policy(ALL))
    assert (ran.completion_ns[0], ran.gifts, ran.refused) == (50, 2, 1)


def test_scaling_is_that_of_the_model(run, write_policy):
    kind = Kind(max_cores=4, serial=0.2, sync=0.01, spread=0.05)
    ran = run([0], [1e6], (kind,), cores=4, loops=2, chosen=write_policy(ALL))
    assert ran.completion_ns[0] == pytest.approx(1e6 * (0.8 / 4 + 0.2 + 0.01 * 3 + 0.05), abs=2)


def test_parts_by_speed_and_stages(run, write_policy):
    split = ALL.replace("give(", "cores[c].part = cores[c].speed / 1.5\n            give(")
    ran = run([0], [3e5], (Kind(max_cores=2),), cores=2, speeds=(1.0, 0.5), chosen=write_policy(ALL))
    assert ran.completion_ns[0] == pytest.approx(3e5, abs=2)  # even: twice the slower one
    ran = run([0], [3e5], (Kind(max_cores=2),), cores=2, speeds=(1.0, 0.5), chosen=write_policy(split))
    assert ran.completion_ns[0] == pytest.approx(2e5, abs=2)
    pipe = Kind(min_cores=2, max_cores=2, stages=(0.7, 0.3))
    ran = run([0], [1e5], (pipe,), cores=2, chosen=write_policy(ALL))
    assert ran.completion_ns[0] == pytest.approx(7e4, abs=2)
    slack = ALL.replace("give(", "cores[c].pace = 0.43 if c == 1 else 1.0\n            give(")
    ran = run([0], [1e5], (pipe,), cores=2, chosen=write_policy(slack))
    assert ran.completion_ns[0] == pytest.approx(7e4, abs=2)  # the slack of the second stage
    assert ran.series[:, 1].sum() == pytest.approx(1.43 * 7e4, rel=1e-3)


def test_a_batch_counts_for_less_than_its_size(run, write_policy):
    batch = ALL.replace("for c", "jobs[job].batch = 4.0\n        for c")
    ran = run([0], [1e6], (Kind(serial=0.5, noise=3.0, max_batch=8.0),), chosen=write_policy(batch))
    assert ran.completion_ns[0] == pytest.approx(1e6 * (0.5 * 4 + 0.5) / 4 / (4.0 / 7.0), abs=2)


def test_siblings_slow_each_other(run):
    ran = run([0, 0], [100.0, 60.0], cores=2, pairs=True, pair_speed=0.6)
    # Both at 0.6 until the second is done at 100; then the first has 40 left at full speed.
    assert ran.completion_ns.tolist() == [140, 100]


def test_seats_share_a_core_by_what_their_jobs_can_use(run, write_policy):
    ran = run([0, 0], [100.0, 100.0], cores=1, seats=2)
    assert ran.completion_ns.tolist() == [200, 200]
    part = Kind(phases=(Phase(use=0.25),))
    ran = run([0, 0], [100.0, 100.0], (Kind(), part), kind=[0, 1], cores=1, seats=2)
    # The second wants a quarter only, and gets it: the first has three quarters until that is done.
    assert ran.completion_ns.tolist() == [125, 100]
    assert ran.series[:, 1].sum() == pytest.approx(125)
    weights = QUANTA.replace("cores[view.idle].quantum_ns = quantum", "cores[view.idle].share = 1.0 + 2.0 * view.idle")
    ran = run([0, 0], [100.0, 25.0], cores=1, seats=2, chosen=write_policy(weights))
    assert sorted(ran.completion_ns.tolist()) in ([33, 125], [34, 125])


def test_quanta_take_turns(run, write_policy):
    spec = write_policy(QUANTA)
    ran = run([0, 0], [30.0, 30.0], chosen=spec)
    assert ran.completion_ns.tolist() == [50, 60]
    assert ran.jobs["preempted"].tolist() == [2, 2]
    ran = run([0, 0], [30.0, 30.0], chosen=spec, costs=Costs(switch_ns=5))
    assert ran.completion_ns.tolist() == [5 * 5 + 50, 6 * 5 + 60]


def test_a_core_that_stands_still_holds_up_whoever_has_it():
    def ran(stops, at=(0, 50), cores=1):
        load = loads.Load((Kind(),), loads.jobs(list(at), [100.0] * len(at)))
        done = world.World(load, world.Machine(cores), stops=stops).run(policy.load("fifo"))
        return done.completion_ns.tolist()

    assert ran([(10, 0, 5), (12, 0, 7), (1000, 0, 1)]) == [112, 162]
    assert ran([(150, 0, 5)]) == [100, 155]
    assert ran([(10, 1, 500)], cores=2) == [100, 560]  # given to a core that stands still
    assert ran([(90, 0, 30)], at=[100]) == [120]
    for stops in ([(10, 1, 5)], [(10, 0, 5), (9, 0, 5)], [(10, 0, -1)]):
        with pytest.raises(CorelaneError, match="its stops cannot be"):
            ran(stops)


def test_costs_of_a_change(run, write_policy):
    moved = HEAD + (
        "def mine(view, jobs, cores, kinds, memory):\n"
        "    if view.event == ARRIVED:\n        give(view, cores, 0, view.job)\n        wake_at(view, 50)\n"
        "    elif view.event == WOKEN:\n        take(view, cores, 0)\n        give(view, cores, 1, view.first)\n"
    )
    costs = Costs(move_ns=7, loop_ns=11, actuate_ns=3)
    ran = run([0], [100.0], (Kind(switch_ns=20),), cores=2, loops=2, chosen=write_policy(moved), costs=costs)
    # 3 to begin; at 50 it has done 47; then actuation, move, the other loop, and the kind's own.
    assert ran.completion_ns.tolist() == [50 + 3 + 7 + 11 + 20 + 53]


def test_a_gang_begins_without_the_costs_of_one_that_goes_on(run, write_policy):
    gang = Kind(min_cores=2, max_cores=2, switch_ns=1000)
    assert run([0], [100.0], (gang,), cores=2, costs=Costs(switch_ns=5, move_ns=50)).completion_ns.tolist() == [55]


def test_a_job_that_shrinks_or_grows_pays_for_it(run, write_policy):
    text = HEAD + (
        "def mine(view, jobs, cores, kinds, memory):\n"
        "    if view.event == ARRIVED:\n        give(view, cores, 0, view.job)\n"
        "        give(view, cores, 1, view.job)\n        wake_at(view, 20)\n"
        "    elif view.now_ns == 20:\n        take(view, cores, 1)\n        wake_at(view, 50)\n"
        "    elif view.now_ns == 50:\n        give(view, cores, 1, view.first)\n"
    )
    ran = run([0], [100.0], (Kind(max_cores=2, switch_ns=10),), cores=2, chosen=write_policy(text))
    # 40 by 20, 20 more from 30 to 50, and the rest from 60 on.
    assert ran.completion_ns.tolist() == [80]


def test_a_loop_gives_one_core_after_the_other(run):
    ran = run([0, 0, 0], [10.0] * 3, cores=3, costs=Costs(actuate_ns=100))
    assert ran.completion_ns.tolist() == [110, 210, 310]
    ran = run([0, 0, 0], [10.0] * 3, cores=3, loops=3, costs=Costs(actuate_ns=100))
    assert ran.completion_ns.tolist() == [110, 210, 210]  # the first loop decides, too


def test_a_decision_takes_the_loop_and_delays_the_next_one(run):
    ran = run([0, 1], [10.0, 10.0], cores=2, costs=Costs(decide_ns=100, actuate_ns=1))
    assert ran.completion_ns.tolist() == [111, 211]
    ran = run([0], [10.0], cores=2, costs=Costs(notice_ns=5))
    assert ran.completion_ns.tolist() == [15]


def test_phases_change_demands(run, write_policy):
    kind = Kind(phases=(Phase(0.5, 1.0, (0.2, 0, 0, 0)), Phase(0.5, 1.0, (2.0, 0, 0, 0))))
    ran = run([0], [100.0], (kind,), capacity=(1.0, 1.0, 1.0, 1.0))
    assert ran.completion_ns.tolist() == [50 + 100]  # in the second phase half of what it demands is there
    ran = run([0, 0], [100.0, 100.0], (Kind(phases=(Phase(1, 1, (0, 1.5, 0, 0)),)),), cores=2, capacity=(1, 1, 1, 1))
    assert ran.completion_ns.tolist() == [150, 150]


def test_memory_is_not_shared(run, write_policy):
    big = Kind(memory_floor=0.5, phases=(Phase(1, 1, (0, 0, 1.5, 0)),))
    ran = run([0, 0], [100.0, 100.0], (big,), cores=2, capacity=(1, 1, 1, 1))
    assert ran.completion_ns.tolist() == [100, 200]
    assert ran.refused == 0  # it looks before it gives
    gang = Kind(min_cores=2, max_cores=2, phases=big.phases)
    ran = run([0], [100.0], (gang,), cores=2, capacity=(1, 1, 1, 1))
    assert not ran.over.any()
    assert ran.refused == 0  # each of the two fits, and both do not
    less = "    elif view.n_waiting:\n        jobs[view.first].alloc[2] = 1.0\n    if view.idle"
    shrunk = QUANTA.replace("    elif view.idle", less).replace("quantum_ns = quantum", "quantum_ns = 0")
    ran = run([0], [100.0], (big,), cores=1, capacity=(1, 1, 1, 1), chosen=write_policy(shrunk))
    assert ran.completion_ns.tolist() == [150]


def test_refused_jobs_leave(run, write_policy):
    spec = write_policy(HEAD + "def mine(view, jobs, cores, kinds, memory):\n    refuse(view, jobs, view.first)\n")
    ran = run([0, 5], [10.0, 10.0], chosen=spec)
    assert (ran.jobs["outcome"] == t.TURNED_AWAY).all()


def test_ticks_alone(run, write_policy):
    text = HEAD + (
        "TICKS = True\ndef mine(view, jobs, cores, kinds, memory):\n"
        "    if view.n_waiting and view.idle >= 0:\n        give(view, cores, view.idle, view.waiting[0])\n"
    )
    ran = run([3], [10.0], chosen=write_policy(text), interval_ns=100)
    assert ran.completion_ns.tolist() == [107]


def test_the_same_run_to_the_bit_and_all_jobs_accounted_for(run):
    rng = np.random.default_rng(5)
    at, work = np.sort(rng.integers(0, 10**6, 3000)), rng.exponential(1500.0, 3000) + 1
    one, two = (run(at, work, cores=4, pairs=True, costs=Costs(switch_ns=50)) for _ in range(2))
    assert (one.jobs == two.jobs).all()
    assert one.over.all()
    held = one.series[:, 0].sum()
    assert held == pytest.approx(one.jobs["attained_ns"].sum())
    assert one.series[:, 1].sum() == pytest.approx(held)


MODEL = Kind(batch_fixed_ns=100, batch_item_ns=10)
TAKES = (
    HEAD
    + """
def mine(view, jobs, cores, kinds, memory, most=4):
    if view.event == QUANTUM:
        take(view, cores, view.core)
    elif view.idle >= 0 and view.n_waiting:
        cores[view.idle].take = most
        give(view, cores, view.idle, waits_longest(view, jobs))
"""
)


def test_a_batch_ends_together_and_leaves_the_others(run, write_policy):
    spec = write_policy(TAKES)
    ran = run([0, 1, 2, 3, 4, 5], [110.0] * 6, (MODEL,), chosen=spec)
    # The first one alone until 110; then four of the five as one, for 140; then the last.
    assert ran.completion_ns.tolist() == [110, 249, 248, 247, 246, 355]
    assert ran.wait_ns.tolist() == [0, 109, 108, 107, 106, 245]
    assert ran.over.all()
    other = run([0, 1, 2], [110.0, 30.0, 110.0], (MODEL, Kind()), kind=[0, 1, 0], chosen=spec)
    assert other.completion_ns.tolist() == [110, 139, 248]  # what is of another kind does not ride


def test_a_batch_that_is_stopped_is_lost(run, write_policy):
    """Quanta of 50 until 150, in which no batch ends; then all three as one, for 130."""
    quanta = TAKES.replace("    elif", "        wake_at(view, view.now_ns)\n    elif")
    short = "cores[view.idle].quantum_ns = 50 if view.now_ns < 150 else 0\n        cores[view.idle].take"
    ran = run([0, 1, 2], [110.0] * 3, (MODEL,), chosen=write_policy(quanta.replace("cores[view.idle].take", short)))
    assert ran.completion_ns.tolist() == [280, 279, 278]
    assert ran.jobs["preempted"].tolist() == [3, 2, 2]

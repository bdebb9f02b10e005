"""Which cores are chosen on machines of all kinds, and that each choice says why."""

from __future__ import annotations

import pytest
from cltest.machines import make_machine, write
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime.errors import SystemLimit
from corelane.runtime.placement import choose
from corelane.runtime.topology import Topology


def said(plan) -> str:
    """All reasons as one text."""
    return "\n".join(plan.reasons)


def test_one_cpu_is_shared_by_sleeping(tmp_path):
    plan = choose(Topology.read(make_machine(tmp_path, ["0"])), 2)
    assert (plan.iokernel, plan.kthreads, plan.may_spin) == ([0], [0, 0], False)
    assert "there is no other" in said(plan)


@pytest.mark.parametrize(("disk_cpu", "polled"), [(1, 0), (0, 1)])
def test_two_cpus_keep_the_poller_off_the_disks_interrupt(tmp_path, disk_cpu, polled):
    counts = [1000 if c == disk_cpu else 0 for c in range(2)]
    plan = choose(Topology.read(make_machine(tmp_path, ["0", "1"], interrupts=[("nvme0q0", counts)])))
    assert (plan.iokernel, plan.kthreads, plan.may_spin) == ([polled], [disk_cpu], True)
    assert f"the disk's interrupt goes to CPU {disk_cpu}" in said(plan)
    assert "writes may take 4 ms" in said(plan), "the worker is told what its CPU is like"


def test_a_nics_interrupt_is_avoided_too(tmp_path):
    root = make_machine(tmp_path, ["0", "1", "2"], interrupts=[("eth0-rx-0", [0, 50, 0])])
    plan = choose(Topology.read(root), 1)
    assert (plan.iokernel, plan.kthreads) == ([2], [0])


def test_isolated_cpus_come_first(tmp_path):
    root = make_machine(tmp_path, ["0", "1", "2", "3"], isolated="2-3", tickless="3")
    plan = choose(Topology.read(root), 2)
    assert plan.iokernel == [3]
    assert plan.kthreads == [2, 1]
    assert "isolated, without timer tick" in said(plan)


def test_hyper_threads_are_the_last_choice(tmp_path):
    root = make_machine(tmp_path, ["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"])
    machine = Topology.read(root)
    plan = choose(machine, 7)
    cores = [c % 4 for c in plan.iokernel + plan.kthreads]
    assert sorted(cores[:4]) == [0, 1, 2, 3], "whole cores first"
    assert cores[-1] == cores[0], "the iokernel's sibling last"
    assert plan.may_spin
    assert "shares a core with another kthread" in said(plan)
    assert "shares a core with the iokernel" in said(plan)
    assert choose(machine, 3).kthreads == plan.kthreads[:3], "more kthreads do not move the first ones"


def test_near_the_nic(tmp_path):
    machine = Topology.read(make_machine(tmp_path, ["0", "1", "2", "3"], nodes=["0-1", "2-3"]))
    plan = choose(machine, 2, node=1)
    assert plan.iokernel == [2]
    assert plan.kthreads == [3, 1]
    assert "on the NIC's NUMA node 1" in said(plan)
    assert "since node 1 is full" in said(plan)
    assert choose(machine, 1).kthreads == [0], "without a NIC: the iokernel's node"


def test_more_kthreads_than_cpus_sleep(tmp_path):
    plan = choose(Topology.read(make_machine(tmp_path, ["0", "1"])), 4)
    assert plan.iokernel == [1]
    assert plan.kthreads == [0, 0, 0, 0]
    assert not plan.may_spin
    assert "4 kthreads on 1 CPUs: they take turns" in said(plan)


def test_embedded_mode_has_no_iokernel(tmp_path):
    plan = choose(Topology.read(make_machine(tmp_path, ["0", "1"])), 2, loops=0)
    assert plan.iokernel == []
    assert sorted(plan.kthreads) == [0, 1]
    assert plan.may_spin


def test_a_quota_forbids_spinning(tmp_path):
    root = make_machine(tmp_path, ["0", "1"])
    write(root, "/proc/self/cgroup", "0::/")
    write(root, "/sys/fs/cgroup/cgroup.controllers", "cpu")
    write(root, "/sys/fs/cgroup/cpu.max", "150000 100000")
    plan = choose(Topology.read(root))
    assert not plan.may_spin
    assert "1.5 CPUs of time" in said(plan)


def test_what_the_configuration_says_is_done_and_commented(tmp_path):
    root = make_machine(tmp_path, ["0", "1"], interrupts=[("nvme0q0", [0, 9])])
    plan = choose(Topology.read(root), fixed_loops=(1,))
    assert (plan.iokernel, plan.kthreads) == ([1], [0])
    assert "the configuration says so" in said(plan)
    assert "but CPU 1 takes the disk's interrupt" in said(plan)
    with pytest.raises(SystemLimit, match=r"CPU 7: this process may use CPUs 0-1"):
        choose(Topology.read(root), fixed_loops=(7,))


def test_cpus_that_others_poll_on(tmp_path):
    machine = Topology.read(make_machine(tmp_path, ["0", "1", "2"]))
    plan = choose(machine, 1, taken=(1,))
    assert 1 not in plan.iokernel + plan.kthreads
    crowded = choose(machine, 1, taken=(0, 1, 2))
    assert not crowded.may_spin
    assert "are polled on already" in said(crowded)


@given(n=st.integers(1, 8), smt=st.booleans(), kthreads=st.integers(0, 12), loops=st.integers(0, 4), data=st.data())
def test_any_machine(tmp_path_factory, n, smt, kthreads, loops, data):
    siblings = (
        [f"{c},{(c + n) % (2 * n)}" if c < n else f"{c - n},{c}" for c in range(2 * n)]
        if smt
        else list(map(str, range(n)))
    )
    root = make_machine(tmp_path_factory.mktemp("m"), siblings)
    everything = tuple(range(len(siblings)))
    affinity = tuple(sorted(data.draw(st.sets(st.sampled_from(everything), min_size=1))))
    machine = Topology.read(root, affinity)
    plan = choose(machine, kthreads, loops)
    assert len(plan.iokernel) == loops
    assert len(plan.kthreads) == kthreads
    used = plan.iokernel + plan.kthreads
    assert set(used) <= set(affinity)
    if plan.may_spin:
        assert len(set(used)) == len(used), "a CPU for each thread that spins"
    if len(used) <= len(affinity):
        assert len(set(used)) == len(used), "no two on one CPU while there are others"
    assert plan.reasons

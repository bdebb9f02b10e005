"""The machine as read from its files, real and made up."""

from __future__ import annotations

import json
import os

import pytest
from cltest.machines import make_machine, write
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime.topology import Cgroups, Topology, format_cpu_list, parse_cpu_list


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists(cpus):
    assert parse_cpu_list(format_cpu_list(tuple(cpus))) == tuple(sorted(cpus))


def test_cpu_list_formats():
    assert parse_cpu_list("") == parse_cpu_list("\n") == ()
    assert parse_cpu_list("0-2,5\n") == (0, 1, 2, 5)
    assert format_cpu_list((3, 1, 2, 7)) == "1-3,7"
    assert format_cpu_list(()) == "none"
    for wrong in ("x", "1-", "3-1", "-1"):
        with pytest.raises(ValueError):
            parse_cpu_list(wrong)


def test_this_machine():
    here = Topology.read()
    assert set(here.usable) <= set(here.cpus)
    assert set(here.usable) <= os.sched_getaffinity(0)
    assert here.usable
    json.dumps(here.as_dict())
    one = here.usable[0]
    assert Topology.read(affinity=(one,)).usable == (one,)


def test_smt_numa_isolation_and_idle_states(tmp_path):
    root = make_machine(tmp_path, ["0,2", "1,3", "0,2", "1,3"], ["0,2", "1,3"], isolated="3", tickless="2-3")
    write(root, "/sys/devices/system/cpu/cpu1/cpuidle/state2/disable", "1")
    machine = Topology.read(root)
    assert machine.usable == (0, 1, 2, 3)
    assert machine.smt
    assert machine.nodes == (0, 1)
    assert [machine.cpus[c].node for c in range(4)] == [0, 1, 0, 1]
    assert machine.cpus[2].siblings == (0, 2)
    assert [c for c in range(4) if machine.cpus[c].isolated] == [3]
    assert [c for c in range(4) if machine.cpus[c].tickless] == [2, 3]
    assert [machine.cpus[c].deepest_idle_us for c in (0, 1)] == [133, 2]
    assert not Topology.read(root, affinity=(0, 1)).smt, "siblings that we may not use do not matter"


def test_interrupts_by_name_and_by_device(tmp_path):
    disk, nic, never = ("virtio1-req.0", [0, 900]), ("eth0-rx-0", [30, 10]), ("nvme0q1", [0, 0])
    root = make_machine(tmp_path, ["0", "1"], interrupts=[disk, nic, never, ("odd-name", [0, 5]), ("i8042", [4, 0])])
    # Interrupt 13 belongs to the PCI device behind a block device, whatever its driver calls it.
    pci = root / "sys/devices/pci0000:00/0000:00:02.0"
    (pci / "virtio9/block/vdz").mkdir(parents=True)
    write(pci, "msi_irqs/13", "msix")
    (root / "sys/block").mkdir(parents=True)
    (root / "sys/block/vdz").symlink_to(pci / "virtio9/block/vdz")
    machine = Topology.read(root)
    assert {i.name: i.kind for i in machine.interrupts} == {
        "virtio1-req.0": "disk",
        "eth0-rx-0": "nic",
        "nvme0q1": "disk",
        "odd-name": "disk",
        "i8042": "other",
    }
    assert [i.name for i in machine.interrupts_on(1, "disk")] == ["virtio1-req.0", "odd-name"]
    assert [i.name for i in machine.interrupts_on(0)] == ["eth0-rx-0", "i8042"], "what never came is no reason"
    assert machine.interrupts[0].total == 900


def test_an_interrupt_may_have_any_bytes_for_a_name(tmp_path):
    """As a network device may."""
    table = make_machine(tmp_path, ["0", "1"], interrupts=[("eth?-rx-0", [30, 10])]) / "proc/interrupts"
    table.write_bytes(table.read_bytes().replace(b"?", b"\xff"))
    assert [i.name for i in Topology.read(tmp_path).interrupts] == ["eth\udcff-rx-0"]


def test_without_a_mask_the_counts_tell(tmp_path):
    root = make_machine(tmp_path, ["0", "1", "2"], interrupts=[("nvme0q0", [1, 100, 80])])
    (root / "proc/irq/10/effective_affinity_list").unlink()
    assert Topology.read(root).interrupts[0].cpus == (1, 2)


def test_a_machine_that_tells_nothing(tmp_path):
    machine = Topology.read(tmp_path)
    assert machine.usable == (0,)
    assert machine.quota_cpus is None
    assert any("/proc/interrupts" in note for note in machine.notes)
    write(tmp_path, "/sys/devices/system/cpu/online", "banana")
    assert any("banana" in note for note in Topology.read(tmp_path).notes)


def test_cgroup_v2_takes_the_tightest_of_all_levels(tmp_path):
    write(tmp_path, "/proc/self/cgroup", "0::/a/b")
    write(tmp_path, "/sys/fs/cgroup/cgroup.controllers", "cpu cpuset")
    write(tmp_path, "/sys/fs/cgroup/a/cpu.max", "150000 100000")
    write(tmp_path, "/sys/fs/cgroup/a/b/cpu.max", "max 100000")
    write(tmp_path, "/sys/fs/cgroup/a/b/cpuset.cpus.effective", "1")
    groups = Cgroups(tmp_path)
    assert groups.quota_cpus() == 1.5
    assert groups.cpuset() == (1,)
    make_machine(tmp_path, ["0", "1"])
    assert Topology.read(tmp_path).usable == (1,)


def test_cgroup_v1(tmp_path):
    write(tmp_path, "/proc/self/cgroup", "3:cpuset:/jobs\n2:cpu,cpuacct:/jobs\n0::/")
    write(tmp_path, "/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "50000")
    write(tmp_path, "/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000")
    write(tmp_path, "/sys/fs/cgroup/cpuset/jobs/cpuset.cpus", "0-1,3")
    groups = Cgroups(tmp_path)
    assert groups.quota_cpus() == 0.5
    assert groups.cpuset() == (0, 1, 3)


def test_cgroup_seen_from_a_container(tmp_path):
    """The group's own path is of the host; inside, its folder is mounted as the root."""
    write(tmp_path, "/proc/self/cgroup", "2:cpu:/docker/0123")
    write(tmp_path, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000")
    write(tmp_path, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert Cgroups(tmp_path).quota_cpus() == 2.0
    write(tmp_path, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    assert Cgroups(tmp_path).quota_cpus() is None


def test_a_cpuset_against_the_mask(tmp_path):
    root = make_machine(tmp_path, ["0", "1"])
    write(root, "/proc/self/cgroup", "0::/")
    write(root, "/sys/fs/cgroup/cgroup.controllers", "cpuset")
    write(root, "/sys/fs/cgroup/cpuset.cpus.effective", "0")
    machine = Topology.read(root, affinity=(1,))
    assert machine.usable == (1,)
    assert any("cpuset" in note for note in machine.notes)

"""Reads by lease in a machine that its host may pause: a node says so at its start."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from cltest.packets import Host

from corelane.apps.raft.service import service
from corelane.apps.raft.service.settings import GroupSettings
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime

MINE = Host("02:00:00:00:00:01", "10.0.0.1")


X86, ARM = "processor : 0\nflags : fpu vme {}lahf_lm\n", "processor : 0\nFeatures : fp asimd\n"


@pytest.mark.parametrize(
    ("cpus", "vendor", "inside"),
    [
        (X86.format("hypervisor "), "", True),
        (X86.format(""), "Xen makes racks, too", False),
        (ARM, "QEMU", True),
        (ARM, "Ampere", False),
        ("", "", False),
    ],
)
def test_a_hypervisor_is_seen_by_the_cpu_or_the_firmware(tmp_path: Path, cpus: str, vendor: str, inside: bool) -> None:
    for path, text in (("proc/cpuinfo", cpus), ("sys/class/dmi/id/sys_vendor", vendor)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert service.in_virtual_machine(str(tmp_path)) == inside
    assert not service.in_virtual_machine(str(tmp_path / "none"))


@pytest.mark.parametrize(("lease", "inside"), [(True, True), (True, False), (False, True)])
def test_who_reads_by_lease_in_a_virtual_machine_is_warned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lease: bool, inside: bool
) -> None:
    monkeypatch.setattr(service, "in_virtual_machine", lambda: inside)
    ours, theirs = memory_link(mac=(MINE.mac, "02:00:00:00:00:02"), ipv4=(MINE.ip, "10.0.0.2"), ipv4_prefix=24)
    with ours, theirs, caplog.at_level(logging.WARNING, "corelane.raft"), Runtime(nic=ours, poll="block") as runtime:
        group = GroupSettings(memory_bytes=4 << 20, lease=lease)
        node = service.serve(runtime, 1, {1: (MINE.ip, 7400)}, group=group)
        runtime.start()
        runtime.stop()
        node.close()
    assert ("reads by lease in a virtual machine" in caplog.text) == (lease and inside)

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


@pytest.mark.parametrize(("flags", "inside"), [("fpu vme hypervisor lahf_lm", True), ("fpu vme lahf_lm", False)])
def test_a_hypervisor_is_seen_by_the_flags_of_the_cpu(tmp_path: Path, flags: str, inside: bool) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {flags}\n")
    assert service.in_virtual_machine(str(tmp_path / "cpuinfo")) == inside
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

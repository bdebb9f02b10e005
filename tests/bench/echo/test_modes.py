"""Polling modes on each link: what is counted, and what is said where a link is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cltest import answered

from corelane.bench.echo import modes

CORES = (0, max(os.sched_getaffinity(0)))


def test_a_server_that_spins_on_memory_makes_no_system_call() -> None:
    with modes.on_memory("spin", CORES, 9000) as made:
        _, cost = answered(lambda: made.measure(5000, 0.05), lambda found: found[0])
    assert cost.syscalls == cost.loop_syscalls == 0
    assert set(cost.row()) >= {"syscalls_per_request", "context_switches_per_request"}


def test_an_iokernel_that_blocks_calls_the_kernel_in_its_loop_too() -> None:
    with modes.on_iokernel("block", CORES, 9000) as made:
        _, cost = answered(lambda: made.measure(5000, 0.05), lambda found: found[0])
    assert cost.syscalls >= cost.loop_syscalls > 0


@pytest.mark.parametrize("link", ["AF_XDP", "tap"])
def test_on_a_link_of_the_kernel_s_each_request_has_its_calls(link: str) -> None:
    if missing := modes.missing(link):
        pytest.skip(missing)
    with modes.LINKS[link]("block", CORES, 9000) as made:
        _, cost = answered(lambda: made.measure(2000, 0.1), lambda found: found[0])
    assert cost.loop_syscalls == 0, "nobody stands between"
    assert cost.syscalls > 0.5
    assert cost.switches > 0


def test_links_that_need_root_say_so_and_a_tap_its_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(modes.netns, "missing", lambda: "needs root")
    monkeypatch.setattr(modes, "TUN", tmp_path)
    said = {name: modes.missing(name) for name in modes.LINKS}
    assert said == {"": None, "iokernel": None, "AF_XDP": "needs root", "tap": "needs root"}
    monkeypatch.setattr(modes, "TUN", tmp_path / "tun")
    assert "load the kernel's module tun" in str(modes.missing("tap"))

"""A runtime in embedded mode whose device goes away says so once, and its kthreads sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from cltest import wait_until

from corelane import libos
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.tap.tap import Tap

LOOK_S = 0.05
FEW = 200  # polls in LOOK_S, of a kthread that sleeps for milliseconds at a time


def told_once(nic: Any, poll: str, remove: Callable[[], object]) -> None:
    events: list[tuple[str, str]] = []
    with libos.Runtime(
        nic=nic, kthreads=nic.queues, poll=poll, address="10.0.0.1/24", on_event=lambda *event: events.append(event)
    ) as runtime:
        runtime.start()
        runtime.wait_until(lambda s: s.sched["polls"] > 0)
        remove()
        wait_until(lambda: bool(events), what="to be told")
        assert runtime.gone

        def rests() -> bool:
            polls = runtime.stats().sched["polls"]
            time.sleep(LOOK_S)
            return runtime.stats().sched["polls"] - polls < FEW

        if poll != "spin":
            wait_until(rests, what="the kthreads to sleep")
        assert runtime.stop() == 0
    assert [name for name, _ in events] == ["gone"]
    assert nic.name in events[0][1]
    assert "its device was removed" in events[0][1]


@pytest.mark.root
@pytest.mark.parametrize("poll", ["spin", "adaptive", "block"])
@pytest.mark.parametrize("queues", [1, 2])
def test_a_tap_that_is_deleted(netns, poll, queues):
    space = netns.add("tap")
    with space.entered():
        nic = Tap("cl0", queues)
    with nic:
        told_once(nic, poll, lambda: space.ip("link", "delete", "cl0"))


@pytest.mark.root
@pytest.mark.parametrize("poll", ["spin", "adaptive", "block"])
def test_an_interface_that_is_deleted(netns, poll):
    space = netns.add("xdp")
    space.ip("link", "add", "cl0", "type", "veth", "peer", "name", "cl1")
    space.ip("link", "set", "cl0", "up")
    with space.entered():
        nic = AfXdp("cl0", steer="all")
    with nic:
        told_once(nic, poll, lambda: space.ip("link", "delete", "cl0"))


@pytest.mark.parametrize("poll", ["spin", "adaptive", "block"])
def test_a_link_whose_other_end_closes(poll):
    nic, end = memory_link()
    with nic:
        told_once(nic, poll, end.close)

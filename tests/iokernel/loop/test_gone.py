"""An uplink whose device went away: the loop sleeps as if there were none, and applications reach each other."""

from __future__ import annotations

import time

import pytest
from cltest import wait_until
from cltest.switching import assert_balanced, between

from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.tap.tap import Tap
from corelane.iokernel import Iokernel

pytestmark = pytest.mark.root
LOOK_S = 0.05


def rests(io) -> bool:
    """Whether the loop makes no round for a while."""
    rounds = io.stats()["loops"][0]["rounds"]
    time.sleep(LOOK_S)
    return bool(io.stats()["loops"][0]["rounds"] == rounds)


@pytest.mark.parametrize("mode", ["adaptive", "block"])
@pytest.mark.parametrize("driver", ["tap", "af_xdp"])
def test_the_loop_sleeps(netns, attach, socket_path, mode, driver):
    space = netns.add(driver)
    if driver == "af_xdp":
        space.ip("link", "add", "cl0", "type", "veth", "peer", "name", "cl1")
        space.ip("link", "set", "cl0", "up")
    with space.entered():
        nic = Tap("cl0") if driver == "tap" else AfXdp("cl0", steer="all")
    with nic, Iokernel(socket_path, uplinks=[nic], mode=mode) as io:
        a, b = attach("a"), attach("b")
        wait_until(lambda: rests(io), what="the loop to sleep")
        space.ip("link", "delete", "cl0")
        wait_until(lambda: nic.stats() and nic.gone, what="the uplink to be found gone")
        flood = b"\xff" * 6 + bytes.fromhex(a.mac.replace(":", "")) + b"\x08\x00" + bytes(46)
        for _ in range(300):  # more than the uplink's queue holds
            a.send(flood)
        frame = between(a, b, b"still here")
        assert a.send(frame) == 1
        wait_until(lambda: frame in b.recv(), what="a frame from the neighbour")
        wait_until(lambda: rests(io), what="the loop to sleep again")
        loop = io.stats()["loops"][0]
        assert loop["out_staged"] == 0
        assert_balanced(io)

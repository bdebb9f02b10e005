"""An uplink whose device went away, or takes nothing: the loop sleeps, and applications reach each other."""

from __future__ import annotations

import time

import pytest
from cltest import wait_until
from cltest.switching import assert_balanced, between, ip_int, mac_bytes, udp_frame

from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.tap.tap import Tap
from corelane.iokernel import Iokernel, iokernel

LOOK_S = 0.05


def outward(a) -> bytes:
    """A datagram that leaves by the uplink."""
    return udp_frame((mac_bytes(a), ip_int(a)), (b"\x02\xaa\xaa\xaa\xaa\xaa", ip_int(a) ^ 1), b"outward")


def rests(io) -> bool:
    """Whether the loop makes no round for a while."""
    rounds = io.stats()["loops"][0]["rounds"]
    time.sleep(LOOK_S)
    return bool(io.stats()["loops"][0]["rounds"] == rounds)


@pytest.mark.root
@pytest.mark.parametrize("poll", ["adaptive", "block"])
@pytest.mark.parametrize("driver", ["tap", "af_xdp"])
def test_the_loop_sleeps(netns, attach, socket_path, poll, driver):
    space = netns.add(driver)
    if driver == "af_xdp":
        space.ip("link", "add", "cl0", "type", "veth", "peer", "name", "cl1")
        space.ip("link", "set", "cl0", "up")
    with space.entered():
        nic = Tap("cl0") if driver == "tap" else AfXdp("cl0", steer="all")
    told: list[tuple[str, str]] = []
    with nic, Iokernel(socket_path, uplinks=[nic], poll=poll, tell=lambda *event: told.append(event)) as io:
        a, b = attach("a"), attach("b")
        wait_until(lambda: rests(io), what="the loop to sleep")
        space.ip("link", "delete", "cl0")
        wait_until(lambda: told, what="the iokernel to say that the uplink is gone")
        assert nic.gone
        flood = outward(a)
        for _ in range(300):  # more than the uplink's queue holds
            a.send(flood)
        frame = between(a, b, b"still here")
        assert a.send(frame) == 1
        wait_until(lambda: frame in b.recv(), what="a frame from the neighbour")
        wait_until(lambda: rests(io), what="the loop to sleep again")
        loop = io.stats()["loops"][0]
        assert loop["out_staged"] == 0
        assert_balanced(io)
    assert [event for event, _ in told] == ["gone"]


@pytest.mark.parametrize("listens", [True, False])
def test_an_uplink_that_goes_is_told_of_once(socket_path, monkeypatch, caplog, listens):
    """Of two, at a time when nobody sends anything; it is logged where nobody is to be told."""
    monkeypatch.setattr(iokernel, "_LOOK_S", 0.001)
    told: list[tuple[str, str]] = []
    (one, end), (other, outer) = memory_link(), memory_link()

    def lines() -> list[str]:
        if listens:
            return [text for event, text in told if event == "gone"]
        return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]

    with one, other, outer:
        tell = (lambda *event: told.append(event)) if listens else None
        with Iokernel(socket_path, uplinks=[one, other], poll="block", tell=tell) as io:
            look, looks = io.look, []
            monkeypatch.setattr(io, "look", lambda: looks.append(1) or look())
            end.close()
            wait_until(lines, what="to be told")
            so_far = len(looks)
            wait_until(lambda: len(looks) > so_far + 3, what="more looks")
    assert lines() == [
        "the uplink memory is gone: its device was removed; applications still reach each other; "
        "start the iokernel again for another uplink"
    ]


def test_a_loop_whose_uplink_takes_nothing_tries_ever_more_rarely(link, start, attach):
    """As one whose interface is down: what waits for it is offered again, but does not keep the loop awake."""
    inner, outer = link()
    io = start(uplinks=[inner], poll="block")
    a = attach("a")
    flood = outward(a)

    def loop(counter: str) -> int:
        return int(io.stats()["loops"][0][counter])

    def waits_long() -> bool:
        sleeps = loop("sleeps")
        time.sleep(LOOK_S)
        return loop("sleeps") - sleeps < LOOK_S / 0.001

    def is_full() -> bool:
        a.send([flood] * 64)
        return loop("out_staged") > 0

    wait_until(is_full, what="the uplink to be full")
    wait_until(waits_long, what="the loop to sleep for longer")
    assert loop("out_staged") > 0

    def drained() -> bool:
        outer.recv()
        return loop("out_staged") == 0

    wait_until(drained, what="what waited to go out")

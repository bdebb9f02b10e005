"""Each attack is what it says, ends when it is told to, and gives back what it held; an iokernel outlives it."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import open_descriptors, wait_until

from corelane.bench.hostile.attacker import Attacker
from corelane.bench.hostile.attacks import ATTACKS, Target
from corelane.drivers.nic.memory import memory_link
from corelane.iokernel import Iokernel
from corelane.iokernel.areas.areas import Areas, DirectoryStore
from corelane.runtime.errors import CorelaneError

STEPS = 20
SOMEWHERE = (min(os.sched_getaffinity(0)), None, "10.77.0.2", "02:00:00:00:00:01")  # CPU, user, victim, uplink


@pytest.fixture
def io(tmp_path: Path) -> Iterator[Iokernel]:
    inner, outer = memory_link()
    store = DirectoryStore(str(tmp_path / "areas"), 1 << 20)
    with inner, outer, Iokernel(str(tmp_path / "io.sock"), uplinks=[inner], areas=Areas(store)) as iokernel:
        yield iokernel
    store.close()


def told(io: Iokernel) -> dict[str, Any]:
    return dict(io.stats()["control"])


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gives_back_what_it_held(io: Iokernel, name: str) -> None:
    before = open_descriptors()
    target = Target(io.socket_path, victim_ip=0x0A4D0002)
    steps = ATTACKS[name](target)
    for _ in range(STEPS if "flood" not in name or name == "STATS flood" else 3):
        next(steps)
    while not sum(target.counts.values()):  # this process had no CPU for the time of a step
        next(steps)
    steps.close()
    wait_until(lambda: not io.apps)
    wait_until(lambda: open_descriptors() <= before)
    assert told(io)["last_error"] == ""
    target.attach("honest").close()


@pytest.mark.parametrize(
    ("name", "counter"),
    [
        ("broadcast flood", "tx_flooded"),
        ("ethertype flood", "tx_dropped_ethertype"),
        ("spoofed flood", "tx_dropped_spoofed"),
    ],
)
def test_a_flood_is_of_its_kind(io: Iokernel, name: str, counter: str) -> None:
    steps = ATTACKS[name](Target(io.socket_path, victim_ip=0x0A4D0002))
    next(steps)

    def seen() -> bool:
        next(steps)
        return bool(io.stats()["apps"][0][counter] > 0)

    wait_until(seen)
    steps.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ends[0], ends[1]:
        for end in ends:
            end.setblocking(False)
        yield ends


def answered(end: socket.socket) -> bool:
    return bool(select.select([end], [], [], 0)[0])


def test_an_attacker_goes_on_until_it_is_stopped(io: Iokernel, pair: tuple[socket.socket, socket.socket]) -> None:
    with Attacker(io.socket_path, *SOMEWHERE, pair[0]) as attacker:
        attacker.start("connect and close")
        wait_until(lambda: told(io).get("connections", 0) > 100)
        assert attacker.stop()["connections"] > 100
        attached = attacker.attach(2, "honest")
        assert len(attached["ms"]) == 2
        assert None not in attached["ms"]
        attacker.be_busy(share=0.1, pieces=1000)
        pair[1].send(b"q")
        wait_until(lambda: answered(pair[1]))
        assert attacker.stop()["steps"] > 0


def test_an_attack_that_cannot_begin_says_why(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    with Attacker(str(tmp_path / "none.sock"), *SOMEWHERE, pair[0]) as a:
        with pytest.raises(CorelaneError, match="no iokernel listens"):
            a.start("random arena")
        assert a.attach(1, "honest")["ms"] == [None]

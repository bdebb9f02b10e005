"""Real nodes whose network or disk fails under load, by a seed, and what their clients were told.

Partitions: nodes in network namespaces and on the virtual switch, each behind a fault NIC, are cut off in both
directions, or made deaf or mute, and let back, also under many sessions; two lose each other and keep the third.
Disks: writes of a node on the virtual switch fail or never end; it votes no more, also when the disk works again, and
says so, the others go on. Processes are stopped, and go on. And cuts, kills and disks in turns. A few seconds each;
CORELANE_SOAK_S=300 for longer.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from cltest import NetnsFactory, wait_until
from raftload import Load, loaded
from raftreal import ELECTION_MS, IDS, SOAK_S, Group, NetnsGroup, SwitchGroup, seed_of, until_time_is_over

from corelane.apps.raft.service.client import NotSent, Unknown

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.soak(short=True),
    pytest.mark.timeout(180 + 3 * SOAK_S),
]

ALL = {"loss": 1.0}
CUTS: dict[str, dict[str, Any]] = {"cut off": {"rx": ALL, "tx": ALL}, "deaf": {"rx": ALL}, "mute": {"tx": ALL}}
BAD = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.1, "delay": 0.2, "corrupt": 0.02}
BAD_WIRE = {"rx": BAD, "tx": BAD}
DISKS = {
    "EIO": ({"write_error": 1.0, "flush_error": 1.0}, "Input/output error"),
    "ENOSPC": ({"no_space": 1.0}, "No space left on device"),
    "hang": ({"hang": 1}, "has not answered"),
}


@pytest.mark.parametrize(
    ("place", "sessions"),
    [
        pytest.param("namespaces", 4, marks=pytest.mark.soak),
        ("switch", 16),
        pytest.param("switch", 4, marks=pytest.mark.soak),
    ],
)
def test_partitions(netns: NetnsFactory, tmp_path: Path, place: str, sessions: int) -> None:
    seed = seed_of(f"partitions, {place}, {sessions} sessions")
    draw = random.Random(seed)
    group = NetnsGroup(tmp_path, netns) if place == "namespaces" else SwitchGroup(tmp_path, netns, faulty=True)
    with contextlib.closing(group), loaded(group, tmp_path, seed, sessions) as load:

        def step() -> None:
            plan = [(who, how) for who in ("leader", "follower") for how in CUTS]
            draw.shuffle(plan)
            for who, how in plan:
                leader = load.leader() or 1
                victim = leader if who == "leader" else draw.choice([i for i in IDS if i != leader])
                group.ask(victim, nic=CUTS[how])
                load.progress(draw.randrange(1, 6), f"while node {victim}, a {who}, is {how}")
                assert group.ask(victim, nic={})["lost"] > 0
                if draw.random() < 0.5:
                    load.progress(draw.randrange(1, 4), f"after node {victim} was {how}")

        until_time_is_over(step)


def test_links_between_two(netns: NetnsFactory, tmp_path: Path) -> None:
    """The leader and a follower lose each other, and both keep the third: it stays, for no majority misses it."""
    seed = seed_of("links")
    draw = random.Random(seed)
    with contextlib.closing(NetnsGroup(tmp_path, netns)) as group, loaded(group, tmp_path, seed) as load:

        def step() -> None:
            leader = load.leader() or 1
            first, second = [i for i in IDS if i != leader]
            pairs = [(leader, draw.choice((first, second))), (first, second)]
            draw.shuffle(pairs)
            for a, b in pairs:
                group.cut_link(a, b)
                load.progress(draw.randrange(1, 6), f"while nodes {a} and {b} do not reach each other")
                group.cut_link(a, b, False)
                load.progress(draw.randrange(1, 4), f"after nodes {a} and {b} did not reach each other")

        until_time_is_over(step)


@pytest.mark.soak(takes_s=5)
def test_all_of_it_in_turns(netns: NetnsFactory, tmp_path: Path) -> None:
    """Cuts, bad wires, disks and kills, each a few times in a drawn order, one node at a time."""
    seed = seed_of("all")
    draw = random.Random(seed)
    with contextlib.closing(NetnsGroup(tmp_path, netns)) as group, loaded(group, tmp_path, seed) as load:

        def cut(victim: int) -> None:
            how = draw.choice(list(CUTS))
            group.ask(victim, nic=CUTS[how])
            load.progress(2, f"while node {victim} is {how}")
            group.ask(victim, nic={})

        def lose(victim: int) -> None:
            other = draw.choice([i for i in IDS if i != victim])
            group.cut_link(victim, other)
            load.progress(2, f"while nodes {victim} and {other} do not reach each other")
            group.cut_link(victim, other, False)

        def kill(victim: int) -> None:
            group.ask(victim, nic=BAD_WIRE)
            group.kill(victim)
            load.progress(2, f"without node {victim}")
            group.start(victim)

        def disk(victim: int) -> None:
            _fail_disk(group, load, victim, draw.choice(list(DISKS)))

        def step() -> None:
            faults = [cut, lose, kill, disk]
            draw.shuffle(faults)
            for fault in faults:
                leader = load.leader() or 1
                fault(draw.choice([leader, *IDS]))
                load.progress(1, f"after {fault.__name__}")

        until_time_is_over(step)


@pytest.mark.soak(takes_s=8)
def test_bad_wires_and_kills(netns: NetnsFactory, tmp_path: Path) -> None:
    seed = seed_of("bad wires")
    draw = random.Random(seed)
    with contextlib.closing(NetnsGroup(tmp_path, netns)) as group, loaded(group, tmp_path, seed) as load:

        def step() -> None:
            for i in IDS:
                group.ask(i, nic=BAD_WIRE)
            load.progress(draw.randrange(3, 8), "over bad wires")
            victim = load.leader() or draw.choice(IDS)
            group.kill(victim)
            load.progress(draw.randrange(1, 4), f"over bad wires without node {victim}")
            group.start(victim)
            for i in IDS:
                group.ask(i, nic={})
            load.progress(draw.randrange(1, 4), "over good wires")

        until_time_is_over(step)


@pytest.mark.parametrize("lease", [pytest.param(False, marks=pytest.mark.soak(takes_s=5)), True])
def test_stopped_processes(netns: NetnsFactory, tmp_path: Path, lease: bool) -> None:
    """Processes that do not run for up to five election timeouts, and go on as if nothing had happened."""
    seed = seed_of(f"stops, lease {lease}")
    draw = random.Random(seed)
    with contextlib.closing(SwitchGroup(tmp_path, netns, lease=lease)) as group, loaded(group, tmp_path, seed) as load:

        def step() -> None:
            plan = [
                lambda leader: [leader],
                lambda leader: [draw.choice([i for i in IDS if i != leader])],
                lambda leader: [i for i in IDS if i != leader],
                lambda _: list(IDS),
            ]
            draw.shuffle(plan)
            for who in plan:
                victims = who(load.leader() or 1)
                group.pause(victims, draw.choice((0.5, 1, 2, 5)) * ELECTION_MS * draw.uniform(0.8, 1.2) / 1e3)
                load.progress(draw.randrange(1, 6), f"after nodes {victims} did not run")

        until_time_is_over(step)


def _says(group: Group, i: int, words: str) -> list[str]:
    lines = (group.folder / f"{i}.said").read_text(errors="replace").splitlines()
    return [line for line in lines if words in line]


def _fail_disk(group: Group, load: Load, victim: int, kind: str) -> None:
    """Of one node: the others go on without it, also when the disk works again, and it comes again from its log."""
    faults, words = DISKS[kind]
    before = len(_says(group, victim, words))
    group.ask(victim, disk=faults)
    wait_until(lambda: len(_says(group, victim, words)) > before, 60, f"node {victim} to say {words!r}")
    load.progress(5, f"without the disk of node {victim}: {kind}")
    said = _says(group, victim, words)[before:]
    assert len(said) == 1, said
    assert f"Raft node {victim}" in said[0]
    if kind == "hang":
        wait_until(lambda: group.ask(victim, status={})["role"] != "leader", 60, f"node {victim} to lead no more")
    else:
        status = group.ask(victim, status={})
        assert status["state"] == "stopped"
        assert words in status["why"]
        assert "votes no more" in said[0]
        group.ask(victim, disk={})
        load.progress(2, f"while the disk of node {victim} works again")
        assert group.ask(victim, status={})["state"] == "stopped"
    group.kill(victim)
    group.start(victim)
    load.progress(2, f"after node {victim} came again")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.soak(takes_s=5)] if kind != "ENOSPC" else ()) for kind in DISKS]
)
def test_disks_fail(netns: NetnsFactory, tmp_path: Path, kind: str) -> None:
    """The leader's or a follower's; of both, in the course of a soak."""
    seed = seed_of(f"disks, {kind}")
    draw = random.Random(seed)
    group = SwitchGroup(tmp_path, netns, controlled=True)
    with contextlib.closing(group), loaded(group, tmp_path, seed) as load:

        def step() -> None:
            leader = load.leader() or 1
            _fail_disk(group, load, draw.choice([leader, *IDS]), kind)

        until_time_is_over(step)


@pytest.mark.parametrize("works_again", [pytest.param(False, marks=pytest.mark.soak(takes_s=6)), True])
def test_a_node_with_a_failed_disk_does_not_vote(netns: NetnsFactory, tmp_path: Path, works_again: bool) -> None:
    """Of three, the disk of one failed, for good or once, and one is dead: the third must not be elected, and must not
    confirm anything. A write that failed is not tried again as if nothing had happened."""
    group = SwitchGroup(tmp_path, netns, controlled=True)
    with contextlib.closing(group), group.client() as client:
        group.start(*IDS)
        assert client.command(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        leader = client.leader
        failed, alive = [i for i in IDS if i != leader]
        group.ask(failed, disk=DISKS["EIO"][0])
        assert client.command(b"set a 0 0 1\r\n2\r\n") == b"STORED\r\n"
        wait_until(lambda: group.ask(failed, status={})["state"] == "stopped", 60, "the node to stop")
        if works_again:
            group.ask(failed, disk={})
        group.kill(leader)
        with group.client(timeout_s=2) as other, pytest.raises(NotSent):
            other.command(b"set a 0 0 1\r\n3\r\n")
        with group.client(timeout_s=1) as other, pytest.raises(Unknown):
            other.query(b"get a\r\n")
        assert group.ask(alive, status={})["role"] != "leader"
        group.start(leader)
        assert b"\r\n2\r\n" in client.query(b"get a\r\n")
        assert group.ask(failed, status={})["state"] == "stopped"
        group.kill(failed)
        group.start(failed)  # from what its disk says: now it counts again
        group.kill(alive)
        assert client.command(b"set a 0 0 1\r\n4\r\n") == b"STORED\r\n"

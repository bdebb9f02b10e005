"""Blame of a group of real nodes: a slow disk of the leader, and slow disks of its followers, told apart; and a
follower that passes commands on. The disks are made slow by fault devices, for the last commands of each run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
from cltest import NetnsFactory, wait_until
from raftreal import IDS, SwitchGroup

from corelane.libos.trace.blame import Blame, of_service
from corelane.libos.trace.commands import LEADER, NEVER, OTHERS, OWN_LOG
from corelane.libos.trace.pieces import joined
from corelane.libos.trace.stages import table
from corelane.runtime.trace import Records, Segment

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

USUAL, SLOW = 90, 15
TRIES = 8
SLOW_NS = 30_000_000
SLOW_DISK = {"latency_min_ns": SLOW_NS, "latency_max_ns": SLOW_NS}
NOTHING: dict[str, float] = {"loss": 1.0}


@pytest.fixture
def group(netns: NetnsFactory, tmp_path: Path) -> Iterator[SwitchGroup]:
    """Three nodes that trace all, one of which leads."""
    with contextlib.closing(SwitchGroup(tmp_path, netns, faulty=True)) as made:
        made.start(*IDS)
        for i in IDS:
            made.ask(i, trace="full")
        yield made


def leader_of(group: SwitchGroup) -> int:
    def leads() -> int:
        return next((i for i in IDS if group.ask(i, status={})["role"] == "leader"), 0)

    found: int = wait_until(leads, 60, "a leader")
    return found


def seen_by(group: SwitchGroup, node: int, make_slow: Callable[[], object]) -> tuple[Records, list[str], int]:
    """What a node writes down while a client asks it for commands, the last of them slow. One that is slow is not sent
    again: it would be another message."""
    parts = []
    with Segment.of_process(group.children[node].process.pid) as segment, group.client(node, resend_s=5.0) as client:
        client.command(b"set a 0 0 1\r\n0\r\n")
        wait_until(lambda: len(segment.read().commands) > 0, 60, "the first one to be written down")
        for n in range(USUAL + SLOW):
            if n == USUAL:
                make_slow()
            assert client.command(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
            parts.append(segment.read())

        services, hz = segment.services(), segment.hz

        def all_there() -> bool:
            parts.append(segment.read())
            messages = table(joined(parts), services, hz).of_service(services.index("Raft 7400")).messages
            return min(sum(len(part.commands) for part in parts), len(messages)) >= USUAL + SLOW

        wait_until(all_there, 60, "the last one to be written down")
        return joined(parts), services, hz


def blamed(seen: tuple[Records, list[str], int]) -> Blame | None:
    """None: commands were asked for again, as of a node that knows no leader for a moment."""
    one = table(*seen).of_service(seen[1].index("Raft 7400"))
    assert len(one.messages) >= USUAL + SLOW
    if len(one.messages) > USUAL + SLOW + 1:  # with the first one, perhaps
        return None
    found = of_service(one, "Raft 7400", 1 - SLOW / (USUAL + SLOW))
    assert found is not None
    return found


def test_what_is_slow_is_named_by_the_leader_and_by_who_passes_on(group: SwitchGroup) -> None:
    """One group, for it takes long to start: first its followers' disks are slow, then the leader's."""
    leader = leader_of(group)
    followers = [i for i in IDS if i != leader]

    def slow_others() -> None:
        for i in followers:
            group.ask(i, disk=SLOW_DISK)

    named(group, leader, slow_others, OTHERS, "others")
    with Segment.of_process(group.children[leader].process.pid) as at_leader:
        at_leader.skip()
        named(group, followers[0], slow_others, LEADER, "leader")
        theirs = at_leader.read().commands
    passed = theirs[(theirs["flags"] == 0) & (theirs["agreed"] != NEVER)]
    assert len(passed) >= SLOW, "those that were passed on are the leader's messages, too"
    assert (numpy.diff(passed["index"].astype(numpy.int64)) > 0).all()
    group.ask(followers[0], nic={"rx": NOTHING, "tx": NOTHING})  # so that the leader is needed for a majority
    found = named(group, leader, lambda: group.ask(leader, disk=SLOW_DISK), OWN_LOG, "own log")
    assert found.slow_us > SLOW_NS / 1e3 / 2
    assert leader_of(group) == leader


def usual_disks(group: SwitchGroup) -> None:
    for i in IDS:
        group.ask(i, disk={})


def named(group: SwitchGroup, i: int, slow: Callable[[], object], stage: tuple[str, ...], cause: str) -> Blame:
    """What node i blames, once it is this stage, or a part of it: a busy machine does what is slower now and then."""
    for _ in range(TRIES):
        found = blamed(seen_by(group, i, slow))
        usual_disks(group)
        if found and found.first[: len(stage)] == stage and found.cause and found.cause.word == cause:
            return found
    raise AssertionError(f"{stage} and {cause!r} were not blamed in {TRIES} tries, the last: {found}")

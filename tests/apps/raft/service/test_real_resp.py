"""RESP in front of real groups under faults, by a seed: what clients were told is linearizable, transactions too.

Three processes of `corelane run raft-resp` with logs on files, killed with -9; and three in network namespaces, of
which the leader is cut off from the others while clients still reach it: it must not tell them what is out of date.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from cltest import NetnsFactory, wait_until
from raftload import Load
from raftreal import IDS, SOAK_S, Group, NetnsGroup, SwitchGroup, seed_of, until_time_is_over
from raftrespload import GroupClient, RespSession

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.soak(short=True, takes_s=20),
    pytest.mark.timeout(180 + 3 * SOAK_S),
]


def _survives(group: Group, folder: Path, name: str, step: Callable[[Load, random.Random], None]) -> None:
    seed = seed_of(name)
    draw = random.Random(seed)

    def told() -> str:
        return f"seed {seed}\n{group.last_words()}"

    def make() -> GroupClient:
        return GroupClient(group)

    try:
        group.start(*IDS)
        with Load(make, seed, session=RespSession) as load:  # type: ignore[arg-type]
            load.progress(3, "at the start")
            until_time_is_over(lambda: step(load, draw))
            load.progress(3, "at the end")
        with contextlib.closing(make()) as reader:
            load.read_all([reader])  # type: ignore[list-item]
        load.check(told, folder / "history")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told()}") from error
    print(f"{load.done} answers, {sum(s.unknown for s in load.sessions)} unknown; {'; '.join(group.events)}")


@pytest.mark.soak(takes_s=12)
def test_kills(netns: NetnsFactory, tmp_path: Path) -> None:
    with contextlib.closing(SwitchGroup(tmp_path, netns)) as group:
        group.resp = True

        def step(load: Load, draw: random.Random) -> None:
            for kind in draw.sample(["leader", "all", "leader"], 3):
                victims = [load.leader() or 1] if kind == "leader" else list(IDS)
                group.kill(*victims)
                if kind == "leader":
                    load.progress(draw.randrange(1, 20), f"without node {victims[0]}")
                group.start(*victims)
                load.progress(draw.randrange(1, 20), f"after {kind} came again")

        _survives(group, tmp_path, "RESP, kills", step)


@pytest.mark.soak(takes_s=5)
def test_a_leader_that_only_clients_reach(netns: NetnsFactory, tmp_path: Path) -> None:
    """Its log has 512 entries, so snapshots are made all the time, and it comes back by one."""
    with contextlib.closing(NetnsGroup(tmp_path, netns, log_entries=512)) as group:
        group.resp = True

        def leads(i: int) -> bool:
            return bool(group.ask(i, status={})["stats"]["port_resp_leads"])

        def step(load: Load, draw: random.Random) -> None:
            for _ in range(3):
                leader = wait_until(lambda: next((i for i in IDS if leads(i)), 0), 60, "a leader")
                others = [i for i in IDS if i != leader]
                group.only_clients(leader)
                wait_until(lambda others=others: any(leads(i) for i in others), 60, "another leader")
                load.progress(draw.randrange(1, 20), f"while node {leader}, which led, reaches no other")
                group.only_clients(leader, False)
                load.progress(draw.randrange(1, 20), f"after node {leader} came back")

        _survives(group, tmp_path, "RESP, cut off", step)

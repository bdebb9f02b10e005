"""kill -9 of real nodes under load, by a seed: nothing acknowledged is lost, nothing is done twice.

Three processes of `corelane run raft-kv` on the virtual switch, and three embedded ones in network namespaces, with
logs on files; the latter's disks have a cache, and what was not flushed dies with the process. A few seconds each;
CORELANE_SOAK_S=300 for longer.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest
from cltest import NetnsFactory
from raftload import Load
from raftreal import IDS, SOAK_S, Group, NetnsGroup, SwitchGroup, seed_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.soak(short=True),
    pytest.mark.timeout(180 + 3 * SOAK_S),
]


def _victims(draw: random.Random, kind: str, leader: int) -> list[int]:
    others = [i for i in IDS if i != leader]
    if kind == "leader":
        return [leader or draw.choice(IDS)]
    if kind == "follower":
        return [draw.choice(others)]
    return draw.sample(IDS, 2 if kind == "two" else 3)


def _kill_rounds(group: Group, load: Load, draw: random.Random, end: float) -> int:
    """All of them once, and a part of them; in a soak each part once, and then on until the time is over."""
    parts = ["leader", "follower", "two"]
    kinds = ["all", *(parts if SOAK_S else [draw.choice(parts)])]
    draw.shuffle(kinds)
    rounds = 0
    while kinds or time.monotonic() < end:
        kind = kinds.pop() if kinds else draw.choice(["leader", "leader", "follower", "two", "all"])
        victims = _victims(draw, kind, load.leader())
        group.kill(*victims)
        if len(victims) == 1:
            load.progress(draw.randrange(1, 10), f"without node {victims[0]}")
        draw.shuffle(victims)
        group.start(*victims)
        load.progress(draw.randrange(1, 10), f"after {kind} came again")
        rounds += 1
    return rounds


def _survives(group: Group, folder: Path, name: str) -> None:
    seed = seed_of(name)
    draw = random.Random(seed)

    def told() -> str:
        return f"seed {seed}\n{group.last_words()}"

    try:
        group.start(*IDS)
        with Load(group.client, seed) as load:
            load.progress(3, "at the start")
            rounds = _kill_rounds(group, load, draw, time.monotonic() + SOAK_S / 2)
        load.read_all([group.client(i) for i in IDS])
        verdict = load.check(told, folder / "history")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told()}") from error
    unknown = sum(s.unknown for s in load.sessions)
    resent = sum(s.client.resent for s in load.sessions)
    print(f"{rounds} rounds, {load.done} answers, {unknown} unknown, {resent} sent again, {verdict.configurations}")


def test_processes_on_the_switch(netns: NetnsFactory, tmp_path: Path) -> None:
    with contextlib.closing(SwitchGroup(tmp_path, netns)) as group:
        _survives(group, tmp_path, "kills on the switch")


@pytest.mark.soak(takes_s=5)
def test_processes_in_namespaces(netns: NetnsFactory, tmp_path: Path) -> None:
    with contextlib.closing(NetnsGroup(tmp_path, netns)) as group:
        _survives(group, tmp_path, "kills in namespaces")

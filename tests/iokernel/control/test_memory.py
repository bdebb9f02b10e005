"""What batch applications may hold of the memory that they can give back, and what becomes of those that do not."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from corelane.iokernel.control.memory import BatchMemory, Holder, Room, divide

MIB = 1 << 20


def holder(number: int = 1, **more: int) -> Holder:
    said = {"weight": 1, "held": 0, "least": 0, "most": 100 * MIB, **more}
    return Holder(number, f"job{number}", **said)


@pytest.mark.parametrize("seed", range(3))
def test_all_is_divided_between_least_and_most_by_weight(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        holders = []
        for i in range(rng.randint(1, 6)):
            least = rng.randint(0, 50) * MIB
            holders.append(holder(i, least=least, most=least + rng.randint(0, 100) * MIB, weight=rng.randint(1, 5)))
        total = rng.randint(0, 600) * MIB
        shares = divide(total, holders)
        assert all(h.least <= share <= h.most for h, share in zip(holders, shares, strict=True))
        expected = min(max(total, sum(h.least for h in holders)), sum(h.most for h in holders))
        assert abs(sum(shares) - expected) <= len(holders) ** 2
        free = [(s - h.least) / h.weight for h, s in zip(holders, shares, strict=True) if s < h.most]
        assert not free or max(free) - min(free) <= 64 * len(holders)  # who can use more has as much for its weight
        most = max(free, default=0)
        capped = [(s - h.least) / h.weight for h, s in zip(holders, shares, strict=True) if s == h.most]
        assert not free or all(c <= most + 64 * len(holders) for c in capped)


def test_what_there_is() -> None:
    assert Room(None, 5 * MIB, None).total(3 * MIB) is None
    assert Room(100 * MIB, 30 * MIB, None).total(3 * MIB) == 70 * MIB
    assert Room(None, 30 * MIB, -2 * MIB).total(10 * MIB) == 8 * MIB
    assert Room(100 * MIB, 30 * MIB, 500 * MIB).total(10 * MIB) == 70 * MIB
    assert Room(20 * MIB, 30 * MIB, None).total(10 * MIB) == 0


@dataclass
class Job:
    """honest: it holds what it may, as much as that is. deaf: it never shrinks. liar: it says that it does."""

    holder: Holder
    kind: str = "honest"
    limit: int = -1
    has: int = 0

    def act(self) -> None:
        h = self.holder
        if self.kind == "honest":
            self.holder = replace(h, held=min(self.limit, h.most))
            self.has = self.holder.held
        elif self.kind == "liar" and self.limit >= 0:
            self.holder = replace(h, held=min(self.limit, h.held))


class World:
    def __init__(self, *jobs: Job, limit: int | None = 100 * MIB, denies: bool = True, ends: bool = False) -> None:
        self.jobs = {job.holder.id: job for job in jobs}
        self.arenas, self.limit, self.now = 0, limit, 50.0
        self.told: list[str] = []
        self.ended: list[tuple[int, int]] = []
        self.denied: list[tuple[int, bool]] = []
        self.memory = BatchMemory(
            read=lambda: [job.holder for job in self.jobs.values()],
            room=lambda: Room(self.limit, self.arenas, None),
            resident=lambda h: self.jobs[h.id].has,
            allow=lambda app, limit: setattr(self.jobs[app], "limit", limit),
            deny=(lambda app, denied: self.denied.append((app, denied))) if denies else None,
            end=(lambda app, times: self.ended.append((app, times))) if ends else None,
            tell=lambda event, text: self.told.append(f"{event}: {text}"),
            clock=lambda: self.now,
            shrink_s=1.0,
        )

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            assert self.memory.look() == (self.now + 0.25 if self.jobs else float("inf"))
            self.now += 0.25
            for job in self.jobs.values():
                job.act()


def test_the_honest_shrink_for_an_arena_and_grow_again() -> None:
    world = World(Job(holder(1)), Job(holder(2, least=20 * MIB, weight=3)))
    world.run(1.0)
    first = {i: job.holder.held for i, job in world.jobs.items()}
    assert first == {1: 20 * MIB, 2: 80 * MIB}
    world.arenas = 60 * MIB
    world.run(1.0)
    assert {i: job.holder.held for i, job in world.jobs.items()} == {1: 5 * MIB, 2: 35 * MIB}
    assert world.memory.stats() == {"asked": 2, "shrunk": 2, "stubborn": 0, "lied": 0, "denied": 0, "ended": 0}
    world.arenas = 0
    world.run(1.0)
    assert {i: job.holder.held for i, job in world.jobs.items()} == first
    assert world.told == []


def test_without_a_limit_all_have_what_they_ask_for() -> None:
    world = World(Job(holder(1)), limit=None)
    world.run(0.5)
    assert world.jobs[1].holder.held == 100 * MIB


@pytest.mark.parametrize("denies", [True, False])
@pytest.mark.parametrize("kind", ["deaf", "liar"])
def test_one_that_never_shrinks_is_told_once_and_denied_cores_until_it_does(kind: str, denies: bool) -> None:
    world = World(Job(holder(1, held=80 * MIB), kind, has=80 * MIB), Job(holder(2)), denies=denies)
    world.arenas = 60 * MIB
    world.run(1.0)
    assert world.told == []
    world.run(5.0)
    assert len(world.told) == 1
    assert world.told[0].startswith("stubborn: job1 ")
    assert ("says that it holds 20 MiB, and has 80" in world.told[0]) == (kind == "liar")
    shown = world.memory.stats_of(1)
    assert shown is not None
    assert (shown["stubborn"], shown["asked"], shown["limit_bytes"]) == (True, 1, 20 * MIB)
    assert shown["denied"] == denies == ("denied cores" in world.told[0])
    stats = world.memory.stats()
    assert (stats["stubborn"], stats["lied"], stats["denied"], stats["ended"]) == (1, kind == "liar", denies, 0)
    assert world.denied == [(1, True)] * denies
    assert world.jobs[2].holder.held == 20 * MIB  # and it takes nothing from the other's share
    world.jobs[1].kind = "honest"
    world.run(1.0)
    assert not world.memory.stats_of(1)["stubborn"]
    assert world.denied == [(1, True), (1, False)] * denies
    assert world.memory.stats_of(3) is None


def test_one_that_never_shrinks_is_ended_where_that_is_configured() -> None:
    world = World(Job(holder(1, held=80 * MIB), "deaf"), ends=True)
    world.arenas = 60 * MIB
    world.run(1.0)
    assert world.ended == []
    world.run(0.75)
    assert (world.denied, world.ended) == ([(1, True)], [])  # cores first
    assert "and ended in 1 s" in world.told[0]
    world.run(1.0)
    assert world.ended == [(1, 1)]
    world.run(5.0)
    assert world.ended == [(1, 1), (1, 2)]
    assert world.memory.stats()["ended"] == 1
    del world.jobs[1]
    world.run(0.25)
    assert world.memory.stats_of(1) is None


def test_one_that_takes_more_than_it_may_is_stubborn_too() -> None:
    world = World(Job(holder(1, most=200 * MIB), "deaf"))
    world.run(0.5)
    world.jobs[1].holder = replace(world.jobs[1].holder, held=150 * MIB)
    world.run(2.0)
    assert world.memory.stats()["stubborn"] == 1

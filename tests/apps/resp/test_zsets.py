"""Sorted sets: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections.abc import Callable

from respcommands import by_name, scored
from respdraw import Draw

Generated = Callable[..., None]


def test_scored(generated: Generated) -> None:
    generated(scored)


def test_by_name(generated: Generated) -> None:
    generated(by_name)


def test_many_members(agree: Callable[..., None]) -> None:
    """Thousands of members: ranks and spans of a tall skip list."""
    d = Draw(7)
    commands: list[list[object]] = []
    for i in range(3000):
        commands.append(["ZADD", "z", d.rng.randint(0, 500), f"m{d.rng.randint(0, 1500)}"])
        if i % 3 == 0:
            commands.append(["ZREM", "z", f"m{d.rng.randint(0, 1500)}"])
        if i % 5 == 0:
            commands.append(["ZRANK", "z", f"m{d.rng.randint(0, 1500)}"])
            commands.append(["ZRANGE", "z", d.rng.randint(0, 900), d.rng.randint(0, 900) + 3])
            commands.append(["ZRANGEBYSCORE", "z", d.rng.randint(0, 250), 300, "WITHSCORES", "LIMIT", 40, 5])
    agree([*commands, ["ZREMRANGEBYRANK", "z", 10, -10], ["ZRANGE", "z", 0, -1, "WITHSCORES"]])

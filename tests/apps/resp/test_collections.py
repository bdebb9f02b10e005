"""Hashes, lists and sets: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from respcommands import hashes, lists, sets, sorting
from respdraw import Draw
from respwire import replies

from corelane.apps.resp import Client

Generated = Callable[..., None]


def test_hashes(generated: Generated) -> None:
    generated(hashes)


def test_lists(generated: Generated) -> None:
    generated(lists)


def test_sets(generated: Generated) -> None:
    generated(sets)


def test_sorting(generated: Generated) -> None:
    generated(sorting)


def test_random_members_are_all_alike(client: Client) -> None:
    """How often each is drawn: chi-square of 99 degrees of freedom, which exceeds 180 once in 10^6 times."""
    client.call("SADD", "s", *range(100))
    client.call("ZADD", "z", *(word for i in range(100) for word in (i, i)))
    client.call("HSET", "h", *(word for i in range(100) for word in (i, i)))
    for command, key in (("SRANDMEMBER", "s"), ("ZRANDMEMBER", "z"), ("HRANDFIELD", "h")):
        drawn = Counter(x.value for x in replies(client.call(command, key, -20000))[0][0].value)
        assert len(drawn) == 100
        assert sum((n - 200) ** 2 / 200 for n in drawn.values()) < 180, command


def test_long_lists(agree: Callable[..., None]) -> None:
    """Thousands of elements, long ones among them, that are changed at their ends and in their middle."""
    d = Draw(11)
    commands: list[list[object]] = [["RPUSH", "l", *range(3000)]]
    for _ in range(400):
        value = d.one(d.rng.randint(0, 400), d.value(), "y" * d.rng.choice([100, 9000]))
        at = d.rng.randint(-3000, 3000)
        commands.append(
            list(
                d.one(
                    ["LINSERT", "l", d.one("BEFORE", "AFTER"), d.rng.randint(0, 400), value],
                    ["LSET", "l", at, value],
                    ["LREM", "l", d.one(0, 1, -2), value],
                    ["LTRIM", "l", d.rng.randint(0, 9), -d.rng.randint(1, 9)],
                    [d.one("LPUSH", "RPUSH"), "l", *d.some(d.value, 30)],
                    [d.one("LPOP", "RPOP"), "l", d.rng.randint(0, 30)],
                    ["LMOVE", "l", "l", d.one("LEFT", "RIGHT"), d.one("LEFT", "RIGHT")],
                    ["LINDEX", "l", at],
                    ["LPOS", "l", value, "RANK", d.one(1, -1, 2), "COUNT", 3, "MAXLEN", d.one(0, 500)],
                    ["LRANGE", "l", at, at + 20],
                )
            )
        )
    agree([*commands, ["LRANGE", "l", 0, -1]])

"""Hashes, lists and sets: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from respcommands import hashes, lists, sets, sorting
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

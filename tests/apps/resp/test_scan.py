"""The SCAN family keeps what Redis promises: what is there from the first call to the last is seen, and ends."""

from __future__ import annotations

import random

import pytest
from respwire import replies

from corelane.apps.resp import Client


def step(client: Client, *words: object) -> tuple[int, list[bytes]]:
    cursor, found = replies(client.call(*words))[0][0].value  # type: ignore[arg-type]
    return int(cursor.value), [x.value for x in found.value]


@pytest.mark.parametrize("seed", range(6))
def test_what_stays_is_seen(client: Client, seed: int) -> None:
    """While others come and go, so that the table grows and shrinks under the scan."""
    rng = random.Random(seed)
    stays = {b"stay%d" % i for i in range(rng.choice([1, 10, 300, 1000]))}
    for name in stays:
        client.call("SET", name, 1)
    goes = [b"go%d" % i for i in range(rng.choice([0, 3000]))]
    for name in goes:
        client.call("SET", name, 1)
    seen: set[bytes] = set()
    cursor, calls = 0, 0
    while True:
        cursor, found = step(client, "SCAN", cursor, "COUNT", rng.choice([1, 10, 50]))
        seen.update(found)
        calls += 1
        if cursor == 0:
            break
        for _ in range(rng.choice([0, 30])):
            if goes and rng.random() < 0.8:
                client.call("DEL", goes.pop())
            else:
                client.call("SET", f"new{rng.randint(0, 5000)}", 1)
        assert calls < 50_000
    assert stays <= seen


def test_nothing_is_seen_twice_while_nothing_changes(client: Client) -> None:
    for i in range(777):
        client.call("SET", f"k{i}", 1)
    cursor, seen = 0, []
    while True:
        cursor, found = step(client, "SCAN", cursor)
        seen += found
        if cursor == 0:
            break
    assert len(seen) == len(set(seen)) == 777


@pytest.mark.parametrize(
    ("add", "scan", "texts"), [("HSET k {0} v", "HSCAN", 2), ("SADD k {0}", "SSCAN", 1), ("ZADD k {0} {0}", "ZSCAN", 2)]
)
def test_parts_of_a_value(client: Client, add: str, scan: str, texts: int) -> None:
    for i in range(500):
        client.call(*add.format(i).split())
    cursor, seen = 0, []
    while True:
        cursor, found = step(client, scan, "k", cursor, "COUNT", 20)
        seen += found[::texts]
        if cursor == 0:
            break
    assert sorted(map(int, seen)) == list(range(500))


def test_match_and_type(client: Client) -> None:
    for i in range(100):
        client.call("SET", f"string{i}", 1)
        client.call("RPUSH", f"list{i}", 1)
    for words, count in ((("MATCH", "string1*"), 11), (("TYPE", "list"), 100), (("TYPE", "list", "MATCH", "*5"), 10)):
        cursor, seen = 0, []
        while True:
            cursor, found = step(client, "SCAN", cursor, *words)
            seen += found
            if cursor == 0:
                break
        assert len(seen) == count
    assert step(client, "SCAN", 0, "TYPE", "nope", "COUNT", 1000)[1] == []

"""What writes say for a log and for replicas: applied elsewhere, at another time, it leaves the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import resporacle
from cltest import soak
from resporacle import Oracle
from respplay import play
from respstate import ask, state
from respwire import Word, parse

from corelane.apps.resp import Client, Engine
from corelane.apps.resp.engine import encode
from corelane.runtime.errors import CorelaneError

MANUAL_MS = 1_700_000_000_000
LATER_MS = 1_900_000_000_000


def commands(units: bytes) -> list[list[bytes]]:
    """The commands of units; asserts that they end where a command ends."""
    out, at = [], 0
    while at < len(units):
        one = parse(units, at)
        assert one is not None
        out.append([part.value for part in one[0].value])
        at = one[1]
    return out


@pytest.fixture
def said(engine: Engine, client: Client) -> Callable[..., list[list[bytes]]]:
    """`said(*words)`: what a command of `client` says."""
    engine.propagate()

    def say(*words: Word) -> list[list[bytes]]:
        client.call(*words)
        return commands(engine.units())

    return say


def now_ms() -> float:
    return time.time() * 1000


def state_at_once(engine: Engine) -> dict[tuple[int, bytes], tuple[Any, ...]]:
    """That of an engine whose time goes on: keys that expire while it is read stand in it half."""
    before = state(engine)
    while (now := state(engine)) != before or any(kept[1] == -2 for kept in now.values()):
        before = now
    return now


def text(*words: Word) -> list[bytes]:
    return [w if isinstance(w, bytes) else str(w).encode() for w in words]


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-random"])
def test_generated_commands_leave_the_same_elsewhere(policy: str) -> None:
    for seed in range(soak.examples(4, 200)):
        print(f"seed {seed}")
        with (
            Engine(2 << 20, policy=policy, manual_ms=MANUAL_MS, seed=seed + 1) as one,
            Engine(1 << 20, manual_ms=LATER_MS, seed=seed + 1000) as other,
        ):
            one.propagate()
            if policy != "noeviction":
                one.client().call("CONFIG", "SET", "maxmemory", one.used()[0] + 20_000)
            for done in play(one, seed, 1500):
                if done % 25:
                    continue
                expected = state(one)  # which finds keys whose time is over
                other.apply(one.units())
                other.move(MANUAL_MS - LATER_MS)  # before any of them expires
                assert state(other) == expected
                other.move(LATER_MS - MANUAL_MS)
                one.check()
                other.check()
            evicted = b"evicted_keys:0\r\n" not in one.client().call("INFO", "stats")
            assert evicted == (policy != "noeviction")


def test_redis_itself_takes_what_is_said(server: Oracle) -> None:
    if why := resporacle.missing():
        pytest.skip(why)
    for seed in range(soak.examples(1, 20)):
        print(f"seed {seed}")
        server.forget()
        with Engine(64 << 20, seed=1) as one, Engine(64 << 20, seed=2) as other:  # of this year's clock
            one.propagate()
            assert max(play(one, seed, 1500)) == 1500
            expected = state_at_once(one)
            units = one.units()
            for words, (reply, _) in zip(commands(units), server.control.calls(commands(units)), strict=True):
                assert reply.kind != "-", (words, reply)
            other.apply(units)
            theirs = state_at_once(other)
            lasting = {at: kept for at, kept in expected.items() if kept[1] < 0 or at in theirs or kept[1] > now_ms()}
            assert theirs == lasting
            for db in range(16):
                server.control.call("SELECT", db)
                found = {part.value for part in server.control.call("KEYS", "*").value}
                over_ms = now_ms()
                when = {key: kept[1] for (n, key), kept in expected.items() if n == db}
                assert found == {key for key in when if when[key] < 0 or key in found or when[key] > over_ms}
            server.control.call("SELECT", 0)


def test_what_a_clock_or_chance_decides_is_named(said: Callable[..., list[list[bytes]]], client: Client) -> None:
    assert said("SET", "k", "v", "EX", 10, "NX") == [text("SET", "k", "v", "PXAT", MANUAL_MS + 10_000)]
    assert said("SET", "k", "w", "KEEPTTL", "GET") == [text("SET", "k", "w", "KEEPTTL")]
    assert said("EXPIRE", "k", 5, "LT") == [text("PEXPIREAT", "k", MANUAL_MS + 5000)]
    assert said("GETEX", "k", "PERSIST") == [text("PERSIST", "k")]
    assert said("EXPIRE", "k", -1) == [text("DEL", "k")]
    assert said("INCRBYFLOAT", "f", "0.5") == [text("SET", "f", "0.5", "KEEPTTL")]
    assert said("HINCRBYFLOAT", "h", "f", "0.5") == [text("HSET", "h", "f", "0.5")]
    said("SADD", "s", 1, 2, 3)
    (spop,) = said("SPOP", "s", 2)
    assert spop[:2] == text("SREM", "s")
    assert sorted([*spop[2:], *ask(client, "SMEMBERS", "s")]) == text(1, 2, 3)
    assert said("XADD", "x", "*", "f", "v") == [text("XADD", "x", f"{MANUAL_MS}-0", "f", "v")]
    assert said("SADD", "s", 7, 8) == [text("SADD", "s", 7, 8)]


def test_what_changes_nothing_says_nothing(said: Callable[..., list[list[bytes]]]) -> None:
    for words in (("GET", "k"), ("DEL", "k"), ("SET", "k", "v", "XX"), ("SPOP", "k"), ("LPOP", "k"), ("XTRIM", "k")):
        assert said(*words) == []


def test_a_key_whose_time_is_over_is_deleted_by_whoever_finds_it(engine: Engine, client: Client) -> None:
    engine.propagate()
    client.call("SELECT", 3)
    for key in ("a", "b"):
        client.call("PSETEX", key, 100, "v")
    engine.units()
    engine.move(200)
    client.call("GET", "a")
    assert commands(engine.units()) == [text("SELECT", 3), text("DEL", "a"), text("SELECT", 0)]
    engine.tick()
    assert commands(engine.units()) == [text("SELECT", 3), text("DEL", "b"), text("SELECT", 0)]


def test_a_transaction_and_whom_it_serves_are_one_unit(engine: Engine, client: Client) -> None:
    engine.propagate()
    other = engine.client()
    for c in (client, other):
        c.call("SELECT", 2)
    other.feed(encode("BLPOP", "l", 0))
    client.feed(
        encode("MULTI") + encode("SET", "a", 1) + encode("GET", "a") + encode("RPUSH", "l", "x") + encode("EXEC")
    )
    assert commands(engine.units()) == [
        text("SELECT", 2),
        text("SET", "a", 1),
        text("RPUSH", "l", "x"),
        text("LPOP", "l", 1),
        text("SELECT", 0),
    ]


def test_an_evicted_key_is_deleted(client: Client, engine: Engine) -> None:
    engine.propagate()
    client.call("CONFIG", "SET", "maxmemory", 2 << 20, "maxmemory-policy", "allkeys-lru")
    units = b""
    for i in range(40):
        client.call("SET", f"k{i}", b"x" * 100_000)
        units += engine.units()
    assert sum(words[0] == b"DEL" for words in commands(units)) > 10
    with Engine(64 << 20, seed=9) as other:
        other.apply(units)
        assert state(other) == state(engine)


def test_nothing_expires_while_units_are_applied() -> None:
    with Engine(1 << 20, manual_ms=LATER_MS, seed=1) as engine:
        engine.apply(encode("SET", "k", 5, "PXAT", MANUAL_MS) + encode("INCRBY", "k", 1) + encode("PEXPIREAT", "k", 7))
        client = engine.client()
        assert client.call("DBSIZE") == b":1\r\n"
        assert client.call("GET", "k") == b"$-1\r\n"


@pytest.mark.parametrize(
    ("units", "why"),
    [
        (b"*1", "no command begins"),
        (b"$1\r\na\r\n", "no command begins"),
        (b"*2\r\n$3\r\nDEL\r\n$5\r\nab\r\n", "no command begins"),
        (b"*1\r\n$-1\r\n", "no command begins"),
        (b"*99999999999\r\n", "no command begins"),
        (b"*1\r\n$99999999999\r\n", "no command begins"),
        (encode("GET", "a"), "GET"),
        (encode("NONSENSE"), "NONSENSE"),
        (encode("SET", "a"), "SET"),
        (encode("INCR", "text"), "INCR"),
    ],
)
def test_what_is_no_unit_is_refused(units: bytes, why: str) -> None:
    with Engine(1 << 20, seed=1) as engine:
        with pytest.raises(CorelaneError, match=why):
            engine.apply(encode("SET", "text", "x") + units)
        assert engine.client().call("GET", "text") == b"$1\r\nx\r\n"
        engine.check()

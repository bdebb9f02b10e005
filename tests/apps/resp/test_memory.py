"""Memory: counted to the byte, bounded, given back; eviction by Redis' policies; expiry by a clock that is moved."""

from __future__ import annotations

import random

import pytest
from respwire import replies

from corelane.apps.resp import Client, Engine
from corelane.apps.resp.engine import encode

MANUAL_MS = 1_700_000_000_000


def value(client: Client, *words: object) -> object:
    return replies(client.call(*words))[0][0].value  # type: ignore[arg-type]


def fill(client: Client, rng: random.Random, count: int) -> None:
    """Values of all types, which grow and shrink."""
    for _ in range(count):
        k, v, n = f"k{rng.randint(0, 40)}", "v" * rng.choice([0, 3, 60, 700, 20_000]), rng.randint(0, 200)
        client.call(
            *rng.choice(
                [
                    ("SET", "s" + k, v, "EX", n + 1),
                    ("APPEND", "s" + k, v),
                    ("RPUSH", "l" + k, v, v),
                    ("LINSERT", "l" + k, "BEFORE", v, "x"),
                    ("LPOP", "l" + k),
                    ("HSET", "h" + k, n, v),
                    ("HDEL", "h" + k, n),
                    ("SADD", "m" + k, n, v),
                    ("SREM", "m" + k, n),
                    ("ZADD", "z" + k, n, n, 1, v),
                    ("ZREM", "z" + k, n),
                    ("XADD", "x" + k, "*", "f", v),
                    ("XTRIM", "x" + k, "MAXLEN", 3),
                    ("SETRANGE", "s" + k, n * 50, "x"),
                    ("COPY", "h" + k, "hcopy", "REPLACE"),
                    ("SUNIONSTORE", "mcopy", "m" + k, "mk1"),
                    ("ZUNIONSTORE", "zcopy", 2, "z" + k, "zk1"),
                    ("RENAME", "l" + k, "lother"),
                    ("DEL", rng.choice("slhmzx") + k),
                ]
            )
        )


@pytest.mark.parametrize("seed", [1, 2])
def test_all_is_given_back(seed: int) -> None:
    """What was in use before is in use after, to the byte."""
    with Engine(64 << 20, manual_ms=MANUAL_MS, seed=seed) as engine:
        client = engine.client()
        client.call("FLUSHALL")
        before = engine.used()[0]
        fill(client, random.Random(seed), 3000)
        assert engine.used()[0] > before + 100_000
        engine.check()
        client.call("FLUSHALL")
        assert engine.used()[0] == before
        client.close()
        assert engine.used()[0] < before


def test_what_clients_have_is_counted_and_given_back(engine: Engine) -> None:
    other = engine.client()
    other.call("MGET", *range(200))  # from now on there is memory for so many arguments
    before = engine.used()[0]
    client = engine.client()
    client.exchange(encode("CLIENT", "SETNAME", "n" * 100) + encode("SUBSCRIBE", *[f"c{i}" for i in range(100)]))
    client.exchange(encode("PSUBSCRIBE", "a*") + encode("RESET") + encode("WATCH", "a", "b") + encode("MULTI"))
    client.exchange(encode("SET", "a", "v" * 10_000) + b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n" + b"x" * 50_000)
    blocked = engine.client()
    blocked.call("BLPOP", *[f"list{i}" for i in range(50)], 0)
    assert engine.used()[0] > before + 50_000
    client.close()
    blocked.close()
    assert engine.used()[0] == before


def test_without_eviction_what_does_not_fit_is_refused() -> None:
    with Engine(2 << 20, seed=1) as engine:
        client = engine.client()
        answers = [client.call("SET", f"k{i}", "v" * 1000) for i in range(3000)]
        assert answers[0] == b"+OK\r\n"
        assert answers[-1] == b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
        used, limit = engine.used()
        assert limit - 20_000 < used <= limit
        assert client.call("GET", "k0").startswith(b"$1000\r\n")
        assert client.call("APPEND", "k0", "v" * 100_000).startswith(b"-OOM")
        assert client.call("SETRANGE", "k0", 5_000_000, "x").startswith(b"-OOM")
        assert client.call("DEL", "k0") == b":1\r\n"


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-random"])
def test_holes_between_blocks_are_bounded(policy: str) -> None:
    """Values of one size fill the memory, and all go but one of each slab: again with other sizes."""
    with Engine(8 << 20, policy=policy, seed=1) as engine:
        client = engine.client()
        for size in (1, 50, 90, 200, 400, 1000):
            count = (8 << 20) // (size + 100)
            keys = [b"%d:%d" % (size, i) for i in range(count)]
            text = b"$%d\r\n%b\r\n" % (size, b"v" * size)
            client.exchange(b"".join(b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n%b" % (len(k), k, text) for k in keys))
            stays = 50_000 // (size + 60)
            gone = [key for i, key in enumerate(keys) if i % stays]
            for start in range(0, len(gone), 500):
                client.call("DEL", *gone[start : start + 500])
            held = dict(zip(*[iter(value(client, "DEBUG", "JMAP"))] * 2, strict=True))  # type: ignore[call-overload]
            sizes = {k.value: v.value for k, v in held.items()}
            assert sizes[b"slabs"] + sizes[b"large"] < (2 * 8 + 5) << 20
        # Without eviction what is left between the holes may be too little.
        assert policy == "noeviction" or client.call("SET", "last", 1) == b"+OK\r\n"


POLICIES = [
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
]


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_keep_the_bound(policy: str) -> None:
    with Engine(2 << 20, policy=policy, manual_ms=MANUAL_MS, seed=1) as engine:
        client = engine.client()
        client.call("SET", "kept", "for ever")
        for i in range(5000):
            assert client.call("SET", f"k{i}", "v" * 1000, "EX", 10_000 - i) == b"+OK\r\n"
            used, limit = engine.used()
            assert used <= limit
        assert 500 < value(client, "DBSIZE") < 2500  # type: ignore[operator]
        if policy.startswith("volatile"):
            assert value(client, "GET", "kept") == b"for ever"
        if policy == "volatile-ttl":  # the last ones expire first
            assert value(client, "EXISTS", "k4998", "k0") == 1
            assert value(client, "EXISTS", "k0") == 1
        assert value(client, "INFO", "stats").count(b"evicted_keys:0\r\n") == 0  # type: ignore[attr-defined]


def test_lru_keeps_what_is_used() -> None:
    with Engine(2 << 20, policy="allkeys-lru", manual_ms=MANUAL_MS, seed=1) as engine:
        client = engine.client()
        client.call("CONFIG", "SET", "maxmemory-samples", 10)
        for i in range(1000):
            client.call("SET", f"k{i}", "v" * 1000)
        for i in range(3000):
            engine.move(1000)
            client.call("GET", f"k{i % 100}")
            client.call("SET", f"new{i}", "v" * 1000)
        kept = value(client, "EXISTS", *[f"k{i}" for i in range(100)])
        rest = value(client, "EXISTS", *[f"k{i}" for i in range(100, 1000)])
        assert kept > 90
        assert rest < 50


def test_idle_time_and_frequency(engine: Engine, client: Client) -> None:
    client.call("SET", "a", 1)
    engine.move(50_000)
    assert value(client, "OBJECT", "IDLETIME", "a") == 50
    client.call("GET", "a")
    assert value(client, "OBJECT", "IDLETIME", "a") == 0
    assert client.call("OBJECT", "FREQ", "a").startswith(b"-ERR An LFU maxmemory policy is not selected")
    client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    client.call("SET", "b", 1)
    for _ in range(200):
        client.call("GET", "b")
    used = value(client, "OBJECT", "FREQ", "b")
    assert used > 5  # type: ignore[operator]
    engine.move(60_000 * 4)
    assert value(client, "OBJECT", "FREQ", "b") == used - 4  # type: ignore[operator]


def test_keys_expire_when_they_are_looked_at(engine: Engine, client: Client) -> None:
    client.call("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    client.call("SET", "a", 1, "PX", 100)
    engine.move(99)
    assert value(client, "GET", "a") == b"1"
    engine.move(1)
    engine.tick()
    assert value(client, "DBSIZE") == 1
    assert value(client, "GET", "a") is None
    assert value(client, "DBSIZE") == 0


def test_keys_expire_by_themselves(engine: Engine, client: Client) -> None:
    for i in range(500):
        client.call("SET", f"k{i}", 1, "PX", 1000 + i)
    client.call("CONFIG", "SET", "notify-keyspace-events", "Ex")
    listener = engine.client()
    listener.call("SUBSCRIBE", "__keyevent@0__:expired")
    engine.move(1249)
    engine.tick()
    assert value(client, "DBSIZE") == 250
    assert len(replies(listener.take())) == 250
    engine.move(10_000)
    engine.tick()
    assert value(client, "DBSIZE") == 0


def test_blocked_commands_time_out(engine: Engine) -> None:
    for protocol, nothing in ((2, b"*-1\r\n"), (3, b"_\r\n")):
        waiting = engine.client()
        waiting.call("HELLO", protocol)
        for words in (("BLPOP", "a", 0.1), ("BZPOPMIN", "a", 0.1), ("XREAD", "BLOCK", 100, "STREAMS", "a", "$")):
            assert waiting.call(*words) == b""
            engine.move(99)
            assert engine.tick() == 1
            assert waiting.take() == b""
            engine.move(1)
            engine.tick()
            assert waiting.take() == nothing
        waiting.close()


def test_what_follows_a_blocked_command_waits_for_it(engine: Engine) -> None:
    waiting, other = engine.client(), engine.client()
    data = encode("BLPOP", "a", 0) + encode("ECHO", "behind")
    took = waiting.feed(data)
    assert waiting.take() == b""
    other.call("RPUSH", "a", "x")
    waiting.feed(data[took:])
    assert waiting.take() == b"*2\r\n$1\r\na\r\n$1\r\nx\r\n$6\r\nbehind\r\n"


def test_what_is_queued_watched_and_listened_to_is_bounded() -> None:
    for words in (["GET"], ["SUBSCRIBE"], ["WATCH"]):
        with Engine(2 << 20, seed=1) as engine:
            client = engine.client()
            client.call("HELLO", 3)
            if words == ["GET"]:
                client.call("MULTI")
            answers = [client.call(*words, f"name{i}" + "x" * 1000) for i in range(5000)]
            assert answers[-1].startswith(b"-OOM")
            used, limit = engine.used()
            assert used <= limit


def test_a_long_pipeline_may_be_sent_before_its_replies_are_read(engine: Engine) -> None:
    """As far as an eighth of all memory holds them; with others that do not read, beyond 1 MiB, when those have."""
    size, most = 10_000, (64 << 20) // 8
    first, second = engine.client(), engine.client()
    first.call("SET", "v", "x" * size)
    many = encode("GET", "v") * 2000
    gets = len(encode("GET", "v"))
    ran = first.feed(many) // gets
    assert most < ran * size < most + 2 * size
    assert 1 << 20 < second.feed(many) // gets * size < (1 << 20) + 2 * size
    assert len(first.take()) > ran * size
    assert second.feed(many) // gets * size > most // 2


def test_replies_of_clients_that_do_not_read_are_bounded() -> None:
    with Engine(4 << 20, seed=1) as engine:
        writer = engine.client()
        for _ in range(20):
            writer.call("RPUSH", "l", "x" * 100_000)
        clients = [engine.client() for _ in range(20)]
        for client in clients:
            client.feed(encode("LRANGE", "l", 0, -1))
        used, limit = engine.used()
        assert used < 2 * limit + 200_000
        ended = [client.ends for client in clients]
        assert ended[0] == 0
        assert ended[-1] == 2


def test_a_watched_key_that_expires_has_changed(engine: Engine, client: Client) -> None:
    client.call("SET", "a", 1, "PX", 100)
    client.call("WATCH", "a")
    engine.move(200)
    client.call("MULTI")
    client.call("PING")
    assert client.call("EXEC") == b"*-1\r\n"


def test_memory_usage_follows_the_value(client: Client) -> None:
    client.call("SET", "a", "x")
    small = value(client, "MEMORY", "USAGE", "a")
    client.call("SET", "a", "x" * 10_000)
    large = value(client, "MEMORY", "USAGE", "a")
    assert 9_000 < large - small < 13_000  # type: ignore[operator]

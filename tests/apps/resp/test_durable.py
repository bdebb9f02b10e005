"""Durable writes: replies that wait for the log, the rewrite, a log that fails or is full, and what a restart finds."""

from __future__ import annotations

import errno

import pytest
from cltest import soak
from respplay import play
from respstate import ask, state
from respwire import replies

from corelane.apps._native import lib
from corelane.apps.resp import Client, Engine
from corelane.apps.resp.engine import encode

MANUAL_MS = 1_700_000_000_000


@pytest.fixture
def held(engine: Engine) -> Engine:
    """An engine whose replies wait."""
    engine.propagate()
    engine.hold()
    return engine


def test_replies_wait_until_what_they_tell_of_is_durable(held: Engine) -> None:
    writer, reader = held.client(), held.client()
    assert reader.call("GET", "k") == b"$-1\r\n"  # nothing is on its way
    assert writer.call("SET", "k", 1) == b""
    assert reader.call("GET", "k") == b""
    _, first = held.take()
    assert writer.call("INCR", "k") == b""
    assert reader.call("GET", "k") == b""
    held.durable(first)
    assert writer.take() == b"+OK\r\n"
    assert reader.take() == b"$1\r\n1\r\n"
    _, second = held.take()
    held.durable(second)
    assert writer.take() == b":2\r\n"
    assert reader.take() == b"$1\r\n2\r\n"


def test_who_is_answered_again_and_again_is_not_kept_waiting(held: Engine) -> None:
    """Each commit brings the replies of all that was asked before the one before it began."""
    client, other = held.client(), held.client()
    client.call("SET", "k", 0)
    for i in range(1, 50):
        _, unit = held.take()
        client.call("INCR", "k")
        other.call("INCR", "n")
        held.durable(unit)
        assert len(replies(client.take())) == 1, i


def test_pushes_and_blocked_clients_wait_too(held: Engine) -> None:
    waits, hears, writer = held.client(), held.client(), held.client()
    hears.call("CONFIG", "SET", "notify-keyspace-events", "KA")
    hears.call("SUBSCRIBE", "__keyspace@0__:l")
    waits.feed(encode("BLPOP", "l", 0))
    writer.call("RPUSH", "l", "x")
    assert waits.take() == hears.take() == b""
    held.durable(held.take()[1])
    assert replies(waits.take())[0][0].value[1].value == b"x"
    assert b"rpush" in hears.take()


def test_a_client_that_quits_is_answered_first(held: Engine) -> None:
    client = held.client()
    client.feed(encode("SET", "k", 1) + encode("QUIT"))
    assert client.ends == 0
    held.durable(held.take()[1])
    assert client.ends == 1
    assert client.take() == b"+OK\r\n+OK\r\n"


def test_units_that_nobody_takes_hold_commands_back(held: Engine) -> None:
    client = held.client()
    request = encode("SET", "k", b"x" * 100_000)
    sent = 0
    while client.feed(request) == len(request):
        sent += 1
        assert sent < 20
    held.durable(held.take()[1])
    assert client.feed(request) == len(request)


def test_a_log_that_fails_ends_who_waits_and_refuses_writes(held: Engine) -> None:
    waits, other = held.client(), held.client()
    waits.call("SET", "k", 1)
    held.fail(errno.EIO)
    assert waits.ends == 2
    assert waits.take() == b""
    assert other.call("GET", "k") == b"$1\r\n1\r\n"
    refusal = b"-MISCONF Errors writing to the AOF file: Input/output error\r\n"
    assert other.call("SET", "k", 2) == refusal
    assert other.exchange(encode("MULTI") + encode("GET", "k") + encode("EXEC")).endswith(b"*1\r\n$1\r\n1\r\n")
    assert other.exchange(encode("MULTI") + encode("SET", "k", 2) + encode("EXEC")).startswith(b"+OK\r\n" + refusal)
    other.call("MULTI")
    other.call("SET", "k", 2)
    assert other.call("EXEC").startswith(b"-EXECABORT")
    assert other.call("BGREWRITEAOF") == refusal
    info = other.call("INFO", "persistence")
    assert b"aof_last_write_status:err" in info
    assert b"aof_unanswered_clients:1" in info


def test_who_is_likely_to_write_again_is_counted(held: Engine) -> None:
    """Those whom the last two writes have answered, each once."""
    clients = [held.client() for _ in range(4)]

    def written(*who: int) -> tuple[int, int]:
        for i in who:
            clients[i].call("SET", i, "v")
        waiting = lib.cl_resp_waiting(held.ptr)
        held.durable(held.take()[1])
        for i in who:
            assert clients[i].take() == b"+OK\r\n"
        return waiting, lib.cl_resp_active(held.ptr)

    assert written(0, 1, 2) == (3, 3)
    assert written(0) == (1, 3)
    assert written(3) == (1, 2)
    assert written(3) == (1, 1)
    assert written(0, 1, 2, 3) == (4, 4)


def test_a_transaction_that_the_log_takes_no_more_is_over(held: Engine) -> None:
    client = held.client()
    client.exchange(encode("MULTI") + encode("SET", "k", 2))
    held.fail(errno.EIO)
    assert client.call("EXEC") == (
        b"-EXECABORT Transaction discarded because of: MISCONF Errors writing to the AOF file: Input/output error\r\n"
    )
    assert client.call("EXEC") == b"-ERR EXEC without MULTI\r\n"


def test_a_full_log_refuses_what_takes_memory_first(held: Engine) -> None:
    client = held.client()
    refusal = b"-MISCONF Errors writing to the AOF file: No space left on device\r\n"
    client.call("SET", "k", 1)
    held.durable(held.take()[1])
    client.take()
    held.log_room(1 << 20, 1000)
    assert client.call("SET", "a", 1) == refusal
    assert client.call("GET", "k") == b"$1\r\n1\r\n"
    assert client.call("DEL", "k") == b""  # makes room
    held.log_room(1 << 20, 100)
    held.durable(held.take()[1])
    assert client.take() == b":1\r\n"
    assert client.call("DEL", "k") == refusal
    held.log_room(1 << 20, 1 << 20)
    client.call("SET", "a", 1)
    held.durable(held.take()[1])
    assert client.take() == b"+OK\r\n"


@pytest.mark.parametrize("step", [1, 500])
def test_a_rewrite_and_what_follows_leave_the_state(step: int) -> None:
    """From the first unit of a pass on the units alone build the state, as soon as the pass is over."""
    for seed in range(soak.examples(4, 200)):
        print(f"seed {seed}")
        with Engine(4 << 20, manual_ms=MANUAL_MS, seed=seed + 1) as one:
            one.propagate()
            game = play(one, seed, 100_000)
            for _ in range(200):
                next(game)
            for i in range(300):
                one.client().call("SET", f"more{i}", i)
            one.units()
            one.rewrite()
            parts, over, rounds = [one.units()], False, 0
            while not over or rounds % 10:
                for _ in range(10):
                    next(game)
                over = over or one.rewrite_step(step)
                parts.append(one.units())
                rounds += 1
            assert rounds > 10 or step > 1
            with Engine(1 << 20, manual_ms=1, seed=seed + 1000) as other:
                other.apply(b"".join(parts))
                other.move(MANUAL_MS - 10)
                expected = state(one)
                other.apply(one.units())
                assert state(other) == expected


def test_every_type_is_rewritten_whole(engine: Engine, client: Client) -> None:
    engine.propagate()
    for i in range(1000):
        client.call("RPUSH", "list", i)
        client.call("SADD", "set", i)
        client.call("HSET", "hash", i, -i)
        client.call("ZADD", "zset", i / 7, i)
        client.call("XADD", "stream", f"{i + 1}-1", "f", i)
    client.call("ZADD", "zset", "inf", "a", "-inf", "b")
    client.call("XADD", "empty", "5-5", "f", "v")
    client.call("XDEL", "empty", "5-5")
    client.call("XADD", "low", "9-9", "f", "v")
    client.call("XDEL", "low", "9-9")
    client.call("XSETID", "low", "3-3")
    client.call("SET", "text", b"\x00\r\n", "EX", 100)
    client.call("SELECT", 15)
    client.call("SET", "", "")
    engine.units()
    engine.rewrite()
    while not engine.rewrite_step(3000):
        pass
    with Engine(64 << 20, manual_ms=MANUAL_MS, seed=5) as other:
        other.apply(engine.units())
        assert state(other) == state(engine)


def test_a_rewrite_of_nothing(engine: Engine) -> None:
    engine.propagate()
    engine.rewrite()
    assert engine.rewrite_step(1)
    assert engine.units() != b""


def test_settings(engine: Engine, client: Client) -> None:
    assert ask(client, "CONFIG", "GET", "append*") == [b"appendonly", b"no", b"appendfsync", b"always"]
    assert b"started without a log" in client.call("CONFIG", "SET", "appendonly", "yes")
    assert b"'always' is the only one" in client.call("CONFIG", "SET", "appendfsync", "everysec")
    assert b"must be one of" in client.call("CONFIG", "SET", "appendfsync", "never")
    assert client.call("CONFIG", "SET", "appendonly", "no", "appendfsync", "always") == b"+OK\r\n"
    assert b"there is no log" in client.call("BGREWRITEAOF")
    assert b"appendonly is disabled" in client.call("WAITAOF", 1, 0, 0)
    assert client.call("WAITAOF", 0, 0, 0) == b"*2\r\n:0\r\n:0\r\n"
    engine.propagate()
    engine.hold()
    assert ask(client, "CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"]
    assert b"has a log, and keeps it" in client.call("CONFIG", "SET", "appendonly", "no")
    assert client.call("WAITAOF", 1, 0, 0) == b"*2\r\n:1\r\n:0\r\n"
    assert client.call("BGREWRITEAOF") == b"+Background append only file rewriting started\r\n"
    assert b"already in progress" in client.call("BGREWRITEAOF")
    info = client.call("INFO", "persistence")
    assert b"aof_enabled:1" in info
    assert b"aof_rewrite_scheduled:1" in info

"""Replies in front of replicas: each waits for a number, also those that tell of no unit; and engines that refer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corelane.apps.resp import Engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(4 << 20, manual_ms=1_000_000, seed=1) as made:
        made.propagate()
        made.confirm()
        yield made


def test_a_read_has_a_number_of_its_own_and_no_bytes(engine: Engine) -> None:
    client = engine.client()
    assert client.call("GET", "a") == b""
    units, first = engine.take()
    assert (units, first) == (b"", 1)
    client.feed(b"GET a\r\n")
    assert engine.take() == (b"", 2), "it came when the first number was taken, and may be of a later state"
    engine.durable(1)
    assert client.take() == b"$-1\r\n"
    engine.durable(2)
    assert client.take() == b"$-1\r\n"


def test_reads_until_the_number_is_taken_share_it(engine: Engine) -> None:
    a, b = engine.client(), engine.client()
    a.feed(b"GET a\r\n")
    b.feed(b"GET a\r\n")
    assert engine.take() == (b"", 1)
    engine.durable(1)
    assert a.take() == b.take() == b"$-1\r\n"


def test_a_read_behind_a_write_waits_for_its_unit(engine: Engine) -> None:
    a, b = engine.client(), engine.client()
    a.feed(b"SET a 1\r\n")
    b.feed(b"GET a\r\n")
    units, unit = engine.take()
    assert b"SET" in units
    assert unit == 1
    engine.durable(0)
    assert a.take() == b.take() == b""
    engine.durable(1)
    assert a.take() == b"+OK\r\n"
    assert b.take() == b"$1\r\n1\r\n"


def test_messages_and_what_ends_by_time_wait_too(engine: Engine) -> None:
    a, b = engine.client(), engine.client()
    a.feed(b"SUBSCRIBE c\r\n")
    engine.durable(engine.take()[1])
    a.take()
    b.feed(b"PUBLISH c text\r\n")
    _, unit = engine.take()
    assert a.take() == b.take() == b""
    engine.durable(unit)
    assert b"text" in a.take()
    assert b.take() == b":1\r\n"
    b.feed(b"BLPOP l 1\r\n")
    assert engine.take()[1] == unit, "nobody was answered"
    engine.move(2000)
    engine.tick()
    _, later = engine.take()
    assert later > unit
    assert b.take() == b""
    engine.durable(later)
    assert b.take() == b"*-1\r\n"


def test_an_engine_that_refers_to_another(engine: Engine) -> None:
    with Engine(4 << 20) as other:
        client = other.client()
        other.elsewhere("MOVED 0 10.0.0.1:6379", "10.0.0.1", 6379)
        for line in ("GET a", "SET a 1", "SUBSCRIBE c", "PUBLISH c m", "DBSIZE", "WAIT 0 0"):
            assert client.call(*line.split()) == b"-MOVED 0 10.0.0.1:6379\r\n", line
        assert client.call("PING") == b"+PONG\r\n"
        assert client.call("SELECT", 1) == b"+OK\r\n"
        assert b"master_host:10.0.0.1\r\nmaster_port:6379\r\n" in client.call("INFO", "replication")
        assert client.call("ROLE") == b"*5\r\n$5\r\nslave\r\n$8\r\n10.0.0.1\r\n:6379\r\n$9\r\nconnected\r\n:0\r\n"
        other.elsewhere("")
        assert client.call("GET", "a") == b"$-1\r\n"


def test_there_is_no_log_of_its_own(engine: Engine) -> None:
    client = engine.client()

    def told(*words: str | int) -> bytes:
        client.call(*words)
        engine.durable(engine.take()[1])
        return client.take()

    assert b"aof_enabled:0" in told("INFO", "persistence")
    assert told("CONFIG", "GET", "appendonly") == b"*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"
    assert told("BGREWRITEAOF").startswith(b"-ERR the group's log")
    assert told("DEBUG", "SLEEP", 1).startswith(b"-ERR DEBUG SLEEP would stop a node")

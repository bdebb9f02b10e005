"""What an engine holds, as Python has it: to compare two of them, whatever the order of their tables."""

from __future__ import annotations

from typing import Any

from respwire import Reply, parse

from corelane.apps.resp import Client, Engine

DATABASES = 16


def plain(reply: Reply) -> Any:
    """A reply as lists and bytes."""
    return [plain(part) for part in reply.value] if isinstance(reply.value, list) else reply.value


def ask(client: Client, *words: bytes | str | int | float) -> Any:
    """A command's reply as lists, bytes and integers."""
    one = parse(client.call(*words))
    assert one is not None, words
    return plain(one[0])


def value(client: Client, key: bytes) -> tuple[Any, ...]:
    """Type, time of expiry and value of a key."""
    kind = ask(client, "TYPE", key)
    when = ask(client, "PEXPIRETIME", key)
    if kind == b"string":
        return kind, when, ask(client, "GET", key)
    if kind == b"list":
        return kind, when, ask(client, "LRANGE", key, 0, -1)
    if kind == b"set":
        return kind, when, sorted(ask(client, "SMEMBERS", key))
    if kind == b"zset":
        return kind, when, ask(client, "ZRANGE", key, 0, -1, "WITHSCORES")
    if kind == b"hash":
        flat = ask(client, "HGETALL", key)
        return kind, when, sorted(zip(flat[::2], flat[1::2], strict=True))
    return kind, when, ask(client, "XRANGE", key, "-", "+"), ask(client, "XINFO", "STREAM", key)


def state(engine: Engine) -> dict[tuple[int, bytes], tuple[Any, ...]]:
    """All keys of all databases. Keys whose time is over are removed by the looking."""
    client = engine.client()
    out = {}
    for db in range(DATABASES):
        client.call("SELECT", db)
        for key in ask(client, "KEYS", "*"):
            out[db, key] = value(client, key)
    client.close()
    return out

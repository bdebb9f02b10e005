"""Hashes, lists and sets: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections.abc import Callable

from respdraw import Draw

Generated = Callable[..., None]


def hashes(d: Draw) -> list[object]:
    k, f = d.key(), d.one("f1", "f2", "f3", "field-4", "")
    pairs = [w for _ in range(d.rng.randint(1, 3)) for w in (d.one("f1", "f2", "f3", 5), d.value())]
    return list(
        d.one(
            ["HSET", k, *pairs, *d.maybe("odd", chance=0.1)],
            ["HMSET", k, *pairs],
            ["HSETNX", k, f, d.value()],
            ["HGET", k, f],
            ["HMGET", k, *d.some(lambda: d.one("f1", "f2", "nope"))],
            ["HDEL", k, f, "f1"],
            ["HEXISTS", k, f],
            ["HLEN", k],
            ["HSTRLEN", k, f],
            ["HGETALL", k],
            ["HKEYS", k],
            ["HVALS", k],
            ["HINCRBY", k, f, d.number()],
            ["HINCRBYFLOAT", k, f, d.one("0.1", "-2.5", "x", "inf", "1e10", "nan", 3)],
            ["HRANDFIELD", k, 100, *d.maybe("WITHVALUES")],
            ["HRANDFIELD", k, d.one(0, "x", 5), *d.maybe("WITHVALUES"), "x"],
            ["HRANDFIELD", "nothing", *d.maybe(-5)],
            ["HSCAN", k, d.one("x", 0), "COUNT", d.one("x", 0)],
            ["HSCAN", "nothing", 0],
            ["SET", "k3", "string"],
            ["DEL", k],
        )
    )


def lists(d: Draw) -> list[object]:
    k, side = d.key(), d.one("LEFT", "RIGHT", "right", "x")
    return list(
        d.one(
            [d.one("LPUSH", "RPUSH", "RPUSH", "LPUSHX", "RPUSHX"), k, *d.some(d.value)],
            [d.one("LPUSH", "RPUSH"), k, *d.some(d.value, 40)],
            [d.one("LPOP", "RPOP"), k, *d.maybe(d.one(0, 1, 3, 100, -1, "x"))],
            ["LLEN", k],
            ["LINDEX", k, d.number()],
            ["LRANGE", k, d.index(), d.index()],
            ["LRANGE", k, 0, -1],
            ["LSET", k, d.index(), d.value()],
            ["LREM", k, d.one(0, 1, -1, 2, -2, "x"), d.value()],
            ["LTRIM", k, d.one(0, 0, 1, -30, -2), d.one(-1, -1, 20, -2, 3)],
            ["LINSERT", k, d.one("BEFORE", "AFTER", "x"), d.value(), d.value()],
            ["LPOS", k, d.value(), *d.maybe("RANK", d.one(1, -1, 2, 0, "x")), *d.maybe("COUNT", d.one(0, 2, -1, "x"))],
            ["LPOS", k, d.value(), "MAXLEN", d.one(0, 3, -1), *d.maybe("RANK", -1), *d.maybe("x", chance=0.1)],
            ["LMOVE", k, d.key(), side, d.one("LEFT", "RIGHT")],
            ["RPOPLPUSH", k, d.key()],
            ["LMPOP", d.one(1, 2, 0, "x", 100), k, d.one(d.key(), side), side, *d.maybe("COUNT", d.one(1, 5, 0, "x"))],
            ["SET", "k3", "string"],
            ["DEL", k],
        )
    )


def sets(d: Draw) -> list[object]:
    k, algebra = d.key(), d.one("SINTER", "SUNION", "SDIFF")
    return list(
        d.one(
            ["SADD", k, *d.some(d.value, 6)],
            ["SADD", k, *d.some(lambda: d.rng.randint(0, 20), 6)],
            ["SREM", k, *d.some(d.value)],
            ["SMOVE", k, d.key(), d.value()],
            ["SISMEMBER", k, d.value()],
            ["SMISMEMBER", k, *d.some(d.value)],
            ["SCARD", k],
            ["SMEMBERS", k],
            [algebra, *d.some(d.key)],
            [f"{algebra}STORE", d.key(), *d.some(d.key)],
            ["SINTERCARD", d.one(1, 2, 0, "x", 9), k, d.key(), *d.maybe("LIMIT", d.one(0, 1, -1, "x"))],
            ["SINTERCARD", 2, k, d.key()],
            ["SPOP", k, d.one(0, 1000, -1, "x")],
            ["SPOP", "nothing"],
            ["SRANDMEMBER", k, 1000],
            ["SRANDMEMBER", "nothing", *d.maybe(-3)],
            ["SRANDMEMBER", k, "x"],
            ["SSCAN", k, "x"],
            ["SSCAN", "nothing", 0],
            ["SET", "k3", "string"],
            ["DEL", k],
        )
    )


def test_hashes(generated: Generated) -> None:
    generated(hashes)


def test_lists(generated: Generated) -> None:
    generated(lists)


def test_sets(generated: Generated) -> None:
    generated(sets)


def sorting(d: Draw) -> list[object]:
    k = d.one("l", "s", "z", "nothing")
    how = [*d.maybe(d.one("ASC", "DESC")), *d.maybe("LIMIT", d.one(0, 1, -1, 5), d.one(1, 3, -1, 0, "x"))]
    by = d.maybe("BY", d.one("w_*", "h_*->f", "nosort"))
    get = d.maybe("GET", d.one("#", "w_*", "h_*->f", "x"), *d.maybe("GET", "#"))
    return list(
        d.one(
            ["RPUSH", "l", *d.some(lambda: d.rng.randint(0, 30))],
            ["SADD", "s", *d.some(lambda: d.rng.randint(0, 30))],
            ["ZADD", "z", d.rng.randint(0, 9), d.rng.randint(0, 30)],
            ["SET", f"w_{d.rng.randint(0, 30)}", d.rng.randint(-50, 50)],
            ["HSET", f"h_{d.rng.randint(0, 30)}", "f", d.rng.randint(-50, 50)],
            ["SORT", d.one("l", "z", "nothing"), *by, *how, *get],
            ["SORT", k, *how, *get, *d.maybe("STORE", "out")],
            ["SORT", k, "ALPHA", *how],
            ["SORT_RO", k, *how, *d.maybe("STORE", "out")],
            ["RPUSH", "l", d.one("x", "1.5", "2")],
            ["LRANGE", "out", 0, -1],
            ["SET", "string", 1],
            ["SORT", "string"],
            ["DEL", k],
        )
    )


def test_sorting(generated: Generated) -> None:
    generated(sorting)

"""Strings, counters, expiry, bits and keys: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections.abc import Callable

from respdraw import Draw

Generated = Callable[..., None]
FAR = [4102444800, 4102444801, 4200000000]
"""Times of the next century, in seconds."""


def strings(d: Draw) -> list[object]:
    k, v = d.key(), d.value()
    return list(
        d.one(
            ["SET", k, v, *d.maybe(d.one("NX", "XX")), *d.maybe("GET"), *d.maybe("EX", d.one(1000, 0, -1, "x"))],
            ["SET", k, v, *d.maybe("KEEPTTL"), *d.maybe("PXAT", d.one(*FAR) * 1000)],
            ["SET", k, v, *d.maybe("EXAT", d.one(*FAR)), *d.maybe(d.one("nx", "xx", "ex", "foo"), chance=0.1)],
            ["GET", k],
            ["GETSET", k, v],
            ["GETDEL", k],
            ["GETEX", k, *d.maybe(d.one("PERSIST", "EX", "x")), *d.maybe(d.one(100, "EXAT"))],
            ["GETEX", k, "PXAT", d.one(*FAR) * 1000],
            ["SETNX", k, v],
            ["SETEX", k, d.one(1000, 0, -5, "x", "9223372036854775807"), v],
            ["PSETEX", k, d.one(1000000, 0, -5, "x"), v],
            ["APPEND", k, v],
            ["STRLEN", k],
            ["GETRANGE", k, d.index(), d.index()],
            ["SUBSTR", k, d.number(), d.number()],
            ["SETRANGE", k, d.one(0, 1, 5, 30, -1, "x", 4294967296), v],
            [
                "MSET",
                *[w for _ in range(d.rng.randint(1, 3)) for w in (d.key(), d.value())],
                *d.maybe("odd", chance=0.1),
            ],
            ["MSETNX", d.key(), d.value(), d.key(), d.value()],
            ["MGET", *d.some(d.key)],
            ["LCS", k, d.key(), *d.maybe(d.one("LEN", "IDX", "x")), *d.maybe("MINMATCHLEN", d.one(1, 2, "x"))],
            ["LCS", k, d.key(), "IDX", *d.maybe("WITHMATCHLEN")],
            ["DEL", k],
        )
    )


def counters(d: Draw) -> list[object]:
    k = d.key()
    return list(
        d.one(
            ["SET", k, d.one(0, -5, "9223372036854775800", "-9223372036854775808", "abc", "1.5", " 1", "1e3", "007")],
            ["INCR", k],
            ["DECR", k],
            ["INCRBY", k, d.number()],
            ["DECRBY", k, d.one(1, -3, "-9223372036854775808", "x")],
            ["INCRBYFLOAT", k, d.one("0.1", "-2.5", "1e10", "inf", "nan", "x", "3", "1e-5", "-0.0", "0x10", "1e400")],
            ["GET", k],
            ["DEL", k],
            ["LPUSH", "k3", "list"],
        )
    )


def keys(d: Draw) -> list[object]:
    k, other = d.key(), d.key()
    return list(
        d.one(
            ["SET", k, d.value()],
            ["RPUSH", k, d.value()],
            ["SADD", k, "m"],
            ["HSET", k, "f", "v"],
            ["ZADD", k, 1, "m"],
            ["XADD", k, "1-1", "f", "v"],
            ["DEL", k, other],
            ["UNLINK", k],
            ["EXISTS", k, other, k],
            ["TYPE", k],
            ["TOUCH", k, other],
            [
                "EXPIRE",
                k,
                d.one(1000, 2000, 0, -1, "x", "9223372036854775807"),
                *d.maybe(d.one("NX", "XX", "GT", "LT", "no")),
            ],
            ["EXPIREAT", k, d.one(*FAR), *d.maybe(d.one("NX", "XX", "GT", "LT")), *d.maybe("NX", chance=0.1)],
            ["PEXPIREAT", k, d.one(*FAR) * 1000],
            ["PEXPIRE", k, d.one(1000000, 0, -1, "x")],
            ["EXPIRETIME", "nothing"],
            ["TTL", k],
            ["PTTL", k],
            ["PERSIST", k],
            ["RENAME", k, other],
            ["RENAMENX", k, other],
            ["COPY", k, other, *d.maybe("REPLACE"), *d.maybe("DB", d.one(0, 1, 15, 16, "x"))],
            ["MOVE", k, d.one(0, 1, 2, 16, -1, "x")],
            ["SELECT", d.one(0, 0, 0, 1, 16, -1, "x")],
            ["SWAPDB", d.one(0, 1, 16, "x"), d.one(0, 1, "y")],
            ["KEYS", d.one("*", "k*", "k[12]", "k?", "[^k]*", "\\k1", "k[a-", "*-4")],
            ["DBSIZE"],
            ["OBJECT", "REFCOUNT", "nothing"],
            ["OBJECT", d.one("ENCODING", "IDLETIME", "FREQ"), "nothing"],
            ["SCAN", "x", *d.maybe("COUNT", 10)],
            ["SCAN", 0, "COUNT", d.one(0, "x")],
            ["FLUSHDB", *d.maybe(d.one("ASYNC", "SYNC", "x"))],
            ["GET", k],
        )
    )


def bits(d: Draw) -> list[object]:
    k, at = d.key(), d.one(0, 1, 7, 8, 9, 100, -1, "x", "#1", 4294967296)
    kind = d.one("u8", "i8", "u1", "i64", "u63", "u64", "i65", "x8", "i5")
    return list(
        d.one(
            ["SET", k, d.value()],
            ["SETBIT", k, at, d.one(0, 1, 1, 2, "x")],
            ["GETBIT", k, at],
            ["BITCOUNT", k],
            ["BITCOUNT", k, d.index(), d.index(), *d.maybe(d.one("BIT", "BYTE", "x"))],
            ["BITCOUNT", k, 1],
            ["BITPOS", k, d.one(0, 1, 2, "x")],
            ["BITPOS", k, d.one(0, 1), d.index(), *d.maybe(d.index(), d.one("BIT", "BYTE", "x"))],
            ["BITPOS", k, d.one(0, 1), d.index(), d.index()],
            ["BITOP", d.one("AND", "OR", "XOR", "NOT", "no"), d.key(), *d.some(d.key)],
            ["BITFIELD", k, "GET", kind, d.one(0, 3, "#2", "x", -1)],
            ["BITFIELD", k, "SET", kind, d.one(0, 3, "#2"), d.one(1, -1, 255, 1000, "x", "9223372036854775807")],
            [
                "BITFIELD",
                k,
                *d.maybe("OVERFLOW", d.one("WRAP", "SAT", "FAIL", "x")),
                "INCRBY",
                kind,
                3,
                d.one(1, -1, 200),
            ],
            ["BITFIELD", k, "GET", "u8", 0, "OVERFLOW", "SAT", "INCRBY", "i8", 0, 100, "SET", "u4", "#1", 9],
            ["BITFIELD_RO", k, d.one("GET", "SET"), "u8", 0, *d.maybe(1)],
            ["GET", k],
            ["DEL", k],
            ["LPUSH", "k3", "list"],
        )
    )


def test_strings(generated: Generated) -> None:
    generated(strings)


def test_counters(generated: Generated) -> None:
    generated(counters)


def test_keys(generated: Generated) -> None:
    generated(keys)


def test_bits(generated: Generated) -> None:
    generated(bits)

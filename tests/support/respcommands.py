"""Commands of each kind, drawn from a seed: right ones, wrong ones, of few keys and values, so that they meet."""

from __future__ import annotations

from collections.abc import Callable

from respdraw import Draw

FAR = [4102444800, 4102444801, 4200000000]
"""Times of the next century, in seconds."""
MEMBERS = ["a", "b", "c", "d", "abc", "", "10", "zz"]
SCORES: list[object] = [0, 1, 2, 3, -1, "1.5", "inf", "-inf", "0.1", "1e300"]


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
    any_width = f"{d.one('i', 'u')}{d.rng.randint(1, 63)}"
    kind = d.one("u8", "i8", "u1", "i64", "u63", "u64", "i65", "x8", any_width)
    far = d.rng.randint(-(2 ** d.rng.randint(1, 63)), 2 ** d.rng.randint(1, 63) - 1)
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
            ["BITFIELD", k, "SET", kind, d.rng.randint(0, 90), far, "GET", kind, d.rng.randint(0, 90)],
            ["BITFIELD", k, "OVERFLOW", d.one("WRAP", "SAT", "FAIL"), "INCRBY", kind, d.rng.randint(0, 90), far],
            ["BITFIELD_RO", k, d.one("GET", "SET"), "u8", 0, *d.maybe(1)],
            ["GET", k],
            ["DEL", k],
            ["LPUSH", "k3", "list"],
        )
    )


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


def bound(d: Draw) -> str:
    return f"{d.one('', '', '(')}{d.one(*SCORES)}"


def scored(d: Draw) -> list[object]:
    k, member, score = d.key(), d.one(*MEMBERS), d.one(*SCORES, "x", "nan")
    pairs = [w for _ in range(d.rng.randint(1, 4)) for w in (d.one(*SCORES), d.one(*MEMBERS))]
    limit = d.maybe("LIMIT", d.one(0, 1, -1, 5), d.one(-1, 0, 1, 3, "x"))
    with_scores = d.maybe("WITHSCORES")
    several = [d.one(1, 2, 2), d.key(), d.key()][: 3 if d.rng.random() < 0.9 else 2]
    how = [
        *d.maybe("WEIGHTS", d.one(1, 2, "x"), d.one(2, "inf")),
        *d.maybe("AGGREGATE", d.one("SUM", "MIN", "MAX", "x")),
    ]
    return list(
        d.one(
            ["ZADD", k, *pairs],
            ["ZADD", k, *d.maybe(d.one("NX", "XX")), *d.maybe(d.one("GT", "LT")), *d.maybe("CH"), *pairs],
            ["ZADD", k, *d.maybe("INCR"), *d.maybe(d.one("NX", "XX", "GT")), score, member],
            ["ZADD", k, *pairs, *d.maybe("odd")],
            ["ZINCRBY", k, score, member],
            ["ZREM", k, *d.some(lambda: d.one(*MEMBERS))],
            ["ZSCORE", k, member],
            ["ZMSCORE", k, *d.some(lambda: d.one(*MEMBERS))],
            ["ZCARD", k],
            [d.one("ZRANK", "ZREVRANK"), k, member],
            ["ZCOUNT", k, bound(d), bound(d)],
            ["ZCOUNT", k, d.one("x", "-inf"), "+inf"],
            ["ZRANGE", k, d.index(), d.index(), *d.maybe("REV"), *with_scores, *d.maybe("LIMIT", 0, 1, chance=0.1)],
            ["ZRANGE", k, bound(d), bound(d), "BYSCORE", *d.maybe("REV"), *limit, *with_scores],
            ["ZREVRANGE", k, d.index(), d.index(), *with_scores],
            [d.one("ZRANGEBYSCORE", "ZREVRANGEBYSCORE"), k, bound(d), bound(d), *with_scores, *limit],
            ["ZRANGE", k, 0, -1, "WITHSCORES"],
            ["ZRANGESTORE", d.key(), k, bound(d), bound(d), "BYSCORE", *d.maybe("REV"), *limit],
            ["ZRANGESTORE", d.key(), k, d.index(), d.index(), *d.maybe("REV"), *d.maybe("WITHSCORES", chance=0.1)],
            ["ZREMRANGEBYSCORE", k, bound(d), bound(d)],
            ["ZREMRANGEBYRANK", k, d.index(), d.one(0, 1, -3)],
            [d.one("ZPOPMIN", "ZPOPMAX"), k, *d.maybe(d.one(0, 1, 2, 100, -1, "x"))],
            [
                "ZMPOP",
                d.one(1, 2, 0, "x"),
                k,
                d.one(d.key(), "MIN"),
                d.one("MIN", "MAX"),
                *d.maybe("COUNT", d.one(1, 2, 0)),
            ],
            [d.one("ZUNION", "ZINTER"), *several, *how, *with_scores],
            [d.one("ZUNIONSTORE", "ZINTERSTORE"), d.key(), *several, *how],
            ["ZDIFF", *several, *with_scores],
            ["ZDIFFSTORE", d.key(), *several],
            ["ZINTERCARD", *several, *d.maybe("LIMIT", d.one(0, 1, -1, "x"))],
            ["ZRANDMEMBER", k, 100, *with_scores],
            ["ZRANDMEMBER", k, d.one(0, "x")],
            ["ZSCAN", k, "x"],
            ["SADD", "key-4", *d.some(lambda: d.one(*MEMBERS))],
            ["SET", "k3", "string"],
            ["DEL", k],
            ["DEL", k],
        )
    )


def by_name(d: Draw) -> list[object]:
    """Of members that all have one score, as the commands by name want it."""
    k = d.one("k1", "k2")

    def end() -> object:
        return d.one("-", "+", "[a", "(a", "[c", "(c", "[zz", "(", "[", "x", "")

    limit = d.maybe("LIMIT", d.one(0, 1, 2), d.one(-1, 0, 2))
    return list(
        d.one(
            ["ZADD", k, *[w for m in d.some(lambda: d.one(*MEMBERS)) for w in (0, m)]],
            ["ZLEXCOUNT", k, end(), end()],
            [d.one("ZRANGEBYLEX", "ZREVRANGEBYLEX"), k, end(), end(), *limit],
            ["ZRANGE", k, end(), end(), "BYLEX", *d.maybe("REV"), *limit, *d.maybe("WITHSCORES", chance=0.1)],
            ["ZRANGESTORE", "k3", k, end(), end(), "BYLEX", *d.maybe("REV")],
            ["ZREMRANGEBYLEX", k, end(), end()],
            ["ZREM", k, d.one(*MEMBERS)],
        )
    )


def streams(d: Draw) -> list[object]:
    k = d.key()
    grows = [f"{d.rng.randint(1, 400)}-{d.one('*', 0, 1, 5)}", f"{d.rng.randint(1, 400)}", "0-0", "x", "5-x", "1-1-1"]
    ident = d.one(*grows)
    trim = [d.one("MAXLEN", "MINID"), *d.maybe("="), d.one(0, 3, 10, "50-0", -1, "x")]
    if d.rng.random() < 0.2:  # what another approximate trim leaves depends on how nodes are filled
        trim = ["MAXLEN", "~", 0]
    fields = [w for _ in range(d.rng.randint(1, 2)) for w in (d.one("f", "g"), d.value())]

    def end() -> object:
        return d.one(
            "-", "+", "5", "(5", "50-1", "(50-1", "x", "(-", "100-0", "18446744073709551615-18446744073709551615"
        )

    return list(
        d.one(
            ["XADD", k, ident, *fields],
            ["XADD", k, ident, *fields],
            ["XADD", k, f"{d.rng.randint(100, 5000)}-*", *fields],
            ["XADD", k, *d.maybe("NOMKSTREAM"), *d.maybe(*trim), ident, *fields, *d.maybe("odd", chance=0.1)],
            ["XADD", k, "MAXLEN", "~", 5, "LIMIT", d.one(0, 10, -1, "x"), ident, *fields],
            ["XADD", k, "LIMIT", 5, ident, *fields],
            ["XLEN", k],
            ["XRANGE", k, end(), end(), *d.maybe("COUNT", d.one(0, 1, 2, -1, "x"))],
            ["XREVRANGE", k, end(), end(), *d.maybe("COUNT", d.one(1, 2))],
            ["XRANGE", k, "-", "+"],
            ["XTRIM", k, *trim],
            ["XTRIM", k, *trim, "LIMIT", d.one(1, "x")],
            ["XDEL", k, *d.some(lambda: d.one("1-1", "50-0", "100-5", f"{d.rng.randint(1, 400)}-1", "x"))],
            [
                "XREAD",
                *d.maybe("COUNT", d.one(1, 2, 0, "x")),
                "STREAMS",
                k,
                d.key(),
                d.one("0", "50-0", "$", "x", ">"),
                "0-0",
            ],
            ["XREAD", "STREAMS", k, d.one("0", "$"), *d.maybe("odd", chance=0.2)],
            ["XINFO", "STREAM", k, *d.maybe("FULL", *d.maybe(d.one("COUNT", "x"), d.one(0, 1, -1, "x"), chance=0.5))],
            ["XREAD", d.one("STREAMS", "COUNT", "x"), k],
            [
                "XSETID",
                k,
                d.one("0-0", "1000-0", "6000-1", "x"),
                *d.maybe("ENTRIESADDED", d.one(100, -1), "MAXDELETEDID", "2-0"),
            ],
            ["SET", "k3", "string"],
            ["DEL", k],
        )
    )


def moments(d: Draw) -> list[object]:
    """What depends on the clock, on chance, on order or on a setting: replies differ between servers."""
    k, soon = d.key(), d.one(1, 2, 3)
    return list(
        d.one(
            ["SET", k, d.value(), "EX", soon],
            ["SET", k, d.value(), "PX", d.one(1, 500, 2500), *d.maybe("GET")],
            ["SET", k, d.value(), *d.maybe(d.one("NX", "XX")), *d.maybe("EX", soon)],
            ["SETEX", k, soon, d.value()],
            ["PSETEX", k, d.one(1, 700), d.value()],
            ["GETEX", k, d.one("EX", "PX"), d.one(1, 2, 1000)],
            ["GETEX", k, d.one("EXAT", "PXAT"), 1],
            ["GETEX", k, "PERSIST"],
            [d.one("EXPIRE", "PEXPIRE"), k, d.one(1, 2, 0, -5, 900), *d.maybe(d.one("NX", "XX", "GT", "LT"))],
            ["EXPIREAT", k, 1],
            ["INCRBYFLOAT", k, d.one("0.1", "3", "1e3")],
            ["SADD", "s", *d.some(lambda: d.rng.randint(0, 40), 9)],
            ["SADD", "s", *d.some(lambda: d.rng.randint(0, 40), 9)],
            ["SPOP", d.one(k, "s"), *d.maybe(d.one(1, 2, 3, 100))],
            ["SPOP", "s", 2],
            ["SORT", "s", "BY", "nosort", "STORE", d.key()],
            ["SORT", d.one(k, "s"), "ALPHA", *d.maybe("GET", "k*"), "STORE", d.key()],
            ["XADD", d.one(k, "x"), "*", "f", d.value()],
            ["XADD", d.one(k, "x"), "NOMKSTREAM", "MAXLEN", "~", 100, "*", "f", "v"],
            ["XADD", "x", "MAXLEN", "~", 4, "*", "f", "v"],
            ["XTRIM", d.one(k, "x"), "MAXLEN", "~", d.one(0, 3)],
            ["CONFIG", "SET", "stream-node-max-entries", d.one(0, 1, 3, 100)],
            ["HINCRBYFLOAT", k, "f1", d.one("0.1", "7")],
            ["SCAN", 0, "COUNT", 100],
            ["RANDOMKEY"],
            ["SMOVE", k, d.key(), d.rng.randint(0, 40)],
        )
    )


Maker = Callable[[Draw], list[object]]
ALL: list[Maker] = [strings, counters, keys, bits, hashes, lists, sets, sorting, scored, by_name, streams, moments]
"""Makers of commands of every kind."""

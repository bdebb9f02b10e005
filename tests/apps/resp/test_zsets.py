"""Sorted sets: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections.abc import Callable

from respdraw import Draw

Generated = Callable[..., None]
MEMBERS = ["a", "b", "c", "d", "abc", "", "10", "zz"]
SCORES: list[object] = [0, 1, 2, 3, -1, "1.5", "inf", "-inf", "0.1", "1e300"]


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


def test_scored(generated: Generated) -> None:
    generated(scored)


def test_by_name(generated: Generated) -> None:
    generated(by_name)


def test_many_members(agree: Callable[..., None]) -> None:
    """Thousands of members: ranks and spans of a tall skip list."""
    d = Draw(7)
    commands: list[list[object]] = []
    for i in range(3000):
        commands.append(["ZADD", "z", d.rng.randint(0, 500), f"m{d.rng.randint(0, 1500)}"])
        if i % 3 == 0:
            commands.append(["ZREM", "z", f"m{d.rng.randint(0, 1500)}"])
        if i % 5 == 0:
            commands.append(["ZRANK", "z", f"m{d.rng.randint(0, 1500)}"])
            commands.append(["ZRANGE", "z", d.rng.randint(0, 900), d.rng.randint(0, 900) + 3])
            commands.append(["ZRANGEBYSCORE", "z", d.rng.randint(0, 250), 300, "WITHSCORES", "LIMIT", 40, 5])
    agree([*commands, ["ZREMRANGEBYRANK", "z", 10, -10], ["ZRANGE", "z", 0, -1, "WITHSCORES"]])

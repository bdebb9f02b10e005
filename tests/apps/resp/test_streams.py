"""Streams: generated commands, here and in stock redis-server."""

from __future__ import annotations

from collections.abc import Callable

from respdraw import Draw

Generated = Callable[..., None]


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


def test_streams(generated: Generated) -> None:
    generated(streams)

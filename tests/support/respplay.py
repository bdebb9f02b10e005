"""Generated commands of some clients on an engine: transactions, commands that wait, and a clock that goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator

from respcommands import ALL, Maker, moments
from respdraw import Draw
from respwire import Word

from corelane.apps.resp import Engine
from corelane.apps.resp.engine import encode


def make(draw: Draw, makers: list[Maker]) -> list[Word]:
    words = draw.rng.choice(makers)(draw)
    return [w if isinstance(w, bytes) else str(w) for w in words]


WAITS: list[list[Word]] = [
    ["BLPOP", "k1", "k2", 0],
    ["BRPOP", "k3", 0],
    ["BLMOVE", "k1", "k2", "LEFT", "RIGHT", 0],
    ["BRPOPLPUSH", "k2", "key-4", 0],
    ["BLMPOP", 0, 2, "k1", "k3", "RIGHT", "COUNT", 3],
    ["BZPOPMIN", "k1", "k2", 0],
    ["BZPOPMAX", "key-4", 0],
    ["BZMPOP", 0, 2, "k2", "k3", "MAX", "COUNT", 2],
    ["XREAD", "BLOCK", 0, "STREAMS", "k1", "$"],
]


def play(engine: Engine, seed: int, count: int) -> Iterator[int]:
    """Generated commands of three clients, some in transactions, some that wait; the clock goes on. Yields how many.

    Of few kinds at a time, so that keys of one type last for a while.
    """
    draw, rng = Draw(seed), random.Random(seed)
    clients = [engine.client() for _ in range(3)]
    for done in range(1, count + 1):
        if done % 150 == 1:
            makers = [rng.choice(ALL), moments]
        client = rng.choice(clients)
        chance = rng.random()
        if chance < 0.03:
            client.feed(encode("MULTI") + b"".join(encode(*make(draw, makers)) for _ in range(4)) + encode("EXEC"))
        elif chance < 0.06:
            client.feed(encode(*rng.choice(WAITS)))
        elif chance < 0.16:
            engine.move(rng.choice([1, 100, 900, 2500]))
            engine.tick()
        else:
            client.feed(encode(*make(draw, makers)))
        client.take()
        yield done

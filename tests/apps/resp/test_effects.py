"""What commands have done, beside what they answer: here and in stock redis-server, of the same generated commands.

That is: whether a watched key counts as changed, how much rdb_changes_since_last_save grows, and the events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest
from cltest import soak
from respcommands import ALL, Maker, moments
from respdraw import Draw
from resporacle import Command, Oracle, same
from respwire import Reply, replies

from corelane.apps.resp import Engine

COUNT = 250
Answer = tuple[Reply, bytes]
LISTEN = [("CONFIG", "SET", "notify-keyspace-events", "KEAn"), ("PSUBSCRIBE", "__key*", "fence")]


def groups(make: Maker, draw: Draw) -> list[list[Command]]:
    """Each a command, and around it what shows its effects."""
    return [
        [
            ("WATCH", draw.key()),
            [w if isinstance(w, bytes) else str(w) for w in make(draw)],
            ("MULTI",),
            ("EXEC",),
            ("INFO", "persistence"),
            ("PUBLISH", "fence", i),
        ]
        for i in range(COUNT)
    ]


def changes(info: Answer) -> int:
    found = re.search(rb"rdb_changes_since_last_save:(\d+)", info[1])
    assert found, info
    return int(found[1])


def effects(of: Sequence[Sequence[Command]], answers: list[Answer], told: Iterator[Answer]) -> list[object]:
    """Of each group: what its command answers, whether EXEC ran, by how much it was changed, and the events."""
    out: list[object] = []
    before = None
    for i, _ in enumerate(of):
        _, answer, _, ran, info, _ = answers[6 * i : 6 * i + 6]
        events = []
        while (message := next(told)[0].value)[2].value != b"fence":
            events.append((message[2].value, message[3].value))
        out.append((answer, ran[1], changes(info) - (changes(info) if before is None else before), events))
        before = changes(info)
    return out


@pytest.mark.parametrize("make", [make for make in ALL if make is not moments], ids=lambda make: make.__name__)
def test_effects(oracle: Oracle, make: Maker) -> None:
    for seed in range(soak.examples(1, 200)):
        oracle.forget()
        script = groups(make, Draw(seed))
        commands = [c for group in script for c in group]
        link, listener = oracle.link(), oracle.link()
        with Engine(64 << 20, seed=1) as engine:
            client, subscriber = engine.client(), engine.client()
            ours, told = b"", b""
            subscriber.call(*LISTEN[1])
            client.call(*LISTEN[0])
            for command in commands:
                ours += client.call(*command)
                told += subscriber.take()
            mine = effects(script, replies(ours), iter(replies(told)))
        listener.calls(LISTEN[1:])
        listener.reply()
        link.calls(LISTEN[:1])
        theirs = link.calls(commands)
        fenced = effects(script, theirs, iter(listener.reply, None))
        for i, (a, b) in enumerate(zip(mine, fenced, strict=True)):
            command = script[i][1]
            alike = same(command, a[0], b[0]) and a[1:] == b[1:]
            assert alike, f"seed {seed}, {i}: {command!r} (watched {script[i][0][1]})\n  ours:   {a}\n  theirs: {b}"
        link.close()
        listener.close()

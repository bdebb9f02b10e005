"""Fixtures of the resp tests: an engine, stock redis-server as the oracle, and both asked the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import pytest
import resporacle
from cltest import soak, wait_until
from respdraw import Draw
from resporacle import Command, Oracle

from corelane.apps.resp import Client, Engine
from corelane.apps.resp.engine import encode

MANUAL_MS = 1_700_000_000_000


@pytest.fixture
def engine() -> Iterator[Engine]:
    """64 MiB, a manual clock, fixed secrets; its invariants are checked at the end of the test."""
    with Engine(64 << 20, manual_ms=MANUAL_MS, seed=1) as made:
        yield made
        made.check()


@pytest.fixture
def client(engine: Engine) -> Client:
    return engine.client()


@pytest.fixture(scope="session")
def server() -> Iterator[Oracle]:
    """A stock redis-server of this test session."""
    if why := resporacle.missing():
        pytest.skip(why)
    made = Oracle()
    yield made
    made.close()


@pytest.fixture
def oracle(server: Oracle) -> Oracle:
    """The same, with nothing in it."""
    server.forget()
    return server


Agree = Callable[..., None]


@pytest.fixture
def agree(oracle: Oracle) -> Agree:
    """`agree(commands, protocol)`: run them here and there, and assert that the replies are the same."""

    def check(commands: Sequence[Command], protocol: int = 2) -> None:
        link = oracle.link()
        with Engine(256 << 20, seed=1) as ours:
            client = ours.client()
            for words in (("HELLO", protocol), ("FLUSHALL",)):
                client.call(*words)
                link.call(*words)
            theirs = link.calls(commands)
            resporacle.compare(commands, b"".join(client.call(*c) for c in commands), theirs)
            ours.check()
        link.close()

    return check


Play = Callable[[Sequence[tuple[int, Command]]], None]


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def play(oracle: Oracle, request: pytest.FixtureRequest) -> Play:
    """`play([(client, command), ...])`: several clients here and there; after each command all get the same bytes."""

    def check(script: Sequence[tuple[int, Command]]) -> None:
        count = max(i for i, _ in script) + 1
        with Engine(64 << 20, seed=1) as engine:
            ours = [engine.client() for _ in range(count)]
            theirs = [oracle.link() for _ in range(count)]
            for a, b in zip(ours, theirs, strict=True):
                a.call("HELLO", request.param)
                b.call("HELLO", request.param)
            held = [b""] * count  # what a client was not ready to take
            for i, words in script:
                held[i] += encode(*words)
                theirs[i].send(encode(*words))
                for k in (i, *range(count)):
                    held[k] = held[k][ours[k].feed(held[k]) :]
                said = [c.take() for c in ours]
                blocked = len(re.findall(rb" flags=\w*b", engine.client().call("CLIENT", "LIST")))
                for k, mine in enumerate(said):
                    assert theirs[k].take(len(mine)) == mine, (words, k)
                wait_until(lambda n=blocked: oracle.blocked() == n, 60.0, f"{blocked} clients to wait")
            for k, link in enumerate(theirs):  # nothing more has come to anybody
                ours[k].feed(encode("ECHO", "the end"))
                link.send(encode("ECHO", "the end"))
                mine = ours[k].take()
                assert link.take(len(mine)) == mine, k
                link.close()

    return check


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def generated(agree: Agree, request: pytest.FixtureRequest) -> Callable[..., None]:
    """`generated(make, count)`: commands that make(Draw) gives, of some seeds, on both."""

    def check(make: Callable[[Draw], Sequence[object]], count: int = 1500) -> None:
        for seed in range(soak.examples(2, 200)):
            print(f"seed {seed}, RESP{request.param}")
            draw = Draw(seed)
            agree([[w if isinstance(w, bytes) else str(w) for w in make(draw)] for _ in range(count)], request.param)

    return check

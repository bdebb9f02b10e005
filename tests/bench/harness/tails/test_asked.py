"""An arm of servers that are asked at a rate: what a turn does."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.bench.harness.tails import Asked, asked

RATE, SLOT_S = 1000.0, 0.02


class Room:
    """Writes down what happens in a turn. It is the server, the client and its load."""

    def __init__(self) -> None:
        self.said: list[str] = []

    @contextlib.contextmanager
    def named(self, name: str) -> Iterator[Room]:
        self.said.append(f"{name} begins")
        yield self
        self.said.append(f"{name} ends")

    def measure(
        self,
        rate: float,
        seconds: float,
        meanwhile: AbstractContextManager[object] | None = None,
        accepted_s: float = 0,
    ) -> Point:
        assert (rate, seconds) == (RATE, SLOT_S)
        assert accepted_s == (0 if meanwhile else asked.TAKEN_S + 100 * asked.ACCEPT_S), "only the first one opens them"
        with meanwhile or contextlib.nullcontext():
            self.said.append("a slot")
        return Point(rate, rate, 1, 1, seconds=seconds)


def test_a_turn_has_a_client_whose_first_slot_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    room: Any = Room()
    monkeypatch.setattr(asked.rest, "demand", lambda what: room.said.append("rest"))
    monkeypatch.setattr(asked, "Load", lambda generator: generator)
    client, server = lambda: room.named("client"), lambda: room.named("server")
    one = Asked(client, RATE, SLOT_S, server, pid=os.getpid(), connections=100)
    arm = one.arm(Session("posix", seconds=20, cores=[0], progress=io.StringIO()))
    with arm.within():
        assert os.getpid() in arm.threads()
        assert set(arm.own()) == {threading.get_native_id()}, "what a slot takes to begin and to end is its own"
        arm.slot(room.named("look"))
    begins = ["rest", "server begins", "client begins", "a slot"]
    assert room.said == [*begins, "look begins", "a slot", "look ends", "client ends", "server ends"]
    assert arm.turn_s == asked.TURN_S


def test_in_a_short_run_a_turn_is_a_slot() -> None:
    one = Asked(contextlib.nullcontext, RATE, SLOT_S)
    assert one.arm(Session("posix", seconds=1, cores=[0], progress=io.StringIO())).turn_s == 0

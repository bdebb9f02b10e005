"""An arm of servers that are asked at a rate."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from .. import rest, usage
from ..load import ACCEPT_S, Load
from ..openloop import Point
from ..session import Session
from .turns import LOOKED_S, Arm
from .waits import since

TURN_S = 0.12  # in slots; in a short run a turn is one slot
# The thread of the server that takes connections may wait for the CPU of one that serves those that are taken, and what
# they ask first waits for both.
TAKEN_S = 0.02


@dataclass
class Asked:
    """A server that is asked at a rate, in slots of slot_s: in each turn by a client of its own, whose first slot warms
    both and is not counted. client: makes it. serving: around a turn, runs a server of this process. pid: of a server
    that has a process and sleeps in other turns; 0: there is none. connections: of the client, which keeps them from
    slot to slot: the first one waits until they are taken. turn_s: of a turn, in slots, in a run of LOOKED_S.

    The caller's thread begins a slot in its warm-up, sleeps, and looks when it is over. Where each CPU has a thread
    that spins it takes that from one of them, some 0.2 ms of a slot, none of which is measured: nothing is left out
    for it."""

    client: Callable[[], AbstractContextManager[Any]]
    rate: float
    slot_s: float
    serving: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    pid: int = 0
    connections: int = 0
    turn_s: float = TURN_S
    _tids: frozenset[int] = frozenset()
    _load: Load | None = None

    def arm(self, session: Session) -> Arm:
        """For `compare`."""
        turn_s = self.turn_s if session.seconds >= LOOKED_S else 0.0
        return Arm(self._slot, turn_s, self._turn, lambda: self._tids, lambda: (threading.get_native_id(),))

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        rest.demand("a server on a veth pair")
        before = usage.threads()
        with self.serving(), self.client() as generator:
            self._tids = since(before) | frozenset(usage.threads(self.pid) if self.pid else ())
            self._load = Load(generator)
            accepted_s = TAKEN_S + self.connections * ACCEPT_S if self.connections else 0.0
            self._load.measure(self.rate, self.slot_s, accepted_s=accepted_s)
            yield
        self._load = None

    def _slot(self, meanwhile: AbstractContextManager[object]) -> Point:
        assert self._load is not None
        return self._load.measure(self.rate, self.slot_s, meanwhile=meanwhile)

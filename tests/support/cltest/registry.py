"""Stands for an iokernel behind a control server (iokernel/control/registry.py), for tests of the server alone."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from corelane.iokernel._native import lib
from corelane.iokernel.control.deadlines import Answer
from corelane.iokernel.control.promises import Ask
from corelane.iokernel.control.registry import Grant
from corelane.iokernel.control.server import ControlServer
from corelane.runtime.errors import ConfigError, CorelaneError
from corelane.runtime.peers import Peer

from .control import HEADER


class FakeRegistry:
    """Refuses everybody, and has nothing to tell."""

    def register(self, hello: Any, peer: Peer) -> Grant:
        raise CorelaneError("register", "this is a test")

    def unregister(self, app: int) -> None:
        pass

    def manage(self, app: int, pid: int, tids: Sequence[int], number: int) -> None:
        pass

    def set_policy(self, spec: str, params: str) -> str:
        return f"{spec} decides with {params}"

    def end(self) -> None:
        pass

    def sweep(self) -> bool:
        return False

    def look(self) -> float:
        return math.inf

    def say_state(self, app: int, state: int, others: bool) -> tuple[int, int]:
        return 0, 0

    def promise(self, app: int, ask: Ask) -> Answer:
        return Answer(lib.CL_PROMISE_NONE)

    def named(self, name: str) -> tuple[int, ...]:
        return ()

    def stats_json(self) -> bytes:
        return b"{}"

    def trace(self, name: str, pid: int, how: int, peer: Peer) -> tuple[int, dict[str, Any], int]:
        raise CorelaneError(f"trace {name}", "this is a test")

    def moves(self, loop: int, first: int) -> bytes:
        return b""


class GrantingRegistry(FakeRegistry):
    """Stands for an iokernel that manages cores: everybody attaches as application 7.

    refusal: what `manage` raises. A policy called "slow" sets `loading` and waits for `loaded`.
    """

    def __init__(self) -> None:
        self.managed: list[tuple[int, int, list[int], int]] = []
        self.left: list[int] = []
        self.ended_before = False  # anybody had left
        self.refusal: CorelaneError | None = None
        self.loading, self.loaded = threading.Event(), threading.Event()

    def register(self, hello: Any, peer: Peer) -> Grant:
        return Grant(7, HEADER.pack(lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION, 2, 16, 0), (0, 1, 2))

    def unregister(self, app: int) -> None:
        self.left.append(app)

    def end(self) -> None:
        self.ended_before = not self.left

    def manage(self, app: int, pid: int, tids: Sequence[int], number: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.managed.append((app, pid, list(tids), number))

    def set_policy(self, spec: str, params: str) -> str:
        if spec == "broken":
            raise ZeroDivisionError("by a policy's module")
        if spec == "refused":
            raise ConfigError("policy refused", "its trial found nonsense", "write every grant")
        if spec == "slow":
            self.loading.set()
            self.loaded.wait(60)
        return super().set_policy(spec, params)


@contextlib.contextmanager
def serving(server: ControlServer) -> Iterator[ControlServer]:
    """The server works in a thread of its own meanwhile."""
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()

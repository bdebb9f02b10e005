"""What the control server needs of an iokernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...runtime.peers import Peer
from .deadlines import Answer
from .promises import Ask


@dataclass(frozen=True, slots=True)
class Grant:
    """A registration: its id, the ACCEPT message, and the descriptors that go with it (arena, state, doorbell)."""

    app: int
    accept: bytes
    fds: tuple[int, int, int]


class Registry(Protocol):
    """Who attaches and what there is to tell. Called in the server's thread."""

    def register(self, hello: Any, peer: Peer) -> Grant:
        """Register the application of a `struct cl_control_hello`. Raises CorelaneError to refuse it."""

    def unregister(self, app: int) -> None:
        """Its connection has ended."""

    def manage(self, app: int, pid: int, tids: Sequence[int], number: int) -> None:
        """Its kthreads are the threads `tids` of process `pid`; signal `number` interrupts one. Or CorelaneError."""

    def say_state(self, app: int, state: int, others: bool) -> tuple[int, int]:
        """It is ready, or drains (CL_MEMBER_...). others: the other members of its group, if they are of the same user,
        drain from now on, and are told. Returns how many, and how many frames this one was
        delivered until now. Raises CorelaneError to refuse it."""

    def promise(self, app: int, ask: Ask) -> Answer:
        """It asks for a deadline, or what became of it. What cannot be is an answer, too."""

    def set_policy(self, spec: str, params: str) -> str:
        """Have another policy decide; "name=value" settings, separated by blanks. Returns what decides now, in a line.

        Raises CorelaneError to refuse it. Called in a thread of its own, since it may compile.
        """

    def end(self) -> None:
        """The server gives up: connections end next, through no fault of their applications."""

    def sweep(self) -> bool:
        """Try again what `unregister` could not finish; returns whether something is left for the next time."""

    def look(self) -> float:
        """See to what happens by itself. Returns when to be called next, on the monotonic clock; inf: never."""

    def named(self, name: str) -> tuple[int, ...]:
        """Ids of the registered applications of that name: of a group several."""

    def stats_json(self) -> bytes:
        """Statistics as a JSON text."""

    def trace(self, name: str, pid: int, how: int, peer: Peer) -> tuple[int, dict[str, Any], int]:
        """The trace of an application, for a peer who may have it; pid: of several that have the name, 0: it is one.

        how: CL_RUNTIME_TRACE_..., which the application is asked for; 0: as it is. Returns its id, what to answer, and
        a descriptor of its segment, the caller's to close, or -1. Raises CorelaneError to refuse it."""

    def moves(self, loop: int, first: int) -> bytes:
        """The body of MOVES_OK: entries of a loop's log from number `first` on. Or CorelaneError."""

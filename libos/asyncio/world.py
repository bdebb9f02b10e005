"""The runtime of a loop: given, attached, embedded, or of this process alone; and which addresses are its."""

from __future__ import annotations

import ipaddress
import os
import select
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from ...drivers.nic.memory import memory_link
from ...drivers.nic.nic import Nic
from ...runtime.errors import CorelaneError
from ..runtime import Runtime

LINGER_S = 0.25  # after the end
_ALONE = ("10.255.255.1", "10.255.255.2")  # of a wire to nobody


@dataclass(slots=True)
class Endpoints:
    """How many endpoints a loop has made, on the runtime and on Linux: connections, listening sockets, UDP sockets.
    refused: connections that were reset since as many as the backlog waited to be accepted by a call."""

    ours: int = 0
    linux: int = 0
    refused: int = 0


class World:
    """A started runtime of one adopted kthread; `close` ends it if it was made here. Made by the loop's thread.

    loopback: whether 127.0.0.0/8 inside this process is the runtime's.
    """

    def __init__(
        self,
        runtime: Runtime | None,
        *,
        socket: str | os.PathLike[str] | None,
        nic: Nic | None,
        loopback: bool | None,
        **options: Any,
    ) -> None:
        self._closing = ExitStack()
        self._made = runtime is None
        try:
            alone = runtime is None and socket is None and nic is None
            if runtime is None:
                runtime = self._make(socket, nic, options)
            elif socket is not None or nic is not None or options:
                raise CorelaneError("make an event loop", "it was given a runtime and options of one", "give either")
            if runtime.kthreads != 1:
                raise CorelaneError(
                    "make an event loop",
                    f"its runtime has {runtime.kthreads} kthreads",
                    "give a runtime with kthreads=1 and adopted=1 to each loop",
                )
            self.runtime = runtime
            self.loopback = alone if loopback is None else loopback
            self.fileno = runtime.fileno()  # refuses one that is not adopted
            if not runtime.started:
                runtime.start()
            self.network = ipaddress.IPv4Network(f"{runtime.address}/{runtime.prefix}", strict=False)
            self.address = ipaddress.IPv4Address(runtime.address)
        except BaseException:
            self._closing.close()
            raise

    def _make(self, socket: Any, nic: Nic | None, options: dict[str, Any]) -> Runtime:
        if socket is None and nic is None:
            nic, end = memory_link((1, 1), ipv4=_ALONE, ipv4_prefix=30)
            self._closing.enter_context(end)
            self._closing.enter_context(nic)
        runtime = Runtime(socket, nic=nic, kthreads=1, adopted=1, **options)
        return self._closing.enter_context(runtime)

    def close(self) -> None:
        """End the runtime if it was made here. May be called twice.

        What was sent, and that it was the end, gets up to LINGER_S to reach the peers; Linux' stack would go on without
        us.
        """
        try:
            if self._made:
                self._linger()
        finally:
            self._closing.close()

    def _linger(self) -> None:
        poll, until = select.poll(), time.monotonic() + LINGER_S
        poll.register(self.fileno, select.POLLIN)
        with suppress(CorelaneError):  # another thread has turned it, or it is over
            while self.runtime.connections and (left := until - time.monotonic()) > 0:
                if not self.runtime.turn():
                    poll.poll(left * 1000)

    @property
    def shares_ports(self) -> bool:
        """Whether others have this address and may have the same ports: the members of its group."""
        return self.runtime.member is not None

    def is_own(self, host: str) -> bool:
        """Whether a listener at this address is the runtime's alone."""
        return _parse(host) == self.address

    def is_loopback(self, host: str) -> bool:
        """Whether it is an address of this machine that the runtime serves inside of this process."""
        parsed = _parse(host)
        return self.loopback and parsed is not None and parsed.is_loopback

    def reaches(self, host: str) -> bool:
        """Whether the way to this address is the runtime's: it is on its link."""
        parsed = _parse(host)
        return parsed is not None and parsed in self.network


def _parse(host: str) -> ipaddress.IPv4Address | None:
    try:
        return ipaddress.IPv4Address(host)
    except ValueError:
        return None

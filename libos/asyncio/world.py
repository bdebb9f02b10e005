"""The runtime of a loop: given, attached, embedded, or of this process alone; and which addresses are its."""

from __future__ import annotations

import ipaddress
import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ...drivers.nic.memory import memory_link
from ...drivers.nic.nic import Nic
from ...runtime.errors import CorelaneError
from ..runtime import Runtime

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
        """End the runtime if it is ours. May be called twice."""
        self._closing.close()

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

"""The echo application: every datagram goes back as it came. `corelane run echo`.

But for those from servers (`from_server`): two echo services would send each other one datagram for ever.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..runtime.errors import CorelaneError
from ._native import ffi, lib
from .registry import App, Service, option


@dataclasses.dataclass(frozen=True)
class Options:
    """What `corelane run echo --option` takes."""

    port: int = option(9000, "UDP port")
    handler: str = option("c", "c, numba or python: what the handler is written in")


def handler(kind: str = "c", port: int = 9000) -> Any:
    """The echo handler in C, numba or Python: a libos Handler. Raises CorelaneError for another kind."""
    from ..libos import c_handler, udp

    if kind == "c":
        return c_handler(ffi.addressof(lib, "cl_echo"), port)
    if kind == "numba":
        return udp(port)(_compiled())
    if kind == "python":
        return udp(port, compiled=False)(_interpreted())
    raise CorelaneError("run echo", f"handler {kind!r}", "one of: c, numba, python")


def _compiled() -> Any:
    from ..libos.numba.calls import from_server

    def echo(request: Any, reply: Any) -> int:
        n = len(request)
        if n > len(reply):
            return -1
        if from_server():
            return 0
        reply[:n] = request
        return n

    return echo


def _interpreted() -> Any:
    from ..libos import current_request  # once: in the handler it would cost more than all else that it does

    def echo(request: Any, reply: Any) -> int:
        n = len(request)
        if n > len(reply):
            return -1
        if current_request().from_server:
            return 0
        reply[:n] = request
        return n

    return echo


@dataclasses.dataclass(frozen=True)
class Echo:
    """A bound echo handler; it owns nothing."""

    port: int

    @property
    def ports(self) -> tuple[int, ...]:
        """The UDP port."""
        return (self.port,)

    def stats(self) -> dict[str, int]:
        """Nothing beyond what the runtime counts."""
        return {}

    def close(self) -> None:
        """Nothing to free."""


def setup(runtime: Any, options: Options) -> Service:
    """Bind the handler to a Runtime."""
    runtime.bind(handler(options.handler, options.port))
    return Echo(options.port)


APP = App("echo", "answers every datagram with itself", Options, setup)

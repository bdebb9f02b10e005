"""Loads that corelane's own stack carries, against the reflector that says what the client and the stack add."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...apps import echo
from ...libos import Runtime
from ..harness import rig
from ..tcp.server import ECHO, Servers

ADDRESS = f"{rig.CLIENT_IP}/{rig.PREFIX}"
PORT = ECHO
"""Of the reflector, over UDP and TCP."""


def _reflect(runtime: Runtime) -> Servers:
    runtime.bind(echo.handler("c", PORT))
    return Servers(runtime)


@contextlib.contextmanager
def reflecting(client_cpu: int = -1, server_cpu: int = -1) -> Iterator[tuple[Runtime, str]]:
    """A runtime to load over, and the address of a server at the other end of a memory link that sends back what it is
    sent, over UDP and TCP. Each has a kthread (cpu -1: on any CPU)."""
    with (
        rig.linked() as (client_end, server_end),
        rig.started(server_end, server_cpu, _reflect),
        rig.started(client_end, client_cpu, lambda runtime: None, address=ADDRESS) as (runtime, _),
    ):
        yield runtime, rig.SERVER_IP

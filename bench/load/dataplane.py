"""Loads that corelane's own stack carries, against reflectors, which say what the client and the stack add."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...apps import echo
from ...drivers.linux import netns
from ...drivers.nic.af_xdp.af_xdp import AfXdp
from ...libos import Runtime
from ..afxdp.reflector import Reflector
from ..harness import rig
from ..tcp.server import ECHO, Servers

ADDRESS = f"{rig.CLIENT_IP}/{rig.PREFIX}"
PORT = ECHO
"""Of the reflector, over UDP and TCP."""
Pair = tuple[netns.Interface, netns.Interface]


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


def veth() -> contextlib.AbstractContextManager[Pair]:
    """A veth pair for `reflecting_on_af_xdp`. Needs root."""
    return netns.link(addresses=(rig.CLIENT_IP, rig.SERVER_IP), prefix=rig.PREFIX)


@contextlib.contextmanager
def reflecting_on_af_xdp(pair: Pair, client_cpu: int, server_cpu: int) -> Iterator[tuple[Runtime, str]]:
    """The same over AF_XDP on a veth pair, to a reflector of datagrams (bench/afxdp/reflector.h)."""
    near, far = pair
    with contextlib.ExitStack() as stack:
        with far.namespace.entered():
            stack.enter_context(Reflector(far.name, cpu=server_cpu))
        with near.namespace.entered():
            nic = stack.enter_context(AfXdp(near.name, addresses=[ADDRESS]))
        runtime, _ = stack.enter_context(rig.started(nic, client_cpu, lambda runtime: None, address=ADDRESS))
        runtime.add_neighbour(far.address, far.mac.hex(":"))
        yield runtime, far.address

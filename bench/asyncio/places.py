"""Where the servers are asked: each at the far end of a veth pair of its own, or on a memory link in this process.

Requests have as many bytes as those of ../tcp. Servers sleep while nobody asks them: `rest.demand` sees to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from ...drivers.nic.nic import Nic
from ...drivers.nic.tcpload.tcpload import TcpLoad
from ...libos import Runtime, StreamHandler, tcp
from ..harness import rest, usage
from ..harness.load import Load
from ..harness.openloop import Measure, Point
from ..harness.rig import SERVER_IP, linked, started
from ..tcp import links
from .server import PORTS, PROTOCOLS, Server, echoing
from .thread import Looping

CONNECTIONS = 100


def arrivals(rate: float) -> str:
    """Of a client: 0 stands for a closed loop, in which each connection that is idle asks."""
    return "poisson" if rate else "closed"


class Served:
    """A server on asyncio at the far end of a veth pair of its own, up until `stack` ends. Needs root."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, int], loop: str, what: str) -> None:
        self.veth = links.Veth(stack, cores)
        far = self.veth.far
        where: dict[str, Any] = {"address": far.address, "interface": far.name, "prefix": far.prefix}
        where |= {"cpu": cores[1], "netns": far.namespace.name}
        self.server = stack.enter_context(Server(loop, what, **where))

    def busy_s(self) -> float:
        """CPU seconds that the server has used so far."""
        return usage.of_process(self.server.pid).busy_s

    def ask(self, port: int, rate: float, seconds: float) -> Point:
        """By the client over AF_XDP."""
        rest.demand("a server on a veth pair")
        with self.veth.client("ask", server_port=port, connections=CONNECTIONS, arrivals=arrivals(rate)) as load:
            return Load(load, self.busy_s).measure(rate, seconds)

    def ask_by_kernel(self, port: int, rate: float, seconds: float) -> Point:
        """By a client on kernel sockets."""
        rest.demand("a server on a veth pair")
        return self.veth.ask_by_kernel(rate, seconds, CONNECTIONS, port)


class Floors:
    """What bounds ours, on a veth pair: the same echo in C on our TCP, and a reflector of segments (../tcp). Each runs
    for the length of a measurement, and spins. Needs root."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, int]) -> None:
        self.veth = links.Veth(stack, cores)

    def in_c(self, rate: float, seconds: float) -> Point:
        """The echo in C, asked over AF_XDP."""
        rest.demand("a server on a veth pair")
        with self.veth.ours():
            return self._ask(rate, seconds)

    def in_c_by_kernel(self, rate: float, seconds: float) -> Point:
        """The same, asked by a client on kernel sockets."""
        rest.demand("a server on a veth pair")
        with self.veth.ours():
            return self.veth.ask_by_kernel(rate, seconds, CONNECTIONS)

    def reflector(self, rate: float, seconds: float) -> Point:
        """The reflector, asked over AF_XDP."""
        rest.demand("a server on a veth pair")
        with self.veth.floor():
            return self._ask(rate, seconds)

    def _ask(self, rate: float, seconds: float) -> Point:
        with self.veth.client("ask", connections=CONNECTIONS, arrivals=arrivals(rate)) as load:
            return Load(load).measure(rate, seconds)


def numba_echo() -> StreamHandler:
    """The echo as a compiled handler."""

    @tcp(port=PORTS[PROTOCOLS])
    def echo(data, reply):  # type: ignore[no-untyped-def]
        n = min(len(data), len(reply))
        reply[:n] = data[:n]
        return n, n

    return echo


@contextlib.contextmanager
def numba_on_memory(cores: tuple[int, int]) -> Iterator[Measure]:
    """The compiled handler on a memory link: it is on cores[1], the client on cores[0], in a closed loop."""

    def bind(runtime: Runtime) -> None:
        runtime.bind(numba_echo())

    with (
        linked() as (client_end, server_end),
        started(server_end, cores[1], bind) as (_, tids),
        asking(client_end, server_end.mac, cores[0]) as load,
    ):
        yield Load(load, lambda: usage.of_threads(tids).busy_s).measure


@contextlib.contextmanager
def loop_on_memory(form: str, cores: tuple[int, int]) -> Iterator[Measure]:
    """The same of our loop, as protocols or streams."""
    with (
        linked() as (client_end, server_end),
        Looping(server_end, partial(echoing, SERVER_IP, [form]), cpu=cores[1]) as looping,
        asking(client_end, server_end.mac, cores[0], PORTS[form]) as load,
    ):
        yield Load(load, looping.busy_s).measure


@contextlib.contextmanager
def reflector_on_memory(cores: tuple[int, int]) -> Iterator[Measure]:
    """What client and link give: a server that does no more than turn segments around."""
    with links.floor(cores, "ask", connections=CONNECTIONS, arrivals="closed") as floor:
        yield floor.measure


@contextlib.contextmanager
def asking(client_end: Nic, server_mac: str, cpu: int, port: int = PORTS[PROTOCOLS], **how: Any) -> Iterator[TcpLoad]:
    """A client in a closed loop, on a link whose server knows its MAC address. how: as of TcpLoad."""
    with contextlib.closing(links.load_of("hold", server_mac=server_mac, server_port=port)) as first:
        first.start_client(client_end, cpu)
        with first.held():
            pass
    how |= {"server_mac": server_mac, "connections": CONNECTIONS, "arrivals": "closed"}
    with contextlib.closing(links.load_of("ask", server_port=port, **how)) as load:
        load.start_client(client_end, cpu)
        yield load

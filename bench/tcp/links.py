"""What is measured on: our servers on a memory link, behind an iokernel or over AF_XDP, Linux' own on a veth pair, or
the floor of them all (reflector.h); with the client of drivers/nic/tcpload.

Threads are `adaptive` with a long spin unless it is said otherwise, as in harness/rig.py: they poll through a run and
sleep between runs.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...drivers.linux import netns
from ...drivers.nic.af_xdp.af_xdp import AfXdp
from ...drivers.nic.loadgen.loadgen import Echo, Limits, Loadgen, Source
from ...drivers.nic.nic import Nic
from ...drivers.nic.tcpload.tcpload import TcpLoad, TcpSource
from ...iokernel import AppConfig, Idle, Iokernel, Outside
from ...libos import Runtime
from ..baseline.tcp_sockets import LinuxTcp, ask
from ..harness import usage
from ..harness.load import Load
from ..harness.openloop import Point
from ..harness.rig import (
    CLIENT_IP,
    LONG_SPIN,
    PREFIX,
    SERVER_IP,
    SPIN_US,
    counts_of_iokernel,
    counts_of_runtime,
    linked,
    started,
)
from ..harness.stops import Counts
from .reflector import Reflector
from .server import ECHO, SINK, SOURCE, Servers

REQUEST_BYTES = 64
MANY_IPS = "10.77.8.1"  # the first of several addresses of the client
UDP_FLOWS = 1024  # a power of two, next to the 1 000 connections
GIVE_UP_S = 20.0  # a machine that has other things to do opens connections late
PORT_OF = {"ask": ECHO, "churn": ECHO, "hold": ECHO, "send": SINK, "receive": SOURCE}


COLOURS = {"reflector": 4, "minimal": 2, "attached": 3, "Linux": 1, "UDP": 5}  # in plots; of ours: 0


def colour_of(arm: str) -> int:
    """The colour of an arm's system, the same in all panels."""
    return next((colour for word, colour in COLOURS.items() if word in arm), 0)


def load_of(traffic: Any, **how: Any) -> TcpLoad:
    """The client with the addresses of this room."""
    usual: dict[str, Any] = {
        "server_ip": SERVER_IP,
        "server_port": PORT_OF[traffic],
        "source": TcpSource(ip=CLIENT_IP),
        "limits": Limits(give_up_s=GIVE_UP_S),
    }
    return TcpLoad(traffic, **usual | how)


@dataclass
class Link:
    """A server of ours on one end of a memory link, on cores[1]. The other end is for clients on cores[0], one at a
    time. port: that they ask; None: that of their traffic."""

    end: Nic
    server_end: Nic
    runtime: Runtime
    cores: tuple[int, int]
    tids: frozenset[int]
    port: int | None = None

    def counts(self) -> Counts:
        """What stops.py asks."""
        return counts_of_runtime(self.runtime, self.server_end, usage.of_threads(self.tids))

    def busy_s(self) -> float:
        """CPU seconds that the server's kthread has used so far."""
        return usage.of_threads(self.tids).busy_s

    @contextlib.contextmanager
    def client(self, traffic: str, **how: Any) -> Iterator[TcpLoad]:
        """A client that polls during its runs; how: as of TcpLoad."""
        where: dict[str, Any] = {"server_mac": self.runtime.mac}
        if self.port is not None:
            where["server_port"] = self.port
        with contextlib.closing(load_of(traffic, **where | how)) as load:
            load.start_client(self.end, self.cores[0])
            yield load


@contextlib.contextmanager
def serving(
    cores: tuple[int, int],
    bind: Callable[[Runtime], object],
    *,
    port: int | None = None,
    poll: str = "adaptive",
) -> Iterator[Link]:
    """What `bind` gives a runtime, embedded, on a memory link; bind: as of rig.started."""
    with contextlib.ExitStack() as stack:
        client_end, server_end = stack.enter_context(linked())
        runtime, tids = stack.enter_context(started(server_end, cores[1], bind, poll=poll))
        link = Link(client_end, server_end, runtime, cores, tids, port)
        with link.client("hold") as first, first.held():
            pass  # the server knows our MAC address from here on
        yield link


@dataclass
class ServersLink(Link):
    """A link with the servers of this room."""

    servers: Servers = field(kw_only=True)


@contextlib.contextmanager
def memory(cores: tuple[int, int], *, poll: str = "adaptive", check_bytes: bool = False) -> Iterator[ServersLink]:
    """Our servers, embedded, on a memory link."""
    bound: list[Servers] = []

    def bind(runtime: Runtime) -> None:
        bound.append(Servers(runtime, check_bytes=check_bytes))

    with serving(cores, bind, poll=poll) as link:
        yield ServersLink(**vars(link), servers=bound[0])


@contextlib.contextmanager
def udp(cores: tuple[int, int]) -> Iterator[Load]:
    """The C echo handler of UDP on a memory link, asked by the UDP generator with datagrams as long as requests."""
    from ...apps.echo import handler

    with contextlib.ExitStack() as stack:
        client_end, server_end = stack.enter_context(linked())
        serving = started(server_end, cores[1], lambda rt: rt.bind(handler("c", ECHO)))
        runtime, tids = stack.enter_context(serving)
        generator = Loadgen(
            Echo(REQUEST_BYTES),
            source=Source(ip=CLIENT_IP, flows=UDP_FLOWS),
            server_ip=SERVER_IP,
            server_mac=runtime.mac,
            server_port=ECHO,
            checksum=True,
        )
        stack.callback(generator.close)
        generator.start_client(client_end, cpu=cores[0])
        load = Load(generator)
        load.counts = lambda: counts_of_runtime(runtime, server_end, usage.of_threads(tids))
        yield load


@dataclass
class Floor:
    """A client on one end of a memory link; the reflector on the other, which runs only while it is asked. connects: it
    is the least TCP that answers (minimal.h)."""

    load: TcpLoad
    server_end: Nic
    cpu: int
    connects: bool = False

    def measure(self, rate_rps: float, seconds: float) -> Point:
        """As Load.measure."""
        with Reflector(self.server_end, cpu=self.cpu, connects=self.connects):
            return Load(self.load).measure(rate_rps, seconds)


@contextlib.contextmanager
def floor(cores: tuple[int, int], traffic: str, *, connects: bool = False, **how: Any) -> Iterator[Floor]:
    """The floor on a memory link, on cores[1]; how: of the client."""
    with (
        linked() as (client_end, server_end),
        contextlib.closing(load_of(traffic, server_mac=server_end.mac, **how)) as load,
    ):
        load.start_client(client_end, cores[0])
        yield Floor(load, server_end, cores[1], connects)


@contextlib.contextmanager
def attached(cores: tuple[int, int], traffic: str, **how: Any) -> Iterator[TcpLoad]:
    """Our servers attached to an iokernel, whose uplink is the client: its loop is on cores[0], the servers on
    cores[1]."""
    with counted(cores, traffic, **how) as (load, _):
        yield load


@contextlib.contextmanager
def counted(cores: tuple[int, int], traffic: str, **how: Any) -> Iterator[tuple[TcpLoad, Callable[[], Counts]]]:
    """As `attached`, and what reads the counters of loop and server."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-bench-"))
        load = load_of(traffic, **how)
        stack.callback(load.close)
        path = str(Path(folder) / "io.sock")
        apps = {"tcp": AppConfig(ip=SERVER_IP)}
        kernel = stack.enter_context(
            Iokernel(path, uplinks=[load.nic()], loop_cpus=[cores[0]], idle=Idle(spin_us=SPIN_US), apps=apps)
        )
        before = set(usage.threads())
        runtime = Runtime(path, name="tcp", kthreads=1, cpus=[cores[1]], scheduler=LONG_SPIN)
        stack.callback(runtime.close)
        kept = Servers(runtime)
        runtime.start()
        load.aim(runtime.mac)
        kthreads = frozenset(set(usage.threads()) - before)
        yield load, lambda: counts_of_iokernel(kernel, usage.of_threads(kthreads))
        runtime.close()
        del kept


class Veth:
    """A veth pair: clients on the near end, on cores[0], and one server at a time on the far end, on cores[1]; an
    application behind an iokernel on cores[2], or, if there is none, on cores[1] as well. Needs root. An XDP program is
    attached while something that uses it runs, so Linux has the plain veth."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, ...]) -> None:
        self.cores = cores
        self.near, self.far = stack.enter_context(netns.link(addresses=(CLIENT_IP, SERVER_IP), prefix=PREFIX))

    def nic(self) -> AfXdp:
        """The server's."""
        with self.far.namespace.entered():
            return AfXdp(self.far.name, addresses=[f"{self.far.address}/{self.far.prefix}"])

    @contextlib.contextmanager
    def serving(self, bind: Callable[[Runtime], object]) -> Iterator[None]:
        """What `bind` gives a runtime (rig.started), embedded, over AF_XDP; the kthread spins."""
        address = f"{self.far.address}/{self.far.prefix}"
        with self.nic() as nic, started(nic, self.cores[1], bind, address=address, poll="spin"):
            yield

    @contextlib.contextmanager
    def ours(self) -> Iterator[Servers]:
        """Our servers, embedded, over AF_XDP; the kthread spins."""
        bound: list[Servers] = []
        with self.serving(lambda runtime: bound.append(Servers(runtime))):
            yield bound[0]

    @contextlib.contextmanager
    def floor(self, *, takes: bool = False) -> Iterator[None]:
        """The reflector over AF_XDP."""
        with self.nic() as nic, Reflector(nic, cpu=self.cores[1], takes=takes):
            yield

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        """Our servers behind an iokernel whose uplink is the NIC. Loop and kthread spin if both have a core, else they
        sleep in turn."""
        poll = "spin" if len(self.cores) > 2 else "block"
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-bench-"))
            path, apps = str(Path(folder) / "io.sock"), {"tcp": AppConfig(ip=self.far.address)}
            nic = stack.enter_context(self.nic())
            outside, loop = Outside(share_mac=True), [self.cores[1]]
            stack.enter_context(Iokernel(path, uplinks=[nic], outside=outside, loop_cpus=loop, poll=poll, apps=apps))
            runtime = Runtime(path, name="tcp", poll=poll, kthreads=1, cpus=[(self.cores[1:3])[-1]])
            stack.callback(runtime.close)
            kept = Servers(runtime)
            runtime.start()
            yield
            runtime.close()
            del kept

    def linux(self, poll: str, kind: str = "echo") -> LinuxTcp:
        """A server on kernel sockets, which runs at once."""
        space, port = self.far.namespace.name, {"echo": ECHO, "sink": SINK, "source": SOURCE}[kind]
        return LinuxTcp(kind=kind, poll=poll, address=self.far.address, port=port, cpu=self.cores[1], netns=space)

    @contextlib.contextmanager
    def client(self, traffic: str, **how: Any) -> Iterator[TcpLoad]:
        """The client over AF_XDP."""
        with contextlib.ExitStack() as stack:
            with self.near.namespace.entered():
                nic = AfXdp(self.near.name, steer="all")
            stack.callback(nic.close)
            source = TcpSource(mac=self.near.mac.hex(":"), ip=self.near.address)
            where = {"server_mac": self.far.mac.hex(":"), "server_ip": self.far.address}
            load = stack.enter_context(contextlib.closing(load_of(traffic, source=source, **where, **how)))
            load.start_client(nic, self.cores[0])
            yield load

    def ask_by_kernel(self, rate: float, seconds: float, connections: int, port: int = ECHO) -> Point:
        """Requests of a client on kernel sockets."""
        return ask(
            address=self.far.address,
            port=port,
            netns=self.near.namespace.name,
            cpu=self.cores[0],
            connections=connections,
            rate=rate,
            seconds=seconds,
        )

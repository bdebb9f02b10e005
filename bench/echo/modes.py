"""An echo server in each polling mode on each kind of link, and what a request costs it in system calls and switches.

    for name, link in LINKS.items():
        with link("block", cores, port) as made:
            point, cost = made.measure(20_000, 0.2)

The server's threads are all that it has beside the generator's: kthreads, and the loop of an iokernel, which is in this
process here so that both ends' calls are counted. System calls are those that the NIC made to receive, send and sleep,
and those of the loop; each is counted where it is made. Context switches are the kernel's own count.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...apps import echo
from ...drivers.linux import netns
from ...drivers.nic.af_xdp.af_xdp import AfXdp
from ...drivers.nic.loadgen.loadgen import Echo, Loadgen, Source
from ...drivers.nic.nic import Nic
from ...drivers.nic.tap.tap import Tap
from ...drivers.port.port import open_port
from ...iokernel import AppConfig, Iokernel
from ...libos import Runtime, Scheduler
from ..baseline.sockets import CLIENT_MAC, SERVER_MAC, socket_nic
from ..harness import usage
from ..harness.load import Load
from ..harness.openloop import Point
from ..harness.rig import CLIENT_IP, PREFIX, SERVER_IP, embedded

MODES = ("spin", "adaptive", "block")
TUN = Path("/dev/net/tun")
FIRST_PORT = 20000


@dataclass(frozen=True)
class Cost:
    """A request's. loop_syscalls: of `syscalls`, those of the iokernel's loop. busy: of the server's threads, cores."""

    syscalls: float
    loop_syscalls: float
    switches: float
    busy: float

    def row(self) -> dict[str, float]:
        """As values of an arm."""
        return {
            "syscalls_per_request": self.syscalls,
            "loop_syscalls_per_request": self.loop_syscalls,
            "context_switches_per_request": self.switches,
            "busy_fraction": self.busy,
        }


@dataclass(frozen=True)
class Served:
    """A server under load. nic: what it polls; tids: its threads; loop_syscalls: of its iokernel's loop so far."""

    load: Load
    nic: Nic
    tids: frozenset[int]
    loop_syscalls: Callable[[], int] = lambda: 0

    def _read(self) -> tuple[int, int, int, usage.Usage]:
        stats = self.nic.stats()
        used = sum((usage.of_thread(tid) for tid in self.tids), usage.Usage())
        return stats.rx_frames, stats.syscalls, self.loop_syscalls(), used

    def measure(self, rate_rps: float, seconds: float) -> tuple[Point, Cost]:
        """One load, and what its requests cost the server."""
        frames, calls, loop, used = self._read()
        point = self.load.measure(rate_rps, seconds)
        after = self._read()
        served, looped, cost = max(after[0] - frames, 1), after[2] - loop, after[3] - used
        calls = after[1] - calls + looped
        return point, Cost(calls / served, looped / served, cost.switches / served, cost.busy_s / seconds)


@contextlib.contextmanager
def _server(nic: Nic, poll: str, cpu: int, port: int, address: str) -> Iterator[Runtime]:
    with Runtime(nic=nic, poll=poll, kthreads=1, cpus=[cpu], scheduler=Scheduler(), address=address) as runtime:
        runtime.bind(echo.handler("c", port))
        runtime.start()
        yield runtime
        runtime.stop()


@contextlib.contextmanager
def on_memory(poll: str, cores: tuple[int, int], port: int) -> Iterator[Served]:
    """Embedded, on a software link."""
    bind = partial(Runtime.bind, handler=echo.handler("c", port))
    with embedded(bind, cores, poll=poll, scheduler=Scheduler(), port=port) as made:
        assert made.server_nic is not None
        yield Served(made.load, made.server_nic, frozenset(made.tids))


@contextlib.contextmanager
def on_iokernel(poll: str, cores: tuple[int, int], port: int) -> Iterator[Served]:
    """Through an iokernel in this mode, whose uplink is the generator; the application's kthread, too."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-bench-"))
        generator = Loadgen(Echo(), source=Source(ip=CLIENT_IP), server_ip=SERVER_IP, server_port=port, checksum=True)
        stack.callback(generator.close)
        before = set(usage.threads())
        path = str(Path(folder) / "io.sock")
        apps = {"echo": AppConfig(ip=SERVER_IP)}
        kernel = stack.enter_context(
            Iokernel(path, uplinks=[generator.nic()], loop_cpus=[cores[0]], poll=poll, apps=apps)
        )
        nic = open_port(path, name="echo")
        stack.callback(nic.close)
        stack.enter_context(_server(nic, poll, cores[1], port, f"{SERVER_IP}/{PREFIX}"))
        tids = frozenset(set(usage.threads()) - before)
        yield Served(Load(generator), nic, tids, lambda: int(kernel.stats()["loops"][0]["syscalls"]))


@contextlib.contextmanager
def on_af_xdp(poll: str, cores: tuple[int, int], port: int) -> Iterator[Served]:
    """Embedded, over AF_XDP at the far end of a veth pair; the generator over AF_XDP at the near end. Needs root."""
    with contextlib.ExitStack() as stack:
        near, far = stack.enter_context(netns.link())
        ends = []
        for end in (near, far):
            with end.namespace.entered():
                ends.append(AfXdp(end.name, addresses=[end.address]))
            stack.callback(ends[-1].close)
        before = set(usage.threads())
        stack.enter_context(_server(ends[1], poll, cores[1], port, f"{far.address}/{far.prefix}"))
        tids = frozenset(set(usage.threads()) - before)
        source = Source(mac=near.mac.hex(":"), ip=near.address)
        with _asking(ends[0], cores[0], source, far.address, far.mac.hex(":"), port) as load:
            yield Served(load, ends[1], tids)


@contextlib.contextmanager
def on_tap(poll: str, cores: tuple[int, int], port: int) -> Iterator[Served]:
    """Embedded, on a tap in a namespace; the generator on a kernel socket at Linux' end of it. Needs root."""
    with contextlib.ExitStack() as stack:
        space = stack.enter_context(netns.namespace("tap"))
        with space.entered():
            nic = Tap("cltap", address=f"{CLIENT_IP}/{PREFIX}")
            stack.callback(nic.close)
            client = socket_nic(SERVER_IP, port, CLIENT_IP, FIRST_PORT)
        stack.callback(client.close)
        before = set(usage.threads())
        stack.enter_context(_server(nic, poll, cores[1], port, f"{SERVER_IP}/{PREFIX}"))
        tids = frozenset(set(usage.threads()) - before)
        source = Source(mac=CLIENT_MAC, ip=CLIENT_IP, first_port=FIRST_PORT, flows=1)
        with _asking(client, cores[0], source, SERVER_IP, SERVER_MAC, port) as load:
            yield Served(load, nic, tids)


@contextlib.contextmanager
def _asking(nic: Nic, cpu: int, source: Source, ip: str, mac: str, port: int) -> Iterator[Load]:
    """The generator, a thread on a NIC of its own."""
    how: dict[str, Any] = {"server_ip": ip, "server_mac": mac, "server_port": port, "checksum": True}
    with contextlib.closing(Loadgen(Echo(), source=source, **how)) as generator:
        generator.start_client(nic, cpu=cpu)
        yield Load(generator)
        generator.stop_client()


Link = Callable[[str, tuple[int, int], int], contextlib.AbstractContextManager[Served]]
LINKS: dict[str, Link] = {"": on_memory, "iokernel": on_iokernel, "AF_XDP": on_af_xdp, "tap": on_tap}
NEED_ROOT = ("AF_XDP", "tap")


def missing(link: str) -> str | None:
    """Why there is no such link here; None if there is."""
    if link not in NEED_ROOT:
        return None
    if link == "tap" and not TUN.exists():
        return f"{TUN} does not exist: load the kernel's module tun, or give the container the device"
    return netns.missing()

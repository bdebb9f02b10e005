"""A veth pair with an AF_XDP client on one end, and the echo servers that benchmarks put onto the other.

All of them have the same address and the same core. The XDP program is attached only while a server that uses it runs.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...drivers.linux import netns
from ...drivers.linux.netns import Interface
from ...drivers.nic.af_xdp.af_xdp import AfXdp, xdp_mode
from ...drivers.nic.loadgen.loadgen import Arrivals, Echo, Loadgen, Source
from ..harness.load import Load
from .reflector import Reflector

PORT = 9000
PAYLOAD_BYTES = 22
ADDRESSES = ("10.77.0.2", "10.77.0.1")  # server, client: in the iokernel's default subnet
PREFIX = 16


@dataclass(frozen=True)
class Place:
    """Where a server runs: its end of the veth, its core, the other core (for the client), the XDP mode."""

    end: Interface
    cpu: int
    cpus: tuple[int, ...]
    mode: str

    def nic(self) -> AfXdp:
        """The NIC of ours: takes the server's address from Linux while it is open."""
        with self.end.namespace.entered():
            return AfXdp(self.end.name, addresses=[f"{self.end.address}/{PREFIX}"], mode=self.mode)

    def reflector(self, *, checks: bool = False) -> Reflector:
        """The floor's server, which runs at once. checks: as of Reflector."""
        with self.end.namespace.entered():
            return Reflector(self.end.name, cpu=self.cpu, mode=self.mode, checks=checks)


Serve = Callable[[Place], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def reflector(place: Place) -> Iterator[None]:
    """AF_XDP with nothing above it."""
    with place.reflector():
        yield


@contextlib.contextmanager
def checking_reflector(place: Place) -> Iterator[None]:
    """The same, which verifies and makes checksums as a host has to."""
    with place.reflector(checks=True):
        yield


@contextlib.contextmanager
def embedded(place: Place) -> Iterator[None]:
    """A runtime on the NIC, one spinning kthread, the C echo handler."""
    from ...apps.echo import handler
    from ...libos import Runtime

    with place.nic() as nic, Runtime(nic=nic, poll="spin", kthreads=1, cpus=[place.cpu]) as runtime:
        runtime.bind(handler("c", PORT))
        runtime.start()
        yield
        runtime.stop()


@contextlib.contextmanager
def iokernel(place: Place) -> Iterator[None]:
    """Loop and kthread spin on cores of their own where there is a third one; else they share one and sleep in turn."""
    from ...apps.echo import handler
    from ...iokernel import AppConfig, Iokernel, Outside
    from ...libos import Runtime

    third = place.cpus[2] if len(place.cpus) > 2 else None
    poll = "spin" if third is not None else "block"
    app_cpu = third if third is not None else place.cpu
    with tempfile.TemporaryDirectory() as folder, place.nic() as nic:
        path = str(Path(folder) / "iokernel.sock")
        apps = {"echo": AppConfig(ip=place.end.address)}
        outside = Outside(share_mac=True)
        kernel = Iokernel(path, uplinks=[nic], outside=outside, loop_cpus=[place.cpu], poll=poll, apps=apps)
        with kernel, Runtime(path, name="echo", poll=poll, kthreads=1, cpus=[app_cpu]) as runtime:
            runtime.bind(handler("c", PORT))
            runtime.start()
            yield
            runtime.stop()


def linux(poll: str) -> Serve:
    """A C server on a kernel socket. poll: as of LinuxUdp."""

    def serve(place: Place) -> contextlib.AbstractContextManager[Any]:
        from ..baseline.sockets import LinuxUdp

        space = place.end.namespace.name
        return LinuxUdp(poll=poll, cpu=place.cpu, address=place.end.address, port=PORT, netns=space)

    return serve


@dataclass(frozen=True)
class Bench:
    """A veth pair with the generator's client on its far end, resting between runs, and the servers' place."""

    load: Load
    place: Place


def bench_on(stack: contextlib.ExitStack, cores: tuple[int, ...], asked: str, arrivals: Arrivals = "poisson") -> Bench:
    """A new pair, for as long as `stack` lives. asked: the XDP mode, native, generic or auto."""
    near, far = stack.enter_context(netns.link(addresses=ADDRESSES, prefix=PREFIX))
    with far.namespace.entered():
        mode = xdp_mode(far.name, asked)
        client = stack.enter_context(AfXdp(far.name, steer="all", mode=mode))
    load = stack.enter_context(_generator(near, far, arrivals))
    load.start_client(client, cores[0])
    stack.callback(load.stop_client)
    return Bench(Load(load), Place(near, cores[1], tuple(cores), client.mode))


def _generator(near: Interface, far: Interface, arrivals: Arrivals) -> Loadgen:
    return Loadgen(
        Echo(PAYLOAD_BYTES),
        arrivals=arrivals,
        source=Source(mac=far.mac.hex(":"), ip=far.address),
        server_mac=near.mac.hex(":"),
        server_ip=near.address,
        server_port=PORT,
        checksum=True,
    )

"""The same binary twice: on Linux' sockets, and by `corelane run --posix`. Each has a veth pair of its own, with the
same addresses. One client asks both, over AF_XDP on the pair's near end. Both servers are pinned to one core and sleep
while nobody asks them. Needs root.

On the memory NIC: the server is attached to an iokernel in this process, whose uplink is the client.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...drivers.linux import netns
from ...drivers.nic.tcpload.tcpload import TcpLoad
from ...iokernel import AppConfig, Idle, Iokernel
from ...runtime.errors import CorelaneError
from ..baseline.memcached import Memcached
from ..baseline.nginx import Nginx
from ..baseline.redis import Redis
from ..harness import rest, usage
from ..harness.load import Load
from ..harness.openloop import Point
from ..harness.rig import SERVER_IP, SPIN_US
from ..http import http
from ..kv_tcp.scripts import Script, Space
from ..kv_tcp.storing import store_all
from ..tcp import links

LINUX, OURS = "Linux", "ours"
MEMCACHED_PORT, REDIS_PORT, HTTP_PORT = 11211, 6379, 8080
MEMORY_MIB = 64
PATIENCE_S = 30.0
CASE = http.Case("1 KiB", keep=True, tls=False)
_MAC = "02:c1:0a:4d:00:02"  # of what is attached


def by_posix(*options: str) -> list[str]:
    """What becomes a program with its sockets on the dataplane, given its command line."""
    return [sys.executable, "-m", "corelane.cli.main", "run", "--posix", *options]


def on_af_xdp(far: netns.Interface) -> list[str]:
    """The same, embedded, on an interface of the namespace that it is started in."""
    return by_posix("--nic", f"af_xdp:{far.name}", "--address", f"{far.address}/{far.prefix}")


def _memcached(connections: int, **where: Any) -> Any:
    extra = ["-c", str(connections + 100), "-U", "0"]  # no UDP
    return Memcached(memory_mib=MEMORY_MIB, extra=extra, port=MEMCACHED_PORT, **where)


def _redis(connections: int, **where: Any) -> Any:
    return Redis(memory_mib=MEMORY_MIB, clients=connections + 100, port=REDIS_PORT, **where)


@dataclass(frozen=True)
class Kind:
    """A server: how it is started, its port, and what it is asked."""

    start: Callable[..., Any]
    port: int
    protocol: str
    script: Callable[[Space], Script]


KINDS = {
    "memcached": Kind(_memcached, MEMCACHED_PORT, "memcached", Space.memcached),
    "redis-server": Kind(_redis, REDIS_PORT, "redis", Space.redis),
}


class Pair:
    """A server of KINDS on Linux and on the dataplane, both up and filled until `stack` ends."""

    def __init__(
        self, stack: contextlib.ExitStack, cores: tuple[int, int], name: str, space: Space, connections: int
    ) -> None:
        self.kind, self.connections = KINDS[name], connections
        self.script = self.kind.script(space)
        self.veths = {LINUX: links.Veth(stack, cores), OURS: links.Veth(stack, cores)}
        self.pids: dict[str, int] = {}
        self.own: list[float] = []  # of each measurement on Linux: the part of the server's time outside of the kernel
        for world, veth in self.veths.items():
            far = veth.far
            where: dict[str, Any] = {"address": far.address, "netns": far.namespace.name, "cpu": cores[1]}
            through = on_af_xdp(far) if world == OURS else ()
            server = stack.enter_context(self.kind.start(connections, through=through, **where))
            self.pids[world] = server.pid
            store_all(connect(veth.near, far.address, self.kind.port), space, self.kind.protocol)

    def client(self, world: str, arrivals: str, *, keep: bool = False) -> Any:
        """The client of one of the two: a context."""
        how: dict[str, Any] = {"script": self.script, "connections": self.connections, "arrivals": arrivals}
        return self.veths[world].client("ask", server_port=self.kind.port, keep=keep, **how)


class Bound:
    """What bounds ours on a veth pair: an echo in C on our TCP, without descriptors and without a program behind them.
    It runs for the length of a measurement, and spins."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, int], connections: int) -> None:
        self.veth, self.connections = links.Veth(stack, cores), connections

    def client(self, arrivals: str = "poisson", *, keep: bool = False) -> Any:
        """The client: a context."""
        return self.veth.client("ask", connections=self.connections, arrivals=arrivals, keep=keep)

    def measure(self, seconds: float) -> Point:
        """What it carries."""
        rest.demand("a server on a veth pair")
        with self.veth.ours(), self.client("closed") as load:
            return Load(load).measure(0.0, seconds)


def connect(near: netns.Interface, address: str, port: int) -> socket.socket:
    """A connection of Linux' from an interface's namespace, once the server takes it: ours has its sockets when it
    first waits. Raises CorelaneError if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with near.namespace.entered():
                return socket.create_connection((address, port), timeout=PATIENCE_S)
        except OSError as error:
            if time.monotonic() > deadline:
                raise CorelaneError(f"connect to {address}:{port}", str(error)) from None
            time.sleep(0.02)


@contextlib.contextmanager
def memcached_on_memory(cores: tuple[int, int], space: Space, connections: int) -> Iterator[TcpLoad]:
    """memcached attached to an iokernel whose uplink is the client that is given, which asks in a closed loop: the loop
    is on cores[0], memcached on cores[1]."""
    where: dict[str, Any] = {"server_mac": _MAC, "server_port": MEMCACHED_PORT, "arrivals": "closed"}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-bench-"))
        load = links.load_of("ask", script=space.memcached(), connections=connections, **where)
        stack.callback(load.close)
        path, apps = str(Path(folder) / "io.sock"), {"memcached": AppConfig(ip=SERVER_IP, mac=_MAC)}
        idle = Idle(spin_us=SPIN_US)
        kernel = Iokernel(path, uplinks=[load.nic()], loop_cpus=[cores[0]], idle=idle, apps=apps)
        stack.enter_context(kernel)
        through = by_posix("--socket", path, "--name", "memcached")
        stack.enter_context(_memcached(connections, address="0.0.0.0", cpu=cores[1], through=through))
        deadline = time.monotonic() + PATIENCE_S
        while "memcached" not in kernel.apps:
            if time.monotonic() > deadline:
                raise CorelaneError("attach memcached", f"it has not come within {PATIENCE_S:.0f} s")
            time.sleep(0.01)
        _fill_beside(path, space)
        yield load


_FILLER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as link:
    link.sendall(sys.stdin.buffer.read())
    print(link.recv(100).decode())
"""


def _fill_beside(path: str, space: Space) -> None:
    """Store all items by another application of the iokernel: a Python program with stock sockets."""
    data = b"".join(b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(value), value) for key, value in space.items())
    command = [*by_posix("--socket", path, "--name", "filler"), sys.executable, "-c", _FILLER]
    done = subprocess.run(
        [*command, SERVER_IP, str(MEMCACHED_PORT)],
        input=data + b"version\r\n",
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if not done.stdout.startswith(b"VERSION"):
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise CorelaneError("fill memcached on the memory NIC", said[-1])


class Nginxes:
    """nginx on Linux and on the dataplane, up until `stack` ends, each with its client of HTTP."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, int], connections: int) -> None:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-posix-")))
        root.chmod(0o755)
        (root / http.path_of(CASE.size)[1:]).write_bytes(bytes(i * 131 % 251 for i in range(http.SIZES[CASE.size])))
        self.connections = connections
        self.servers: dict[str, Nginx] = {}
        self.clients: dict[str, http.Client] = {}
        for world in (LINUX, OURS):
            veth = links.Veth(stack, cores)
            far = veth.far
            where: dict[str, Any] = {
                "address": far.address,
                "port": HTTP_PORT,
                "netns": far.namespace.name,
                "cpu": cores[1],
            }
            through = on_af_xdp(far) if world == OURS else ()
            self.servers[world] = stack.enter_context(Nginx(root=root, through=through, **where))
            connect(veth.near, far.address, HTTP_PORT).close()
            self.clients[world] = http.Client(veth.near, far.mac.hex(":"), cores[0], stack)

    def measure(self, world: str, seconds: float) -> http.Found:
        """GETs of one of the two."""
        return http.measure(self.clients[world], CASE, seconds, lambda: self._busy(world), self.connections)

    def _busy(self, world: str) -> tuple[float, float]:
        used = sum(usage.of_process(pid).busy_s for pid in self.servers[world].workers())
        return used, time.monotonic()

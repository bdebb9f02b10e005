"""The servers: ours, embedded, on a memory link or over AF_XDP; memcached and redis-server on Linux' TCP behind the
same veth pair. All on one core, and holding the same items."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...apps.kv import Store
from ...apps.kv import app as kv_app
from ...drivers.nic.memory import memory_link
from ...drivers.nic.nic import Nic
from ...libos import Runtime
from ..baseline.memcached import Memcached
from ..baseline.redis import Redis
from ..harness import usage
from ..harness.load import Load
from ..harness.rig import LONG_SPIN, PREFIX, SERVER_IP, counts_of_runtime
from ..tcp import links
from .scripts import Script, Space

OURS_PORT, MEMCACHED_PORT, REDIS_PORT = 11211, 11212, 6379
MEMORY_MIB = 256


def fill(store: Store, space: Space) -> None:
    """Store all items, without a network."""
    for key, value in space.items():
        store.store(key, value)


def bind(runtime: Runtime, space: Space, connections: int) -> kv_app.KvService:
    """Our store on a runtime that has not started, filled."""
    options = kv_app.Options(
        tcp_port=OURS_PORT, udp_port=0, memory_bytes=MEMORY_MIB << 20, connections=connections + 100
    )
    service = kv_app.setup(runtime, options)
    fill(service.store, space)
    return service


@contextlib.contextmanager
def _running(nic: Nic, cpu: int, space: Space, connections: int, **how: Any) -> Iterator[Runtime]:
    """Our server on a NIC."""
    with contextlib.ExitStack() as stack:
        runtime = Runtime(nic=nic, kthreads=1, cpus=[cpu], **how)
        stack.callback(runtime.close)
        service = bind(runtime, space, connections)
        stack.callback(service.close)
        runtime.start()
        yield runtime
        runtime.stop()
        runtime.close()


@contextlib.contextmanager
def on_memory(cores: tuple[int, int], space: Space, connections: int) -> Iterator[Callable[..., Any]]:
    """Ours on cores[1], on a memory link. Gives `client(script, connections, **how)`, a context with a Load on
    cores[0]."""
    with contextlib.ExitStack() as stack:
        client_end, server_end = memory_link()
        stack.callback(client_end.close)
        stack.callback(server_end.close)
        before = set(usage.threads())
        address = f"{SERVER_IP}/{PREFIX}"
        how = {"address": address, "scheduler": LONG_SPIN}
        runtime = stack.enter_context(_running(server_end, cores[1], space, connections, **how))
        tids = frozenset(set(usage.threads()) - before)
        where = {"server_mac": runtime.mac, "server_port": OURS_PORT}

        @contextlib.contextmanager
        def client(script: Script, connections: int, **more: Any) -> Iterator[Load]:
            made = links.load_of("ask", script=script, connections=connections, **where, **more)
            with contextlib.closing(made) as load:
                load.start_client(client_end, cores[0])
                counts = partial(_counts, runtime, server_end, tids)
                yield Load(load, lambda: usage.of_threads(tids).busy_s, counts)

        with contextlib.closing(links.load_of("hold", **where)) as first:
            first.start_client(client_end, cores[0])
            with first.held():
                pass  # the server knows our MAC address from here on
        yield client


def _counts(runtime: Runtime, nic: Nic, tids: frozenset[int]) -> Any:
    return counts_of_runtime(runtime, nic, usage.of_threads(tids))


class Pair:
    """A veth pair with memcached and redis-server at its far end, asleep while nobody asks them; ours while it is
    entered. Needs root."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, ...], space: Space, connections: int) -> None:
        self.cores, self.space, self.connections = cores, space, connections
        self.veth = links.Veth(stack, cores)
        far = self.veth.far
        where: dict[str, Any] = {"address": far.address, "netns": far.namespace.name, "cpu": cores[1]}
        extra = ["-c", str(connections + 100)]
        stack.enter_context(Memcached(memory_mib=MEMORY_MIB, port=MEMCACHED_PORT, extra=extra, **where))
        stack.enter_context(Redis(memory_mib=MEMORY_MIB, port=REDIS_PORT, clients=connections + 100, **where))
        self._fill(MEMCACHED_PORT, b"set %b 0 0 %d\r\n%b\r\n", b"STORED\r\n")
        self._fill(REDIS_PORT, b"*3\r\n$3\r\nSET\r\n$16\r\n%b\r\n$%d\r\n%b\r\n", b"+OK\r\n")

    def _fill(self, port: int, form: bytes, answer: bytes) -> None:
        """Store all items by a kernel connection, in pieces that are answered before the next one."""
        items = list(self.space.items())
        with self.veth.near.namespace.entered():
            link = socket.create_connection((self.veth.far.address, port), timeout=60)
        with link:
            for at in range(0, len(items), 500):
                part = items[at : at + 500]
                link.sendall(b"".join(form % (key, len(value), value) for key, value in part))
                left = len(answer) * len(part)
                while left:
                    left -= len(link.recv(left))

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Our server over AF_XDP, which spins."""
        with self.veth.nic() as nic:
            address = f"{self.veth.far.address}/{self.veth.far.prefix}"
            with _running(nic, self.cores[1], self.space, self.connections, poll="spin", address=address):
                yield

    def client(self, port: int, script: Script, connections: int, **how: Any) -> Any:
        """The client over AF_XDP: a context."""
        return self.veth.client("ask", server_port=port, script=script, connections=connections, **how)

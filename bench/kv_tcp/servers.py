"""The servers: ours, embedded, on a memory link or over AF_XDP; memcached and redis-server on Linux' TCP behind the
same veth pair. All on one core, and holding the same items."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ...apps.kv import app as kv_app
from ...libos import Runtime
from ..baseline.memcached import Memcached
from ..baseline.redis import Redis
from ..harness.load import Load
from ..load.sockload.sockload import Asked, SockLoad
from ..tcp import links
from .scripts import Script, Space
from .storing import store_all, store_here

OURS_PORT, MEMCACHED_PORT, REDIS_PORT = 11211, 11212, 6379
MEMORY_MIB = 256


def bind(runtime: Runtime, space: Space, connections: int) -> kv_app.KvService:
    """Our store on a runtime that has not started, filled."""
    options = kv_app.Options(
        tcp_port=OURS_PORT, udp_port=0, memory_bytes=MEMORY_MIB << 20, connections=connections + 100
    )
    service = kv_app.setup(runtime, options)
    store_here(service.store, space)
    return service


@contextlib.contextmanager
def on_memory(cores: tuple[int, int], space: Space, connections: int) -> Iterator[Callable[..., Any]]:
    """Ours on cores[1], on a memory link. Gives `client(script, connections, **how)`, a context with a Load on
    cores[0]."""
    with links.serving(cores, partial(bind, space=space, connections=connections), port=OURS_PORT) as link:

        @contextlib.contextmanager
        def client(script: Script, connections: int, **more: Any) -> Iterator[Load]:
            with link.client("ask", script=script, connections=connections, **more) as load:
                yield Load(load, link.busy_s, link.counts)

        yield client


class Pair:
    """A veth pair with memcached and redis-server at its far end, asleep while nobody asks them; ours while it is
    entered. Needs root."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, ...], space: Space, connections: int) -> None:
        self.cores, self.connections = cores, connections
        self.veth = links.Veth(stack, cores)
        far = self.veth.far
        where: dict[str, Any] = {"address": far.address, "netns": far.namespace.name, "cpu": cores[1]}
        extra = ["-c", str(connections + 100)]
        server = Memcached(memory_mib=MEMORY_MIB, port=MEMCACHED_PORT, extra=extra, **where)
        self.pid = stack.enter_context(server).pid  # of memcached
        stack.enter_context(Redis(memory_mib=MEMORY_MIB, port=REDIS_PORT, clients=connections + 100, **where))
        self.hold(space)

    def hold(self, space: Space) -> None:
        """Store these items in each; in ours when it is entered."""
        self.space = space
        for port, protocol in ((MEMCACHED_PORT, "memcached"), (REDIS_PORT, "redis")):
            with self.veth.near.namespace.entered():
                link = socket.create_connection((self.veth.far.address, port), timeout=60)
            store_all(link, space, protocol)

    def ours(self) -> AbstractContextManager[None]:
        """Our server over AF_XDP, which spins."""
        return self.veth.serving(partial(bind, space=self.space, connections=self.connections))

    def client(self, port: int, script: Script, connections: int, **how: Any) -> Any:
        """The client over AF_XDP: a context."""
        return self.veth.client("ask", server_port=port, script=script, connections=connections, **how)

    @contextlib.contextmanager
    def kernel_client(self, port: int, space: Space, connections: int) -> Iterator[SockLoad]:
        """A client on kernel sockets, the engine of `corelane load`, with the values that it knows stored: as many as
        the space's, of as many bytes, as popular."""
        asked = Asked(
            protocol="redis" if port == REDIS_PORT else "memcached",
            address=self.veth.far.address,
            port=port,
            connections=connections,
            cpus=(self.cores[0],),
            keys=space.keys,
            zipf=space.zipf,
            key_bytes=(len(space.key(0)),),
            value_bytes=(space.value_bytes,),
        )
        with self.veth.near.namespace.entered(), SockLoad(asked) as load:
            load.connect()
            load.preload()
            yield load

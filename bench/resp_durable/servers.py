"""Ours over AF_XDP and redis-server on Linux' TCP behind one veth pair, on one core, each with a log in one folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...apps.resp.app import Options, RespService
from ...libos import Runtime
from ..baseline.redis import Redis
from ..tcp import links

OURS_PORT, REDIS_PORT = 6380, 6379
MEMORY_MIB = 64


class Pair:
    """The veth pair, with redis-server at its far end, asleep while nobody asks it; ours while it is entered. Root."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, ...], folder: Path, connections: int) -> None:
        self.cores, self.folder = cores, folder
        self.veth = links.Veth(stack, cores)
        far = self.veth.far
        where: dict[str, Any] = {"address": far.address, "netns": far.namespace.name, "cpu": cores[1]}
        stack.enter_context(
            Redis(memory_mib=MEMORY_MIB, port=REDIS_PORT, clients=connections + 100, durable_in=folder, **where)
        )

    @contextlib.contextmanager
    def ours(self) -> Iterator[RespService]:
        """Our server over AF_XDP, which spins; its log is replayed when it comes again."""
        options = Options(port=OURS_PORT, memory_bytes=MEMORY_MIB << 20, log=str(self.folder / "ours.log"))
        with self.veth.nic() as nic, contextlib.ExitStack() as stack:
            address = f"{self.veth.far.address}/{self.veth.far.prefix}"
            runtime = Runtime(nic=nic, kthreads=1, cpus=[self.cores[1]], poll="spin", address=address)
            stack.callback(runtime.close)
            service = RespService(runtime, options)
            runtime.start()
            yield service
            runtime.stop()
            service.close()
            runtime.close()

    def client(self, port: int, script: Any, connections: int) -> Any:
        """The client over AF_XDP, in a closed loop: a context."""
        return self.veth.client("ask", server_port=port, script=script, connections=connections, arrivals="closed")

"""Ours over AF_XDP and redis-server on Linux' TCP behind one veth pair, on one core, each with a log in one folder, and
each without one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...apps.resp.app import Options, RespService
from ...libos import Runtime
from ..baseline.redis import Redis
from ..harness import usage
from ..tcp import links

OURS_PORT, REDIS_PORT, MEMORY_PORT = 6380, 6379, 6390
MEMORY_MIB = 64


class Pair:
    """The veth pair, with two of redis-server at its far end, one with a log and one without, asleep while nobody asks
    them; ours while it is entered. Root."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, ...], folder: Path, connections: int) -> None:
        self.cores, self.folder = cores, folder
        self.veth = links.Veth(stack, cores)
        far = self.veth.far
        where: dict[str, Any] = {"address": far.address, "netns": far.namespace.name, "cpu": cores[1]}
        where |= {"memory_mib": MEMORY_MIB, "clients": connections + 100}
        self.durable = stack.enter_context(Redis(port=REDIS_PORT, durable_in=folder, **where))
        stack.enter_context(Redis(port=MEMORY_PORT, **where))

    @contextlib.contextmanager
    def ours(self, *, durable: bool) -> Iterator[RespService]:
        """Our server over AF_XDP, which spins; its log is replayed when it comes again."""
        log = str(self.folder / "ours.log") if durable else ""
        options = Options(port=OURS_PORT, memory_bytes=MEMORY_MIB << 20, log=log)
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

    def redis_busy_s(self) -> float:
        """CPU seconds that redis-server has used so far, the one with a log."""
        return usage.of_process(self.durable.pid).busy_s

    def client(self, port: int, script: Any, connections: int) -> Any:
        """The client over AF_XDP, in a closed loop: a context."""
        return self.veth.client("ask", server_port=port, script=script, connections=connections, arrivals="closed")

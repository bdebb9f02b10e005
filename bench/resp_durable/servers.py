"""Ours over AF_XDP and redis-server on Linux' TCP behind one veth pair, on one core, each with a log in one folder, and
each without one. And ours with its log on a memory link."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...apps.resp.app import Options, RespService
from ...drivers.nic.tcpload.tcpload import TcpLoad
from ...libos import Runtime
from ..baseline.redis import Redis
from ..harness import usage
from ..tcp import links
from .grouped import Grouped

OURS_PORT, REDIS_PORT, MEMORY_PORT = 6380, 6379, 6390
MEMORY_MIB = 64


@contextlib.contextmanager
def busy(cpu: int) -> Iterator[None]:
    """Somebody spins on that CPU."""
    spin = f"import os; os.sched_setaffinity(0, [{cpu}]); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-S", "-c", spin], stdout=subprocess.PIPE) as spinner:
        try:
            assert spinner.stdout is not None
            spinner.stdout.readline()
            yield
        finally:
            spinner.terminate()


class Ours:
    """Binds our server to a runtime; `service` is what it was given. folder: of its log, which is replayed when it
    comes again; None: without one."""

    def __init__(self, folder: Path | None) -> None:
        log = str(folder / "ours.log") if folder else ""
        self._options = Options(port=OURS_PORT, memory_bytes=MEMORY_MIB << 20, log=log)
        self.service: RespService

    def __call__(self, runtime: Runtime) -> RespService:
        self.service = RespService(runtime, self._options)
        return self.service


@contextlib.contextmanager
def on_memory(
    cores: tuple[int, int], folder: Path, script: Any, connections: int
) -> Iterator[tuple[RespService, TcpLoad]]:
    """Ours with its log, spinning on cores[1], on a memory link; and its client on cores[0], in a closed loop."""
    ours = Ours(folder)
    how: dict[str, Any] = {"script": script, "connections": connections, "arrivals": "closed"}
    with links.serving(cores, ours, port=OURS_PORT, poll="spin") as link, link.client("ask", **how) as load:
        yield ours.service, load


class Pair:
    """The veth pair, with two of redis-server at its far end, one with a log and one without, asleep while nobody asks
    them; ours while it is entered. Root."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, ...], folder: Path, connections: int) -> None:
        self.folder = folder
        self.veth = links.Veth(stack, cores)
        far = self.veth.far
        where: dict[str, Any] = {"address": far.address, "netns": far.namespace.name, "cpu": cores[1]}
        where |= {"memory_mib": MEMORY_MIB, "clients": connections + 100}
        self.durable = stack.enter_context(Redis(port=REDIS_PORT, durable_in=folder, **where))
        stack.enter_context(Redis(port=MEMORY_PORT, **where))

    @contextlib.contextmanager
    def ours(self, *, durable: bool) -> Iterator[RespService]:
        """Our server over AF_XDP, which spins."""
        ours = Ours(self.folder if durable else None)
        with self.veth.serving(ours):
            yield ours.service

    @contextlib.contextmanager
    def grouped(self, group: int) -> Iterator[None]:
        """A server that only writes and answers so many SETs at once (grouped.h)."""
        with Grouped(self.folder, group, OURS_PORT) as server, self.veth.serving(server):
            yield

    def redis_busy_s(self) -> float:
        """CPU seconds that redis-server has used so far, the one with a log."""
        return usage.of_process(self.durable.pid).busy_s

    def client(self, port: int, script: Any, connections: int) -> Any:
        """The client over AF_XDP, in a closed loop: a context."""
        return self.veth.client("ask", server_port=port, script=script, connections=connections, arrivals="closed")

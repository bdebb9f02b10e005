"""What benchmarks are wired up from: an embedded server on a software link, an application in its own process, an
iokernel whose uplink is the load generator.

Every kthread and loop here is `adaptive` with a long spin unless told otherwise: it polls all through a run and sleeps
between runs, so that the canary and the other arms find its core free.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...drivers import netns
from ...drivers.af_xdp import AfXdp
from ...drivers.loadgen import Echo, Loadgen, Memcached
from ...drivers.memory import memory_link
from ...drivers.nic import Nic
from ...iokernel import AppSettings, Iokernel
from ...libos import Runtime
from ...runtime.errors import CorelaneError
from . import usage
from .load import Load
from .openloop import Point

SPIN_US = 5000
CLIENT_IP, SERVER_IP, PREFIX = "10.77.0.1", "10.77.0.2", 16


@dataclass
class Rig:
    """A server under load. server_nic: the NIC that the server polls, for its counters; tids: the server's threads."""

    load: Load
    generator: Loadgen
    tids: tuple[int, ...]
    runtime: Runtime | None = None
    server_nic: Nic | None = None
    iokernel: Iokernel | None = None
    process: App | None = None

    def usage(self) -> usage.Usage:
        """What the server's threads have used so far."""
        pid = self.process.pid if self.process else "self"
        total = usage.Usage()
        for tid in self.tids:
            total = total + usage.of_thread(tid, pid)
        return total


@contextlib.contextmanager
def embedded(
    bind: Callable[[Runtime], object],
    cores: tuple[int, int],
    *,
    traffic: Echo | Memcached | None = None,
    port: int = 9000,
    power: str = "adaptive",
    spin_us: float = SPIN_US,
    client_spins: bool = True,
    flows: int = 64,
    seed: int = 1,
) -> Iterator[Rig]:
    """A server in embedded mode with one kthread on cores[1], loaded over a memory link from cores[0].

    bind: gives the runtime its handlers. client_spins: the client polls during a run, else it sleeps between requests.
    """
    with contextlib.ExitStack() as stack:
        client_end, server_end = memory_link()
        stack.callback(client_end.close)
        stack.callback(server_end.close)
        before = set(usage.threads())
        runtime = Runtime(
            nic=server_end,
            kthreads=1,
            cpus=[cores[1]],
            power=power,
            spin_us=spin_us,
            address=f"{SERVER_IP}/{PREFIX}",
            udp_checksums=False,
        )
        stack.callback(runtime.close)
        kept = bind(runtime)
        if hasattr(kept, "close"):
            # Handlers point into it: closed after the runtime, whose close may be called twice.
            stack.callback(kept.close)
            stack.callback(runtime.close)
        runtime.start()
        tids = tuple(sorted(set(usage.threads()) - before))
        generator = Loadgen(
            traffic or Echo(),
            seed=seed,
            ip=CLIENT_IP,
            server_ip=SERVER_IP,
            server_mac=runtime.mac,
            server_port=port,
            flows=flows,
        )
        stack.callback(generator.close)
        generator.start_client(client_end, cpu=cores[0], spin=client_spins)
        rig = Rig(Load(generator), generator, tids, runtime, server_end)
        rig.load.busy_s = lambda: rig.usage().busy_s
        yield rig


class App:
    """`corelane run ...` in a process of its own, from its start until `close`. `info`: its "serving" event."""

    def __init__(self, arguments: Sequence[str], timeout_s: float = 30.0) -> None:
        command = [sys.executable, "-m", "corelane.cli.main", "run", *arguments, "--with-parent", "--json"]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in close
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        try:
            self.info = self._await("serving", timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def _await(self, event: str, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while selector.select(max(deadline - time.monotonic(), 0)):
                line = self._process.stdout.readline()
                if not line:
                    self._errors.seek(0)
                    said = self._errors.read().strip().splitlines() or ["it said nothing"]
                    raise CorelaneError("start the application", said[-1])
                told: dict[str, Any] = json.loads(line)
                if told.get("event") == event:
                    return told
        raise CorelaneError("start the application", f"it was not serving after {timeout_s:.0f} s")

    def threads(self) -> tuple[int, ...]:
        """Its threads that run handlers: all but the interpreter's."""
        return tuple(tid for tid in usage.threads(self.pid) if tid != self.pid)

    def close(self) -> None:
        """End it and wait."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()


@contextlib.contextmanager
def iokernel(
    application: Sequence[str],
    cores: tuple[int, int],
    *,
    traffic: Echo | Memcached | None = None,
    port: int = 9000,
    mode: str = "adaptive",
    spin_us: int = SPIN_US,
    flows: int = 64,
    seed: int = 1,
    apps: Mapping[str, AppSettings] | None = None,
) -> Iterator[Rig]:
    """An iokernel in this process, its loop on cores[0], its uplink the load generator.

    application: arguments of `corelane run`; it runs in its own process with one kthread on cores[1]. apps: settings of
    others that will attach.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-bench-"))
        path = str(Path(folder) / "io.sock")
        generator = Loadgen(
            traffic or Echo(), seed=seed, ip=CLIENT_IP, server_ip=SERVER_IP, server_port=port, flows=flows
        )
        stack.callback(generator.close)
        kernel = Iokernel(
            path,
            uplinks=[generator.nic()],
            loop_cpus=[cores[0]],
            worker_cpus=[cores[1]],
            mode=mode,
            spin_us=spin_us,
            app_defaults=AppSettings(ipv4=SERVER_IP),
            apps=apps,
        )
        kernel.start()
        stack.callback(kernel.stop)
        app = App([*application, "--socket", path, "--poll", mode, "--spin-us", str(spin_us)])
        stack.callback(app.close)
        rig = Rig(Load(generator), generator, app.threads(), None, None, kernel, app)
        rig.load.busy_s = lambda: rig.usage().busy_s
        yield rig


class LinuxLink:
    """A veth pair with Linux' own stack at the far end and the load, over AF_XDP, at the near end. Needs root.

    serve: starts a server at the far interface on `port`, pinned to cores[1]. It runs for the length of one measurement
    only: a spinning one would hold the core of the other arms.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        cores: tuple[int, int],
        *,
        traffic: Echo | Memcached | None = None,
        port: int = 9000,
        flows: int = 64,
        seed: int = 1,
    ) -> None:
        near, self.far = stack.enter_context(netns.link())
        with near.namespace.entered():
            self.nic = AfXdp(near.name, addresses=[near.address])
        stack.callback(self.nic.close)
        self.port = port
        self.generator = Loadgen(
            traffic or Echo(),
            seed=seed,
            mac=near.mac.hex(":"),
            ip=near.address,
            server_ip=self.far.address,
            server_mac=self.far.mac.hex(":"),
            server_port=port,
            flows=flows,
            checksum=True,
        )
        stack.callback(self.generator.close)
        self.generator.start_client(self.nic, cpu=cores[0])
        self.load = Load(self.generator)

    def measure(
        self,
        serve: Callable[[netns.Interface, int], contextlib.AbstractContextManager[Any]],
        rate: float,
        seconds: float,
    ) -> tuple[Point, dict[str, int]]:
        """One point of a server that is started for it, and the server's counters if it has any."""
        with serve(self.far, self.port) as server:
            point = self.load.measure(rate, seconds)
            return point, server.stats() if hasattr(server, "stats") else {}

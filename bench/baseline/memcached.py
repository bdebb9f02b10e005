"""Stock memcached as a baseline and as the oracle of the differential tests: started here, stopped by its pid."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from ...runtime.errors import CorelaneError, SystemLimit


def missing() -> str:
    """Why stock memcached cannot be run here, in one line; "" if it can."""
    if shutil.which("memcached") is None:
        return "memcached is not installed: apt-get install memcached"
    return ""


class Memcached:
    """A memcached process of our own on an address of this machine, TCP and UDP, on ports that it chooses itself.

    memory_mib: its -m; threads: its -t; address: where it listens; netns: name of a network namespace to run in (root),
    "" for this one; port: for both, 0 to let it choose; cpu: where it is pinned, -1 nowhere; through: a command that
    becomes it, given its command line. After `start` (or entering
    it as a context manager): tcp_port, udp_port, pid. Raises SystemLimit if it is not installed and CorelaneError with
    what it printed if it does not come up within `patience_s`.
    """

    def __init__(
        self,
        *,
        memory_mib: int = 64,
        threads: int = 1,
        address: str = "127.0.0.1",
        netns: str = "",
        port: int = 0,
        cpu: int = -1,
        through: Sequence[str] = (),
        extra: Iterable[str] = (),
        patience_s: float = 10.0,
    ) -> None:
        self.address = address
        self.netns = netns
        self.tcp_port = self.udp_port = port
        self.pid = 0
        self._memory_mib = memory_mib
        self._threads = threads
        self._cpu = cpu
        self._through = list(through)
        self._extra = list(extra)
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command line."""
        port = str(self.tcp_port) if self.tcp_port else "-1"  # -1: any free one
        command = ["ip", "netns", "exec", self.netns] if self.netns else []
        if self._cpu >= 0:
            command += ["taskset", "-c", str(self._cpu)]
        user = ["-u", "root"] if os.geteuid() == 0 else []
        command += [*self._through, "memcached", *user, "-l", self.address, "-p", port, "-U", port]
        return [*command, "-t", str(self._threads), "-m", str(self._memory_mib), *self._extra]

    def start(self) -> Memcached:
        """Start it and wait until it listens."""
        why = missing()
        if why:
            raise SystemLimit("start memcached", why)
        with tempfile.TemporaryDirectory(prefix="corelane-memcached-") as folder:
            ports = Path(folder) / "ports"
            env = dict(os.environ, MEMCACHED_PORT_FILENAME=str(ports))
            with (Path(folder) / "output").open("w+b") as output:
                self._process = subprocess.Popen(
                    self.command(), env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
                self.pid = self._process.pid  # what stands before memcached becomes it by exec
                self._await_ports(ports, Path(output.name))
        return self

    def _await_ports(self, ports: Path, output: Path) -> None:
        deadline = time.monotonic() + self._patience_s
        while not ports.exists():  # memcached renames it into place once it listens
            ended = self._process is not None and self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                said = output.read_text(errors="replace").strip().replace("\n", "; ")
                self.stop()
                raise CorelaneError(
                    "start memcached", said or "it does not come up", f"try: {' '.join(self.command())}"
                )
            time.sleep(0.005)
        for line in ports.read_text().splitlines():
            kind, _, port = line.partition(": ")
            if kind.startswith("TCP"):
                self.tcp_port = int(port)
            elif kind.startswith("UDP"):
                self.udp_port = int(port)

    def stop(self) -> None:
        """End it, by its pid, and wait until it has gone. Stopping twice is allowed."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.pid = 0

    def __enter__(self) -> Memcached:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def preload(self, items: Iterable[tuple[bytes, bytes]]) -> int:
        """Store items over TCP (from this namespace); returns how many memcached says it now holds."""
        with socket.create_connection((self.address, self.tcp_port), timeout=60) as link:
            return preload_tcp(link, items)


def preload_tcp(link: socket.socket, items: Iterable[tuple[bytes, bytes]]) -> int:
    """Store (key, value) pairs through a connection to memcached; returns its curr_items afterwards."""
    batch: list[bytes] = []
    size = 0
    for key, value in items:
        batch.append(b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(value), value))
        size += len(value) + 64
        if size > 1 << 20:
            link.sendall(b"".join(batch))
            batch, size = [], 0
    link.sendall(b"".join(batch) + b"stats\r\n")
    answer = b""
    while not answer.endswith(b"END\r\n"):
        part = link.recv(1 << 16)
        if not part:
            raise CorelaneError("preload memcached", "it closed the connection")
        answer += part
    for line in answer.split(b"\r\n"):
        if line.startswith(b"STAT curr_items "):
            return int(line.split()[2])
    return 0

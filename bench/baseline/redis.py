"""Stock redis-server as a baseline over TCP: started here, stopped by its pid. Nothing of it goes to a disk, unless it
is told to."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from ...runtime.errors import CorelaneError, SystemLimit


def missing() -> str:
    """Why redis-server cannot be run here, in one line; "" if it can."""
    return "" if shutil.which("redis-server") else "redis-server is not installed: apt-get install redis-server"


class Redis:
    """A redis-server of our own at an address of a network namespace (root), pinned to a CPU.

    memory_mib: its maxmemory, where it evicts (allkeys-lru). clients: its maxclients. durable_in: a folder for its
    append-only file, with fsync before each answer. through: a command that becomes it, given its command line. pid: of
    the process, once entered. Raises SystemLimit if it is not installed and CorelaneError with what it printed if it
    does not come up within `patience_s`.
    """

    def __init__(
        self,
        *,
        address: str,
        netns: str,
        port: int,
        cpu: int,
        memory_mib: int,
        clients: int,
        durable_in: Path | None = None,
        through: Sequence[str] = (),
        patience_s: float = 10.0,
    ) -> None:
        options = {"bind": address, "port": str(port), "save": "", "appendonly": "no", "daemonize": "no"}
        options |= {"maxmemory": f"{memory_mib}mb", "maxmemory-policy": "allkeys-lru", "maxclients": str(clients)}
        options |= {"protected-mode": "no", "tcp-backlog": "4096"}
        if durable_in is not None:
            options |= {"appendonly": "yes", "appendfsync": "always", "dir": str(durable_in)}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._command = ["ip", "netns", "exec", netns, "taskset", "-c", str(cpu), *through, "redis-server", *words]
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Redis:
        if why := missing():
            raise SystemLimit("start redis-server", why)
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._process.stdout is not None
        deadline, said = time.monotonic() + self._patience_s, []
        for line in self._process.stdout:  # ends with the process
            said.append(line.decode(errors="replace").strip())
            if "Ready to accept connections" in said[-1]:
                return self
            if time.monotonic() > deadline:
                break
        self.stop()
        raise CorelaneError("start redis-server", "; ".join(said[-3:]) or "it printed nothing")

    @property
    def pid(self) -> int:
        """Its process, while it runs. What stands before redis-server in its command becomes it by exec."""
        assert self._process is not None
        return self._process.pid

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
        if process.stdout is not None:
            process.stdout.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

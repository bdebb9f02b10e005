"""Stock redis-benchmark as the client: one process of ordinary sockets, a SET outstanding on each connection."""

from __future__ import annotations

import contextlib
import csv
import shutil
import socket
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass

from ...drivers.linux.netns import Namespace
from ...runtime.errors import CorelaneError
from ..harness.affinity import started_on
from ..raft.arms import Slot

KEYS, VALUE_BYTES = 20_000, 64
PATIENCE_S = 60.0
FIRST_SETS = 500  # by which a rate is found, and its end is warm


def missing() -> str:
    """Why it cannot be run here; "" if it can."""
    return "" if shutil.which("redis-benchmark") else "redis-benchmark is not installed: apt-get install redis-tools"


@dataclass(frozen=True)
class Client:
    """Of a server at an address of a namespace. cpus: the client keeps to these."""

    space: Namespace
    address: str
    port: int
    cpus: Collection[int]

    def await_ok(self) -> None:
        """Until a SET is answered OK: who has just been elected takes over first."""
        deadline, said = time.monotonic() + PATIENCE_S, b""
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                with self.space.entered():
                    link = socket.create_connection((self.address, self.port), 5)
                with link:
                    link.sendall(b"SET warm 1\r\n")
                    said = link.recv(1000)
                if said == b"+OK\r\n":
                    return
            time.sleep(0.01)
        raise CorelaneError("ask a server by RESP", f"it does not take a SET, and says {said!r}")

    def sets(self, connections: int, count: int) -> Slot:
        """So many SETs of 16-byte keys; with times to 1 us."""
        words = ["-h", self.address, "-p", self.port, "-t", "set", "-n", count, "-c", connections]
        words += ["-d", VALUE_BYTES, "-r", KEYS, "--csv"]
        with started_on(self.cpus):
            done = subprocess.run(
                self.space.command(["redis-benchmark", *map(str, words)]),
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
        return parse(done.stdout, count, done.stderr.strip())

    def slot(self, connections: int, seconds: float) -> Slot:
        """As many SETs as take about that long, after some that tell how many these are."""
        rate = self.sets(connections, FIRST_SETS).per_s
        return self.sets(connections, max(int(rate * seconds), FIRST_SETS))


def parse(table: str, count: int, complaint: str = "") -> Slot:
    """What redis-benchmark's CSV says of `count` SETs. Raises CorelaneError if there is none."""
    rows = {row["test"]: row for row in csv.DictReader(table.splitlines()) if "test" in row}
    if "SET" not in rows or complaint:
        raise CorelaneError("measure with redis-benchmark", (complaint or table.strip() or "it says nothing")[:200])
    row = rows["SET"]
    p50_us, p99_us = (1e3 * float(row[f"p{percent}_latency_ms"]) for percent in (50, 99))
    return Slot(p50_us, p99_us, float(row["rps"]), count)

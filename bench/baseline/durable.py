"""Stores that append durably, one at a time: SQLite in WAL mode, LMDB, Redis with its append-only file.

Each loop returns its latencies.

All are driven from Python, whose share of an append is some microseconds and is left in.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from ...runtime.errors import CorelaneError

RECORD = b"Z" * 256


def timed(append: Callable[[int], object], seconds: float) -> list[int]:
    """Call append(i) one after another for so long: ns of each call."""
    out: list[int] = []
    start = begin = time.perf_counter_ns()
    while start < begin + seconds * 1e9:
        append(len(out))
        end = time.perf_counter_ns()
        out.append(end - start)
        start = end
    return out


class Sqlite:
    """A table in WAL mode, synchronous=FULL: a transaction is one insert."""

    def __init__(self, folder: Path) -> None:
        self._db = sqlite3.connect(folder / "sqlite.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, data BLOB)")

    def append(self, _i: int) -> None:
        self._db.execute("INSERT INTO log (data) VALUES (?)", (RECORD,))

    def close(self) -> None:
        self._db.close()


def lmdb_missing() -> str:
    """Why LMDB cannot be compared with, "" if it can."""
    return "" if importlib.util.find_spec("lmdb") else "python's lmdb is not installed: pip install 'corelane[bench]'"


class Lmdb:
    """Ascending keys, a transaction each, synchronous as by default."""

    def __init__(self, folder: Path) -> None:
        import lmdb

        self._env = lmdb.open(str(folder / "lmdb"), map_size=1 << 30)

    def append(self, i: int) -> None:
        with self._env.begin(write=True) as txn:
            txn.put(time.perf_counter_ns().to_bytes(8, "big") + i.to_bytes(4, "big"), RECORD, append=True)

    def close(self) -> None:
        self._env.close()


def redis_missing() -> str:
    """Why Redis cannot be compared with, "" if it can."""
    return "" if shutil.which("redis-server") else "redis-server is not installed: apt-get install redis-server"


class Redis:
    """RPUSH over a UNIX socket to a server of our own with `appendfsync always`."""

    def __init__(self, folder: Path, patience_s: float = 10.0) -> None:
        path = folder / "redis.sock"
        options = {"port": "0", "unixsocket": str(path), "dir": str(folder), "save": ""}
        options |= {"appendonly": "yes", "appendfsync": "always", "daemonize": "no"}
        command = ["redis-server", *(word for k, v in options.items() for word in (f"--{k}", v))]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._socket = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._socket.connect(str(path))
                break
            except OSError as e:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    self.close()
                    raise CorelaneError("start redis-server", f"it does not answer on {path}: {e}") from None
                time.sleep(0.02)
        self._command = b"*3\r\n$5\r\nRPUSH\r\n$1\r\nk\r\n$%d\r\n%s\r\n" % (len(RECORD), RECORD)

    def append(self, _i: int) -> None:
        self._socket.sendall(self._command)
        answer = self._socket.recv(64)
        if not answer.startswith(b":"):
            raise CorelaneError("append to redis", answer.decode(errors="replace").strip())

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait()

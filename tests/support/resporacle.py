"""Stock redis-server as the oracle of the differential tests: started here on a Unix socket, stopped by its pid.

`same` compares its reply to ours, byte by byte but for what DIFFERENCES lists, with the reason of each.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from respwire import Reply, Word, parse, replies

from corelane.apps.resp.engine import encode

Command = Sequence[Word]


def missing() -> str:
    """Why there is no oracle, in one line; "" if there is one."""
    return "" if shutil.which("redis-server") else "redis-server is not installed: apt-get install redis-server"


class Link:
    """One connection to the oracle."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60.0)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._rest = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def take(self, size: int) -> bytes:
        """So many bytes, or what there was when the connection ended."""
        while len(self._rest) < size and (part := self._socket.recv(1 << 16)):
            self._rest += part
        out, self._rest = self._rest[:size], self._rest[size:]
        return out

    def reply(self) -> tuple[Reply, bytes]:
        """The next reply, and its bytes."""
        while (one := parse(self._rest) if self._rest else None) is None:
            part = self._socket.recv(1 << 16)
            assert part, f"the oracle hung up after {self._rest!r}"
            self._rest += part
        out, self._rest = self._rest[: one[1]], self._rest[one[1] :]
        return one[0], out

    def call(self, *words: Word) -> Reply:
        self.send(encode(*words))
        return self.reply()[0]

    def calls(self, commands: Iterable[Command]) -> list[tuple[Reply, bytes]]:
        """Replies to commands, a hundred at a time on their way."""
        out, waiting = [], list(commands)
        for start in range(0, len(waiting), 100):
            part = waiting[start : start + 100]
            self.send(b"".join(encode(*c) for c in part))
            out += [self.reply() for _ in part]
        return out

    def until(self, end: bytes) -> bytes:
        """All up to there."""
        while (at := self._rest.find(end)) < 0:
            part = self._socket.recv(1 << 16)
            assert part, f"the oracle hung up after {self._rest!r}"
            self._rest += part
        return self.take(at + len(end))

    def rest(self) -> bytes:
        """All until it hangs up."""
        while part := self._socket.recv(1 << 16):
            self._rest += part
        return self._rest

    def close(self) -> None:
        self._socket.close()


class Oracle:
    """A redis-server without persistence."""

    def __init__(self, patience_s: float = 30.0) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="corelane-redis-")
        self.path = Path(self._folder.name) / "s"
        options = {"port": "0", "unixsocket": str(self.path), "dir": self._folder.name, "save": "", "appendonly": "no"}
        options |= {"daemonize": "no", "enable-debug-command": "yes"}
        command = ["redis-server", *(word for k, v in options.items() for word in (f"--{k}", v))]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self.control = self.link()
                break
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    self._end()
                    raise
                time.sleep(0.01)

    def link(self) -> Link:
        return Link(self.path)

    def forget(self) -> None:
        """Begin with nothing, and with the settings that it started with."""
        for words in (
            ("CLIENT", "UNPAUSE"),
            ("FLUSHALL",),
            ("CONFIG", "SET", "notify-keyspace-events", "", "requirepass", ""),
            ("DEBUG", "SET-ACTIVE-EXPIRE", "1"),
        ):
            assert self.control.call(*words).value == b"OK"

    def blocked(self) -> int:
        """How many clients wait."""
        text = self.control.call("INFO", "clients").value
        return int(next(line for line in text.split(b"\r\n") if line.startswith(b"blocked_clients")).split(b":")[1])

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()

    def close(self) -> None:
        self.control.close()
        self._end()


UNORDERED = {"SMEMBERS", "SINTER", "SUNION", "SDIFF", "HKEYS", "HVALS", "KEYS", "SPOP", "SRANDMEMBER"}
"""Replies whose order is nobody's promise: compared as bags. SPOP and SRANDMEMBER: only where all are asked for."""
PAIRS = {"HGETALL", "HRANDFIELD", "ZRANDMEMBER"}
"""The same, of pairs."""
NEAR = {"TTL", "PTTL"}
"""Compared within 60 s: the two servers do not have them at the same time."""

TREE = (b"radix-tree-keys", b"radix-tree-nodes")
"""Fields of XINFO STREAM about how Redis keeps a stream."""

DIFFERENCES = {
    "INFO": "numbers of the server itself",
    "MEMORY": "how many bytes a value takes",
    "OBJECT ENCODING": "small collections are kept as large ones are; Redis packs them",
}
"""What is not compared, and why."""


def same(command: Command, ours: tuple[Reply, bytes], theirs: tuple[Reply, bytes]) -> bool:
    """Whether two replies to a command say the same."""
    if ours[1] == theirs[1]:
        return True
    name = str(command[0], "ascii") if isinstance(command[0], bytes) else str(command[0])
    a, b = ours[0], theirs[0]
    if name in NEAR and a.kind == b.kind == ":" and a.value >= 0 and b.value >= 0:
        return abs(a.value - b.value) <= (60 if name == "TTL" else 60_000)
    if name in UNORDERED:
        return bool(a.sorted() == b.sorted())
    if name in PAIRS:
        flat = isinstance(a.value, list) and not any(isinstance(x.value, list) for x in a.value)
        with_values = name == "HGETALL" or any(str(w).upper().startswith("WITH") for w in command)
        return bool(a.sorted(flat and with_values) == b.sorted(flat and with_values))
    if name == "XINFO" and isinstance(b.value, list):
        pairs = [(f, v) for f, v in zip(b.value[::2], b.value[1::2], strict=True) if f.value not in TREE]
        return bool(a.value == [part for pair in pairs for part in pair])
    return name in DIFFERENCES


def compare(commands: Sequence[Command], ours: bytes, theirs: list[tuple[Reply, bytes]]) -> None:
    """Assert that all replies are the same; what came before the first that is not is shown."""
    mine = replies(ours)
    for i, (command, a, b) in enumerate(zip(commands, mine, theirs, strict=False)):
        if not same(command, a, b):
            before = "\n".join(
                f"  {c!r} -> {r[1]!r}" for c, r in list(zip(commands, theirs, strict=False))[max(0, i - 12) : i]
            )
            raise AssertionError(f"{before}\n{command!r}\n  ours:   {a[1]!r}\n  theirs: {b[1]!r}")
    assert len(mine) == len(commands) == len(theirs)

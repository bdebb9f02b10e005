"""What a Raft put is compared with: the C raft library that distributions ship, and etcd. Three members each, on TCP of
this machine's loopback, with their own logs in a folder on the disk that is given. Stopped by their pids."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...runtime.errors import CorelaneError, SystemLimit
from ..harness.affinity import started_on
from ..harness.numbers import percentile
from .compiled import INSTALL, build

MEMBERS = (1, 2, 3)
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Puts:
    """Latencies of answered puts, ascending, in ns, and the time that they took together. counts: of other things."""

    latencies_ns: Sequence[int]
    seconds: float
    counts: Mapping[str, int] | None = None

    @property
    def per_s(self) -> float:
        return len(self.latencies_ns) / self.seconds if self.seconds else 0.0

    def percentile_us(self, percent: float) -> float:
        return percentile(self.latencies_ns, percent / 100) / 1e3


def _free_ports(count: int) -> list[int]:
    """Consecutive TCP ports of loopback that nobody has. Somebody else may take one before it is used: who looks at the
    same time looks elsewhere first."""
    places = range(23000, 32000, 64)
    for n in range(len(places)):
        first = places[(os.getpid() + n) % len(places)]
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return list(range(first, first + count))
    raise CorelaneError("find free ports", "none between 23000 and 32000")


def _stop(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _parse(output: bytes) -> list[int]:
    return sorted(struct.unpack(f"={len(output) // 8}Q", output))


class Libraft:
    """A cluster of the library's servers, by `running`. Raises SystemLimit if it cannot be built here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = build("libraft_put", "CORELANE_LIBRAFT", ("raft", "uv"), folder)
        self._made = 0

    @contextlib.contextmanager
    def running(self, clients: int, value_bytes: int, cpus: Collection[int]) -> Iterator[Callable[[float], Puts]]:
        """Three servers, and a function that has `clients` put within the leader's process for so many seconds.

        Between its calls they are idle but for heartbeats. cpus: of all three processes.
        """
        self._made += 1
        data = self._folder / f"libraft-{self._made}"
        first = _free_ports(len(MEMBERS) + 1)[0]
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context((self._folder / f"{data.name}.errors").open("w+"))
            stack.callback(shutil.rmtree, data, ignore_errors=True)
            servers = []
            with started_on(cpus):
                for member in MEMBERS:
                    (data / str(member)).mkdir(parents=True)
                    words = [member, data / str(member), first, value_bytes, clients]
                    servers.append(
                        subprocess.Popen(
                            [str(self._program), *map(str, words)],
                            stdin=subprocess.PIPE if member == MEMBERS[0] else subprocess.DEVNULL,
                            stdout=subprocess.PIPE,
                            stderr=errors,
                        )
                    )
                    stack.callback(_stop, servers[-1])

            def said() -> str:
                errors.seek(0)
                return (errors.read().strip().splitlines() or [f"not done after {PATIENCE_S:.0f} s"])[-1]

            def turn(seconds: float) -> Puts:
                asked, answers = servers[0].stdin, servers[0].stdout
                assert asked is not None
                assert answers is not None
                with contextlib.suppress(BrokenPipeError):  # then there is no answer, either
                    asked.write(b"%d\n" % max(int(seconds * 1e3), 1))
                    asked.flush()
                end = time.monotonic() + seconds + PATIENCE_S
                head = struct.unpack("=QQ", _exactly(answers, 16, end) or bytes(16))
                latencies = _exactly(answers, 8 * head[0], end)
                if not latencies:
                    raise CorelaneError("measure libraft", said())
                return Puts(_parse(latencies), head[1] / 1e9)

            turn(0.001)  # they have a leader, and their ports
            yield turn


def _exactly(pipe: IO[bytes], count: int, end: float) -> bytes:
    """So many bytes; none if the pipe ends before, or the time does."""
    got = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(got) < count and selector.select(max(end - time.monotonic(), 0)):
            piece = os.read(pipe.fileno(), count - len(got))  # never more than is asked for, so nothing is buffered
            if not piece:
                break
            got += piece
    return bytes(got) if len(got) == count else b""


def _healthy(port: int) -> bool:
    """Whether etcd answers there, and has a leader."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(json.load(answer).get("health") == "true")
    except (urllib.error.URLError, OSError, ValueError):
        return False


class Etcd:
    """A cluster of etcd's, by `running`, and its clients, on `cpus`. Raises SystemLimit if it cannot be had here."""

    def __init__(self, folder: Path, cpus: Collection[int]) -> None:
        if shutil.which("etcd") is None:
            raise SystemLimit("start etcd", f"it is not installed: {INSTALL}")
        self._folder = folder
        self._cpus = cpus
        self._program = build("etcd_put", "CORELANE_ETCD", ("nghttp2",), folder)
        self._ports: list[int] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Three members, from the time that they have a leader."""
        data = self._folder / "etcd"
        ports = _free_ports(2 * len(MEMBERS))
        clients, peers = ports[: len(MEMBERS)], ports[len(MEMBERS) :]
        every = ",".join(f"m{m}=http://127.0.0.1:{peer}" for m, peer in zip(MEMBERS, peers, strict=True))
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context((self._folder / "etcd.errors").open("w+"))
            stack.callback(shutil.rmtree, data, ignore_errors=True)
            members = []
            for member, client, peer in zip(MEMBERS, clients, peers, strict=True):
                words = {
                    "name": f"m{member}",
                    "data-dir": data / str(member),
                    "listen-client-urls": f"http://127.0.0.1:{client}",
                    "advertise-client-urls": f"http://127.0.0.1:{client}",
                    "listen-peer-urls": f"http://127.0.0.1:{peer}",
                    "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
                    "initial-cluster": every,
                    "initial-cluster-token": f"corelane-{peers[0]}",
                    "log-level": "error",
                }
                command = ["etcd", *(f"--{key}={value}" for key, value in words.items())]
                with started_on(self._cpus):
                    members.append(
                        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
                    )
                stack.callback(_stop, members[-1])
            self._await(clients, members, Path(errors.name))
            self._ports = clients
            yield

    @staticmethod
    def _await(ports: Sequence[int], members: Sequence[subprocess.Popen[Any]], errors: Path) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for port in ports:
            while not _healthy(port):
                if time.monotonic() > deadline or any(m.poll() is not None for m in members):
                    said = errors.read_text().strip().splitlines() or ["it is not healthy"]
                    raise CorelaneError("start etcd", said[-1])
                time.sleep(0.02)

    def measure(self, member: int, clients: int, seconds: float, key_bytes: int, value_bytes: int) -> Puts:
        """Puts to one member (0..2), one outstanding for each of `clients`, after 0.3 s to warm up."""
        words = [self._ports[member], clients, f"{seconds:.3f}", key_bytes, value_bytes]
        command = [str(self._program), *map(str, words)]
        with started_on(self._cpus):
            done = subprocess.run(command, capture_output=True, check=False, timeout=seconds + PATIENCE_S)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise CorelaneError("measure etcd", said[-1])
        return Puts(_parse(done.stdout), seconds)

    def best(self, clients: int, seconds: float, key_bytes: int, value_bytes: int) -> Puts:
        """Of all members, asked in turn for so long each, the one that answered most."""
        each = (self.measure(m, clients, seconds, key_bytes, value_bytes) for m in range(len(MEMBERS)))
        return max(each, key=lambda puts: puts.per_s)

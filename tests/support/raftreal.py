"""Raft groups of real processes: over the virtual switch, or each in a network namespace of its own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from cltest import Namespace, NetnsFactory, wait_until
from cltest.children import die_with_parent
from cltest.netns import skip_without, skip_without_af_xdp

from corelane.apps.raft.service.client import Client
from corelane.apps.raft.service.logs import make_log_file
from corelane.apps.raft.service.operate import Operator
from corelane.drivers.linux import ethtool
from corelane.drivers.nic.tap.tap import Tap
from corelane.iokernel import AppConfig, Iokernel

IDS = (1, 2, 3)
HOST = "10.77.0.1"
ADDRESS = {i: f"10.77.0.{10 + i}" for i in IDS}
PEERS = ",".join(f"{i}={ADDRESS[i]}:7400" for i in IDS)
ELECTION_MS = 100
LOG_BYTES = 32 << 20
LAST_WORDS = 12
SOAK_S = float(os.environ.get("CORELANE_SOAK_S", "0"))
"""How long to go on; 0: for as long as CI has time."""


def seed_of(test: str) -> int:
    """CORELANE_SEED or one drawn now; printed."""
    seed = int(os.environ.get("CORELANE_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"{test}: seed {seed}; CORELANE_SEED={seed} draws the same faults")
    return seed


def until_time_is_over(step: Callable[[], None]) -> None:
    """Once, and again as long as a soak goes on."""
    end = time.monotonic() + SOAK_S / 5
    step()
    while time.monotonic() < end:
        step()


class Child:
    """A node's process. What it says goes to a file, over all its lives."""

    def __init__(self, argv: list[str], said: Path, *, controlled: bool) -> None:
        self._said: IO[bytes] = said.open("ab")
        pipe = subprocess.PIPE if controlled else None
        self.process = subprocess.Popen(
            argv,
            stdin=pipe or subprocess.DEVNULL,
            stdout=pipe or self._said,
            stderr=self._said,
            preexec_fn=die_with_parent,
            cwd="/",
        )
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        if controlled:
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._answers.put(json.loads(line))

    def serving(self, deadline_s: float = 150.0) -> None:
        """Wait until a controlled node serves: it makes its log durable first, and a busy disk may take a minute."""
        assert "serving" in self._answer("to serve", deadline_s)

    def _answer(self, what: str, deadline_s: float = 150.0) -> dict[str, Any]:
        def ended_or_said() -> bool:
            return not self._answers.empty() or self.process.poll() is not None

        wait_until(ended_or_said, deadline_s, f"node {what}")
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=1 if self.process.poll() is None else 5)
        raise AssertionError(f"waited for a node {what}, but it ended with {self.process.returncode}")

    def ask(self, **request: Any) -> dict[str, Any]:
        """Its answer to a line of control."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer(f"to answer {request}")

    def kill(self) -> None:
        """kill -9, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    if stream is self.process.stdout:
                        self._reader.join(60)
                    stream.close()
        self._said.close()


class Group:
    """Three nodes with logs in a folder. `space`: where clients are. Close it, whatever happens."""

    def __init__(self, folder: Path, space: Namespace) -> None:
        self.folder, self.space = folder, space
        self.children: dict[int, Child] = {}
        self._sockets: list[socket.socket] = []
        self.events: list[str] = []

    def argv(self, i: int) -> list[str]:
        """The command line of a node."""
        raise NotImplementedError

    controlled = True
    resp = False
    """Whether the nodes have typed values and Redis' protocols in the store's place."""

    def start(self, *ids: int) -> None:
        """Start nodes, from their logs if they have one."""
        for i in ids:
            self.events.append(f"start {i}")
            said, log = self.folder / f"{i}.said", self.folder / f"{i}.log"
            if not log.exists():
                make_log_file(str(log), LOG_BYTES)
            self.children[i] = Child(self.argv(i), said, controlled=self.controlled)
        if self.controlled:
            for i in ids:
                self.children[i].serving()

    def kill(self, *ids: int) -> None:
        """kill -9, all before the first is waited for."""
        self.events.append(f"kill {ids}")
        for i in ids:
            self.children[i].process.send_signal(signal.SIGKILL)
        for i in ids:
            self.children.pop(i).kill()

    def pause(self, ids: Sequence[int], seconds: float) -> None:
        """SIGSTOP, all at once, and SIGCONT after a while: what comes meanwhile waits in their queues."""
        self.events.append(f"stop {ids} for {1e3 * seconds:.0f} ms")
        for i in ids:
            self.children[i].process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        for i in ids:
            self.children[i].process.send_signal(signal.SIGCONT)

    def ask(self, i: int, **request: Any) -> dict[str, Any]:
        """Control a node (raftnode)."""
        if set(request) - {"status"}:
            self.events.append(f"{i}: {request}")
        return self.children[i].ask(**request)

    def operator(self, timeout_s: float) -> Operator:
        """An operator of all nodes; who closes it closes its socket."""
        peers = {i: (ADDRESS[i], 7400) for i in IDS}
        return Operator(peers, sock=self.space.udp_socket((HOST, 0)), timeout_s=timeout_s)

    def client(self, *ids: int, timeout_s: float = 60.0, resend_s: float = 0.2) -> Client:
        """A client of all nodes, or of these."""
        self._sockets.append(self.space.udp_socket((HOST, 0)))
        peers = {i: (ADDRESS[i], 7400) for i in ids or IDS}
        return Client(peers, sock=self._sockets[-1], timeout_s=timeout_s, resend_s=resend_s)

    def last_words(self) -> str:
        """What was done to the group, and the last that each node said."""
        out = ["what was done: " + "; ".join(self.events[-40:])]
        for i in IDS:
            said = self.folder / f"{i}.said"
            lines = said.read_text(errors="replace").splitlines() if said.exists() else []
            alive = i in self.children and self.children[i].process.poll() is None
            out.append(f"node {i} ({'runs' if alive else 'does not run'}) said last:")
            out += [f"    {line}" for line in lines[-LAST_WORDS:]] or ["    nothing"]
        return "\n".join(out)

    def close(self) -> None:
        """End all processes."""
        for child in self.children.values():
            child.kill()
        for sock in self._sockets:
            sock.close()


class SwitchGroup(Group):
    """Three processes on the virtual switch of one iokernel, the clients behind a tap.

    controlled: their disks can be made to fail. faulty: so can their ports of the switch, behind a fault NIC each.
    """

    def __init__(
        self,
        folder: Path,
        netns: NetnsFactory,
        *,
        controlled: bool = False,
        faulty: bool = False,
        lease: bool = False,
    ) -> None:
        super().__init__(folder, netns.add("raft"))
        self.controlled, self.faulty, self.lease = controlled or faulty, faulty, lease
        self._short = tempfile.TemporaryDirectory(prefix="cl-io-")  # the path of a socket may have 107 bytes
        self.socket = f"{self._short.name}/s"
        with self.space.entered():
            self._nic = Tap("clraft", address=f"{HOST}/16")
        apps = {f"raft-{i}": AppConfig(ip=ADDRESS[i]) for i in IDS}
        self._kernel = Iokernel(self.socket, uplinks=[self._nic], poll="block", apps=apps)
        self._kernel.start()

    def argv(self, i: int) -> list[str]:
        if self.controlled:
            more = ["--socket", self.socket, *(["--faulty"] if self.faulty else [])]
            return [*_node(i, self.folder), *more, *(["--resp"] if self.resp else [])]
        options = {
            "id": i,
            "peers": PEERS,
            "log": f"{self.folder}/{i}.log",
            "memory_bytes": 4 << 20,
            "election_ms": ELECTION_MS,
            "lease": "yes" if self.lease else "no",
        }
        words = [w for k, v in options.items() for w in ("--option", f"{k}={v}")]
        run = ["-m", "corelane.cli.main", "run", "raft-resp" if self.resp else "raft-kv", "--socket", self.socket]
        return [sys.executable, *run, "--name", f"raft-{i}", "--poll", "block", *words]

    def close(self) -> None:
        super().close()
        self._kernel.stop()
        self._nic.close()
        self._short.cleanup()


class NetnsGroup(Group):
    """Three network namespaces, each with a node that is embedded on its end of a veth pair (AF_XDP, behind a fault
    NIC); the other ends are on a Linux bridge, where the clients are, too."""

    def __init__(self, folder: Path, netns: NetnsFactory, *, log_entries: int = 0) -> None:
        skip_without_af_xdp()
        self.log_entries = log_entries  # in memory; few: snapshots all the time
        super().__init__(folder, netns.add("hub"))
        with skip_without("bridge"):
            self.space.ip("link", "add", "clbr", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        with self.space.entered():
            ethtool.offloads_off("clbr")
        self.space.ip("address", "add", f"{HOST}/16", "dev", "clbr")
        self.space.ip("link", "set", "clbr", "up")
        self.spaces: dict[int, Namespace] = {}
        for i in IDS:
            self.spaces[i] = netns.add(f"node{i}")
            self._join(i)

    def _join(self, i: int) -> None:
        space, end = self.spaces[i], f"clhub{i}"
        ends = ("name", end, "type", "veth", "peer", "name", "clnode", "netns", space.name)
        with skip_without("veth"):
            self.space.ip("link", "add", *ends)
        for where, name in ((self.space, end), (space, "clnode")):
            with where.entered():
                ethtool.offloads_off(name)
            where.ip("link", "set", name, "up")
        self.space.ip("link", "set", end, "master", "clbr")

    def cut_link(self, a: int, b: int, cut: bool = True) -> None:
        """These two do not reach each other, and the third and the clients still reach both; or do again."""
        self.events.append(f"{'cut' if cut else 'mend'} {a} - {b}")
        for i in (a, b):
            self.space.ip("link", "set", f"clhub{i}", "type", "bridge_slave", "isolated", "on" if cut else "off")

    def only_clients(self, i: int, only: bool = True) -> None:
        """Clients alone reach this node, over a route of its own beside the bridge; or it is on the bridge again."""
        self.events.append(f"{'only clients reach' if only else 'all reach'} {i}")
        route = (f"{ADDRESS[i]}/32", "dev", f"clhub{i}", "src", HOST)
        if only:
            self.space.ip("link", "set", f"clhub{i}", "nomaster")
            self.space.ip("route", "add", *route)
        else:
            self.space.ip("route", "del", *route)
            self.space.ip("link", "set", f"clhub{i}", "master", "clbr")

    def argv(self, i: int) -> list[str]:
        more = ["--nic", "clnode", "--log-entries", str(self.log_entries), *(["--resp"] if self.resp else [])]
        return self.spaces[i].command([*_node(i, self.folder), *more])


def _node(i: int, folder: Path) -> list[str]:
    script = str(Path(__file__).with_name("raftnode.py"))
    options = {"id": i, "seed": i, "peers": PEERS, "log": f"{folder}/{i}.log"}
    words = [w for k, v in (options | {"election-ms": ELECTION_MS}).items() for w in (f"--{k}", str(v))]
    return [sys.executable, script, *words]

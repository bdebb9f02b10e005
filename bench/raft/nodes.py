"""Raft nodes in processes of their own for the benchmarks, and an iokernel between them whose uplink is the load.

    with Group(cores, logs=folder) as group:
        group.start_all(election_ms=200, prefer=1)
        group.await_leader()
        os.kill(group.pids[1], signal.SIGKILL)

Nodes are forked by one warm process, the nursery, so that a restart costs some tens of milliseconds and not the time in
which Python imports. A node is what `corelane run raft-kv` is: a runtime, and the replicated store served on it. It
tells when it begins to lead. The nursery ends with its stdin, and the nodes end with the nursery.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import json
import os
import select
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ...drivers.nic.nic import Nic
from ...iokernel import Allocation, AppConfig, Idle, Iokernel
from ...runtime.errors import CorelaneError, check

NODES = (1, 2, 3)
KV_PORT, RESP_PORT, FRAME_PORT = 11211, 6379, 7400
SPIN_US, TARGET_US = 5000, 0.01  # a node gets the core at once
SHARED_SPIN_US = 100  # as long as most waits for the others' disks; it yields between looks (complete.h)
# Of each node: its log, its store, and the file of a raw relay. A log is written whole before it is used.
BYTES = {"log": 128 << 20, "memory": 24 << 20, "relay": 16 << 20}


def address(node: int) -> str:
    """The node's, on the virtual switch."""
    return f"10.77.0.{10 + node}"


PEERS = ",".join(f"{node}={address(node)}:{FRAME_PORT}" for node in NODES)


@dataclass(frozen=True)
class Role:
    """What a node said of itself. at_ns: CLOCK_MONOTONIC, when it began to lead, else when it saw its role change."""

    node: int
    role: str
    term: int
    at_ns: int


class Group:
    """An iokernel in this process and three nodes in theirs. Public attributes: kernel, pids of running nodes, roles.

    logs: folder of the nodes' logs, made there if there are none; None: in memory. uplinks: of the iokernel. The nodes
    share cores[1]; managed: the iokernel moves it between them, else the kernel's scheduler does. snapshot_entries:
    a node makes a snapshot when so many came since the last, and counts them in `snapshots`; 0: as it does by default.
    relays: raw ones (relay.h) in place of the nodes, of which the first leads; with `logs` on files there.
    replicate: to whom a leader's entries go at once (docs/raft.md); None: as by default. poll: the iokernel's mode.
    resp: typed values under Redis' protocols at RESP_PORT, in two thirds of the memory, in the place of the store.
    """

    def __init__(
        self,
        cores: tuple[int, int],
        *,
        uplinks: Sequence[Nic] = (),
        logs: Path | None = None,
        managed: bool = True,
        snapshot_entries: int = 0,
        relays: bool = False,
        replicate: str | None = None,
        poll: str = "adaptive",
        resp: bool = False,
    ) -> None:
        self._logs = logs
        self._replicate = replicate
        self._snapshot_entries = snapshot_entries
        self._relays = relays
        self._resp = resp
        self.snapshots: dict[int, int] = {}
        self._cpu = None if managed else cores[1]
        self.pids: dict[int, int] = {}
        self.roles: list[Role] = []
        self._whole: dict[int, int] = {}  # by node: the term in which it leads and all others have what is committed
        self._to: dict[int, str] = {}  # by node: whom entries go to at once while it leads
        self._said = b""
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-bench-"))
            self._path = str(Path(folder) / "io.sock")
            self.kernel = Iokernel(
                self._path,
                uplinks=uplinks,
                loop_cpus=[cores[0]],
                worker_cpus=[cores[1]] if managed else [],
                policy="delay" if managed else None,
                allocation=Allocation(params={"target_us": TARGET_US} if managed else {}),
                poll=poll,
                idle=Idle(spin_us=SPIN_US),
                apps={f"raft-{n}": AppConfig(ip=address(n), class_="latency") for n in NODES},
            )
            stack.callback(self.kernel.stop)
            self.kernel.start()
            self._errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            command = [sys.executable, "-m", "corelane.bench.raft.nodes", self._path]
            self._nursery = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
            stack.callback(self._end_nursery)
            self._stack = stack.pop_all()

    def start(self, node: int, *, election_ms: int, prefer: int = 0, watch_us: int = 5000) -> None:
        """Start a node that is not running; returns when it serves.

        prefer: a leader of another number hands leadership to this node. watch_us: how often it looks at its role.
        """
        words: dict[str, Any] = {"node": node, "election_ms": election_ms, "prefer": prefer, "watch_us": watch_us}
        words["cpus"] = None if self._cpu is None else [self._cpu]
        words["snapshot_entries"] = self._snapshot_entries
        words["relay"] = self._relays
        words["resp"] = self._resp
        words["replicate"] = self._replicate
        words["bytes"] = BYTES
        words["log"] = str(self._logs / f"{node}.log") if self._logs else None
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(json.dumps(words).encode() + b"\n")
        self._nursery.stdin.flush()
        self._until(lambda: node in self.pids, 30.0, f"node {node} to serve")

    def start_all(self, *, election_ms: int, prefer: int = 0, watch_us: int = 5000) -> None:
        """Start all nodes and wait until they have a leader, the preferred one if one is."""
        for node in NODES:
            self.start(node, election_ms=election_ms, prefer=prefer, watch_us=watch_us)
        self.await_leader(prefer=prefer)

    def kill(self, node: int) -> int:
        """kill -9, and wait until it is gone. When the signal was sent, CLOCK_MONOTONIC."""
        pid = self.pids.pop(node)
        handle = os.pidfd_open(pid)
        try:
            at_ns = time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(10_000):
                raise CorelaneError(f"kill node {node}", "it is still there after 10 s")
        finally:
            os.close(handle)
        return at_ns

    def leader(self) -> int:
        """The running node that leads in the latest term, as far as has been heard; 0 if none does."""
        self.listen(0)
        latest = {role.node: role for role in self.roles}
        leading = [r for n, r in latest.items() if r.role == "leader" and n in self.pids]
        return max(leading, key=lambda r: r.term).node if leading else 0

    def term(self) -> int:
        """The latest term that any node has told of."""
        while self.listen(0):
            pass
        return max((role.term for role in self.roles), default=0)

    def sent_to(self) -> str:
        """Whom the leader's entries go to at once, as it said last: "all" or "majority"; "" without a leader."""
        return self._to.get(self.leader(), "")

    def await_leader(self, timeout_s: float = 20.0, prefer: int = 0) -> int:
        """Wait until a running node leads; its number."""
        self._until(lambda: self.leader() in ({prefer} if prefer else self.pids), timeout_s, "a leader")
        return self.leader()

    def await_whole(self, timeout_s: float = 20.0) -> int:
        """Wait until all nodes run, one leads, and the others have all that it has committed; its number."""

        def whole() -> bool:
            leader = self.leader()
            terms = [role.term for role in self.roles if role.node == leader]
            return len(self.pids) == len(NODES) and leader != 0 and self._whole.get(leader) == terms[-1]

        self._until(whole, timeout_s, "all to catch up")
        return self.leader()

    def listen(self, timeout_s: float) -> bool:
        """Take what nodes have said; whether there was anything, which is waited for so long at most."""
        assert self._nursery.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._nursery.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return False
        got = os.read(self._nursery.stdout.fileno(), 65536)
        if not got:
            raise CorelaneError("run Raft nodes", self._complaint())
        self._said += got
        while b"\n" in self._said:
            line, _, self._said = self._said.partition(b"\n")
            told = json.loads(line)
            if "failed" in told:
                raise CorelaneError(f"start node {told['node']}", told["failed"])
            if "pid" in told:
                self.pids[told["node"]] = told["pid"]
            elif "whole" in told:
                self._whole[told["node"]] = told["whole"]
            elif "to" in told:
                self._to[told["node"]] = told["to"]
            elif "snapshots" in told:
                self.snapshots[told["node"]] = told["snapshots"]
            else:
                self.roles.append(Role(**told))
        return True

    def _until(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise CorelaneError("run Raft nodes", f"waited {timeout_s:.0f} s for {what}", self._complaint())
            self.listen(min(left, 0.1))

    def _complaint(self) -> str:
        self._errors.seek(0)
        return (self._errors.read().strip().splitlines() or ["they said nothing"])[-1]

    def _end_nursery(self) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        for node in list(self.pids):
            with contextlib.suppress(ProcessLookupError):
                self.kill(node)
        self._nursery.stdin.close()
        try:
            self._nursery.wait(5)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            self._nursery.wait()
        self._nursery.stdout.close()

    def close(self) -> None:
        """Kill the nodes, stop the iokernel. Twice is allowed."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


# The nursery's process.


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _tell(**words: Any) -> None:
    """A line, whole: shorter than PIPE_BUF."""
    os.write(1, json.dumps(words).encode() + b"\n")


def _whole(status: dict[str, Any]) -> int:
    """The term of a leader, while the others have what is committed; else 0."""
    behind = any(p["match"] < status["commit"] for p in status["peers"])
    return status["term"] if status["role"] == "leader" and not behind else 0


def _scheduler(words: dict[str, Any]) -> Any:
    """The others, and the kernel's half of their writes, need the core of a node that waits: with a log it parks where
    the iokernel moves the core, and yields between looks where the kernel's scheduler shares it."""
    spin_us = SPIN_US if not words["log"] else SHARED_SPIN_US if words["cpus"] else 1
    from ...libos import Scheduler

    return Scheduler(spin_us=spin_us)


def _serve(path: str, words: dict[str, Any]) -> None:
    """A node, until it is killed."""
    from ...apps.raft.service.logs import make_log_file
    from ...apps.raft.service.service import serve
    from ...apps.raft.service.settings import GroupSettings, LogSettings, RespSettings
    from ...libos import Runtime

    node = words["node"]
    if words["log"] and not Path(words["log"]).exists():
        make_log_file(words["log"], words["bytes"]["log"])
    # A snapshot is due when half of the entries kept are used up, or half of their bytes.
    entries = words["snapshot_entries"]
    settings: dict[str, Any] = {}
    if entries:
        settings = {"log_entries": 2 * entries, "log_bytes": max(64 << 20, 512 * entries)}
    if words["replicate"]:
        settings["replicate"] = words["replicate"]
    memory_bytes = words["bytes"]["memory"]
    if words["resp"]:
        settings["resp"] = RespSettings(port=RESP_PORT)
        memory_bytes = memory_bytes * 2 // 3  # a snapshot may be longer than they are
    else:
        settings["kv_port"] = KV_PORT
    runtime = Runtime(path, name=f"raft-{node}", kthreads=1, cpus=words["cpus"], scheduler=_scheduler(words))
    service = serve(
        runtime,
        node,
        PEERS,
        group=GroupSettings(memory_bytes=memory_bytes, election_ms=words["election_ms"]),
        log=LogSettings(file=words["log"]),
        **settings,
    )
    runtime.start()
    _tell(node=node, pid=os.getpid())
    before, to, asked_ns, whole, snapshots = ("", 0), "", 0, 0, 0
    while True:
        status = service.status()
        now_ns = time.monotonic_ns()
        if (status["role"], status["term"]) != before:
            before = (status["role"], status["term"])
            since_ns = now_ns - int(1e9 * (status["leads_for_s"] or 0))
            _tell(node=node, role=status["role"], term=status["term"], at_ns=since_ns)
        if to != status["replicate"]:
            to = status["replicate"]
            _tell(node=node, to=to)
        if whole != (now := _whole(status)):
            whole = now
            _tell(node=node, whole=whole)
        if entries and snapshots != (made := service.stats()["node_snapshots"]):
            snapshots = made
            _tell(node=node, snapshots=snapshots)
        if status["role"] == "leader" and words["prefer"] not in (0, node) and now_ns - asked_ns > 200_000_000:
            asked_ns = now_ns
            with contextlib.suppress(CorelaneError):  # it has not caught up yet: asked again
                service.transfer(words["prefer"])
        if status["state"] == "stopped":
            raise CorelaneError(f"run node {node}", status["why"])
        time.sleep(words["watch_us"] / 1e6)


def _relay(path: str, words: dict[str, Any]) -> None:
    """A raw relay, as a node but for what it does, until it is killed."""
    from ...drivers.blk.file import FileBlk, create
    from ...libos import Runtime
    from .._native import ffi, lib

    node = words["node"]
    leads = node == NODES[0]
    runtime = Runtime(path, name=f"raft-{node}", kthreads=1, cpus=words["cpus"], scheduler=_scheduler(words))
    config = ffi.new("struct cl_bench_relay_config *", {"port": FRAME_PORT, "fd": -1})
    config.followers = [int(ipaddress.IPv4Address(address(n))) for n in NODES[1:]]
    config.client_port = KV_PORT if leads else 0
    if words["log"]:
        create(words["log"], words["bytes"]["relay"])
        with FileBlk(words["log"]) as blk:  # which finds out whether direct writes are possible
            direct = blk.info().direct
        config.fd = os.open(words["log"], os.O_RDWR | (os.O_DIRECT if direct else 0))
        config.file_bytes = words["bytes"]["relay"]
    out, err = ffi.new("struct cl_bench_relay **"), ffi.new("char[256]")
    check(lib.cl_bench_relay_serve(runtime.ptr, config, out, err), "relay", err)
    runtime.start()
    _tell(node=node, pid=os.getpid())
    if leads:
        _tell(node=node, role="leader", term=1, at_ns=time.monotonic_ns())
    while True:
        if number := lib.cl_bench_relay_failed(out[0]):
            raise CorelaneError(f"run relay {node}", f"it cannot write to {words['log']}: {os.strerror(number)}")
        time.sleep(words["watch_us"] / 1e6)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fork a node for each line of stdin, until it ends."""
    from ...apps.raft.service import service  # noqa: F401  imported before the forks
    from ...libos import Runtime  # noqa: F401

    (path,) = sys.argv[1:] if arguments is None else arguments
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: they leave no zombies
    for line in sys.stdin:
        words = json.loads(line)
        if os.fork():
            continue
        _die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            (_relay if words["relay"] else _serve)(path, words)
        except CorelaneError as error:
            _tell(node=words["node"], failed=str(error))
        os._exit(1)


if __name__ == "__main__":
    main()

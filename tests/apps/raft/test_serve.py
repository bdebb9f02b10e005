"""Three processes over the virtual switch: the replicated store and a user's state machine, killed under load."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import wait_until
from cltest.children import die_with_parent

from corelane.apps.raft.client import Client, Unknown
from corelane.drivers.tap import Tap
from corelane.iokernel import AppSettings, Iokernel

ROOT = Path(__file__).resolve().parents[3]
HOST = "10.77.0.1"
PEERS = ",".join(f"{i}=10.77.0.{10 + i}:7400" for i in (1, 2, 3))
pytestmark = [pytest.mark.root, pytest.mark.slow]


class Group:
    """An iokernel with three nodes as processes, and the host on a tap."""

    def __init__(self, path: str, space, log_dir: Path | None) -> None:
        self.path, self.space, self.log_dir = path, space, log_dir
        self.children: dict[int, subprocess.Popen[str]] = {}
        self.sockets: list[socket.socket] = []

    def start(self, i: int, command: list[str] | None = None) -> None:
        log = [] if self.log_dir is None else ["--option", f"log={self.log_dir}/{i}.log"]
        kv = [
            "-m",
            "corelane.cli.main",
            "run",
            "raft-kv",
            "--socket",
            self.path,
            "--name",
            f"raft-{i}",
            "--poll",
            "block",
        ]
        options = [f"id={i}", f"peers={PEERS}", "election_ms=100", "log_bytes=33554432", "memory_bytes=8388608"]
        words = command or [*kv, *(w for o in options for w in ("--option", o)), *log]
        self.children[i] = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("RAFT_SHOW") else subprocess.DEVNULL,
            preexec_fn=die_with_parent,
            cwd="/",
        )

    def kill(self, i: int) -> None:
        self.children[i].send_signal(signal.SIGKILL)
        self.children.pop(i).wait(30)

    def udp(self) -> socket.socket:
        self.sockets.append(self.space.udp_socket((HOST, 0)))
        return self.sockets[-1]

    def client(self, **options: float) -> Client:
        return Client(PEERS, sock=self.udp(), **options)

    def memcached(self, i: int, text: bytes, sock: socket.socket | None = None) -> bytes:
        """Ask node i until it answers something else than that it has no leader."""
        sock = sock or self.udp()
        answers: list[bytes] = []

        def ask() -> bool:
            sock.sendto(b"\0\7\0\0\0\1\0\0" + text, (f"10.77.0.{10 + i}", 11211))
            sock.settimeout(0.5)
            try:
                answers.append(sock.recv(65536)[8:])
            except TimeoutError:
                return False
            return not answers[-1].startswith(b"SERVER_ERROR")

        wait_until(ask, 60, f"an answer of node {i}")
        return answers[-1]

    def close(self) -> None:
        for i in list(self.children):
            self.kill(i)
        for sock in self.sockets:
            sock.close()


@pytest.fixture
def make_group(netns, tmp_path: Path) -> Iterator:
    space = netns.add("raft")
    made: list = []

    def make(durable: bool) -> Group:
        path = f"/tmp/cl-{os.getpid()}-{tmp_path.name[-14:]}.sock"
        with space.entered():
            nic = Tap("clraft", address=f"{HOST}/16")
        apps = {f"{p}-{i}": AppSettings(ipv4=f"10.77.0.{10 + i}") for i in (1, 2, 3) for p in ("raft",)}
        apps |= {f"ledger-{i}": AppSettings(ipv4=f"10.77.0.{10 + i}") for i in (1, 2, 3)}
        kernel = Iokernel(path, uplinks=[nic], mode="block", apps=apps)
        kernel.start()
        group = Group(path, space, tmp_path if durable else None)
        made.extend([group, kernel, nic])
        return group

    yield make
    for thing in made:
        stop = getattr(thing, "stop", None) or thing.close
        stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
def test_the_store_lives_through_kill_9(make_group, durable: bool) -> None:
    group = make_group(durable)
    for i in (1, 2, 3):
        group.start(i)
    assert group.memcached(1, b"set a 5 0 3\r\nabc\r\n") == b"STORED\r\n"
    for i in (1, 2, 3):
        assert group.memcached(i, b"get a\r\n") == b"VALUE a 5 3\r\nabc\r\nEND\r\n"
    acknowledged: dict[int, int] = {}
    failed: list[BaseException] = []
    stop = threading.Event()

    def load(number: int) -> None:
        try:
            with group.client(timeout_s=60) as client:
                n = 0
                while not stop.is_set():
                    n += 1
                    value = b"%d" % n
                    reply = client.command(b"set k%d 0 0 %d\r\n%s\r\n" % (number, len(value), value))
                    assert reply == b"STORED\r\n", reply
                    acknowledged[number] = n
                    assert client.query(b"get k%d\r\n" % number).split(b"\r\n")[1] == value
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=load, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for victim in (1, 2, 3):
            before = dict(acknowledged)
            wait_until(lambda b=before: failed or all(acknowledged.get(n, 0) > b.get(n, 0) + 5 for n in range(3)), 60)
            group.kill(victim)
            before = dict(acknowledged)
            wait_until(lambda b=before: failed or all(acknowledged.get(n, 0) > b.get(n, 0) + 5 for n in range(3)), 60)
            if not durable:
                break  # a node that forgot its vote may not come back as the same one
            group.start(victim)
            group.memcached(victim, b"get a\r\n")
    finally:
        stop.set()
        for thread in threads:
            thread.join(90)
    assert not failed, failed
    for number, n in acknowledged.items():
        alive = next(iter(group.children))
        assert group.memcached(alive, b"get k%d\r\n" % number).split(b"\r\n")[1] in (b"%d" % n, b"%d" % (n + 1))


@pytest.mark.timeout(120)
def test_the_example_replicates_a_state_machine_in_python(make_group) -> None:
    example = ROOT / "examples" / "raft_ledger.py"
    assert len(example.read_text().splitlines()) < 60
    group = make_group(False)
    for i in (1, 2, 3):
        group.start(i, [str(example), "serve", str(i), group.path, PEERS])
    with group.client(timeout_s=60) as client:
        assert client.command(b"deposit ann 5") == b"5"
        assert client.command(b"withdraw ann 2") == b"3"
        assert client.command(b"withdraw ann 9") == b"refused: too little there"
        group.kill(1)
        assert client.command(b"deposit ann 1") == b"4"
        assert client.query(b"ann") == b"4"
        group.kill(2)
        with pytest.raises(Unknown), group.client(timeout_s=1) as other:
            other.command(b"deposit ann 1")

"""Stock servers attached to an iokernel: one that comes and goes, and one that moves cores. Linux' clients are behind
its tap."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import netns_missing, wait_until
from cltest.commands import Command, ask

from corelane.cli import watch
from corelane.drivers.linux import netns

pytestmark = pytest.mark.root

Start = Callable[..., Command]


class Machine:
    """A namespace in which iokernels and their applications are started."""

    def __init__(self, space: netns.Namespace, folder: Path, stack: contextlib.ExitStack) -> None:
        self.space, self.folder, self.stack = space, folder, stack
        self.path = str(folder / "io.sock")

    def start(self, *words: str) -> Command:
        with self.space.entered():
            command = Command(words, self.folder)
        self.stack.callback(self.end, command)
        return command

    @staticmethod
    def end(command: Command) -> None:
        command.process.kill()
        command.process.wait(20)
        for file in (command.process.stdout, command.errors):
            assert file is not None
            file.close()

    def iokernel(self, *words: str) -> Command:
        up = self.start("up", "--socket", self.path, "--nic", "tap:cl0", *words, "--json")
        up.event("iokernel")
        return up

    def serve(self, *words: str) -> Command:
        """A program with its sockets on the dataplane, attached."""
        return self.start("run", "--posix", "--socket", self.path, "--name", "stock", *words)

    def address(self) -> str | None:
        """The program's, once it is attached."""
        with contextlib.suppress(Exception):
            return next((str(a["ipv4"]) for a in watch.snapshot(self.path)["apps"] if a["name"] == "stock"), None)
        return None

    def connect(self, port: int) -> socket.socket:
        """A connection of Linux' to the program, once it takes one."""
        made: list[socket.socket] = []

        def comes() -> bool:
            if address := self.address():
                with contextlib.suppress(OSError), self.space.entered():
                    made.append(socket.create_connection((address, port), timeout=5))
            return bool(made)

        wait_until(comes, 30, f"a connection to port {port}")
        made[0].settimeout(30)
        return made[0]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if missing := netns_missing():
        pytest.skip(missing)
    with contextlib.ExitStack() as stack:
        yield Machine(stack.enter_context(netns.namespace("attached")), tmp_path, stack)


def memcached() -> tuple[str, ...]:
    if shutil.which("memcached") is None:
        pytest.skip("needs memcached: apt-get install memcached")
    return ("memcached", "-u", "root", "-t", "2", "-U", "0")


def exchange(client: socket.socket, request: bytes, answer: bytes) -> None:
    client.sendall(request)
    got = b""
    while len(got) < len(answer):
        piece = client.recv(len(answer) - len(got))
        assert piece, got
        got += piece
    assert got == answer


def redis() -> tuple[str, ...]:
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server: apt-get install redis-server")
    return ("redis-server", "--protected-mode", "no", "--save", "")


def test_requests_are_written_down(machine: Machine) -> None:
    machine.iokernel("--policy", "none")
    machine.serve("--trace", "full", *memcached())
    with contextlib.closing(machine.connect(11211)) as client:
        exchange(client, STORE, b"STORED\r\n")
        for _ in range(20):
            exchange(client, GET, VALUE)
        words = ("--socket", machine.path, "--app", "stock", "--seconds", "0.5", "--json")
        trace = machine.start("trace", *words)
        while trace.process.poll() is None:
            exchange(client, GET, VALUE)
    assert trace.process.stdout is not None
    told = json.loads(trace.process.stdout.read())
    assert "TCP 11211" in json.dumps(told), told


STORE = b"set key 0 0 5\r\nvalue\r\n"
GET, VALUE = b"get key\r\n", b"VALUE key 0 5\r\nvalue\r\nEND\r\n"


@pytest.mark.parametrize(
    ("server_of", "port", "store", "stored", "value"),
    [
        (memcached, 11211, STORE, b"STORED\r\n", VALUE),
        (redis, 6379, b"set key value\r\n", b"+OK\r\n", b"$5\r\nvalue\r\n"),
    ],
    ids=["memcached", "redis"],
)
def test_connections_outlive_an_iokernel(
    machine: Machine, server_of: Callable[[], tuple[str, ...]], port: int, store: bytes, stored: bytes, value: bytes
) -> None:
    """The program goes on with the next one: with what it has stored, and with connections that were open."""
    first = machine.iokernel("--policy", "none")
    server = machine.serve("--kthreads", "2", *server_of())
    with contextlib.closing(machine.connect(port)) as old:
        exchange(old, store, stored)
        first.process.kill()
        first.process.wait(60)  # the kernel takes its device away first
        machine.iokernel("--policy", "none")
        with contextlib.closing(machine.connect(port)) as new:
            exchange(new, GET, value)
        exchange(old, GET, value)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    server.errors.seek(0)
    said = server.errors.read()
    assert "is gone: attaching again" in said


@contextlib.contextmanager
def two_cpus() -> Iterator[None]:
    """What is started in the block may run on two of our CPUs alone."""
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(ours)[-2:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: none is left to be managed")
def test_where_cores_move_a_stock_server_shares_one(machine: Machine) -> None:
    """With batch work, which takes its core whenever it waits."""
    with two_cpus():
        machine.iokernel("--policy", "delay")
        job = machine.start("run", "batch", "--socket", machine.path, "--option", "size=32", "--every", "0.1", "--json")
        job.event("work")
        server = machine.serve(*memcached())
    clients = [machine.connect(11211) for _ in range(5)]
    exchange(clients[0], STORE, b"STORED\r\n")
    for _ in range(20):
        for client in clients:
            exchange(client, GET, VALUE)
    cores: dict[str, Any] = {
        a["name"]: a["cores"]
        for a in json.loads(ask("top", "--socket", machine.path, "-d", "0.1", "--once", "--json").stdout)["apps"]
    }
    assert cores["stock"]["moves_in"] > 0
    assert cores["batch"]["moves_in"] > 0
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    for client in clients:
        assert client.recv(1) == b""
        client.close()

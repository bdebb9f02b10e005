"""Stock servers attached to an iokernel: one that comes and goes, and one that moves cores. Linux' clients are behind
its tap."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest.commands import ask

from corelane.cli import stat

from .machine import Machine

pytestmark = pytest.mark.root


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


def test_the_runtimes_own_sockets_are_not_the_programs(machine: Machine, stock: Callable[[str], Path]) -> None:
    """The control socket is none of the program's numbers, and no call on it is taken for the program's. And a program
    that has only waited so far is reached."""
    machine.iokernel("--policy", "none")
    server = machine.serve("--trace-calls", str(stock("echo")), "7000", "1", "each")
    with contextlib.closing(machine.connect(7000)) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        counts = stat.read(server.process.pid)
        open_files = Path(f"/proc/{server.process.pid}/fd")
        sockets = [int(fd.name) for fd in open_files.iterdir() if os.readlink(fd).startswith("socket:")]
    limit, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    assert len([fd for fd in sockets if fd >= limit - 256]) == 1, sockets  # above it, or the last below
    assert counts is not None
    assert {"socket", "accept4"} <= counts["calls"].keys()
    assert not {"connect", "setsockopt", "send", "sendmsg", "recvmsg", "poll"} & counts["calls"].keys(), counts


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
    assert server.process.wait(60) == 0
    for client in clients:
        assert client.recv(1) == b""
        client.close()

"""Stock servers that are killed and started anew, and whose iokernel is: all that docs/posix.md names. `make test` has
some of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until

from corelane.drivers.linux import netns

from . import test_dnsmasq, test_haproxy, test_nginx, test_servers
from .conftest import PACKAGES, SERVED, Server
from .machine import Machine

pytestmark = pytest.mark.root


@dataclass
class Program:
    """What is started, {folder} being one of its own. What is asked of it by a connection, and how an answer begins and
    ends; or else how it is asked, given a namespace and its address. keeps: a connection takes a second question."""

    command: tuple[str, ...]
    port: int
    question: bytes = b""
    begins: bytes = b""
    ends: bytes = b""
    keeps: bool = True
    asked: Callable[[netns.Namespace, str], None] | None = None
    kthreads: int = 1
    configuration: str = ""

    def words(self, folder: Path) -> tuple[str, ...]:
        if shutil.which(self.command[0]) is None:
            pytest.skip(f"needs {self.command[0]}: apt-get install {PACKAGES}")
        (folder / "page").write_text("page")
        (folder / "conf").write_text(self.configuration.replace("{folder}", str(folder)))
        return tuple(word.replace("{folder}", str(folder)) for word in self.command)

    def answers(self, client: socket.socket) -> None:
        client.sendall(self.question)
        got = b""
        while not got.endswith(self.ends):
            piece = client.recv(4096)
            assert piece, got
            got += piece
        assert got.startswith(self.begins), got


def ask_dnsmasq(space: netns.Namespace, address: str) -> None:
    with space.entered():
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    answers: list[bytes] = []

    def comes() -> bool:  # one may be lost while the neighbour is not known yet, or nobody is there
        with contextlib.suppress(OSError):
            udp.send(test_dnsmasq.question(1))
            answers.append(udp.recv(512))
        return bool(answers)

    with udp:
        udp.settimeout(0.5)
        udp.connect((address, 53))
        wait_until(comes, 60, "an answer of dnsmasq")
    test_dnsmasq.check(answers[0], 1)


def ask_iperf3(space: netns.Namespace, address: str) -> None:
    """Until it is there: it has one client at a time, and before it listens anew others are reset."""
    ends: list[dict[str, Any]] = []

    def comes() -> bool:
        command = space.command(["iperf3", "-c", address, "-n", "1M", "-J"])
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        with contextlib.suppress(ValueError, KeyError):  # it was refused, or ended early
            ends.append(json.loads(done.stdout)["end"]["sum_sent"])
        return bool(ends)

    wait_until(comes, 60, "a run of iperf3")
    assert ends[0]["bytes"] >= 1 << 20


PAGE = (b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200", b"page")
ANSWERS_ITSELF = '    http-request return status 200 content-type text/plain string "page"\n'
PROGRAMS = {
    "memcached": Program(
        ("memcached", "-u", "root", "-t", "2", "-l", "0.0.0.0", "-U", "0"),
        *(11211, b"set a 0 0 1\r\nx\r\nget a\r\n", b"STORED\r\nVALUE a 0 1\r\n", b"x\r\nEND\r\n"),
        kthreads=2,
    ),
    "redis": Program(
        ("redis-server", "--protected-mode", "no", "--save", "", "--dir", "{folder}"),
        *(6379, b"set a x\r\nget a\r\n", b"+OK\r\n", b"$1\r\nx\r\n"),
        kthreads=2,
    ),
    "http": Program(
        ("/usr/bin/python3", "-m", "http.server", "-d", "{folder}", "8000"),
        *(8000, b"GET /page HTTP/1.0\r\n\r\n", b"HTTP/1.0 200", b"page"),
        keeps=False,
        kthreads=2,
    ),
    "nginx": Program(
        ("nginx", "-e", "stderr", "-c", "{folder}/conf"),
        *(8080, *PAGE),
        configuration=test_nginx.CONFIGURATION.format(folder="{folder}", workers=1, sendfile="on", version=""),
    ),
    "haproxy": Program(
        ("haproxy", "-db", "-f", "{folder}/conf"),
        *(8080, *PAGE),
        kthreads=2,
        configuration=test_haproxy.CONFIGURATION.replace("    default_backend http\n", ANSWERS_ITSELF),
    ),
    "lighttpd": Program(("lighttpd", "-D", "-f", "{folder}/conf"), 8080, *PAGE, configuration=test_servers.LIGHTTPD),
    "asyncio": Program(("/usr/bin/python3", "-c", test_servers.ASYNCIO), 8001, b"ab\n", b"AB", b"\n"),
    "dnsmasq": Program(test_dnsmasq.COMMAND, 53, asked=ask_dnsmasq),
    "iperf3": Program(("iperf3", "-s", "-B", "0.0.0.0", "--forceflush"), 5201, asked=ask_iperf3),
}


SOAK, SHORT = pytest.mark.soak(takes_s=10), pytest.mark.soak(short=True, takes_s=10)


def programs(*in_test: str) -> list[object]:
    """All of them; those that are named in `make test`, too."""
    return [pytest.param(name, marks=SHORT if name in in_test else SOAK) for name in PROGRAMS]


def ask_again(old: socket.socket, question: bytes) -> None:
    """It may be reset before, if it has sent once more what nobody had acknowledged."""
    old.sendall(question)
    old.recv(100)


@pytest.mark.parametrize("name", programs("memcached", "redis", "http"))
def test_one_that_is_killed_is_started_anew(serve: Callable[..., Server], tmp_path: Path, name: str) -> None:
    """Who was connected to it, in the middle of a request, too, learns of that from the next one."""
    program = PROGRAMS[name]
    server = serve(*program.words(tmp_path), port=program.port, kthreads=program.kthreads)
    if program.asked:
        program.asked(server.space, SERVED)
        for _ in range(2):
            server.end()
            server.start()
            program.asked(server.space, SERVED)
        return
    with contextlib.closing(server.connect()) as old:
        if program.keeps:
            program.answers(old)
        old.sendall(program.question[:2])
        for _ in range(2):
            server.end()
            server.start()
        with contextlib.closing(server.connect()) as new:
            program.answers(new)
        with pytest.raises(ConnectionResetError):
            ask_again(old, program.question[2:])


@pytest.mark.parametrize("name", programs("memcached", "redis"))
def test_connections_outlive_an_iokernel(machine: Machine, name: str) -> None:
    """The program goes on with the next one: with connections that were open."""
    program = PROGRAMS[name]
    first = machine.iokernel("--policy", "none")
    server = machine.serve("--kthreads", str(program.kthreads), *program.words(machine.folder))
    with contextlib.ExitStack() as stack:
        stack.callback(end_children, server.process.pid)
        if program.asked:
            program.asked(machine.space, machine.wait_for_address())
        else:
            old = stack.enter_context(contextlib.closing(machine.connect(program.port)))
        if program.keeps and not program.asked:
            program.answers(old)
        first.process.kill()
        first.process.wait(60)  # the kernel takes its device away first
        machine.iokernel("--policy", "none")
        if program.asked:
            program.asked(machine.space, machine.wait_for_address())
        else:
            with contextlib.closing(machine.connect(program.port)) as new:
                program.answers(new)
            program.answers(old)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        server.errors.seek(0)
        assert "is gone: attaching again" in server.errors.read()


def end_children(pid: int) -> None:
    """nginx' worker outlives a master that is killed."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

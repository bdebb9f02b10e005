"""Stock servers, and an epoll server in C, on a tap: Linux' own clients at the other end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import netns_missing, wait_until

from corelane.drivers.linux import netns

from .conftest import preloaded

pytestmark = pytest.mark.root

LINUX, OURS = "10.99.7.1", "10.99.7.2"


class Server:
    """A program whose sockets are at OURS, and the namespace in which Linux is at the other end."""

    def __init__(self, space: netns.Namespace, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.space, self.process, self.port, self.log = space, process, port, log

    def connect(self) -> socket.socket:
        with self.space.entered():
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(30)
        try:
            s.connect((OURS, self.port))
        except OSError:
            s.close()
            raise
        return s

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            self.connect().close()
            return True
        return False

    def run(self, program: str, *words: str) -> str:
        """What a client of Linux' prints."""
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: apt-get install redis-tools libmemcached-tools")
        command = self.space.command([program, *words])
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr, self.log.read_text())
        return done.stdout


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a program in a namespace of its own, and wait until it takes connections."""
    if missing := netns_missing():
        pytest.skip(missing)
    with contextlib.ExitStack() as stack:

        def start(*command: str, port: int, kthreads: int = 1) -> Server:
            if shutil.which(command[0]) is None:
                pytest.skip(f"needs {command[0]}: apt-get install memcached redis-server")
            space = stack.enter_context(netns.namespace("posix"))
            words = f"nic=tap:clpx,host={LINUX}/24,address={OURS}/24,kthreads={kthreads}"
            log = tmp_path / "log"
            with log.open("w") as file, space.entered():
                process = subprocess.Popen(
                    command, env=preloaded(words), stdout=file, stderr=subprocess.STDOUT, text=True
                )
            stack.callback(process.wait)
            stack.callback(process.kill)
            server = Server(space, process, port, log)
            wait_until(lambda: process.poll() is not None or server.answers(), 30)
            assert process.poll() is None, log.read_text()
            return server

        yield start


@pytest.mark.parametrize(("threads", "how", "kthreads"), [(1, "each", 1), (3, "each", 2), (3, "shared", 2)])
def test_an_epoll_server(
    stock: Callable[[str], Path], serve: Callable[..., Server], threads: int, how: str, kthreads: int
) -> None:
    server = serve(str(stock("echo")), "7000", str(threads), how, port=7000, kthreads=kthreads)
    clients = [server.connect() for _ in range(20)]
    for i, client in enumerate(clients):
        client.sendall(bytes([i]) * (1 + 997 * i))
    for i, client in enumerate(clients):
        client.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda c=client: c.recv(65536), b"")) == bytes([i]) * (1 + 997 * i)
        client.close()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    counted = int(server.log.read_text().split()[-1])
    assert counted >= 21, "the clients, and who asked whether it serves"


def test_connections_end_with_the_program(stock: Callable[[str], Path], serve: Callable[..., Server]) -> None:
    server = serve(str(stock("echo")), "7000", "2", "each", port=7000)
    with contextlib.closing(server.connect()) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        server.process.send_signal(signal.SIGTERM)
        assert client.recv(1) == b""
    assert server.process.wait(10) == 0


@pytest.mark.parametrize(("threads", "kthreads"), [(2, 2), (1, 1), (4, 2)])
def test_memcached(serve: Callable[..., Server], threads: int, kthreads: int) -> None:
    command = ("memcached", "-u", "root", "-t", str(threads), "-l", "0.0.0.0")
    server = serve(*command, port=11211, kthreads=kthreads)
    assert "All tests passed" in server.run("memccapable", "-h", OURS)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    assert server.log.read_text().replace("Signal handled: Terminated.\n", "") == ""


def test_redis(serve: Callable[..., Server], tmp_path: Path) -> None:
    command = ("redis-server", "--protected-mode", "no", "--save", "", "--dir", str(tmp_path))
    server = serve(*command, port=6379)
    ask = ("-h", OURS)
    assert server.run("redis-cli", *ask, "set", "key", "value") == "OK\n"
    assert server.run("redis-cli", *ask, "get", "key") == "value\n"
    rates = server.run("redis-benchmark", *ask, "-n", "2000", "-c", "20", "-t", "set,get,lpush,lrange_100", "--csv")
    assert len(rates.splitlines()) >= 5
    server.run("redis-cli", *ask, "bgsave")
    wait_until(lambda: "rdb_bgsave_in_progress:0" in server.run("redis-cli", *ask, "info", "persistence"))
    assert "rdb_last_bgsave_status:ok" in server.run("redis-cli", *ask, "info", "persistence")
    assert (tmp_path / "dump.rdb").exists()
    with contextlib.closing(server.connect()) as client:
        client.sendall(b"SHUTDOWN NOSAVE\r\n")
        assert client.recv(1) == b""
    assert server.process.wait(10) == 0

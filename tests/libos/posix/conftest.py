"""Programs that know nothing of corelane, with and without the library that is preloaded."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from cltest import CBuild, netns_missing, wait_until
from cltest.cbuild import ROOT

from corelane.drivers.linux import netns

from .machine import Machine

LIBRARY = ROOT / "runtime" / "_lib" / "libcorelane-posix.so"
OURS = "10.77.0.2"
LINUX, SERVED = "10.99.7.1", "10.99.7.2"  # both ends of a tap
PACKAGES = "memcached redis-server nginx-light iperf3 haproxy lighttpd dnsmasq-base"
INSIDE = f"nic=memory,address={OURS}/24"  # a wire to nobody: connections to our own address stay in the stack


def _keeps_roles() -> bool:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as once:
        refuses = server.getsockname()
        server.close()
        once.connect_ex(refuses)
        try:
            once.listen()
        except OSError:
            return True
    return False


KEEPS_ROLES = _keeps_roles()
"""This Linux refuses to listen on a socket that was asked to connect, and the other way round. Others do it, as we do
(docs/posix.md)."""


def preloaded(words: str) -> dict[str, str]:
    """The environment of a program whose sockets are ours."""
    return {**os.environ, "CORELANE_POSIX": words, "LD_PRELOAD": str(LIBRARY)}


@pytest.fixture(scope="session")
def stock() -> Callable[[str], Path]:
    """Compile a program of c/ without anything of corelane's."""
    return lambda name: CBuild("plain").build(f"tests/libos/posix/c/{name}.c", [])


def run(binary: Path, *words: str, config: str = "", timeout_s: float = 60.0) -> str:
    """What a program prints, on both streams; config: of its runtime, "" for Linux' sockets."""
    env = preloaded(config) if config else dict(os.environ)
    done = subprocess.run(
        [str(binary), *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout)
    return done.stdout


def python(script: str, *words: str, config: str) -> subprocess.CompletedProcess[str]:
    """A script under the library, by a Python that knows nothing of corelane."""
    command = ["/usr/bin/python3", "-S", "-c", script, *words]
    return subprocess.run(command, env=preloaded(config), capture_output=True, text=True, check=True, timeout=60)


class Server:
    """A program whose sockets are at SERVED, and the namespace in which Linux is at the other end."""

    def __init__(self, space: netns.Namespace, command: Sequence[str], words: str, port: int, log: Path) -> None:
        self.space, self.command, self.words, self.port, self.log = space, command, words, port, log
        self.process: subprocess.Popen[str]

    def start(self) -> None:
        """Until it takes connections."""
        with self.log.open("a") as file, self.space.entered():
            self.process = subprocess.Popen(
                self.command,
                env=preloaded(self.words),
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        wait_until(lambda: self.process.poll() is not None or self.answers(), 60, self.log.read_text)
        assert self.process.poll() is None, self.log.read_text()

    def end(self) -> None:
        """With all that it has forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def connect(self) -> socket.socket:
        with self.space.entered():
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(60)
        try:
            s.connect((SERVED, self.port))
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
            pytest.skip(f"needs {program}: apt-get install redis-tools libmemcached-tools curl wrk iperf3")
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
                pytest.skip(f"needs {command[0]}: apt-get install {PACKAGES}")
            space = stack.enter_context(netns.namespace("posix"))
            words = f"nic=tap:clpx,host={LINUX}/24,address={SERVED}/24,kthreads={kthreads}"
            server = Server(space, command, words, port, tmp_path / "log")
            stack.callback(server.end)
            server.start()
            return server

        yield start


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if missing := netns_missing():
        pytest.skip(missing)
    with contextlib.ExitStack() as stack:
        yield Machine(stack.enter_context(netns.namespace("attached")), tmp_path, stack)

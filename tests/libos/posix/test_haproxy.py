"""Stock haproxy with two threads on a tap: it takes connections of Linux' and opens its own to a server of Linux'."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import wait_until

from .conftest import LINUX, SERVED, Server

pytestmark = pytest.mark.root

CONFIGURATION = f"""
global
    nbthread 2
defaults
    timeout connect 5s
    timeout client 20s
    timeout server 20s
frontend requests
    mode http
    bind 0.0.0.0:8080
    default_backend http
frontend bytes
    mode tcp
    bind 0.0.0.0:8082
    option splice-request
    option splice-response
    default_backend tcp
backend http
    mode http
    server one {LINUX}:8081
backend tcp
    mode tcp
    server one {LINUX}:8081
"""


@contextlib.contextmanager
def behind(server: Server, folder: Path) -> Iterator[None]:
    """Python's server of the folder's files, on Linux' sockets."""
    command = [sys.executable, "-m", "http.server", "-d", str(folder), "8081"]
    with server.space.entered():
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        with contextlib.suppress(OSError), server.space.entered():
            socket.create_connection((LINUX, 8081)).close()
            return True
        return False

    try:
        wait_until(answers, 60, "the server behind it")
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("port", [8080, 8082], ids=["requests", "bytes-by-splice"])
def test_what_is_behind_it_is_served(serve: Callable[..., Server], tmp_path: Path, port: int) -> None:
    data = os.urandom(1_000_000)
    files = tmp_path / "files"
    files.mkdir()
    (files / "page").write_bytes(data)
    (tmp_path / "conf").write_text(CONFIGURATION)
    server = serve("haproxy", "-db", "-f", str(tmp_path / "conf"), port=8080, kthreads=2)
    with behind(server, files):
        url = f"http://{SERVED}:{port}/page"
        got = tmp_path / "got"
        server.run("curl", "-sS", "--fail", "-o", str(got), url)
        assert hashlib.sha256(got.read_bytes()).digest() == hashlib.sha256(data).digest()
        server.run("curl", "-sS", "--fail", "-Z", *(word for i in range(8) for word in (url, "-o", f"{got}{i}")))
        assert all(Path(f"{got}{i}").read_bytes() == data for i in range(8))
    server.process.send_signal(signal.SIGUSR1)  # it ends when the last connection has
    assert server.process.wait(60) in (0, 128 + signal.SIGUSR1)

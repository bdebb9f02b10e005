"""A stock server on AF_XDP: corelane run --posix hands the XDP program over, and the server's end detaches it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import netns_missing, wait_until
from cltest.netns import skip_without_af_xdp

from corelane.drivers.bpf import loader
from corelane.drivers.linux import netns

pytestmark = pytest.mark.root

LINUX, OURS = "10.99.8.1", "10.99.8.3"


@pytest.fixture
def ends() -> Iterator[tuple[netns.Interface, netns.Interface]]:
    """A veth pair: Linux at the near end, the server at the far one, beside an address that is Linux'."""
    if missing := netns_missing():
        pytest.skip(missing)
    skip_without_af_xdp()
    with netns.link(addresses=(LINUX, "10.99.8.2")) as both:
        yield both


@contextlib.contextmanager
def served(far: netns.Interface, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    options = ["--nic", f"af_xdp:{far.name}", "--address", f"{OURS}/24"]
    words = [sys.executable, "-m", "corelane.cli.main", "run", "--posix", *options, *command]
    with far.namespace.entered():
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def connect(near: netns.Interface, port: int) -> socket.socket | None:
    with contextlib.suppress(OSError), near.namespace.entered():
        return socket.create_connection((OURS, port), timeout=1)
    return None


def first_connection(near: netns.Interface, port: int) -> socket.socket:
    made: list[socket.socket] = []

    def comes() -> bool:
        made.extend(filter(None, [connect(near, port)]))
        return bool(made)

    wait_until(comes, 60)
    made[0].settimeout(60)
    return made[0]


def program_at(far: netns.Interface) -> int:
    """The id of the XDP program there; 0: none."""
    return far.namespace.call(lambda: loader.attached(far.index))


def test_bytes_come_back(stock: Callable[[str], Path], ends: tuple[netns.Interface, netns.Interface]) -> None:
    near, far = ends
    with served(far, str(stock("echo")), "7000", "1", "each") as process:
        with contextlib.closing(first_connection(near, 7000)) as client:
            data = os.urandom(100_000)
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: client.recv(65536), b"")) == data
        assert program_at(far)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        wait_until(lambda: program_at(far) == 0)


def test_memcached(ends: tuple[netns.Interface, netns.Interface]) -> None:
    """Killed: the program goes with its last descriptor, of which no child has one."""
    if shutil.which("memcached") is None:
        pytest.skip("needs memcached: apt-get install memcached")
    near, far = ends
    with served(far, "memcached", "-u", "root", "-t", "1", "-l", OURS, "-U", "0") as process:
        with contextlib.closing(first_connection(near, 11211)) as client:
            client.sendall(b"set a 0 0 3\r\nxyz\r\nget a\r\n")
            wanted = b"STORED\r\nVALUE a 0 3\r\nxyz\r\nEND\r\n"
            got = b""
            while len(got) < len(wanted):
                got += client.recv(100)
            assert got == wanted
        process.kill()
        process.wait()
        wait_until(lambda: program_at(far) == 0)

"""The port of a C server (examples/microsocks_port.py): built from Debian's source, and asked by curl over a tap."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import http.server
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cltest import Namespace, NetnsFactory, wait_until
from cltest.examples import EXAMPLES, end_example, start_example

from corelane.drivers.nic.tap.tap import Tap
from corelane.iokernel import Iokernel

pytestmark = pytest.mark.root

BUILD = EXAMPLES.parent / "build" / "microsocks"  # keeps the archive
LINUX = "10.77.0.1"
BODY = bytes(range(256)) * 4096
PARALLEL = 8


@dataclass(frozen=True)
class Port:
    """The program, and what the script said when it had made it."""

    program: Path
    said: str


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Port:
    """Made in BUILD, where the archive stays, by one worker at a time."""
    BUILD.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(EXAMPLES / "microsocks_port.py"), str(BUILD)]
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
        if done.returncode and done.stderr.startswith("there is no "):
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        program = shutil.copy2(BUILD / "microsocks", tmp_path_factory.mktemp("microsocks"))
    return Port(Path(program), done.stdout)


@contextlib.contextmanager
def website(folder: Path) -> Iterator[int]:
    """A server of Linux' at LINUX, which has /body; its port."""
    (folder / "body").write_bytes(BODY)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer((LINUX, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def place(netns: NetnsFactory, socket_path: str, tmp_path: Path) -> Iterator[tuple[Namespace, Iokernel, str]]:
    """A namespace with a tap to an iokernel, that, and the URL of a website there."""
    if shutil.which("curl") is None:
        pytest.skip("no curl: apt-get install curl")
    space = netns.add("socks")
    with contextlib.ExitStack() as stack:
        with space.entered():
            nic = stack.enter_context(Tap("cl0", address=f"{LINUX}/16"))
            site = stack.enter_context(website(tmp_path))
        kernel = stack.enter_context(Iokernel(socket_path, uplinks=[nic], poll="adaptive"))
        yield space, kernel, f"http://{LINUX}:{site}/body"


def start(command: list[str], space: Namespace, kernel: Iokernel) -> tuple[subprocess.Popen[str], str]:
    """The proxy, once it listens, and its address."""
    child, address = start_example(command, kernel, "microsocks")

    def listens() -> bool:
        with contextlib.suppress(OSError), space.entered():
            socket.create_connection((address, 1080), 5).close()
            return True
        return False

    wait_until(listens, 60, "the proxy to listen")
    return child, address


def curl(space: Namespace, address: str, url: str, *words: str) -> subprocess.Popen[bytes]:
    command = ["curl", "-sS", "--max-time", "60", "--socks5", f"{address}:1080", *words, url]
    return subprocess.Popen(space.command(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_curl_goes_by_it(place: tuple[Namespace, Iokernel, str], port: Port, socket_path: str) -> None:
    space, kernel, url = place
    child, address = start([str(port.program), socket_path], space, kernel)
    try:
        for one in [curl(space, address, url) for _ in range(PARALLEL)]:
            assert one.communicate(timeout=60) == (BODY, b"")
        closed = curl(space, address, f"http://{LINUX}:9/")
        closed.communicate(timeout=60)
        assert closed.returncode == 97  # curl's word for what the proxy refuses
        err = end_example(child)[1]
        assert len(re.findall(rf"client\[0x\w+\] {LINUX}: connected to {LINUX}:\d+\n", err)) == PARALLEL
    finally:
        child.kill()
        child.communicate()


def test_passwords_are_asked_for(place: tuple[Namespace, Iokernel, str], port: Port, socket_path: str) -> None:
    space, kernel, url = place
    command = [str(port.program), socket_path, "-u", "ann", "-P", "secret"]
    child, address = start(command, space, kernel)
    try:
        right, wrong = (curl(space, address, url, "--proxy-user", f"ann:{word}") for word in ("secret", "guess"))
        assert right.communicate(timeout=60) == (BODY, b"")
        assert wrong.communicate(timeout=60)[0] == b""
        assert wrong.returncode == 97
        end_example(child)
    finally:
        child.kill()
        child.communicate()


def test_the_page_says_how_many_lines_it_took(port: Port) -> None:
    said = re.search(r"(\d+) lines: (\d+) went, (\d+) came", port.said)
    assert said
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    (row,) = re.findall(r"^\| microsocks [\d.]+ \| (\d+) \| (\d+) \| (\d+) \|$", page, re.M)
    assert row == said.groups()

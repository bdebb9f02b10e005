"""Servers and clients that know nothing of corelane, on stock asyncio and on our loop, over a tap: Linux' own programs
are at the other end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import netns_missing, wait_until
from cltest.certificates import make_certificate
from cltest.soak import pairs

from corelane.drivers.linux import netns

pytestmark = pytest.mark.root

PROGRAMS = Path(__file__).parent / "programs"
LINUX, OURS = "10.99.8.1", "10.99.8.2"  # launch.py's
PORT = 8000
LONG = b"".join(bytes([i]) * 10_000 for i in range(100))


class World:
    """A namespace. By the loop `ours` there is a tap in it, once a program has started; by `stock` both addresses are
    Linux'."""

    def __init__(self, space: netns.Namespace, loop: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self.space, self.loop, self.folder, self._stack = space, loop, folder, stack
        # Who binds a socket of Linux' itself, as hypercorn, names an address that Linux does not have.
        self.run("sysctl", "-q", "-w", "net.ipv4.ip_nonlocal_bind=1")
        if loop == "stock":
            for address in (LINUX, OURS):
                space.ip("addr", "add", f"{address}/32", "dev", "lo")

    def start(self, program: str, *words: str) -> Program:
        """Run one on the loop, and let it serve."""
        return self._stack.enter_context(Program(self, program, words))

    def run(self, *command: str) -> str:
        """What a program of Linux' prints."""
        needs_program(command[0])
        done = subprocess.run(self.space.command([*command]), capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.said())
        return done.stdout

    def said(self) -> str:
        """By the programs on the loop."""
        return "\n".join(log.read_text() for log in self.folder.glob("*.log"))


class Program:
    """One on the loop under test."""

    def __init__(self, world: World, program: str, words: tuple[str, ...]) -> None:
        self.world, self._words = world, [str(PROGRAMS / "launch.py"), world.loop, str(PROGRAMS / program), *words]
        self._log = world.folder / f"{program}.log"

    def __enter__(self) -> Program:
        with self._log.open("w") as file, self.world.space.entered():
            self.process = subprocess.Popen([sys.executable, *self._words], stdout=file, stderr=file)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def serves(self) -> bool:
        """Whether it takes connections, or has ended."""
        with contextlib.suppress(OSError), self.world.space.entered():
            socket.create_connection((OURS, PORT), 5).close()
            return True
        return self.process.poll() is not None

    def wait(self) -> Program:
        """Until it serves."""
        wait_until(self.serves, 30, "a server on the loop")
        assert self.process.poll() is None, self._log.read_text()
        return self

    def ends(self, ours: int) -> None:
        """By itself, or by Ctrl-C: it says nothing, and had at least so many endpoints on our loop, none on Linux."""
        assert self.process.wait(30) == 0, self._log.read_text()
        said, _, counts = self._log.read_text().rpartition("endpoints ")
        assert said in ("", "asked\n"), said
        on_runtime, on_linux = map(int, counts.split())
        assert on_linux == 0
        assert on_runtime >= (ours if self.world.loop == "ours" else 0)

    def interrupt(self) -> Program:
        self.process.send_signal(signal.SIGINT)
        return self


@pytest.fixture(params=["ours", pytest.param("stock", marks=pytest.mark.soak(takes_s=3))])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if missing := netns_missing():
        pytest.skip(missing)
    with contextlib.ExitStack() as stack:
        yield World(stack.enter_context(netns.namespace("asyncio")), request.param, tmp_path, stack)


def needs_program(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}: apt-get install curl wrk redis-server redis-tools")


def needs(package: str) -> None:
    pytest.importorskip(package, reason=f"needs {package}: make setup, or pip install {package}")


WEB = ("on_aiohttp", "on_uvicorn", "on_hypercorn")


def curl(world: World, *words: str) -> str:
    return world.run("curl", "-sS", "-k", "--fail", "--max-time", "60", *words)


@pytest.mark.parametrize(("name", "scheme"), pairs(WEB, ("http", "https"), takes_s=3))
def test_web_servers(world: World, tmp_path: Path, name: str, scheme: str) -> None:
    needs(name.removeprefix("on_"))
    files = [str(path) for path in make_certificate(tmp_path, f"IP:{OURS}")] if scheme == "https" else []
    server = world.start(f"{name}.py", OURS, str(PORT), *files).wait()
    url = f"{scheme}://{OURS}:{PORT}"
    (tmp_path / "asked").write_bytes(b"question" * 50_000)
    long = tmp_path / "long"
    # By one connection: an answer, a large question, and an answer in pieces.
    curl(world, f"{url}/", "-o", str(tmp_path / "hello"), f"{url}/long", "-o", str(long))
    assert (tmp_path / "hello").read_text() == "hello"
    assert long.read_bytes() == LONG
    body = curl(world, "--data-binary", f"@{tmp_path / 'asked'}", f"{url}/upper")
    assert body == "QUESTION" * 50_000
    world.run(sys.executable, str(PROGRAMS / "talk.py"), f"{'wss' if files else 'ws'}://{OURS}:{PORT}/talk")
    server.interrupt().ends(ours=4)


@pytest.mark.parametrize("name", [WEB[0], *(pytest.param(n, marks=pytest.mark.soak(takes_s=4)) for n in WEB[1:])])
def test_many_requests(world: World, name: str) -> None:
    """By connections that stay, of which each has one request under way; wrk counts what is not 2xx as an error."""
    needs(name.removeprefix("on_"))
    server = world.start(f"{name}.py", OURS, str(PORT)).wait()
    said = world.run("wrk", "-t", "1", "-c", "20", "-d", "1s", f"http://{OURS}:{PORT}/")
    assert "Requests/sec" in said
    assert "Socket errors" not in said
    assert "Non-2xx" not in said
    server.interrupt().ends(ours=20)


def test_hypercorn_by_http2(world: World) -> None:
    needs("hypercorn")
    server = world.start("on_hypercorn.py", OURS, str(PORT)).wait()
    url = f"http://{OURS}:{PORT}/long"
    world.run("curl", "-sS", "--fail", "--http2-prior-knowledge", "-o", str(world.folder / "long"), url)
    assert (world.folder / "long").read_bytes() == LONG
    server.interrupt().ends(ours=2)


def test_websockets(world: World) -> None:
    needs("websockets")
    server = world.start("on_websockets.py", OURS, str(PORT)).wait()
    for _ in range(3):
        assert world.run(sys.executable, str(PROGRAMS / "talk.py"), f"ws://{OURS}:{PORT}") == "talked\n"
    server.interrupt().ends(ours=4)


def test_grpclib(world: World) -> None:
    needs("grpclib")
    server = world.start("on_grpclib.py", "serve", OURS, str(PORT)).wait()
    ask = (sys.executable, str(PROGRAMS / "on_grpclib.py"), "ask", OURS, str(PORT))
    assert world.run(*ask) == "asked\n"
    server.interrupt().ends(ours=2)


def test_redis_client(world: World) -> None:
    """redis-py's, with Debian's server, which is on Linux."""
    needs("redis")
    needs_program("redis-server")
    command = ["redis-server", "--save", "", "--protected-mode", "no", "--dir", str(world.folder)]
    redis = subprocess.Popen(world.space.command(command), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers_redis(world), 30, "redis-server")
        world.start("ask_redis.py", LINUX, "6379").ends(ours=10)
    finally:
        redis.kill()
        redis.wait()


def answers_redis(world: World) -> bool:
    command = world.space.command(["redis-cli", "ping"])
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout == "PONG\n"

"""Servers and clients that know nothing of corelane, on stock asyncio and on our loop, over a tap and over a veth:
Linux' own programs are at the other end."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import netns_missing, wait_until
from cltest.certificates import make_certificate
from cltest.netns import skip_without_af_xdp
from cltest.soak import pairs
from overtap import LINUX, LONG, OURS, PORT, World, curl, needs, needs_program

from corelane.drivers.linux import netns

pytestmark = pytest.mark.root

PROGRAMS = Path(__file__).parent / "programs"


SOAK = pytest.mark.soak(takes_s=3)


@pytest.fixture(
    params=[
        ("ours", "tap"),
        pytest.param(("ours", "veth"), marks=SOAK),
        pytest.param(("stock", "veth"), marks=SOAK),
    ],
    ids="-".join,
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    loop, link = request.param
    if missing := netns_missing():
        pytest.skip(missing)
    with contextlib.ExitStack() as stack:
        if link == "tap":
            yield World(PROGRAMS, stack.enter_context(netns.namespace("asyncio")), loop, tmp_path, stack)
            return
        skip_without_af_xdp()
        near, far = stack.enter_context(netns.link(addresses=(OURS, LINUX)))
        yield World(PROGRAMS, far.namespace, loop, tmp_path, stack, near)


WEB = ("on_aiohttp", "on_uvicorn", "on_hypercorn")


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


def test_websockets_of_a_peer_that_tries_everything(world: World) -> None:
    """Frames in all sizes, in pieces, and those that no peer may send (RFC 6455)."""
    needs("websockets")
    server = world.start("on_websockets.py", OURS, str(PORT)).wait()
    assert world.run(sys.executable, str(PROGRAMS / "try_websocket.py"), OURS, str(PORT)) == "tried\n"
    server.interrupt().ends(ours=30)


def test_grpclib(world: World) -> None:
    needs("grpclib")
    server = world.start("on_grpclib.py", "serve", OURS, str(PORT)).wait()
    ask = (sys.executable, str(PROGRAMS / "on_grpclib.py"), "ask", OURS, str(PORT))
    assert world.run(*ask) == "asked\n"
    server.interrupt().ends(ours=2)


def test_aioquic(world: World) -> None:
    """UDP: with TLS of its own, and streams side by side."""
    needs("aioquic")
    certificate, key = make_certificate(world.folder, f"IP:{OURS}")
    server = world.start("on_aioquic.py", "serve", OURS, str(PORT), str(certificate), str(key))
    wait_until(lambda: "serving" in world.said() or server.process.poll() is not None, 60, "aioquic's server")
    ask = (sys.executable, str(PROGRAMS / "on_aioquic.py"), "ask", OURS, str(PORT))
    for _ in range(2):
        assert world.run(*ask) == "asked\n"
    server.interrupt().ends(ours=1)


def test_redis_client(world: World) -> None:
    """redis-py's, with Debian's server, which is on Linux."""
    needs("redis")
    needs_program("redis-server")
    command = ["redis-server", "--save", "", "--protected-mode", "no", "--dir", str(world.folder)]
    redis = subprocess.Popen(world.space.command(command), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers_redis(world), 60, "redis-server")
        world.start("ask_redis.py", LINUX, "6379").ends(ours=10)
    finally:
        redis.kill()
        redis.wait()


def answers_redis(world: World) -> bool:
    command = world.space.command(["redis-cli", "ping"])
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout == "PONG\n"

"""A server that knows nothing of corelane, on trio's own sockets and on ours, over a tap: Linux' programs ask it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import netns_missing
from cltest.certificates import make_certificate
from overtap import LONG, OURS, PORT, World, curl, needs

from corelane.drivers.linux import netns

pytestmark = pytest.mark.root

PROGRAMS = Path(__file__).parent / "programs"
TALK = Path(__file__).parents[1] / "asyncio" / "programs" / "talk.py"


@pytest.fixture(params=["ours", pytest.param("stock", marks=pytest.mark.soak(takes_s=3))])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if missing := netns_missing():
        pytest.skip(missing)
    needs("hypercorn")
    with contextlib.ExitStack() as stack:
        yield World(PROGRAMS, stack.enter_context(netns.namespace("trio")), request.param, tmp_path, stack)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_hypercorn(world: World, tmp_path: Path, scheme: str) -> None:
    files = [str(path) for path in make_certificate(tmp_path, f"IP:{OURS}")] if scheme == "https" else []
    server = world.start("on_hypercorn.py", OURS, str(PORT), *files).wait()
    url = f"{scheme}://{OURS}:{PORT}"
    (tmp_path / "asked").write_bytes(b"question" * 50_000)
    long = tmp_path / "long"
    curl(world, f"{url}/", "-o", str(tmp_path / "hello"), f"{url}/long", "-o", str(long))
    assert (tmp_path / "hello").read_text() == "hello"
    assert long.read_bytes() == LONG
    assert curl(world, "--data-binary", f"@{tmp_path / 'asked'}", f"{url}/upper") == "QUESTION" * 50_000
    world.run(sys.executable, str(TALK), f"{'wss' if files else 'ws'}://{OURS}:{PORT}/talk")
    server.interrupt().ends(ours=4)


def test_many_requests(world: World) -> None:
    """By connections that stay, of which each has one request under way; wrk counts what is not 2xx as an error."""
    server = world.start("on_hypercorn.py", OURS, str(PORT)).wait()
    said = world.run("wrk", "-t", "1", "-c", "20", "-d", "1s", f"http://{OURS}:{PORT}/")
    assert "Requests/sec" in said
    assert "Socket errors" not in said
    assert "Non-2xx" not in said
    server.interrupt().ends(ours=20)

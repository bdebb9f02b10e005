"""corelane run --replace: a new version takes the place of the old one."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from cltest.commands import ask

from corelane import libos

PROGRAM = """
import asyncio

async def upper(reader, writer):
    while data := await reader.read(65536):
        writer.write(data.upper())
        await writer.drain()
    writer.close()

async def main():
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(upper, loop.runtime.address, 7000)
    await loop.serve(server)
"""


def ended_since_replaced(old: Any) -> dict[str, Any]:
    """The event of its end. It says before that another one has taken over."""
    assert "another process has taken over the name" in old.event("drain")["text"]
    stopped: dict[str, Any] = old.event("stopped")
    assert stopped["replaced"]
    assert stopped["text"].endswith("; another process has taken over")
    assert old.process.wait(60) == 0
    return stopped


@pytest.mark.soak(short=True, takes_s=4)
def test_a_new_version_takes_over_and_the_old_one_ends(start: Any, tmp_path: Path) -> None:
    path, settings = str(tmp_path / "io.sock"), tmp_path / "corelane.toml"
    settings.write_text("[apps.echo]\nmembers = 2\n")
    start("up", "--config", str(settings), "--socket", path, "--json").event("iokernel")
    words = ["run", "echo", "--socket", path, "--wait", "30", "--json"]
    old = start(*words)
    old.event("serving")
    new = start(*words, "--replace")
    assert "1 other member of echo drains" in new.event("draining")["text"]
    told = new.event("replaced")
    assert (told["members"], told["left"]) == (1, 0)
    ended_since_replaced(old)
    shown = ask("ps", "--socket", path, "--interval", "0.05")
    assert "echo[1]" in shown.stdout
    assert "echo[0]" not in shown.stdout
    alone = start("run", "kv", "--socket", path, "--replace", "--json")
    assert alone.process.wait(60) != 0
    alone.errors.seek(0)
    assert "members" in alone.errors.read()


def asked(stream: libos.TcpStream) -> bytes:
    stream.write(b"question", timeout_s=10)
    return stream.read(timeout_s=10)


@pytest.mark.soak(short=True, takes_s=4)
def test_a_program_for_asyncio_is_replaced(start: Any, tmp_path: Path) -> None:
    """A connection goes on with the old one until it ends; then that ends."""
    path, settings = str(tmp_path / "io.sock"), tmp_path / "corelane.toml"
    settings.write_text("[apps.upper]\nmembers = 2\n")
    (tmp_path / "server.py").write_text(PROGRAM)
    start("up", "--config", str(settings), "--socket", path, "--json").event("iokernel")
    words = ["run", "server:main", "--name", "upper", "--socket", path, "--wait", "30", "--poll", "block", "--json"]
    old = start(*words)
    told = old.event("serving")
    assert told["tcp_ports"] == [7000]
    with libos.Runtime(path, name="client", poll="block") as client:
        client.start()
        where = (told["address"], 7000)
        with client.connect_tcp(where, timeout_s=10) as stream:
            assert asked(stream) == b"QUESTION"
            new = start(*words, "--replace")
            assert "1 other member of upper drains" in new.event("draining")["text"]
            assert asked(stream) == b"QUESTION"
            with client.connect_tcp(where, timeout_s=10) as another:
                assert asked(another) == b"QUESTION"
                assert old.process.poll() is None
        told = new.event("replaced")
    assert (told["members"], told["left"]) == (1, 0)
    assert ended_since_replaced(old)["service"]["endpoints"] == 2
    new.process.send_signal(signal.SIGTERM)
    stopped = new.event("stopped")
    assert not stopped["replaced"]
    assert "taken over" not in stopped["text"]
    assert new.process.wait(60) == 0

"""corelane stat: what programs under run --posix count, read from outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cltest.cbuild import ROOT

from corelane.cli import main, stat
from corelane.libos._native import ffi

LIBRARY = ROOT / "runtime" / "_lib" / "libcorelane-posix.so"
PROGRAM = f"""
import os, socket
s = socket.socket()
s.bind(("10.77.0.2", 7000))
s.listen()
for i in range(2):
    s.setsockopt(socket.SOL_SOCKET, {socket.SO_INCOMING_CPU}, 0)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("127.0.0.1", 0))
u.setblocking(False)
try:
    u.recv(1)
except BlockingIOError:
    pass
try:
    s.bind(("10.77.0.2", 7001))
except OSError:
    pass
child = os.fork()
if child:
    print(child, flush=True)
input()
"""


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A program with a listener of ours, a datagram socket of Linux', and a child that has none of its own."""
    words = f"nic=memory,address=10.77.0.2/24{request.param}"
    env = {**os.environ, "CORELANE_POSIX": words, "LD_PRELOAD": str(LIBRARY)}
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", PROGRAM],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        yield process
        process.kill()


def child_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.mark.parametrize("program", [",trace=1"], indirect=True)
def test_calls_sockets_and_refusals(program: subprocess.Popen[str]) -> None:
    child = child_of(program)
    counts = stat.read(program.pid)
    assert counts is not None
    assert counts["program"].startswith("python")
    assert counts["sockets"] == {
        "tcp": {"open": 1, "made": 1, "to_linux": 0},
        "udp": {"open": 0, "made": 1, "to_linux": 1},
    }
    assert counts["calls"]["bind"] == {"ours": 3, "failed": 1, "passed": 0}
    assert counts["calls"]["listen"] == {"ours": 1, "failed": 0, "passed": 0}
    assert counts["calls"]["recv"] == {"ours": 0, "failed": 0, "passed": 1}
    assert counts["calls"]["write"]["passed"] >= 1
    assert [n for sentence, n in counts["refused"].items() if "SOL_SOCKET" in sentence] == [2]
    assert stat.read(child) is None


@pytest.mark.parametrize("program", [""], indirect=True)
def test_shown_and_as_json(program: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]) -> None:
    child_of(program)
    assert main.main(["stat", str(program.pid)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  tcp sockets: 1 open, 1 made, 0 turned out to be Linux'"
    assert any(line.split() == ["bind", "3", "1", "-"] for line in lines)
    assert main.main(["stat", "--json", str(program.pid)]) == 0
    assert json.loads(capsys.readouterr().out)["programs"][0]["calls"]["listen"]["ours"] == 1


def test_a_process_without_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["stat", str(os.getpid())]) == 1
    assert f"the counts of process {os.getpid()}: it is no program" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["short", "magic", "pid", "none"])
def test_what_a_stranger_wrote_is_bytes(damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Anybody can make such a file: what is in it is bounded, and shown as text."""
    made: Any = ffi.new("struct cl_posix_counts *")
    ffi.memmove(made, b"\xff" * ffi.sizeof(made[0]), ffi.sizeof(made[0]))
    made.magic = stat.MAGIC if damage != "magic" else 1
    made.pid = os.getpid() + (damage == "pid")
    ffi.memmove(made.names[0], b"\x1b[31m\x00", 6)
    data = bytes(ffi.buffer(made))
    fd = os.memfd_create("corelane-posix")
    try:
        os.write(fd, data[:-1] if damage == "short" else data)
        assert main.main(["stat", str(os.getpid())]) == (damage != "none")
    finally:
        os.close(fd)
    out = capsys.readouterr().out
    assert out.isascii() or damage == "none"
    assert "\x1b" not in out

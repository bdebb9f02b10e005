"""The examples, as applications of an iokernel."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cltest.examples import EXAMPLES, compile_example, end_example, start_example
from cltest.outside import Outside
from cltest.packets import Host

from corelane import libos
from corelane.iokernel import Iokernel


def _serve(command: list[str], wire: Outside, kernel: Iokernel, name: str) -> tuple[subprocess.Popen[str], Host]:
    child, address = start_example(command, kernel, name)
    return child, wire.resolve(address)


def _end(child: subprocess.Popen[str]) -> str:
    out, err = end_example(child)
    where = rf"corelane: process {child.pid} serves (UDP|TCP) port \d+ at [\d.]+ \(attached to .*\); \^C ends it\n"
    assert re.fullmatch(f"({where})?", err), "what `serve` says, and the C examples do not"
    return out


def _ask_selectors_loop(child: subprocess.Popen[str]) -> bytes:
    """By the socket that its loop serves beside the runtime; it prints where that is."""
    assert child.stdout is not None
    port = int(child.stdout.readline().split()[-1])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        return connection.makefile("rb").read()


@pytest.mark.parametrize(
    ("script", "name", "request_", "reply"),
    [
        ("numba_echo.py", "numba-echo", b"hello", b"hello"),
        ("python_upper.py", "python-upper", b"hello", b"10.77.0.99 said HELLO"),
        ("selectors_loop.py", "selectors-loop", b"hello", b"HELLO"),
        ("numba_counter.py", "numba-counter", b"\x02", b"\1" + bytes(7)),
        ("numba_gather.py", "numba-gather", b"\x02\x00\x01", b"\1\1\1"),
    ],
)
def test_python_examples(outside: Any, script: str, name: str, request_: bytes, reply: bytes) -> None:
    wire, path, start = outside
    kernel = start()
    child, server = _serve([sys.executable, str(EXAMPLES / script), path], wire, kernel, name)
    try:
        assert wire.ask(server, request_) == reply
        if script == "selectors_loop.py":
            assert _ask_selectors_loop(child) == b"1 requests\n"
        assert _end(child) == ""
    finally:
        child.kill()
        child.communicate()


def test_python_example_of_streams(outside: Any) -> None:
    wire, path, start = outside
    kernel = start()
    command = [sys.executable, str(EXAMPLES / "numba_lines.py"), path]
    child, server = _serve(command, wire, kernel, "numba-lines")
    try:
        with libos.Runtime(path, name="asker") as asker:
            asker.start()
            with asker.connect_tcp((server.ip, 7000), timeout_s=20) as stream:
                stream.write(b"hello\nwor")
                stream.write(b"ld\n")
                answer = b""
                while len(answer) < 12:
                    answer += stream.read(timeout_s=20)
        assert answer == b"HELLO\nWORLD\n"
        assert _end(child) == ""
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("name", ["asyncio_echo", "trio_echo"])
def test_python_examples_of_event_loops(outside: Any, name: str) -> None:
    wire, path, start = outside
    kernel = start()
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), path]
    child, server = _serve(command, wire, kernel, name.replace("_", "-"))
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == f"serving {server.ip}:7000\n"
        with libos.Runtime(path, name="asker") as asker:
            asker.start()
            with asker.connect_tcp((server.ip, 7000), timeout_s=20) as stream:
                stream.write(b"x" * 100_000)
                stream.shutdown()
                answer = b""
                while part := stream.read(timeout_s=20):
                    answer += part
        assert answer == b"x" * 100_000
        assert _end(child) == ""
    finally:
        child.kill()
        child.communicate()


def test_c_example_builds_against_the_installed_headers(outside: Any, tmp_path: Path) -> None:
    wire, path, start = outside
    kernel = start()
    program = compile_example("c_echo.c", tmp_path)
    child, server = _serve([str(program), path], wire, kernel, "c-echo")
    try:
        assert wire.ask(server, b"from C") == b"from C"
        assert _end(child) == "1 requests, 1 replies\n"
    finally:
        child.kill()
        child.communicate()

"""Fixtures for the iokernel's tests: sockets of their own, frames, applications in other processes."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cltest import die_with_parent
from cltest.switching import assert_balanced

from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic
from corelane.drivers.port.port import Port, open_port
from corelane.iokernel import Iokernel


@pytest.fixture(scope="session")
def bad_policies(c_library: Callable[..., Path]) -> Path:
    """The shared object of c/bad_policies.c, without what some distributions' compilers put in unasked: one writes to
    each page of a large frame, and a recursion takes so long that it is late."""
    flags = ["-fno-stack-protector", "-fno-stack-clash-protection"]
    return c_library("tests/iokernel/policy/c/bad_policies.c", cflags=flags)


@pytest.fixture
def link() -> Iterator[Callable[..., tuple[Nic, Nic]]]:
    """`inner, outer = link(**options)`: a memory link to use as an uplink; open until the iokernel has stopped."""
    with ExitStack() as stack:

        def make(**options: Any) -> tuple[Nic, Nic]:
            inner, outer = memory_link(**options)
            return stack.enter_context(inner), stack.enter_context(outer)

        yield make


@pytest.fixture
def start(link: object, socket_path: str) -> Iterator[Callable[..., Iokernel]]:
    """`io = start(**options)`: a running iokernel, whose counters must balance at the end."""
    with ExitStack() as stack:

        def make(path: str = socket_path, **options: Any) -> Iokernel:
            iokernel = stack.enter_context(Iokernel(path, **options))
            stack.callback(assert_balanced, iokernel)
            return iokernel

        yield make


@pytest.fixture
def attach(socket_path: str) -> Iterator[Callable[..., Port]]:
    """`port = attach("name", **options)`: an application on the test's socket path."""
    with ExitStack() as stack:
        yield lambda name, **options: stack.enter_context(open_port(socket_path, name=name, **options))


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`p = child("script.py", *args)`: a Python program of tests/iokernel/programs that has printed "ready"."""
    running: list[subprocess.Popen[str]] = []

    def spawn(script: str, *args: str) -> subprocess.Popen[str]:
        path = Path(__file__).parent / "programs" / script
        process = subprocess.Popen(
            [sys.executable, str(path), *args], stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        return process

    yield spawn
    for process in running:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def rng(seed: int) -> random.Random:
    """A generator from the run's printed seed."""
    return random.Random(seed)

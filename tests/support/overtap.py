"""Servers that know nothing of corelane, on a loop of choice over a tap or a veth, with Linux' own programs at the
other end.

Of a folder of programs, whose launch.py runs one of them: python launch.py ours|ours:INTERFACE|stock PROGRAM
[ARGUMENT...], and says at the end how many TCP endpoints were the runtime's and how many Linux'.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cltest import wait_until

from corelane.drivers.linux import netns

LINUX, OURS = "10.99.8.1", "10.99.8.2"  # launch.py's
PORT = 8000
LONG = b"".join(bytes([i]) * 10_000 for i in range(100))  # what asgi.py answers


class World:
    """A namespace. By the loop `ours` there is a tap in it, once a program has started; by `stock` both addresses are
    Linux'.

    near: of a veth whose other end is in that namespace the end of the programs on the loop, in one of its own.
    """

    def __init__(
        self,
        programs: Path,
        space: netns.Namespace,
        loop: str,
        folder: Path,
        stack: contextlib.ExitStack,
        near: netns.Interface | None = None,
    ) -> None:
        self.programs, self.space, self.loop, self.folder, self._stack = programs, space, loop, folder, stack
        self.launched = f"{loop}:{near.name}" if near and loop == "ours" else loop
        self.served_in = near.namespace if near else space
        # Who binds a socket of Linux' itself, as hypercorn, names an address that Linux does not have.
        self.served_in.run(["sysctl", "-q", "-w", "net.ipv4.ip_nonlocal_bind=1"])
        if loop == "stock" and near is None:
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
        launch, path = world.programs / "launch.py", world.programs / program
        self.world, self._words = world, [str(launch), world.launched, str(path), *words]
        self._log = world.folder / f"{program}.log"

    def __enter__(self) -> Program:
        with self._log.open("w") as file, self.world.served_in.entered():
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
        wait_until(self.serves, 60, "a server on the loop")
        assert self.process.poll() is None, self._log.read_text()
        return self

    def ends(self, ours: int) -> None:
        """By itself, or by Ctrl-C: it says nothing, and had at least so many endpoints on our loop, none on Linux."""
        assert self.process.wait(60) == 0, self._log.read_text()
        said, _, counts = self._log.read_text().rpartition("endpoints ")
        assert said in ("", "asked\n", "serving\n"), said
        on_runtime, on_linux = map(int, counts.split())
        assert on_linux == 0
        assert on_runtime >= (ours if self.world.loop == "ours" else 0)

    def interrupt(self) -> Program:
        self.process.send_signal(signal.SIGINT)
        return self


def needs_program(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}: apt-get install curl wrk redis-server redis-tools")


def needs(package: str) -> None:
    pytest.importorskip(package, reason=f"needs {package}: make setup, or pip install {package}")


def curl(world: World, *words: str) -> str:
    return world.run("curl", "-sS", "-k", "--fail", "--max-time", "60", *words)

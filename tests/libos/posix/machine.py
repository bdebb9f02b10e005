"""A namespace with an iokernel that comes and goes, and stock servers attached to it: Linux' clients are behind its
tap."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from cltest import wait_until
from cltest.commands import Command

from corelane.cli import watch
from corelane.drivers.linux import netns


class Machine:
    """A namespace in which iokernels and their applications are started."""

    def __init__(self, space: netns.Namespace, folder: Path, stack: contextlib.ExitStack) -> None:
        self.space, self.folder, self.stack = space, folder, stack
        self.path = str(folder / "io.sock")

    def start(self, *words: str) -> Command:
        with self.space.entered():
            command = Command(words, self.folder)
        self.stack.callback(self.end, command)
        return command

    @staticmethod
    def end(command: Command) -> None:
        command.process.kill()
        command.process.wait(60)
        for file in (command.process.stdout, command.errors):
            assert file is not None
            file.close()

    def iokernel(self, *words: str) -> Command:
        up = self.start("up", "--socket", self.path, "--nic", "tap:cl0", *words, "--json")
        up.event("iokernel")
        return up

    def serve(self, *words: str) -> Command:
        """A program with its sockets on the dataplane, attached."""
        return self.start("run", "--posix", "--socket", self.path, "--name", "stock", *words)

    def address(self) -> str | None:
        """The program's, once it is attached."""
        with contextlib.suppress(Exception):
            return next((str(a["ipv4"]) for a in watch.snapshot(self.path)["apps"] if a["name"] == "stock"), None)
        return None

    def wait_for_address(self) -> str:
        return wait_until(self.address, 60, "the program is attached") or ""

    def connect(self, port: int) -> socket.socket:
        """A connection of Linux' to the program, once it takes one."""
        made: list[socket.socket] = []

        def comes() -> bool:
            if address := self.address():
                with contextlib.suppress(OSError), self.space.entered():
                    made.append(socket.create_connection((address, port), timeout=5))
            return bool(made)

        wait_until(comes, 60, f"a connection to port {port}")
        made[0].settimeout(60)
        return made[0]

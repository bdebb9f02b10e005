"""Processes that a benchmark starts. Those of Python say when they are ready, and end with their stdin; of any other
command a line is waited for."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ...runtime.closing import Closing
from ...runtime.errors import CorelaneError

END_S = 5.0
PIECE_BYTES = 4096


class Child(Closing):
    """`python -m MODULE`, from construction to `close`. It prints a line of JSON when it is ready, which is in `said`.

    Its stdin stays open: it ends when that ends, and so with who started it. netns: a namespace's name; pass_fds:
    descriptors that it inherits. Raises CorelaneError with the last line of its stderr if it ends before it is ready,
    or says nothing for timeout_s.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        netns: str = "",
        pass_fds: Sequence[int] = (),
        timeout_s: float = 60.0,
    ) -> None:
        prefix = ["ip", "netns", "exec", netns] if netns else []
        self._what = f"start {module.rpartition('.')[2]}"
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in close
        self._process: subprocess.Popen[str] | None = subprocess.Popen(
            [*prefix, sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            pass_fds=pass_fds,
        )
        self.pid = self._process.pid
        try:
            self.said: dict[str, Any] = json.loads(self._first_line(timeout_s))
        except BaseException:
            Child.close(self)
            raise

    def _first_line(self, timeout_s: float) -> str:
        return self._line(timeout_s, f"it was not ready after {timeout_s:.0f} s")

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """The next line of JSON that it prints. It prints one for each line that it is told. CorelaneError: none came,
        or its member "error"."""
        answer: dict[str, Any] = json.loads(self._line(timeout_s, f"it said nothing for {timeout_s:.0f} s"))
        if "error" in answer:
            raise CorelaneError(self._what, str(answer["error"]))
        return answer

    def _line(self, timeout_s: float, late: str) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                raise CorelaneError(self._what, late)
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().strip().splitlines() or ["it said nothing"]
            raise CorelaneError(self._what, said[-1])
        return line

    def tell(self, line: str) -> None:
        """A line to its stdin; nothing once closed."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End it and wait. Closing twice is allowed."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self._errors.close()


@contextlib.contextmanager
def told(command: Sequence[str], until: str, *, timeout_s: float = 30.0, **how: Any) -> Iterator[int]:
    """The pid of a process that has printed a line with `until` ("": at once); ended by SIGTERM. how: of Popen.

    Raises CorelaneError if it ends without that line, or does not print it for timeout_s.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, **how)
    try:
        assert process.stdout is not None
        if until:
            _await(process.stdout.fileno(), command, until.encode(), time.monotonic() + timeout_s)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(2 * END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _await(fd: int, command: Sequence[str], until: bytes, deadline: float) -> None:
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while not any(until in line for line in said.split(b"\n")[:-1]):
            if not selector.select(max(deadline - time.monotonic(), 0)):
                raise CorelaneError(f"start {' '.join(command)}", "it does not say that it is ready")
            piece = os.read(fd, PIECE_BYTES)
            if not piece:
                raise CorelaneError(f"start {' '.join(command)}", "it ended before it was ready")
            said += piece

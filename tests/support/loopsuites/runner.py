"""Runs modules of tests in children, and goes on after one that hangs or crashes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from .suites import Suite

PATIENCE_S = 30.0
_SAID = 3000  # characters of a child's last words that are kept


@dataclass(frozen=True)
class Outcome:
    """What became of a test.

    result: "passed", "failed", "skipped" (by itself). ignored: an exception where none can be raised. loops: made by
    it, in the place of asyncio's; ours, linux: their endpoints on the runtime and on Linux.
    """

    test: str
    result: str
    why: str = ""
    ignored: str = ""
    loops: int = 0
    ours: int = 0
    linux: int = 0


def run(
    suite: Suite,
    module: str,
    loop: str | None,
    only: Sequence[str] = ("*",),
    without: Sequence[str] = (),
    patience_s: float = PATIENCE_S,
    inside: Sequence[str] = (),
) -> list[Outcome]:
    """Outcomes of the tests of a module.

    loop: a factory, "module:name"; None: asyncio's. only, without: patterns. inside: the beginning of a command line
    that runs the rest of it, as in a network namespace.
    """
    left: Sequence[str] = only
    found: list[Outcome] = []
    while left:
        child = _Child(suite, module, loop, left, without, patience_s, inside)
        ended = list(child.outcomes())
        found += ended
        known = {outcome.test for outcome in ended}
        left = [test for test in child.tests if test not in known]
        if child.done or not ended:  # nothing new would come of another one
            broken = left if child.tests else [f"{module}.*"]
            return found + [Outcome(test, "failed", f"did not run: {child.why}") for test in broken if not child.empty]
    return found


class _Child:
    """A process that runs tests. tests: all that it means to run; done: it came to the end; why: what it broke at."""

    def __init__(
        self,
        suite: Suite,
        module: str,
        loop: str | None,
        only: Sequence[str],
        without: Sequence[str],
        patience_s: float,
        inside: Sequence[str],
    ) -> None:
        self.tests: list[str] = []
        self.done, self.why = False, ""
        self._patience_s, self._inside, self._python = patience_s, inside, suite.python
        self._asked = {
            "suite": suite.name,
            "package": suite.package,
            "folder": str(suite.folder),
            "module": module,
            "loop": loop,
            "only": list(only),
            "without": list(without),
        }

    @property
    def empty(self) -> bool:
        """Whether it came to the end because there was nothing to run."""
        return self.done and not self.tests

    def outcomes(self) -> Iterator[Outcome]:
        read, write = os.pipe()
        with tempfile.TemporaryFile() as said, tempfile.TemporaryDirectory(prefix="cl-loops-") as folder:
            process = subprocess.Popen(
                [*self._inside, self._python.command, "-m", "loopsuites.child", str(write)],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                pass_fds=[write],
                cwd=folder,
                env=self._python.environment(),
                start_new_session=True,
            )
            os.close(write)
            assert process.stdin is not None
            try:
                with process.stdin as stdin:
                    stdin.write(json.dumps(self._asked).encode())
                with os.fdopen(read, "rb", 0) as lines:
                    yield from self._listen(lines, process, said)
            finally:
                _end(process)

    def _listen(self, lines: IO[bytes], process: subprocess.Popen[bytes], said: IO[bytes]) -> Iterator[Outcome]:
        now = ""
        buffered = b""
        while True:
            # Between tests it imports, which a busy machine makes long: nothing there is said to hang early.
            patience_s = self._patience_s if now else max(self._patience_s, PATIENCE_S)
            if not select.select([lines], [], [], patience_s)[0]:
                process.send_signal(signal.SIGABRT)  # faulthandler shows where it is
                process.wait()
                self.why = f"hangs for {patience_s:g} s\n{_last(said)}"
                break
            got = os.read(lines.fileno(), 1 << 16)
            if not got:
                self.why = self.why or f"ended with {process.wait()}\n{_last(said)}"
                break
            *whole, buffered = (buffered + got).split(b"\n")
            for line in map(json.loads, whole):
                if isinstance(line, list):
                    self.tests = line
                elif line == "done":
                    self.done = True
                elif "broken" in line:
                    self.why = f"{line['broken']}: {line['why']}"
                elif "begun" in line:
                    now = line["begun"]
                else:
                    now = ""
                    yield _outcome(line)
        if now:
            yield Outcome(now, "failed", self.why)


def _outcome(line: dict[str, Any]) -> Outcome:
    return Outcome(line.pop("ended"), **line)


def _last(said: IO[bytes]) -> str:
    said.seek(0)
    return said.read().decode(errors="replace")[-_SAID:]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it, and what it may have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

"""The `corelane` command as a user starts it: in processes of its own."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .children import die_with_parent

DEADLINE_S = 60.0


class Command:
    """`corelane ARGS` in a process; `event` waits for a JSON line with that event. prefix: words before the command."""

    def __init__(self, args: Sequence[str], cwd: Path, prefix: Sequence[str] = ()) -> None:
        self.errors = (cwd / f"stderr-{time.monotonic_ns()}").open("w+")
        self.read = b""
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "corelane.cli.main", *args],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            preexec_fn=die_with_parent,
        )

    def event(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_S
        for line in self.lines(deadline):
            told: dict[str, Any] = json.loads(line)
            if told["event"] == name:
                return told
        self.errors.seek(0)
        raise AssertionError(f"no event {name}: {self.errors.read()}")

    def lines(self, deadline: float) -> Iterator[bytes]:
        """Lines as they come, until the deadline or the end. Several may come at once: `read` has those left over."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                line, newline, rest = self.read.partition(b"\n")
                if newline:
                    self.read = rest
                    yield line
                    continue
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    return
                if not (data := os.read(self.process.stdout.fileno(), 65536)):
                    return
                self.read += data

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()
        return code


def ask(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "corelane.cli.main", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=100)

"""Fixtures of the tests of the command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cltest.commands import Command


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """`start("run", "echo", ...)` returns a Command; all are ended after the test."""
    started: list[Command] = []

    def begin(*args: str, prefix: Sequence[str] = ()) -> Command:
        started.append(Command(args, tmp_path, prefix))
        return started[-1]

    yield begin
    for command in reversed(started):
        if command.process.poll() is None:
            command.process.kill()
        command.process.wait(60)
        if command.process.stdout is not None:
            command.process.stdout.close()
        command.errors.close()

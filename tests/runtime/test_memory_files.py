"""Memory files of a process, and what only looks like one (memory_files.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corelane.runtime import memory_files


def test_memory_files_are_found_by_their_name() -> None:
    held = [os.memfd_create(name) for name in ("corelane-test", "corelane-test", "corelane-test-2")]
    try:
        os.write(held[1], b"here")
        found = {}
        for path, place in memory_files.places(os.getpid(), memory_files.link_of("corelane-test")):
            with open(memory_files.open_at(place), "rb") as file:
                found[os.path.basename(path)] = file.read()
        assert found == {str(held[0]): b"", str(held[1]): b"here"}
    finally:
        for fd in held:
            os.close(fd)


def test_nothing_else_is_opened_or_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a pipe would wait for somebody to write to it; a file system of a stranger's answers when he likes."""

    def asked(*_args: object, **_options: object) -> os.stat_result:
        raise AssertionError("a file system was asked")

    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.touch()
    held = [os.open(path, os.O_RDWR) for path in (pipe, file)]
    with monkeypatch.context() as planted:
        for name in ("stat", "lstat", "fstat"):
            planted.setattr(os, name, asked)
        found = [list(memory_files.places(os.getpid(), str(path))) for path in (pipe, file)]
    for fd in held:
        os.close(fd)
    assert found == [[], []]


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        list(memory_files.places(2**22 + 1, "x"))

"""A file system that a test may freeze: a write then does not begin until it is let go on."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corelane.drivers.blk import loop as blk_loop

Frozen = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def freezable(folder: Path) -> Iterator[tuple[Path, Frozen]]:
    """An ext4 of 64 MiB in a file of `folder`, mounted until the end, and what freezes it as a context."""
    if why := blk_loop.missing():
        pytest.skip(why)
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4") or not shutil.which("fsfreeze"):
        pytest.skip("mounting and freezing need root, mkfs.ext4 and fsfreeze: apt-get install e2fsprogs util-linux")
    image, at = folder / "image", folder / "at"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    _run("mkfs.ext4", "-q", str(image))
    with image.open("rb+") as file:
        fd, loop = blk_loop.attach(file.fileno(), 0, 64 << 20)
    try:
        mounted = subprocess.run(["mount", loop, str(at)], capture_output=True, text=True, timeout=60, check=False)
        if mounted.returncode:
            pytest.skip(f"nothing may be mounted here: {mounted.stderr}")
        try:
            yield at, lambda: _frozen(at)
        finally:
            _run("umount", "-l", str(at))
    finally:
        os.close(fd)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=60)


@contextlib.contextmanager
def _frozen(at: Path) -> Iterator[None]:
    """By a process that lets it go on when its input ends, which it does however this one ends."""
    script = 'fsfreeze -f "$1" && echo frozen && read -r _; fsfreeze -u "$1"'
    argv = ["sh", "-c", script, "sh", str(at)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin
        assert child.stdout
        try:
            assert child.stdout.readline() == "frozen\n"
            yield
        finally:
            child.stdin.close()
            child.wait(60)

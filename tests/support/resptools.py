"""Redis' own programs, from a network namespace."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from corelane.drivers.linux import netns


def run(
    space: netns.Namespace, at: tuple[str, int], program: str, *words: str, stdin: str = "", timeout_s: float = 240.0
) -> str:
    """What a program says that is pointed at an address and port, and has to succeed."""
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}: apt-get install redis-tools")
    command = space.command([program, "-h", at[0], "-p", str(at[1]), *words])
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout

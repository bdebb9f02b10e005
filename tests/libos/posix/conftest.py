"""Programs that know nothing of corelane, with and without the library that is preloaded."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cltest import CBuild
from cltest.cbuild import ROOT

LIBRARY = ROOT / "runtime" / "_lib" / "libcorelane-posix.so"
OURS = "10.77.0.2"
INSIDE = f"nic=memory,address={OURS}/24"  # a wire to nobody: connections to our own address stay in the stack


def preloaded(words: str) -> dict[str, str]:
    """The environment of a program whose sockets are ours."""
    return {**os.environ, "CORELANE_POSIX": words, "LD_PRELOAD": str(LIBRARY)}


@pytest.fixture(scope="session")
def stock() -> Callable[[str], Path]:
    """Compile a program of c/ without anything of corelane's."""
    return lambda name: CBuild("plain").build(f"tests/libos/posix/c/{name}.c", [])


def run(binary: Path, *words: str, config: str = "", timeout_s: float = 60.0) -> str:
    """What a program prints, on both streams; config: of its runtime, "" for Linux' sockets."""
    env = preloaded(config) if config else dict(os.environ)
    done = subprocess.run(
        [str(binary), *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout)
    return done.stdout

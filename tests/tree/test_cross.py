"""The C core compiles for the other architecture that it is written for; it is not run there."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cltest.cbuild import ROOT, setup_py

CROSS = "aarch64-linux-gnu-gcc"


def refusal(source: Path, folder: Path) -> str:
    """What the compiler says of a source. Those with assembly are assembled, the others only read: that is quick."""
    assembled = "asm" in source.read_text() or source.parts[:2] == ("libos", "sched")
    target = ["-c", "-o", str(folder / f"{source.name}.o")] if assembled else ["-fsyntax-only"]
    command = [CROSS, *setup_py().CFLAGS, "-O1", "-I.", *target, str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def test_every_source_compiles_for_aarch64(tmp_path):
    if shutil.which(CROSS) is None:
        pytest.skip(f"no {CROSS}: apt-get install gcc-aarch64-linux-gnu")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda s: refusal(Path(s), tmp_path), setup_py().c_sources()))
    assert len(said) > 50
    assert "".join(said) == ""

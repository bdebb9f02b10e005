"""The C core compiles for the other architecture that it is written for; it is not run there."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from cltest.cbuild import ROOT, setup_py

CROSS = "aarch64-linux-gnu-gcc"


def refusal(source: Path, folder: Path) -> str:
    """What the compiler says of a source. Those with assembly are assembled, the others only read: that is quick.

    What was taken before is left out, as long as it is made of the same files by the same command.
    """
    name = str(source).replace("/", "__")
    taken, depfile = folder / f"{name}.taken", folder / f"{name}.d"
    assembled = "asm" in source.read_text() or source.parts[:2] == ("libos", "sched")
    target = ["-c", "-o", str(folder / f"{name}.o")] if assembled else ["-fsyntax-only"]
    command = [CROSS, *setup_py().CFLAGS, "-O1", "-I.", *target, "-MMD", "-MF", str(depfile), str(source)]
    digest = hashlib.sha256(shlex.join(command).encode()).hexdigest()
    if not setup_py().stale(taken, depfile, digest):
        return ""
    begun_ns = time.time_ns()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        taken.unlink(missing_ok=True)
        return done.stderr
    taken.touch()
    os.utime(taken, ns=(begun_ns, begun_ns))  # what changes while the compiler reads it is read again
    depfile.with_suffix(".cmd").write_text(digest)
    return ""


@pytest.mark.soak(takes_s=25)
def test_every_source_compiles_for_aarch64():
    if shutil.which(CROSS) is None:
        pytest.skip(f"no {CROSS}: apt-get install gcc-aarch64-linux-gnu")
    folder = ROOT / "build" / "ctest" / "aarch64"
    folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda s: refusal(Path(s), folder), setup_py().c_sources()))
    assert len(said) > 50
    assert "".join(said) == ""


def test_what_was_refused_or_has_changed_is_compiled_again(tmp_path):
    if shutil.which(CROSS) is None:
        pytest.skip(f"no {CROSS}: apt-get install gcc-aarch64-linux-gnu")
    header, source = tmp_path / "it.h", tmp_path / "it.c"
    source.write_text('#include "it.h"\nint it(void);\nint it(void) { return IT; }\n')
    for text, wrong in (("#define IT 1\n", False), ("#define IT wrong\n", True), ("#define IT 2\n", False)):
        header.write_text(text)
        for _ in range(2):
            assert bool(refusal(source, tmp_path)) == wrong

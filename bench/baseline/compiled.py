"""Baselines in C that need libraries which corelane does not: compiled when they are asked for."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ...runtime.errors import SystemLimit

INSTALL = "apt-get install etcd-server libraft-dev libuv1-dev libnghttp2-dev liblwip-dev"


def build(name: str, define: str, libraries: Sequence[str], into: Path, flags: Sequence[str] = ()) -> Path:
    """Compile bench/baseline/NAME.c by itself into the folder `into`; the program, or what else the flags make of it.

    Raises SystemLimit, saying what to install, if there is no compiler or a library is missing.
    """
    source, program = Path(__file__).with_name(f"{name}.c"), into / name
    if not source.exists():
        raise SystemLimit(f"compile {name}", "its source is not installed: run it from corelane's source tree")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise SystemLimit(f"compile {name}", "there is no C compiler: apt-get install gcc")
    command = [compiler, "-std=gnu11", "-O2", "-D_GNU_SOURCE", f"-D{define}", *flags, str(source), "-o", str(program)]
    done = subprocess.run([*command, *(f"-l{lib}" for lib in libraries)], capture_output=True, text=True, check=False)
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if "error" in line or "cannot find" in line), "it fails")
        raise SystemLimit(f"compile {name}", f"{why.strip()}: {INSTALL}")
    return program

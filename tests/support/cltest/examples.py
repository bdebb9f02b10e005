"""The servers of examples/ as processes: compiled if they are in C, started, found, and ended as people do."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from corelane.cli.config import flags
from corelane.iokernel import Iokernel

from .waiting import wait_until

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def compile_example(name: str, folder: Path, *, shared: bool = False) -> Path:
    """The program of a C example, or its shared object, built away from the source tree by what `corelane config` says:
    only what is installed may be found."""
    made = folder / (name.removesuffix(".c") + (".so" if shared else ""))
    words = ["-O2", "-Wall", "-Wextra", "-Werror", *(["-shared", "-fPIC"] if shared else [])]
    words += [str(EXAMPLES / name), "-o", str(made), *flags()["cflags"], *flags()["libs"]]
    subprocess.run(["gcc", *words], cwd=folder, check=True)
    return made


def start_example(command: list[str], kernel: Iokernel, name: str) -> tuple[subprocess.Popen[str], str]:
    """The process, once its application of that name has attached, and the address of that."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: name in kernel.apps or child.poll() is not None, 60, f"{name} to register")
    if child.poll() is not None:
        raise AssertionError(child.communicate())
    return child, next(str(a["ipv4"]) for a in kernel.stats()["apps"] if a["name"] == name)


def end_example(child: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed, after SIGTERM: on stdout and on stderr."""
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    return out, err

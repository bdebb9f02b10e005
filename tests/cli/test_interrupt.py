"""Ctrl-C while the command starts: one line and 130, whatever is being imported at that moment."""

import subprocess
import sys
from pathlib import Path

import pytest

from corelane.cli.main import COMMANDS

SCRIPT = Path(__file__).parents[2] / "cli" / "corelane"
# Runs the script as `make setup` has it run, and interrupts it at the import of a module.
PROGRAM = """
import importlib.abc, os, signal, sys
script, at = sys.argv[1:3]
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == at:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = [script, *sys.argv[3:]]
exec(compile(open(script).read(), script, "exec"))
"""
RUN = ("run", "echo", "--nic", "loadgen:echo,seconds=5")


@pytest.mark.parametrize(
    ("module", "args"),
    [
        ("site", ["doctor"]),
        ("corelane.cli", ["doctor"]),
        ("argparse", ["doctor"]),
        *((f"corelane.cli.{name.replace('-', '_')}", [name]) for name in COMMANDS),
        ("corelane.runtime.config", ["up"]),
        ("corelane.iokernel", ["up", "--socket", "/nonexistent/x.sock"]),
        ("corelane.runtime._native", ["ps", "--socket", "/nonexistent/x.sock"]),
        *((f"corelane.{name}", [*RUN]) for name in ("libos", "libos._native", "apps._native", "apps.registry")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_an_interrupt_at_an_import_is_one_line(module: str, args: list[str]) -> None:
    command = [sys.executable, "-S", "-c", PROGRAM, str(SCRIPT), module, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 130, done.stderr
    assert done.stderr in ("corelane: interrupted\n", f"corelane {args[0]}: interrupted\n")
    assert done.stdout == ""


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    ignore = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    ignoring = f"import os, signal, sys\n{ignore}\nos.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-S", "-c", PROGRAM, str(SCRIPT), "argparse", "--version"]
    done = subprocess.run([sys.executable, "-c", ignoring, *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("corelane ")

"""Ctrl-C while the command starts: one line and 130, whatever is being imported at that moment."""

import subprocess
import sys
from pathlib import Path

import pytest

from corelane.cli.main import COMMANDS
from corelane.iokernel import Iokernel

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
# Runs it and tells of the modules of C that are imported while Ctrl-C is a KeyboardInterrupt.
LISTING = """
import importlib.abc, signal, sys
class Listing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.endswith("_native") and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            print("LATE", name, file=sys.stderr)
sys.meta_path.insert(0, Listing())
sys.argv = sys.argv[1:]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
"""


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


@pytest.mark.parametrize(
    "line",
    [
        "ps --interval 0 --socket SOCKET",
        "top --once -d 0 --socket SOCKET",
        "metrics --socket SOCKET",
        "trace --seconds 0 --socket SOCKET",
        "policy --socket SOCKET",
        "areas --socket SOCKET",
        "up --socket NOWHERE",
        "run kv --nic loadgen:memcached,seconds=0.01,rate=100",
        "raft status --peers 1=127.0.0.1:1 --timeout 0",
        "raft-sim --seeds 1 --steps 10",
        "log create FILE --mib 8",
        "bench canary --seconds 0.01",
    ],
    ids=lambda line: line.split()[0],
)
def test_modules_of_c_are_imported_while_an_interrupt_ends_the_process(
    line: str, socket_path: str, tmp_path: Path
) -> None:
    """Such a module imports others, and an interrupt in there is an ImportError."""
    places = {"SOCKET": socket_path, "NOWHERE": "/nonexistent/x.sock", "FILE": str(tmp_path / "log")}
    words = [places.get(word, word) for word in line.split()]
    with Iokernel(socket_path, mode="block"):
        command = [sys.executable, "-S", "-c", LISTING, str(SCRIPT), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "LATE" not in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_while_a_handler_is_compiled_ends_the_process(tmp_path: Path) -> None:
    """Python cannot raise it in numba's callbacks: there it is lost, and a traceback is printed."""
    (tmp_path / "interrupts.py").write_text(
        "import numba.core.compiler, os, signal\n"
        "def handler(request, reply):\n    return 0\n"
        "def interrupting(*args, **kwargs):\n    os.kill(os.getpid(), signal.SIGINT)\n    raise SystemExit('went on')\n"
        "numba.core.compiler.compile_extra = interrupting\n"
    )
    words = ("run", "interrupts:handler", "--port", "9000", "--nic", "loadgen:echo,seconds=60")
    command = [sys.executable, "-S", str(SCRIPT), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (130, "corelane: interrupted\n")


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    ignore = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    ignoring = f"import os, signal, sys\n{ignore}\nos.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-S", "-c", PROGRAM, str(SCRIPT), "argparse", "--version"]
    done = subprocess.run([sys.executable, "-c", ignoring, *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("corelane ")

"""gdb lists uthreads and their stacks, in a process and in a core file."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from cltest import CBuild
from cltest.cbuild import ROOT

SCRIPT = ROOT / "libos" / "sched" / "uthreads_gdb.py"
WAITER = "7"  # stacks are made eight at a time, and the last of them is used first
COMMANDS = ["corelane-uthreads", f"corelane-uthread {WAITER} bt", f"corelane-uthread {WAITER} up 5", "frame"]


@pytest.fixture(scope="module")
def program() -> Path:
    if shutil.which("gdb") is None:
        pytest.skip("no gdb: apt-get install gdb")
    return CBuild("plain").build("tests/libos/sched/c/seen_by_gdb.c")


def gdb(*arguments: str | Path) -> str:
    """What gdb prints."""
    environment = {k: v for k, v in os.environ.items() if k != "DEBUGINFOD_URLS"}
    command = ["gdb", "-q", "-nx", "-batch", "-iex", "set style enabled off", "-x", str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def seen(*arguments: str | Path) -> None:
    """gdb lists each uthread of the program, shows the whole stack of one that waits, and leaves the thread selected
    that was."""
    said = gdb(*arguments, *(word for c in COMMANDS for word in ("-ex", "echo ==\\n", "-ex", c)))
    listed, stack, above, after = said.split("==\n")[1:]
    lines = [line.split(maxsplit=4) for line in listed.replace("kthread 0", "running").splitlines()[1:]]
    by_number = {number: (state, start, place) for number, state, _, start, place in lines}
    assert sorted(by_number.values())[0] == ("ready", "never_run", "(has not begun)")
    assert [states[:2] for states in sorted(by_number.values())[1:]] == [
        ("running", "run_and_tell"),
        ("waiting", "waiter"),
        ("waiting", "waiter"),
    ]
    assert by_number[WAITER][2].startswith("waits_deep_down (tests/libos/sched/c/seen_by_gdb.c:")
    frames = re.findall(r"^#(\d+) +(?:0x\w+ in )?(\w+) \(", stack, re.M)
    assert [int(number) for number, _ in frames] == list(range(len(frames)))
    functions = [name for _, name in frames]
    assert functions[0] == "cl_context_switch"
    assert functions[-1] == "enter"
    assert functions.count("waits_deep_down") == 4
    assert "waits_deep_down (" in above
    assert "raise" in after or "pthread_kill" in after


def test_a_process_is_seen(program: Path) -> None:
    seen(program, "-ex", "run")


def test_a_core_file_is_seen(program: Path, tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if "/" in pattern or "|" in pattern:
        pytest.skip(f"core files go elsewhere (kernel.core_pattern is {pattern}): sysctl kernel.core_pattern=core")
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    if most != resource.RLIM_INFINITY:
        pytest.skip("core files are limited: ulimit -H -c unlimited")
    command = ["sh", "-c", 'ulimit -c unlimited; exec "$0"', str(program)]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    (core,) = tmp_path.iterdir()
    seen(program, core)


def test_mistakes_are_said(program: Path) -> None:
    said = gdb("-ex", "corelane-uthreads", program)
    assert "no process, and no core file" in said
    said = gdb("-ex", "run", "-ex", "corelane-uthread 99 bt", program)
    assert "there is no uthread 99: see corelane-uthreads" in said
    said = gdb("-ex", "run", "-ex", "corelane-uthread 7", program)
    assert "corelane-uthread 3 bt" in said
    assert "no libcorelane.so with debug information" in gdb("-ex", "corelane-uthreads", "/bin/true")

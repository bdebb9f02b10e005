"""Programs with uthreads run under valgrind, which finds a mistake on one of them and nothing where there is none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cltest import CBuild
from cltest.cbuild import ROOT

FOUND = 99


@pytest.fixture(autouse=True, scope="module")
def _needs_valgrind() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind: apt-get install valgrind")


def memcheck(source: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a C program of the tests under memcheck."""
    program = CBuild("plain").build(source)
    command = ["valgrind", "-q", f"--error-exitcode={FOUND}", str(program), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("tests/libos/sched/c/heap_mistake.c", ()),
        ("tests/libos/sched/c/sync_stress.c", ("2", "adaptive", "20", "1")),
        ("tests/libos/net/c/udp_sockets.c", ("5", "2")),
    ],
    ids=["stacks", "scheduler", "network"],
)
def test_nothing_is_found_where_nothing_is_wrong(source, words):
    done = memcheck(source, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "==" not in done.stderr


def test_a_mistake_on_a_uthread_is_named():
    done = memcheck("tests/libos/sched/c/heap_mistake.c", "mistake")
    assert done.returncode == FOUND, done.stdout + done.stderr
    assert "Invalid write of size 1" in done.stderr
    assert "worker (heap_mistake.c:" in done.stderr
    assert "0 bytes after a block of size 32" in done.stderr
    assert "stack switch" not in done.stderr.lower()


def test_an_overflow_still_hits_a_guard():
    done = memcheck("tests/libos/sched/c/overflow.c")
    assert "ran over its stack of 32768 bytes" in done.stdout, done.stdout + done.stderr


def test_the_requests_are_valgrind_s_own(tmp_path):
    if not Path("/usr/include/valgrind/valgrind.h").exists():
        pytest.skip("valgrind came without its header")
    source = tmp_path / "same.c"
    source.write_text(
        '#include "libos/sched/valgrind.h"\n#include <valgrind/valgrind.h>\n'
        '_Static_assert(CL_VALGRIND_RUNNING == VG_USERREQ__RUNNING_ON_VALGRIND, "");\n'
        '_Static_assert(CL_VALGRIND_STACK_REGISTER == VG_USERREQ__STACK_REGISTER, "");\n'
        '_Static_assert(CL_VALGRIND_STACK_DEREGISTER == VG_USERREQ__STACK_DEREGISTER, "");\n'
    )
    subprocess.run(["gcc", "-fsyntax-only", "-I", str(ROOT), str(source)], check=True)

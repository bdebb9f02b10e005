"""Probes by the compiler: the same program with and without the flags of `corelane config --probe-cflags`."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
#include <stdio.h>
#include <corelane/libos/probe.h>

static const uint64_t wanted = 1;
static unsigned long looks;

/* The program's own comes before the library's. */
__attribute__((no_instrument_function)) void cl_probe_slow(void) { looks++; }

static unsigned long collatz(unsigned long n)
{
    unsigned long turns = 0;
    for (; n != 1; turns++)
        n = n & 1 ? 3 * n + 1 : n / 2;
    return turns;
}

int main(void)
{
    unsigned long sum = 0;
    cl_probe_word_self = &wanted;
    for (unsigned long i = 1; i < 20000; i++)
        sum += collatz(i);
    printf("%lu %lu\\n", sum, looks);
    return 0;
}
"""


def flags(*wanted):
    out = subprocess.run(
        [str(Path(sys.executable).parent / "corelane"), "config", *wanted], capture_output=True, text=True, check=True
    )
    return shlex.split(out.stdout)


@pytest.mark.parametrize("compiler", ["gcc", "clang-14"])
def test_the_compiler_puts_probes_in(compiler, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}: apt-get install {compiler}")
    (tmp_path / "program.c").write_text(PROGRAM)
    (tmp_path / "empty.c").write_text("int other(int n) { while (n > 3) n /= 2; return n; }\n")
    results = []
    for extra in ([], flags("--probe-cflags")):
        command = [
            compiler,
            "-O2",
            *flags("--cflags"),
            *extra,
            "program.c",
            "empty.c",
            "-o",
            "program",
            *flags("--libs"),
        ]
        subprocess.run(command, cwd=tmp_path, check=True)
        out = subprocess.run(["./program"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
        results.append([int(word) for word in out.stdout.split()])
    (plain_sum, plain_looks), (probed_sum, probed_looks) = results
    assert plain_sum == probed_sum
    assert plain_looks == 0
    assert probed_looks > plain_sum // 256, "at least one block a turn"

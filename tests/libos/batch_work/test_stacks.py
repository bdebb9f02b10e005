"""What jobs and handlers may use of their stack: linear algebra of libraries; and what happens if one runs over it.

In processes of their own, since what is written over is anybody's."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

HEAD = """
import numba, numpy as np
from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.runtime.errors import CorelaneError
"""
ALGEBRA = """
def algebra(a):
    return FORMULA

a = np.eye(200) + 1 / (1 + np.arange(200.0) + np.arange(200.0)[:, None])
job, plain = libos.batch(algebra), algebra(a)
nic, end = memory_link((1, 1))
with nic, end, libos.Runtime(nic=nic, address="10.0.0.1/24", kind="batch") as rt:
    rt.start()
    for _ in range(3):
        found = rt.batch(job, a).result(timeout_s=60)
        assert abs(found - plain) <= 1e-9 * abs(plain), (found, plain)
print("well")
"""
# Each takes seconds to compile: the first takes most stack, make soak has all.
SOME = [
    "np.linalg.svd(a)[1][0]",
    *(
        pytest.param(formula, marks=pytest.mark.soak(takes_s=15))
        for formula in (
            "np.linalg.eigh(a)[0][0]",
            "np.trace(np.linalg.solve(a, a))",
            "np.trace(np.linalg.lstsq(a, a)[0])",
            "np.linalg.det(a) + np.trace(np.dot(np.linalg.inv(a), a))",
        )
    ),
]
HANDLER = """
@numba.njit
def determinant(n):
    return np.linalg.det(np.eye(n) * 2)

@libos.udp(9000, cache=False)
def handler(request, reply):
    reply[0] = determinant(request[0])
    return 1

nic, end = memory_link((1, 1))
for stack_bytes in (0, (8 << 20) - 4096):
    with libos.Runtime(nic=nic, address="10.0.0.1/24", scheduler=libos.Scheduler(stack_bytes=stack_bytes)) as rt:
        try:
            rt.bind(handler)
        except CorelaneError as error:
            print(error)
with nic, end, libos.Runtime(nic=nic, address="10.0.0.1/24", scheduler=libos.Scheduler(stack_bytes=8 << 20)) as rt:
    rt.bind(handler)
    print("taken")
"""
DEEP = """
@libos.batch
def deep(n):
    if n == 0:
        return 1
    return deep(n - 1) + n % 7 * deep(0)

nic, end = memory_link((1, 1))
with nic, end, libos.Runtime(nic=nic, address="10.0.0.1/24", kind="batch") as rt:
    rt.start()
    rt.batch(deep, 10_000_000).result(timeout_s=60)
"""


SMALL = """
a = np.eye(3)
nic, end = memory_link((1, 1))
with nic, end, libos.Runtime(nic=nic, address="10.0.0.1/24") as rt:
    rt.start()
    print(rt.batch(libos.batch(lambda a: np.dot(a, a)[0, 0]), a).result(timeout_s=60))
    try:
        rt.batch(libos.batch(lambda a: np.linalg.det(a)), a)
    except CorelaneError as error:
        print(error)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HEAD + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.soak(takes_s=5)
@pytest.mark.parametrize("formula", SOME)
def test_linear_algebra_of_libraries_has_the_stack_it_needs(formula: str) -> None:
    pytest.importorskip("scipy", reason="numba's linear algebra needs scipy: pip install scipy")
    done = run(ALGEBRA.replace("FORMULA", formula))
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


@pytest.mark.soak(takes_s=5)
def test_it_is_refused_where_it_has_not() -> None:
    pytest.importorskip("scipy", reason="numba's linear algebra needs scipy: pip install scipy")
    done = run(SMALL)
    dot, refused = done.stdout.splitlines()
    assert (done.returncode, float(dot)) == (0, 1), done.stderr
    assert "np.linalg needs more stack than the 65536 bytes" in refused


def test_a_handler_is_refused_where_it_has_not() -> None:
    pytest.importorskip("scipy", reason="numba's linear algebra needs scipy: pip install scipy")
    done = run(HANDLER)
    *refused, taken = done.stdout.splitlines()
    assert (done.returncode, len(refused), taken) == (0, 2, "taken"), done.stderr
    for line, has in zip(refused, (65536, (8 << 20) - 4096), strict=True):
        assert line.startswith(f"bind a handler to UDP port 9000: np.linalg needs more stack than the {has} bytes")


def test_a_job_that_recurses_too_deep_says_so() -> None:
    done = run(DEEP)
    assert done.returncode == -signal.SIGSEGV
    assert "ran over its stack of 8388608 bytes; use less of it, or raise stack_bytes" in done.stderr

"""What a start imports: not scipy's linear algebra, unless the code uses it; which works all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = """
import sys
from corelane.libos.handlers.compile import compile_handler

def echo(request, reply):
    n = len(request)
    reply[:n] = request
    return n

compile_handler(echo, cache=True)
print("scipy.linalg" in sys.modules)
"""
LINEAR = """
import numba
import numpy as np
from corelane.libos.numba.cache import load_library

load_library()

@numba.njit
def product(a, b):
    return np.dot(a, b)[0, 0]

print(product(np.full((2, 2), 3.0), np.full((2, 2), 5.0)))
"""


def printed(source: str, cache: Path) -> str:
    environment = {**os.environ, "CORELANE_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_handler_without_linear_algebra_starts_without_scipys(tmp_path: Path) -> None:
    assert printed(PLAIN, tmp_path) == "False"


def test_linear_algebra_is_there_for_who_uses_it(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="numba's linear algebra needs scipy: pip install scipy")
    assert printed(LINEAR, tmp_path) == "30.0"

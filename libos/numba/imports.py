"""What numba imports when it is first asked to compile, but for what it imports in vain.

Its module arraymath asks whether there is a BLAS by importing scipy.linalg: a quarter of a second of every start.
Whether scipy is installed says as much; code that uses linear algebra has numba import it when it is compiled.
Importing this module imports numba.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

_ASKS = "numba.np.arraymath"


def _is_installed() -> None:
    if importlib.util.find_spec("scipy.linalg") is None:
        raise ImportError("scipy is not installed")


def import_without_scipy() -> None:
    """To be called before numba compiles anything. Repeating it costs nothing."""
    if _ASKS in sys.modules:
        return
    linalg: Any = importlib.import_module("numba.np.linalg")
    looks = linalg.ensure_blas
    linalg.ensure_blas = _is_installed
    try:
        asking: Any = importlib.import_module(_ASKS)
    finally:
        linalg.ensure_blas = looks
    asking.ensure_blas = looks

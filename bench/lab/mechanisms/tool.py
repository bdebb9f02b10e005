"""How the mechanisms, and what policies have beside their function, are compiled: a division by zero gives an infinity
and raises nothing, as a policy must not; and the code is kept on disk until a source that it may be made of changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

from ...sim.kept import stamp

_HERE = Path(__file__).resolve().parent
_TABLES = frozenset(("view", "jobs"))  # numbers have other names


def tool(function: Callable[..., Any]) -> Any:
    """A decorator. The stamp is that of this room, of bench/lab, and of the function's own file. What takes `view` or
    `jobs` is called by policies alone: it has no entry for Python, which would take most of its compilation, and a call
    from there ends the process."""
    words = function.__code__.co_varnames[: function.__code__.co_argcount]
    within = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True} if _TABLES.intersection(words) else {}
    made = njit(cache=True, error_model="numpy", **within)(function)
    own = Path(function.__code__.co_filename).read_bytes()
    made._cache._cache_file._source_stamp = stamp(_HERE) + stamp(_HERE.parent) + hashlib.sha256(own).hexdigest()
    return made

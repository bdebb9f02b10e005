"""Functions whose compiled code is kept on disk, until any source of the simulator changes.

numba compares the function's own source file alone, and constants of the others are part of the code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from numba import njit

_HERE = Path(__file__).resolve().parent


@lru_cache
def stamp(also: Path | None = None) -> str:
    """Of all sources in this folder, and in one besides."""
    folders = [_HERE, also] if also else [_HERE]
    texts = sorted((path.name, path.read_bytes()) for folder in folders for path in folder.glob("*.py"))
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def kept(also: Path | None = None, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: njit with these options, and the code kept. also: a folder whose sources are part of the code."""

    def decorate(function: Callable[..., Any]) -> Any:
        made = njit(cache=True, **options)(function)
        made._cache._cache_file._source_stamp = stamp(also)
        return made

    return decorate

"""Where compiled code is kept on disk: a folder for each build of the C library, and files that are read whole or not.

A file's name ends in a digest of all that its code was made of, so whatever changes, an older file is not found; its
content begins with a digest of the rest, or ends with one, so what is cut or garbled is not used. Either is a miss: the
code is compiled, as it is where nothing can be read or written. The folder is $CORELANE_CACHE_DIR, or corelane/ under
$XDG_CACHE_HOME or ~/.cache. Importing this does not import numba.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ... import runtime

KEPT = 8  # files of one function, for as many settings or versions as are in use by turns


def library_path() -> str:
    """libcorelane.so as this package uses it."""
    assert runtime.__file__ is not None
    return str(Path(runtime.__file__).resolve().parent / "_lib" / "libcorelane.so")


@lru_cache(maxsize=1)
def build_id() -> str:
    """Sixteen hex digits that change whenever the C library does."""
    return hashlib.sha256(Path(library_path()).read_bytes()).hexdigest()[:16]


def cache_dir(kind: str = "handlers") -> Path:
    """The folder of this build. kind: of what is kept there. Raises RuntimeError without a home."""
    chosen = os.environ.get("CORELANE_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corelane"
    return base / kind / build_id()


def base_of(python: Callable[..., Any]) -> str:
    """How the names of all files of a function begin."""
    code = python.__code__
    place = hashlib.sha256(f"{code.co_filename}:{python.__qualname__}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{re.sub('[^A-Za-z0-9_]', '_', python.__name__)[:64]}-{place[:12]}"


def write(file: Path, content: bytes) -> bool:
    """Put a file there, whole or not at all, and take away the oldest ones of the same function. False: it cannot be
    written, as on a full disk, or in a folder of somebody else's; the next start compiles again."""
    written = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(content)
        written.replace(file)
        _drop_old(file)
    except OSError:
        with contextlib.suppress(OSError):
            written.unlink()
        return False
    return True


def _drop_old(file: Path) -> None:
    base = file.name.rpartition("-")[0]
    files = [(other.stat().st_mtime_ns, other) for other in file.parent.glob(f"{base}-*{file.suffix}")]
    for _, other in sorted(files)[:-KEPT]:
        other.unlink()

"""Compiled handlers on disk: one file for each function and all that its code was made of (fingerprint.py).

The file's name ends in that digest, so whatever changes, an older file is not found; its content begins with a digest
of the rest, so what is cut or garbled is not read. Either is a miss: the handler is compiled, as it is where nothing
can be read or written. The folder is $CORELANE_CACHE_DIR, or corelane/ under $XDG_CACHE_HOME or ~/.cache, and in it
one for each build of the C library. Importing this module imports numba.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm
from numba.core.caching import CompileResultCacheImpl, NullCache, _Cache
from numba.core.serialize import dumps

from ... import runtime
from .fingerprint import Unknown, fingerprint, reached
from .imports import import_without_scipy

KEPT = 8  # files of one function, for as many settings or versions as are in use by turns
_MAGIC = b"corelane handler 1\n"


def library_path() -> str:
    """libcorelane.so as this package uses it."""
    assert runtime.__file__ is not None
    return str(Path(runtime.__file__).resolve().parent / "_lib" / "libcorelane.so")


def load_library() -> None:
    """Make the C library's functions known to the code that numba emits. To be called before numba compiles anything.
    Repeating it costs nothing."""
    llvm.load_library_permanently(library_path())
    import_without_scipy()


@lru_cache(maxsize=1)
def build_id() -> str:
    """Sixteen hex digits that change whenever the C library does."""
    return hashlib.sha256(Path(library_path()).read_bytes()).hexdigest()[:16]


def cache_dir() -> Path:
    """The folder of this build. Raises RuntimeError without a home."""
    chosen = os.environ.get("CORELANE_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corelane"
    return base / "handlers" / build_id()


class HandlerCache(_Cache):
    """What numba asks for the code of one function, and tells it to keep.

    describe: remarks on newly compiled code, which are kept with it. remarks: what they were, once the code was loaded
    or kept; else None. hit: whether it was loaded.
    """

    def __init__(self, python: Callable[..., Any], key: str, describe: Callable[[Any], object]) -> None:
        code = python.__code__
        place = hashlib.sha256(f"{code.co_filename}:{python.__qualname__}".encode("utf-8", "surrogatepass")).hexdigest()
        self._base = f"{re.sub('[^A-Za-z0-9_]', '_', python.__name__)[:64]}-{place[:12]}"
        self._file = cache_dir() / f"{self._base}-{key[:32]}.code"
        self._describe = describe
        self.remarks: Any = None
        self.hit = False

    @property
    def cache_path(self) -> str:
        return str(self._file.parent)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        try:
            content = self._file.read_bytes()
            rest = content[len(_MAGIC) + 32 :]
            if content[: len(_MAGIC)] + hashlib.sha256(rest).digest() != content[: len(_MAGIC) + 32]:
                return None
            remarks, payload = pickle.loads(rest)
            loaded = CompileResultCacheImpl.rebuild(None, target_context, pickle.loads(payload))
        except Exception:  # whatever is wrong with a file that we need not have: it is a miss
            return None
        self.remarks, self.hit = remarks, True
        return loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        if any(not lifted.can_cache for lifted in data.lifted) or data.library.has_dynamic_globals:
            return  # made of addresses of this process
        self.remarks = self._describe(data)
        written = self._file.with_suffix(f".{os.getpid()}.tmp")
        try:
            rest = pickle.dumps((self.remarks, dumps(data._reduce())))
            self._file.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(_MAGIC + hashlib.sha256(rest).digest() + rest)
            written.replace(self._file)
            self._drop_old()
        except (OSError, pickle.PickleError):  # a full disk, a folder of somebody else's: the next start compiles again
            with contextlib.suppress(OSError):
                written.unlink()

    def _drop_old(self) -> None:
        files = [(file.stat().st_mtime_ns, file) for file in self._file.parent.glob(f"{self._base}-*.code")]
        for _, file in sorted(files)[:-KEPT]:
            file.unlink()

    def enable(self) -> None:
        """Nothing to do: it is in use from the start."""

    def disable(self) -> None:
        """Nothing: whoever wants no cache makes none."""

    def flush(self) -> None:
        """Nothing: files are written whole."""


def enable_cache(dispatcher: Any, argtypes: object, describe: Callable[[Any], object]) -> HandlerCache | None:
    """Let a dispatcher use the cache.

    None: it is made of something that may change unseen (fingerprint.Unknown), or there is no place for a cache.
    """
    made_with = (str(argtypes), str(dispatcher.targetctx.codegen().magic_tuple()))
    try:
        dispatcher._cache = HandlerCache(
            dispatcher.py_func, fingerprint(dispatcher.py_func, dispatcher.targetoptions, *made_with), describe
        )
    except (Unknown, RuntimeError, OSError, RecursionError):
        return None
    return dispatcher._cache  # type: ignore[no-any-return]


@contextlib.contextmanager
def without_numbas_own(python: Callable[..., Any]) -> Iterator[None]:
    """Meanwhile the functions that `python` calls are compiled from their sources, `njit(cache=True)` or not.

    numba's own cache is keyed by a function's own source file alone.
    """
    kept = [(called, called._cache) for called in reached(python)]
    for called, _ in kept:
        called._cache = NullCache()
    try:
        yield
    finally:
        for called, cache in kept:
            called._cache = cache

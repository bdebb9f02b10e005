"""Where compiled handlers are cached: one folder for each build of the C library.

numba's own cache is keyed by the source file and by numba itself; it would go on using code that was compiled against
another libcorelane. The folder is $CORELANE_CACHE_DIR, or corelane/ under $XDG_CACHE_HOME or ~/.cache. Importing this
module imports numba.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from ... import runtime


def library_path() -> str:
    """libcorelane.so as this package uses it."""
    assert runtime.__file__ is not None
    return str(Path(runtime.__file__).resolve().parent / "_lib" / "libcorelane.so")


def load_library() -> None:
    """Make the C library's functions known to the code that numba emits. Repeating it costs nothing."""
    llvm.load_library_permanently(library_path())


@lru_cache(maxsize=1)
def build_id() -> str:
    """Sixteen hex digits that change whenever the C library does."""
    return hashlib.sha256(Path(library_path()).read_bytes()).hexdigest()[:16]


def cache_dir() -> Path:
    """The folder of this build."""
    chosen = os.environ.get("CORELANE_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corelane"
    return base / "handlers" / build_id()


class _Locator(_CacheLocator):
    """Files of one source file lie together; a changed source file makes what was cached stale."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno
        named = py_file.encode(errors="backslashreplace").decode()  # numba hashes it, and takes text only
        self._path = str(cache_dir() / self.get_suitable_cache_subpath(named))

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> tuple[int, int]:
        stat = os.stat(self._py_file)
        return stat.st_mtime_ns, stat.st_size

    def get_disambiguator(self) -> str:
        return str(self._lineno)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator | None:
        if not os.path.exists(py_file):
            return None
        self = cls(py_func, py_file)
        try:
            self.ensure_cache_path()
        except OSError:
            return None
        return self


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012


class HandlerCache(FunctionCache):
    """numba's function cache in our folder."""

    _impl_class = _Impl


def enable_cache(dispatcher: Any) -> bool:
    """Let a dispatcher use the cache. False: its source is in no file, or the folder cannot be written."""
    try:
        inspect.getfile(dispatcher.py_func)
        dispatcher._cache = HandlerCache(dispatcher.py_func)
    except (RuntimeError, OSError, TypeError):
        return False
    return True


def _remarks_file(dispatcher: Any, argtypes: object) -> Path:
    code = dispatcher.py_func.__code__
    key = hashlib.sha256(repr((argtypes, code.co_code, code.co_consts, code.co_names)).encode()).hexdigest()[:16]
    cache = dispatcher._cache
    return Path(cache.cache_path) / f"{cache._impl.filename_base}.{key}.remarks"


def save_remarks(dispatcher: Any, argtypes: object, remarks: tuple[str, ...]) -> None:
    """Keep a handler's remarks beside its code, which cannot be looked at again when it comes from the disk."""
    try:
        _remarks_file(dispatcher, argtypes).write_text("\n".join(remarks))
    except OSError:
        return  # without them the next start says nothing: no worse than not asking


def load_remarks(dispatcher: Any, argtypes: object) -> tuple[str, ...]:
    """The remarks kept with a handler's code; none if they are gone."""
    try:
        return tuple(_remarks_file(dispatcher, argtypes).read_text().splitlines())
    except OSError:
        return ()

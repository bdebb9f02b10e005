"""Compiled handlers as numba keeps them: a file for each function and all that its code was made of (fingerprint.py).

Where they are, and what may be wrong with them, says folder.py. Importing this module imports numba.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import binding as llvm
from numba.core.caching import CompileResultCacheImpl, NullCache, _Cache
from numba.core.serialize import dumps

from .fingerprint import Unknown, fingerprint, reached
from .folder import KEPT, base_of, build_id, cache_dir, library_path, write
from .imports import import_without_scipy

__all__ = ["KEPT", "HandlerCache", "build_id", "cache_dir", "enable_cache", "load_library", "without_numbas_own"]

_MAGIC = b"corelane handler 1\n"


def load_library() -> None:
    """Make the C library's functions known to the code that numba emits. To be called before numba compiles anything.
    Repeating it costs nothing."""
    llvm.load_library_permanently(library_path())
    import_without_scipy()


class HandlerCache(_Cache):
    """What numba asks for the code of one function, and tells it to keep.

    describe: remarks on newly compiled code, which are kept with it. remarks: what they were, once the code was loaded
    or kept; else None. hit: whether it was loaded. kind: of the folder (folder.py).
    """

    def __init__(
        self, python: Callable[..., Any], key: str, describe: Callable[[Any], object], kind: str = "handlers"
    ) -> None:
        self._file = cache_dir(kind) / f"{base_of(python)}-{key[:32]}.code"
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
        with contextlib.suppress(pickle.PickleError):
            rest = pickle.dumps((self.remarks, dumps(data._reduce())))
            write(self._file, _MAGIC + hashlib.sha256(rest).digest() + rest)

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
    compiler = dispatcher._compiler.pipeline_class.__name__  # whose code has lines, or has not
    made_with = (str(argtypes), str(dispatcher.targetctx.codegen().magic_tuple()), compiler)
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

"""Importing the module of a user's policy as its file is now, and not as it was when something imported it first."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_lock = threading.Lock()
_SHARED = {os.path.realpath(path) for path in sysconfig.get_paths().values()}  # where modules of many authors lie


def import_anew(module: str) -> ModuleType:
    """The module, executed anew together with what lies beside it: the rest of its package or, of a module in no
    package, the other modules of its folder. Whoever imported them before keeps what he has. Raises what it raises."""
    with _lock, _without(_neighbours(module)):
        importlib.invalidate_caches()
        return importlib.import_module(module)


def digest(module: ModuleType) -> str:
    """Of the file that a module was read from; "" if it has none."""
    path = getattr(module, "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""


def _neighbours(module: str) -> set[str]:
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # what is running, as __main__
        return set()
    if spec is None or not spec.origin or top == __name__.partition(".")[0]:
        return set()
    if spec.submodule_search_locations is not None:
        return {name for name in sys.modules if name.partition(".")[0] == top}
    folder = os.path.realpath(os.path.dirname(spec.origin))
    if folder in _SHARED:
        return {top}
    files = {name: getattr(it, "__file__", None) for name, it in list(sys.modules.items()) if "." not in name}
    return {top} | {
        n for n, file in files.items() if file and n != "__main__" and os.path.realpath(os.path.dirname(file)) == folder
    }


@contextmanager
def _without(names: set[str]) -> Iterator[None]:
    """What is compiled is not kept either: such files are told apart by size and second only."""
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    linecache.checkcache()
    try:
        yield
    finally:
        sys.dont_write_bytecode = kept
        sys.modules.update(before)

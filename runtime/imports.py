"""Importing a user's module from the current folder, as `python -m` does, beside shared objects of the same name."""

from __future__ import annotations

import importlib
import os
import sys
from importlib import machinery
from pathlib import Path
from types import ModuleType

from .errors import CorelaneError

_LOADERS = (  # Python's own order begins with extension modules, and shout.so, a handler in C, is none
    (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
)


def user_module(what: str, name: str) -> ModuleType:
    """Import a user's module, that of the current folder first. Raises CorelaneError, that `what` cannot be done, for
    whatever the module raises."""
    if not all(name.split(".")):
        raise CorelaneError(what, f"{name!r} is no module's name", "name it as Python does, as in shop.cart")
    try:
        come_first()
    except FileNotFoundError as error:
        raise CorelaneError(what, "the current folder was removed", "start it in one that is there") from error
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CorelaneError(what, str(error), why_not(name, error)) from error
    except Exception as error:
        raise CorelaneError(what, f"importing {name} failed: {type(error).__name__}: {error}") from error


def come_first() -> None:
    """Modules of the current folder come first from now on, and of it and what is below it NAME.py before NAME.so."""
    here = os.getcwd()
    below = here.rstrip("/") + "/"

    def finder(path: str) -> machinery.FileFinder:
        where = os.path.abspath(path or ".")
        if where != here and not where.startswith(below):
            raise ImportError("not of the current folder", path=path)
        return machinery.FileFinder(path or ".", *_LOADERS)

    sys.path.insert(0, "")
    sys.path_hooks.insert(0, finder)
    for path in [p for p in sys.path_importer_cache if p == here or p.startswith(below)]:
        del sys.path_importer_cache[path]


def why_not(name: str, error: ImportError) -> str:
    """What to do about a module that cannot be imported."""
    top = name.partition(".")[0]
    if error.name not in (name, top):
        return f"{name} needs it"
    if (shared := Path(f"{top}.so")).exists() and not Path(f"{top}.py").exists():
        return f"{shared} lies here, and is no Python module: a handler in C is run as ./{shared}"
    return "start it in the module's folder, or install it"


def hidden(name: str, file: str | None) -> str:
    """A note if the module of that name in the current folder is not the one that was imported."""
    own = Path(f"{name.replace('.', '/')}.py")
    if not own.exists() or (file is not None and own.resolve() == Path(file).resolve()):
        return ""
    return f"it is {file or 'a part of Python'}, and hides {own}: give that another name; "

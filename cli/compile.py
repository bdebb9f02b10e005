"""corelane compile: handlers of a Python module as a shared object that runs without Python."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ..runtime import imports
from ..runtime.errors import CorelaneError
from . import values
from .streams import tell
from .usage import WrongUsage

ENDS_AT_ONCE = True
HTTP_PORT = 8080


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        help="service.py or a module: all its handlers, periodic work and jobs; with :NAME[,NAME...] those",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the shared object (default: MODULE.so)")
    parser.add_argument("--name", type=values.app_name, help="the application's name (default: the module's)")
    parser.add_argument(
        "--cpu",
        metavar="LEVEL",
        help="for processors of this level and newer (default: x86-64-v2, of 2009, or armv8-a)",
    )
    parser.add_argument(
        "--http-port",
        type=values.port,
        default=HTTP_PORT,
        metavar="P",
        help=f"of its HTTP handlers (default {HTTP_PORT})",
    )
    parser.add_argument("--json", action="store_true", help="print what was made as JSON")


def run(options: argparse.Namespace) -> int:
    """Compile, and say what was made."""
    from ..libos.aot import baseline

    module_name, _, names = options.target.partition(":")
    path = Path(module_name)
    if path.suffix == ".py" and not re.fullmatch(r"\w+", path.stem):
        raise WrongUsage(f"compile {module_name}", "its name is none of a module", "use letters, digits and _")
    if options.cpu is not None and options.cpu not in baseline.LEVELS:
        raise WrongUsage(f"--cpu {options.cpu}", "there is no such level", f"one of: {', '.join(baseline.LEVELS)}")
    baseline.choose(options.cpu)  # before the module has numba compile something
    module = _module(module_name)
    stem = module.__name__.rpartition(".")[2]
    out = Path(options.output or f"{stem}.so")
    from ..libos.aot.objects import compile_service
    from ..libos.aot.work import works_of

    works = works_of(_found(module, names, options.http_port))
    made = compile_service(works, out, name=options.name or stem[:31], cpu=options.cpu)
    what = [{"name": work.name, "kind": _kind(work), "port": work.port or None} for work in made.works]
    if options.json:
        print(json.dumps({"output": str(out), "bytes": made.bytes, "cpu": made.level, "work": what}))
        return 0
    does = ", ".join(f"{w['name']} ({w['kind']}{f' {port}' if (port := w['port']) else ''})" for w in what)
    tell(f"corelane compile: {out}: {does}; for {made.level} and newer, {made.bytes:,} bytes")
    return 0


def _kind(work: Any) -> str:
    from ..libos._native import lib

    kinds = {lib.CL_SERVICE_UDP: "UDP", lib.CL_SERVICE_TCP: "TCP", lib.CL_SERVICE_HTTP: "HTTP"}
    return kinds.get(work.kind, "periodic" if work.kind == lib.CL_SERVICE_EVERY else "job")


def _module(text: str) -> ModuleType:
    """The module that a path or a name stands for."""
    path = Path(text)
    if path.suffix != ".py":
        return imports.user_module(f"compile {text}", text)
    if not path.is_file():
        raise CorelaneError(f"compile {text}", "there is no such file", "give its path, or the module's name")
    sys.path.insert(0, str(path.parent.resolve()))
    importlib.invalidate_caches()
    module = imports.user_module(f"compile {text}", path.stem)
    if module.__file__ is None or Path(module.__file__).resolve() != path.resolve():
        why = f"{module.__file__ or 'a part of Python'} has its name and comes first"
        raise CorelaneError(f"compile {text}", why, "give it another name")
    return module


def _found(module: ModuleType, names: str, http_port: int) -> dict[str, Any]:
    """What is compiled, by its names in the module, in their order there."""
    from ..apps.http.handlers import Route
    from ..libos.aot.work import is_work

    def made(name: str, what: Any) -> Any:
        return what.ahead_of_time(name, http_port) if isinstance(what, Route) else what

    if not names:
        taken = {name: what for name, what in vars(module).items() if is_work(what) or isinstance(what, Route)}
        return {name: made(name, what) for name, what in taken.items()}
    found = {}
    for name in names.split(","):
        if not hasattr(module, name):
            known = [n for n in vars(module) if not n.startswith("_")]
            raise CorelaneError(f"compile {module.__name__}", f"it has no {name!r}", f"it has: {', '.join(known)}")
        found[name] = made(name, getattr(module, name))
    return found

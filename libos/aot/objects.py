"""Object files of a service's functions: compiled by numba as for this process, emitted for any.

A handler's code is that which `corelane run` would have, with its probes, but for a level of the architecture instead
of the processor at hand; what it refers to is left to the linker, and nothing of it is visible besides its entry.
Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import binding as llvm

from ..batch_work.compile import ObjectLibrary, UnprobedObjectLibrary, linked_target
from ..handlers.compile import Build, compile_classifier
from ..handlers.compiled import CompiledHandler
from ..handlers.warn import warn_of
from ..objects.emit import emit, machine, object_of
from ..objects.link import link
from ..objects.needs import check_needs
from .baseline import choose, llvm_name
from .table import Entry, table
from .work import Work


class Service(NamedTuple):
    """What was compiled. level: of the architecture. bytes: of the shared object."""

    works: tuple[Work, ...]
    level: str
    bytes: int


def compile_service(works: Sequence[Work], out: Path, *, name: str, cpu: str | None = None) -> Service:
    """Compile what a service does into a shared object, which is there whole or not at all.

    name: of the service. cpu: a level of the architecture (baseline.py). Warns HandlerWarning as `Runtime.bind` does.
    Raises CorelaneError: a function cannot be compiled, or needs what is there in Python's process alone; there is no
    linker; the file cannot be written.
    """
    level = choose(cpu)
    to = machine(llvm_name(level))
    made = [(work, *_entry_of(work, f"cl_entry_{i}", to)) for i, work in enumerate(works)]
    entries = [entry for _, entry, _ in made]
    objects = [part for _, _, parts in made for part in parts]
    objects.append(emit(llvm.parse_assembly(table(entries, name=name, level=level)), to))
    return Service(tuple(works), level, link(objects, out))


def _entry_of(work: Work, symbol: str, to: Any) -> tuple[Entry, list[bytes]]:
    """One function's row of the table, and the object files that it takes."""
    build = Build(linked_target(), ObjectLibrary, UnprobedObjectLibrary, own_memory=True)
    made = work.compiled(build)
    warn_of(work.function, made.remarks)
    objects = [_object_of(work.name, work.function, made, symbol, to)]
    classify = ""
    if work.types is not None:
        classify = f"{symbol}_type"
        typed = compile_classifier(work.types.classify, cache=False, build=build)
        objects.append(_object_of(f"the classifier of {work.name}", work.types.classify, typed, classify, to))
    return Entry(work, symbol, classify), objects


def _object_of(name: str, function: Any, made: CompiledHandler, symbol: str, to: Any) -> bytes:
    text, native = made.entry._library.theirs, made.entry.native_name
    module, code = object_of(text, native, symbol, to, hidden=True)
    check_needs(name, function, next(iter(made.dispatcher.overloads)), module, code)
    return code

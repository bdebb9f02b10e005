"""Object files of a service's functions: compiled by numba as for this process, emitted for any.

A handler's code is that which `corelane run` would have, with its probes, but for a level of the architecture instead
of the processor at hand; what it refers to is left to the linker, and nothing of it is visible besides its entry.
Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import binding as llvm
from numba.core.codegen import initialize_llvm

from ..batch_work.compile import ObjectLibrary, linked_target
from ..handlers.compile import Build, CompiledHandler, compile_classifier
from ..handlers.warn import warn_of
from .baseline import choose, llvm_name
from .link import link
from .needs import check_needs, give_memory
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
    machine = _machine(level)
    made = [(work, *_entry_of(work, f"cl_entry_{i}", machine)) for i, work in enumerate(works)]
    entries = [entry for _, entry, _ in made]
    objects = [part for _, _, parts in made for part in parts]
    objects.append(_emit(llvm.parse_assembly(table(entries, name=name, level=level)), machine))
    return Service(tuple(works), level, link(objects, out))


def _machine(level: str) -> Any:
    initialize_llvm()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm_name(level), opt=3, reloc="pic", codemodel="default")


def _emit(module: Any, machine: Any) -> bytes:
    module.verify()
    return bytes(machine.emit_object(module))


def _entry_of(work: Work, symbol: str, machine: Any) -> tuple[Entry, list[bytes]]:
    """One function's row of the table, and the object files that it takes."""
    made = work.compiled(Build(linked_target(), ObjectLibrary))
    warn_of(work.function, made.remarks)
    objects = [_object_of(work.name, work.function, made, symbol, machine)]
    classify = ""
    if work.types is not None:
        classify = f"{symbol}_type"
        typed = compile_classifier(work.types.classify, cache=False, build=Build(None, ObjectLibrary))
        objects.append(_object_of(f"the classifier of {work.name}", work.types.classify, typed, classify, machine))
    return Entry(work, symbol, classify), objects


def _object_of(name: str, function: Any, made: CompiledHandler, symbol: str, machine: Any) -> bytes:
    module = llvm.parse_assembly(made.entry._library.theirs)
    module.get_function(made.entry.native_name).name = symbol
    for value in _defined(module):
        value.linkage = "external" if value.name == symbol else "internal"
    module.get_function(symbol).visibility = "hidden"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3)))
    give_memory(module)
    code = _emit(module, machine)
    check_needs(name, function, made, module, code)
    return code


def _defined(module: Any) -> Iterator[Any]:
    yield from (f for f in module.functions if not f.is_declaration)
    yield from (v for v in module.global_variables if not v.is_declaration and not v.name.startswith("llvm."))

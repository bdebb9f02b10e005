"""An entry point that numba has compiled for whatever process links it (batch_work.ObjectLibrary), as an object file.

What it refers to is left to the linker, and nothing of it is visible besides its entry. Importing this module imports
numba.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from llvmlite import binding as llvm
from numba.core.codegen import initialize_llvm

from .needs import give_memory


def machine(cpu: str = "") -> Any:
    """LLVM's machine that emits code. cpu: as LLVM calls it; "": this one with all that it has."""
    initialize_llvm()
    target = llvm.Target.from_default_triple()
    features = "" if cpu else llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=cpu or llvm.get_host_cpu_name(), features=features, opt=3, reloc="pic", codemodel="default"
    )


def emit(module: Any, to: Any) -> bytes:
    """A module as an object file."""
    module.verify()
    return bytes(to.emit_object(module))


def object_of(text: str, native: str, symbol: str, to: Any, *, hidden: bool) -> tuple[Any, bytes]:
    """The module, and its object file. text: LLVM's, of the module (ObjectLibrary.theirs). native: what its entry is
    called there; symbol: what it is called from now on. hidden: to be seen by what is linked with it alone."""
    module = llvm.parse_assembly(without_unwrapping(text))
    module.get_function(native).name = symbol
    for value in _defined(module):
        value.linkage = "external" if value.name == symbol else "internal"
    if hidden:
        module.get_function(symbol).visibility = "hidden"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(to, llvm.create_pipeline_tuning_options(speed_level=3)))
    give_memory(module)
    return module, emit(module, to)


_UNWRAPPING = re.compile(r"^define [^\n]*?@(__excinfo_unwrap_args[\w.]+)\([^\n]*\{\n.*?^\}", re.M | re.S)


def without_unwrapping(text: str) -> str:
    """Without what makes Python's objects of the values of an exception. Where there is no Python nobody asks for them:
    the entry point counts the exception, and frees them (numba/exceptions.py)."""
    return _UNWRAPPING.sub(r"define internal ptr @\1(ptr %values) {\n  ret ptr null\n}", text)


def _defined(module: Any) -> Iterator[Any]:
    yield from (f for f in module.functions if not f.is_declaration)
    yield from (v for v in module.global_variables if not v.is_declaration and not v.name.startswith("llvm."))

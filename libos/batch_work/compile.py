"""Compiling with probes: a numba compiler whose libraries put probes into their final module (probes.py).

Everything else is numba's: typing, optimising, wrappers, exceptions. Importing this module imports numba.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import logging
import platform
from typing import Any, cast

from elftools.elf.elffile import ELFFile
from llvmlite import binding as llvm
from numba.core.codegen import JITCodeLibrary, initialize_llvm
from numba.core.compiler import Compiler

from ...runtime import clock
from ...runtime.errors import plain_text
from .._native import ffi, lib
from ..numba.cache import load_library
from ..numba.folder import library_path
from ..numba.lines import Lines
from ..numba.lines import attached as with_lines
from ..numba.lines import read as read_lines
from ..numba.lines import stripped as without_lines
from ..numba.raises import in_words
from .probes import add_naive_probes, add_probes, place
from .refill import Target
from .strips import Report
from .unroll import mark_loops

_log = logging.getLogger("corelane.libos")

HAS_PROBES = platform.machine() in ("x86_64", "AMD64")
_TLS_WORD = "cl_probe_word_self"


@functools.lru_cache(maxsize=1)
def word_offset() -> int:
    """Bytes from the thread pointer to `cl_probe_word_self`: the same on every thread (initial-exec)."""
    load_library()
    here = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.CDLL(library_path()), _TLS_WORD))
    return here - _thread_pointer()


def _thread_pointer() -> int:
    initialize_llvm()
    module = llvm.parse_assembly(
        "declare ptr @llvm.thread.pointer.p0()\n"
        "define ptr @clp_thread_pointer() {\n  %p = call ptr @llvm.thread.pointer.p0()\n  ret ptr %p\n}\n"
    )
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(ctypes.c_size_t)(engine.get_function_address("clp_thread_pointer"))
    return int(function())


@functools.lru_cache(maxsize=1)
def default_target() -> Target:
    """Probes that poll the flags of this process's runtimes."""
    llvm.initialize_native_asmparser()  # for batch_refill.call_ceded
    word = int(ffi.cast("uintptr_t", lib.cl_probe_word()))
    return Target(word_offset(), "cl_probe_slow", clock.default_clock().hz / 1e6, word=word)


def linked_target() -> Target:
    """Probes for code that a linker makes fit for whatever process it is loaded into."""
    llvm.initialize_native_asmparser()
    return Target(0, "cl_probe_slow", 0.0, linked=True)


class ProbedLibrary(JITCodeLibrary):
    """numba's library of one compiled function; probes go in between its optimiser and its code generator."""

    target: Target
    report: Report
    _final_module: Any

    def _optimize_final_module(self) -> None:
        super()._optimize_final_module()
        self._probe()

    def _probe(self) -> None:
        if not HAS_PROBES:
            self.report = Report(missing=f"they are written for x86-64, and this is {platform.machine()}")
            return
        plain = self._final_module
        try:
            self._add_probes()
        except Exception as error:  # what the optimiser makes of odd code; the code itself is fine
            self._final_module = plain
            self.report = Report(missing=f"{type(error).__name__}: {plain_text(error).partition(chr(10))[0]}")

    def _add_probes(self) -> None:
        self._pass_loops()
        marked = mark_loops(str(self._final_module))
        if marked is not None:
            self._parse(marked)
            passes = llvm.create_new_module_pass_manager()
            passes.add_loop_unroll_pass()
            passes.run(self._final_module, self._codegen._pass_builder())
            self._pass_loops()
        self._replace(*add_probes(str(self._final_module), self.target))

    def _pass_loops(self) -> None:
        passes = llvm.create_new_module_pass_manager()
        passes.add_loop_simplify_pass()  # preheaders, and one latch a loop
        passes.add_lcssa_pass()  # what is used behind a loop comes through phis there
        passes.run(self._final_module, self._codegen._pass_builder())

    def _replace(self, text: str, report: Report) -> None:
        self.report = report
        self._parse(place(text, self.target))
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.run(self._final_module, self._codegen._pass_builder())

    def _parse(self, text: str) -> None:
        """Let a text be the final module."""
        name = self._final_module.name
        self._final_module = llvm.parse_assembly(text)
        self._final_module.name = name
        self._final_module.verify()

    def code_range(self, symbol: str) -> tuple[int, int]:
        """Addresses of the machine code that holds a function: begin, and the first byte behind it."""
        elf = ELFFile(io.BytesIO(self._get_compiled_object()))
        (entry,) = cast("Any", elf.get_section_by_name(".symtab")).get_symbol_by_name(symbol)
        text = elf.get_section(entry["st_shndx"])
        begin = self._codegen._engine.get_function_address(symbol) - entry["st_value"]
        return begin, begin + text["sh_size"]


class EntryLibrary(ProbedLibrary):
    """Of what C calls: the exceptions that end there are words (libos/numba/raises.py)."""

    has_probes = True
    lines: Lines

    def _optimize_final_module(self) -> None:
        JITCodeLibrary._optimize_final_module(self)
        self.report = Report()
        text = str(self._final_module)
        self.lines = read_lines(text)
        said = in_words(without_lines(text) if self.lines.of else text)
        if said != text:
            # Each function is called that is here, not another library's, whose exceptions are numba's.
            self._parse(said.replace("\ndefine linkonce_odr ", "\ndefine internal "))
        self._finish()

    def _finish(self) -> None:
        if self.has_probes:
            self._probe()
        text = str(self._final_module)
        made = with_lines(text, self.lines)
        if made != text:
            with contextlib.suppress(RuntimeError):  # what the code has become is none that lines fit to
                llvm.parse_assembly(made).verify()
                self._parse(made)


class UnprobedEntryLibrary(EntryLibrary):
    """The same without probes, for what runs in the scheduler's loop."""

    has_probes = False


class ObjectLibrary(EntryLibrary):
    """Keeps a module for other processes (`theirs`, LLVM's text), with probes. The code that this process loads has
    none."""

    theirs: str

    def _finish(self) -> None:
        ours = str(self._final_module)
        super()._finish()
        self.theirs = str(self._final_module)
        self._parse(ours)


class UnprobedObjectLibrary(ObjectLibrary):
    """The same without probes, for what runs in the scheduler's loop."""

    has_probes = False


class NaiveLibrary(ProbedLibrary):
    """Probes at the end of every loop's turn, ahead of the optimiser: what ProbedLibrary is measured against."""

    def _optimize_final_module(self) -> None:
        self._replace(add_naive_probes(str(self._final_module), self.target), Report())
        JITCodeLibrary._optimize_final_module(self)


class PlainLibrary(ProbedLibrary):
    """No probes at all; only the Target's place is heeded."""

    def _optimize_final_module(self) -> None:
        JITCodeLibrary._optimize_final_module(self)
        self._replace(str(self._final_module), Report())


@functools.lru_cache(maxsize=16)
def probed_compiler(target: Target, library: type[ProbedLibrary] = ProbedLibrary) -> type[Any]:
    """A numba pipeline class (`njit(pipeline_class=...)`) that puts probes into what it compiles."""

    class ProbedCompiler(Compiler):
        def define_pipelines(self) -> Any:
            made: Any = library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
            made.target = target
            made.enable_object_caching()  # code_range reads the object
            self.state.library = made
            return super().define_pipelines()

    return ProbedCompiler


def warn_if_missing(what: str, report: Report) -> None:
    """Say in the log that code runs without probes, and why. what: kind and name of the function."""
    if report.missing and HAS_PROBES:
        _log.warning("%s has no probes, so its core moves by the signal until it returns: %s", what, report.missing)
    elif report.missing:
        _warn_of_machine(report.missing)


@functools.lru_cache(maxsize=1)
def _warn_of_machine(missing: str) -> None:
    _log.warning("no compiled function has probes, so cores move by the signal until it returns: %s", missing)

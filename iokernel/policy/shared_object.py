"""A core-allocation policy in a shared object: what is read from the file before anything of it is loaded.

A policy is a function of the signature cl_policy_fn and a note that CL_POLICY (policy.h) puts beside it. It is refused
if the file is not for this machine, if the note is missing or of another ABI, or if the object refers to any function
of others that is not plain arithmetic: a policy calls nothing, allocates nothing and holds no lock, which is what makes
it possible to leave it in the middle (guard.h).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
from pathlib import Path
from typing import Any

from ...runtime.elf import dynamic_symbols, refused, shared_object
from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from .numba import HARMLESS

_NOTE = struct.Struct("=II120s")  # struct cl_policy_note; a test compiles one and compares
# What the compiler's start files refer to; all of them do without.
_STARTUP = {"__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
_GUARDS = {"__stack_chk_fail"}  # what some distributions' compilers put in unasked
_UNGUARDED = "compile it with -fno-stack-protector: the iokernel has a guard of its own, that one ends the process"
_MEND = "compile it against this corelane's headers"


def read(path: Path) -> bytes:
    """What is in the file now: what is inspected and what is loaded are the same bytes, whatever becomes of it."""
    try:
        return path.read_bytes()
    except OSError as e:
        raise CorelaneError(f"cannot read {path}: {e.strerror}") from e


def inspect(path: Path, content: bytes, symbol: str) -> tuple[str, ...]:
    """Names of the settings of policy `symbol` in a shared object. CorelaneError says why it cannot run here."""
    with shared_object(path, content) as elf:
        defined, undefined = dynamic_symbols(elf)
        note = _note(elf, f"{symbol}_policy")
    if symbol not in defined:
        raise refused(path, f"it does not export the function {symbol!r}", "give it external linkage and visibility")
    if note is None:
        raise refused(
            path, f"policy {symbol!r} has no note", f'add CL_POLICY({symbol}, "") of corelane/iokernel/policy.h'
        )
    abi, app_bytes, names = _NOTE.unpack(note)
    if abi != lib.CL_POLICY_ABI or app_bytes != ffi.sizeof("struct cl_policy_app"):
        raise refused(path, f"it is of policy ABI {abi}, and this corelane has {lib.CL_POLICY_ABI}", _MEND)
    calls = sorted(undefined - HARMLESS - _STARTUP)
    if calls:
        hint = _UNGUARDED if set(calls) <= _GUARDS else "a policy is arithmetic on its table, and calls nothing"
        raise refused(path, f"it calls {', '.join(calls)}", hint)
    return tuple(names.split(b"\0")[0].decode("ascii", "replace").split())


def _note(elf: Any, name: str) -> bytes | None:
    """The bytes of an exported constant."""
    table = elf.get_section_by_name(".dynsym")
    found = table.get_symbol_by_name(name) if table is not None else None
    if not found or found[0]["st_shndx"] == "SHN_UNDEF":
        return None
    at = int(found[0]["st_value"])
    for segment in elf.iter_segments("PT_LOAD"):
        start = int(segment["p_vaddr"])
        if start <= at and at + _NOTE.size <= start + int(segment["p_filesz"]):
            return bytes(segment.data()[at - start : at - start + _NOTE.size])
    return None


_loaded: dict[bytes, ctypes.CDLL] = {}  # by the hash of their content; libraries are never unloaded


def load(path: Path, content: bytes, symbol: str) -> int:
    """The address of a policy that `inspect` found well. It is valid for ever.

    The linker tells libraries apart by name and by file. So that one that was compiled anew is not taken for the older,
    and a file that is copied over does not change under the loop, a copy in memory is loaded, whose descriptor, and so
    whose name, stays taken.
    """
    key = hashlib.sha256(content).digest()
    try:
        if key not in _loaded:
            fd = os.memfd_create(f"policy {path.name}")
            with os.fdopen(os.dup(fd), "wb") as copy:
                copy.write(content)
            _loaded[key] = ctypes.CDLL(f"/proc/self/fd/{fd}")
        function = getattr(_loaded[key], symbol)
    except (OSError, AttributeError) as e:
        raise refused(path, str(e), "compile it again") from e
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)

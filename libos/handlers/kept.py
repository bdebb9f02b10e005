"""Entry points on disk, ready to be called: with one a start needs neither numba nor LLVM, which take it half a second.

A file is a shared object with one function, which C calls (libos/objects), and behind it what else is known: the lint's
remarks, the stack that it needs. Its name ends in a digest of all that the code was made of, the processor included
(numba/fingerprint.py, numba/folder.py). Code that only a process with numba can run is not kept so, but as numba keeps
it (numba/cache.py); a file says that, too, so that it is not tried at each start.

Such code takes memory by libos/service/memory.h: what a handler's exception leaves behind is given back. Importing this
module does not import numba.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ...runtime.errors import CorelaneError
from ..numba.fingerprint import Unknown, fingerprint, import_numba
from ..numba.folder import base_of, cache_dir, write
from .compiled import CompiledHandler, Remark

ENTRY = "cl_kept_entry"
_MAGIC = b"corelane entry 1\n"
_DIGEST = hashlib.sha256().digest_size


class _File(NamedTuple):
    """fits: whether there is code. remarks, stack_bytes: as of CompiledHandler."""

    fits: bool
    remarks: tuple[Remark, ...] = ()
    stack_bytes: int = 0


def compiled(what: str, function: Callable[..., Any], state: Any = None, *, cache: bool = True) -> CompiledHandler:
    """A function as C calls it, from the disk if it is there. what, function, state: as compile.py's COMPILERS have it.

    Raises CorelaneError with numba's reason if it cannot be compiled.
    """
    file = _file_of(what, function, state) if cache else None
    known = _read(file) if file is not None else None
    if file is not None and known is not None and known.fits:
        made = _load(file, known, state)
        if made is not None:
            return made
    import_numba()
    from .compile import COMPILERS

    if file is not None and (known is None or known.fits):
        made = _keep(file, what, function, state)
        if made is not None:
            return made
    return COMPILERS[what](function, state, cache=cache)


def _file_of(what: str, function: Callable[..., Any], state: Any) -> Path | None:
    """Where its code is or would be; None: nowhere, for it may be made of what changes unseen."""
    python = getattr(function, "py_func", function)
    shape = _shape_of(state)
    if shape is None or not inspect.isfunction(python):
        return None
    try:
        key = fingerprint(python, what, shape, processor())
        return cache_dir("linked") / f"{base_of(python)}-{key[:32]}.so"
    except (Unknown, RuntimeError, OSError, RecursionError):
        return None


def _shape_of(state: Any) -> tuple[object, ...] | None:
    """What code for a state is made of; None: of more than that."""
    if state is None:
        return ()
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(state) is not numpy.ndarray or not state.flags.c_contiguous or state.dtype.hasobject:
        return None
    return (state.dtype.str, repr(state.dtype), state.shape, state.flags.writeable, state.flags.aligned)


_TELLING = frozenset(
    ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "CPU implementer", "CPU part", "Features")
)


@lru_cache(maxsize=1)
def processor() -> tuple[str, ...]:
    """What code for this processor may use. OSError where the kernel does not say."""
    text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    fields = (line.partition(":") for line in text.splitlines())
    return tuple(f"{name.strip()}={value.strip()}" for name, _, value in fields if name.strip() in _TELLING)


def _read(file: Path) -> _File | None:
    """What a file says, if it is whole."""
    try:
        content = file.read_bytes()
        rest, digest = content[:-_DIGEST], content[-_DIGEST:]
        if not rest.endswith(_MAGIC) or hashlib.sha256(rest).digest() != digest:
            return None
        line = rest[: -len(_MAGIC)].rpartition(b"\n")[2]
        found = json.loads(line)
        remarks = tuple(Remark(str(text), int(number)) for text, number in found["remarks"])
        return _File(bool(found["fits"]), remarks, int(found["stack_bytes"]))
    except (OSError, ValueError, TypeError, KeyError):  # whatever is wrong with a file that we need not have: a miss
        return None


def _written(file: Path, code: bytes, known: _File) -> bool:
    said = {"fits": known.fits, "remarks": known.remarks, "stack_bytes": known.stack_bytes}
    rest = code + b"\n" + json.dumps(said).encode() + _MAGIC
    return write(file, rest + hashlib.sha256(rest).digest())


def _load(file: Path, known: _File, state: Any) -> CompiledHandler | None:
    import ctypes

    try:
        library = ctypes.CDLL(str(file))  # for good: nothing unloads it, for its code may be on a stack
        address = ctypes.cast(getattr(library, ENTRY), ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None
    arg = 0 if state is None else int(state.__array_interface__["data"][0])
    return CompiledHandler(address or 0, known.remarks, True, (library, state), arg, known.stack_bytes)


def _keep(file: Path, what: str, function: Callable[..., Any], state: Any) -> CompiledHandler | None:
    """Compile it for a file, write that, and take it from there. None: it cannot be, or cannot be written."""
    from ..batch_work.compile import HAS_PROBES, ObjectLibrary, UnprobedObjectLibrary, linked_target
    from ..objects.emit import machine, object_of
    from ..objects.link import linked, linker
    from ..objects.needs import lacking
    from .compile import COMPILERS, Build

    try:
        linker()
    except CorelaneError:
        return None
    build = Build(linked_target(), ObjectLibrary, UnprobedObjectLibrary, own_memory=True)
    made = COMPILERS[what](function, state, build=build)
    known = _File(True, made.remarks, made.stack_bytes)
    library = made.entry._library
    module, code = object_of(library.theirs, made.entry.native_name, ENTRY, machine(), hidden=False)
    if (library.report.missing and HAS_PROBES) or lacking(module, code):
        _written(file, b"", known._replace(fits=False))
        return None
    try:
        if not _written(file, linked([code], file.name), known):
            return None
    except CorelaneError:  # what the linker does not take
        return None
    loaded = _load(file, known, state)
    return None if loaded is None else replace(loaded, from_cache=made.from_cache)

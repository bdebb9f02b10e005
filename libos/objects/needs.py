"""What compiled code needs of others: of the C library and libc, which it gets; of numba's memory, for which C of ours
stands in (libos/service/memory.c); of Python, which is not there. Then it is refused, with the line that needs it.

The line is found by compiling the function once more, with numba's information for debuggers. Importing this module
imports numba.
"""

from __future__ import annotations

import ctypes
import io
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from elftools.elf.elffile import ELFFile

from ...runtime.elf import exported
from ...runtime.errors import CorelaneError
from ..numba.folder import library_path

# numba's functions, and those of libos/service/memory.h that do the same. What the "safe" ones do besides is for
# debuggers.
_MEMORY = {
    "NRT_MemInfo_alloc": "cl_block_new",
    "NRT_MemInfo_alloc_safe": "cl_block_new",
    "NRT_MemInfo_alloc_aligned": "cl_block_new_aligned",
    "NRT_MemInfo_alloc_safe_aligned": "cl_block_new_aligned",
    "NRT_MemInfo_alloc_dtor": "cl_block_new_ended",
    "NRT_MemInfo_alloc_dtor_safe": "cl_block_new_ended",
    "NRT_MemInfo_new_varsize": "cl_buffer_new",
    "NRT_MemInfo_new_varsize_dtor": "cl_buffer_new_ended",
    "NRT_MemInfo_varsize_realloc": "cl_buffer_resize",
    "NRT_MemInfo_call_dtor": "cl_block_end",
    "NRT_Allocate": "cl_bytes_new",
    "NRT_Free": "cl_bytes_free",
}

# What a name that begins so is used for, and what to do instead. The first one that fits.
_UNFIT = (
    ("numba.dynamic.globals", "an object of this process, by its address", "hand it over in the state"),
    (".numba.unresolved$", "a function that calls itself with other types", "give it the same types each time"),
    ("numba_get_np_random_state", "np.random", "draw numbers by a few lines of your own, with their state in `state`"),
    ("numba_get_py_random_state", "random", "draw numbers by a few lines of your own, with their state in `state`"),
    ("numba_parallel_for", "threads of numba's (parallel=True)", "leave that out"),
    ("numba_dict", "a dict", "keep a table in an array of `state`"),
    ("numba_list", "a typed list", "use an array, or a list with a literal"),
    ("numba_xx", "BLAS or LAPACK (np.dot, np.linalg)", "write the loops"),
    ("numba_ez_", "LAPACK (np.linalg)", "write the loops"),
    ("NRT_", "memory of numba's that is not counted", "use an array"),
    (
        "numba_gil_ensure",
        "the interpreter, as print() does",
        "leave it out, or put it under `state` for somebody to read",
    ),
    ("Py", "the interpreter", "leave it out"),
    ("numba_", "a function of numba's own library", "write it in another way"),
)


def give_memory(module: Any) -> None:
    """Have a module of LLVM's call libcorelane for memory."""
    for function in module.functions:
        if function.is_declaration and function.name in _MEMORY:
            function.name = _MEMORY[function.name]


def lacking(module: Any, code: bytes) -> list[str]:
    """What code needs and no process without Python has, first what is explained best. module: that it was made of."""
    found = [s for s in _undefined(code) if not _is_there(s)]
    found += [v.name for v in module.global_variables if v.name.startswith("numba.dynamic.globals")]
    return sorted(found, key=lambda symbol: (_rank(symbol), symbol))


def check_needs(name: str, function: Callable[..., Any], argtypes: tuple[Any, ...], module: Any, code: bytes) -> None:
    """Raise CorelaneError for the first thing that is lacking. argtypes: numba's, of the compiled function."""
    found = lacking(module, code)
    if not found:
        return
    symbol, rank = found[0], _rank(found[0])
    why, hint = _UNFIT[rank][1:] if rank < len(_UNFIT) else (f"the function {symbol}", "write it in another way")
    python = getattr(function, "py_func", function)
    line = _line_of(python, argtypes, _UNFIT[rank][0] if rank < len(_UNFIT) else symbol)
    place = f"{python.__code__.co_filename}, line {line or python.__code__.co_firstlineno}"
    raise CorelaneError(f"compile {name} ahead of time", f"it needs {why} ({place})", hint)


def _rank(symbol: str) -> int:
    return next((i for i, (prefix, *_) in enumerate(_UNFIT) if symbol.startswith(prefix)), len(_UNFIT))


def _undefined(code: bytes) -> list[str]:
    symbols: Any = ELFFile(io.BytesIO(code)).get_section_by_name(".symtab")
    return sorted({s.name for s in symbols.iter_symbols() if s["st_shndx"] == "SHN_UNDEF" and s.name})


@lru_cache(maxsize=1)
def _ours() -> frozenset[str]:
    return exported(Path(library_path()))


@lru_cache(maxsize=1)
def _libm() -> Any:
    return ctypes.CDLL("libm.so.6")  # looks in libc, too, which it needs


def _is_there(symbol: str) -> bool:
    return symbol in _ours() or symbol == "_GLOBAL_OFFSET_TABLE_" or hasattr(_libm(), symbol)


def _line_of(python: Callable[..., Any], argtypes: tuple[Any, ...], prefix: str) -> int:
    """The line of a function that leads to a name; 0: it was not found."""
    options = {"error_model": "numpy", "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    try:
        again = numba.njit(debug=True, _dbg_optnone=True, **options)(python)
        again.compile(argtypes)
    except Exception:  # the line is a help, and the error stands without it
        return 0
    overload = again.overloads[argtypes]
    return find_line(overload.library.get_llvm_str(), overload.fndesc.llvm_func_name, prefix)


_NAME = r'@("[^"]+"|[-\w.$]+)'


def find_line(text: str, function: str, prefix: str) -> int:
    """The first line in a function of LLVM's text, with debug information, that refers to a name with that prefix, or
    to a function that does. 0: there is none."""
    bodies = {
        m[1].strip('"'): m[2] for m in re.finditer(rf"^define [^\n]*?{_NAME}\([^\n]*\{{\n(.*?)^\}}", text, re.M | re.S)
    }
    refers = {name: {n.strip('"') for n in re.findall(_NAME, body)} for name, body in bodies.items()}
    leads: set[str] = set()

    def leads_there(names: set[str]) -> bool:
        return any(name.startswith(prefix) or name in leads for name in names)

    while more := {name for name, to in refers.items() if name not in leads and leads_there(to)}:
        leads |= more
    lines = dict(re.findall(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)", text, re.M))
    for line in bodies.get(function, "").splitlines():
        where = re.search(r"!dbg !(\d+)", line)
        if where and leads_there({n.strip('"') for n in re.findall(_NAME, line)}):
            return int(lines.get(where[1], 0))
    return 0

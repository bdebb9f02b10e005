"""C functions as Python holds them: by cffi, by ctypes, by numba, or as an address."""

from __future__ import annotations

import ctypes
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi

_LEAST = 65536  # the kernel maps nothing below it (vm.mmap_min_addr): a port, more likely
_CFUNC: Any = ctypes.CFUNCTYPE(None).__mro__[1]


def address_of_function(function: Any, what: str = "make a C handler") -> int:
    """Of a cffi, ctypes or numba C function, or an address as it is; CorelaneError for anything else."""
    if isinstance(function, ffi.CData):
        address = int(ffi.cast("uintptr_t", function))
    elif isinstance(function, int) and not isinstance(function, bool):
        address = function
    elif isinstance(function, _CFUNC):
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
    elif isinstance(getattr(function, "address", None), int):
        address = function.address
    else:
        raise CorelaneError(
            what,
            f"{type(function).__name__} is no C function",
            "give a cffi or ctypes function pointer, a numba cfunc, or an address; for Python functions there is udp()",
        )
    if address == 0:
        raise CorelaneError(what, "the function pointer is NULL")
    if address < _LEAST:
        raise CorelaneError(what, f"no function is at address {address}", "give the function itself")
    return address


def is_c_function(what: Any) -> bool:
    """Whether `address_of_function` takes it."""
    if isinstance(what, bool):
        return False
    return isinstance(what, ffi.CData | _CFUNC | int) or hasattr(what, "address")

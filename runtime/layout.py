"""One definition of a struct for C, cffi, numpy and numba: the header. Here numpy's view is made from cffi's.

    from corelane.drivers._native import ffi
    stats = layout.dtype(ffi, "struct cl_nic_stats")       # numpy.dtype, offsets and padding as in C
    table = layout.view(ffi, pointer, n=16)                # array of 16 structs on the same memory, no copy

numba takes the dtype by `numba.from_dtype`. No offset is typed twice: cffi asked the compiler for them when it was
built. numpy is imported at the first call, so that importing this costs nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .errors import CorelaneError

if TYPE_CHECKING:
    import numpy

_FLOATS = {"float", "double", "long double"}


def dtype(ffi: Any, ctype: Any) -> numpy.dtype[Any]:
    """The numpy dtype of a C type, given as cffi's CType or by name ("struct cl_desc", "uint32_t").

    Pointers become their address (an unsigned integer), arrays subarrays, unions fields at one offset, bool and chars
    what numpy calls them. CorelaneError for what has no layout: opaque structs, functions, bit fields.
    """
    return _dtype(ffi, ffi.typeof(ctype) if isinstance(ctype, str) else ctype)


@functools.cache
def _dtype(ffi: Any, ctype: Any) -> numpy.dtype[Any]:
    import numpy

    kind = ctype.kind
    if kind == "primitive":
        return numpy.dtype(_primitive(ffi, ctype))
    if kind in ("pointer", "function"):
        return numpy.dtype(f"u{ffi.sizeof('void *')}")
    if kind == "enum":
        return numpy.dtype(f"u{ffi.sizeof(ctype)}")
    if kind == "array":
        if ctype.length is None:
            return numpy.dtype((_dtype(ffi, ctype.item), (0,)))
        return numpy.dtype((_dtype(ffi, ctype.item), (ctype.length,)))
    if kind in ("struct", "union") and complete(ffi, ctype):
        return _record(ffi, ctype)
    raise CorelaneError(f"numpy type of {ctype.cname}", "it has no layout", "only complete C types have one")


def complete(ffi: Any, ctype: Any) -> bool:
    """Whether a struct's fields are known. To be asked first: cffi aborts on `.fields` of an opaque struct."""
    try:
        ffi.sizeof(ctype)
    except (ffi.error, ValueError):
        return False
    return True


def _primitive(ffi: Any, ctype: Any) -> str:
    name = ctype.cname
    size = ffi.sizeof(ctype)
    if name in ("_Bool", "bool"):
        return "?"
    if name == "char":
        return "S1"
    if name in _FLOATS:
        return f"f{size}"
    return f"{'i' if int(ffi.cast(ctype, -1)) < 0 else 'u'}{size}"


def _record(ffi: Any, ctype: Any) -> numpy.dtype[Any]:
    import numpy

    names, formats, offsets = [], [], []
    for name, field in ctype.fields:
        if field.bitsize >= 0:
            raise CorelaneError(f"numpy type of {ctype.cname}", f"{name} is a bit field", "use masks instead")
        names.append(name)
        formats.append(_dtype(ffi, field.type))
        offsets.append(field.offset)
    return numpy.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": ffi.sizeof(ctype)})


def view(ffi: Any, pointer: Any, n: int = 1) -> numpy.ndarray[Any, Any]:
    """The `n` items from a cffi pointer (or array) on as a numpy array of shape (n,), on the same memory.

    The caller keeps the memory alive and mapped as long as the array is used.
    """
    import numpy

    item = ffi.typeof(pointer).item
    return numpy.frombuffer(ffi.buffer(pointer, n * ffi.sizeof(item)), dtype=_dtype(ffi, item), count=n)

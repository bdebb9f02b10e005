"""A core-allocation policy written in Python, compiled by numba to the C function that a policy is.

    def headroom(view, apps, spare=1):
        for i in range(view.n_apps):
            apps[i].grant = apps[i].cores - apps[i].idle + spare

`view` and `apps[i]` are records with the fields of struct cl_policy_view and struct cl_policy_app (policy.h), whose
integers are signed here: so 1 - 2 is -1, and nothing turns into a float on the way. Parameters after the two are the
policy's settings, by name, with their defaults: integers, or floats where the default is one.

The function must need nothing but arithmetic: whatever it calls outside (the interpreter, an allocator, a lock) is
found in the machine code's references, and refused; so is what may raise. numba is imported when such a policy is used.
"""

from __future__ import annotations

import inspect
import os
import re
import struct
from collections.abc import Callable
from typing import Any

from ...runtime import layout
from ...runtime.errors import Refused, plain_text
from .._native import ffi, lib

# What arithmetic may turn into: the C library's mathematics and plain memory; and what frees an array, which is reached
# by none that numba did not allocate.
HARMLESS = frozenset(
    (
        *("memcpy", "memmove", "memset", "fabs", "floor", "ceil", "trunc", "round", "rint", "sqrt", "cbrt", "exp"),
        *("exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "fmod", "hypot", "sin", "cos", "tan", "asin"),
        *("acos", "atan", "atan2", "sinh", "cosh", "tanh", "ldexp", "frexp", "copysign"),
    )
)
_NUMBA_HARMLESS = HARMLESS | {"NRT_MemInfo_call_dtor"}


def parameters(function: Callable[..., Any]) -> dict[str, int | float]:
    """Names and defaults of a policy's settings. Refused if its signature is not that of a policy."""
    what = f"use policy {getattr(function, '__qualname__', repr(function))}"
    if not inspect.isfunction(function):
        is_a = "a class" if inspect.isclass(function) else f"an object of {type(function).__name__}"
        raise Refused(what, f"it is {is_a}", "a policy is a Python function: wrap it in one")
    try:
        wanted = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise Refused(what, str(error), "a policy is a Python function") from error
    if len(wanted) < 2 or any(p.kind not in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY) for p in wanted):
        raise Refused(
            what, "a policy takes a view, the applications, and its settings", "def mine(view, apps, spare=1)"
        )
    if [p.name for p in wanted[1:5]] == ["jobs", "cores", "kinds", "memory"]:
        raise Refused(what, "it is one of the laboratory, which no iokernel runs", "try it by corelane lab run")
    if bare := next((p.name for p in wanted[2:] if p.default is p.empty), None):
        raise Refused(what, f"its setting {bare} has no default", f"give it one, as in {bare}=0")
    settings = {p.name: p.default for p in wanted[2:]}
    if len(settings) > lib.CL_POLICY_PARAMS:
        raise Refused(what, f"it has {len(settings)} settings", f"a policy has {lib.CL_POLICY_PARAMS} at most")
    for name, default in settings.items():
        if type(default) not in (int, float):
            raise Refused(what, f"the default of {name} is {default!r}", "give a number")
        if isinstance(default, int) and not -(2**63) <= default < 2**63:
            raise Refused(what, f"the default of {name} is {default}", "a whole number of 64 bits, or a float")
    return settings


def words(settings: dict[str, int | float], defaults: dict[str, int | float]) -> list[int]:
    """Settings as the words of view.params: int64 or, where the default is a float, the bits of a double."""
    out = []
    for name, default in defaults.items():
        value = settings.get(name, default)
        raw = struct.pack("=d", value) if isinstance(default, float) else struct.pack("=q", int(value))
        out.append(int(struct.unpack("=Q", raw)[0]))
    return out


def _signed(dtype: Any) -> Any:
    """The same layout with signed integers."""
    import numpy

    fields = {name: (_signed(kind), offset) for name, (kind, offset, *_) in (dtype.fields or {}).items()}
    if fields:
        return numpy.dtype(
            {
                "names": list(fields),
                "formats": [kind for kind, _ in fields.values()],
                "offsets": [offset for _, offset in fields.values()],
                "itemsize": dtype.itemsize,
            }
        )
    if dtype.subdtype:
        item, shape = dtype.subdtype
        return numpy.dtype((_signed(item), shape))
    return numpy.dtype(f"i{dtype.itemsize}") if dtype.kind == "u" else dtype


def _bits_to_float() -> Any:
    """An intrinsic: the double whose bits an int64 holds."""
    from numba import types
    from numba.core.extending import intrinsic

    @intrinsic
    def to_float(typingctx: Any, bits: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(types.float64))

        return types.float64(types.int64), emit

    return to_float


def _body(policy: Any, defaults: dict[str, int | float]) -> Any:
    """The policy as a function of the two tables alone, compiled without wrappers for Python."""
    import numba

    words = [f"view['params'][{i}]" for i in range(len(defaults))]
    settings = [f"to_float({w})" if isinstance(d, float) else w for w, d in zip(words, defaults.values(), strict=True)]
    scope = {"policy": policy, "to_float": _bits_to_float()}
    exec(f"def body(view, apps):\n    policy({', '.join(['view', 'apps', *settings])})\n", scope)
    options = {"error_model": "numpy", "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(**options)(scope["body"])


def _entry(body: Any) -> Callable[[Any, Any], None]:
    """The C entry point as a Python function for numba to compile: it heeds no exceptions (see calls_outside)."""
    from numba import carray, types
    from numba.core.extending import intrinsic

    @intrinsic
    def call(typingctx: Any, view: Any, apps: Any) -> Any:
        body.compile((view, apps))
        overload = body.overloads[(view, apps)]

        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            context.add_linking_libs((overload.library,))
            context.call_internal_no_propagate(builder, overload.fndesc, overload.signature, args)
            return context.get_dummy_value()

        return types.void(view, apps), emit

    def entry(view_at: Any, apps_at: Any) -> None:
        view = carray(view_at, 1)[0]
        call(view, carray(apps_at, view["n_apps"]))

    return entry


_CALL = re.compile(r'^\s*(?:%(?:"[^"]*"|\S+) = )?(?:(?:tail|musttail|notail) )?(?:call|invoke) (.*)', re.M)
_CALLEE = re.compile(r'([@%])(?:"([^"]*)"|([\w.$-]+))\(')  # what stands right before the arguments
_POINTER = "a pointer"


def calls_outside(text: str) -> set[str]:
    """Functions outside of itself that a compiled module calls; _POINTER for those that it does not name."""
    defined = {a or b for a, b in re.findall(r'^define\b[^\n]*?@(?:"([^"]*)"|([\w.$-]+))', text, re.M)}
    called = set()
    for call in _CALL.findall(text):
        callee = _CALLEE.search(call)
        called.add((callee[2] or callee[3]) if callee and callee[1] == "@" else _POINTER)
    if "@.const.picklebuf" in text:  # an exception that is ready to be raised
        called.add("PyErr_SetObject")
    return {name for name in called - defined if not name.startswith("llvm.")} - _NUMBA_HARMLESS


def why_not(needs: set[str]) -> str:
    """In words, why a policy that calls these is refused."""
    if any(name.startswith("NRT_") for name in needs):
        return "it allocates memory"
    if any(name.startswith(("Py", "numba_")) for name in needs):
        return "it may raise an exception, or needs the interpreter"
    if _POINTER in needs:
        return "it calls a function that it does not name (one of ctypes or cffi, or one chosen while it runs)"
    return f"it calls {', '.join(sorted(needs))}"


_STAGE = re.compile(r"Failed in|During:|raised from|There are \d+ candidate|File \"|$")


def said_by_numba(error: Exception, file: str) -> str:
    """What numba says of the function in `file`, in one line: not its stages, candidates and places of its own."""
    if isinstance(error, KeyError):
        return f"the table has no field {error}"
    text = plain_text(error)
    lines = [line for line in map(str.strip, text.splitlines()) if not _STAGE.match(line)]
    said = " ".join(lines[: 2 if len(lines) > 1 and lines[1].startswith(">>>") else 1]) or type(error).__name__
    at = re.search(re.escape(os.path.basename(file)) + r"\"?(?:, line | \()(\d+)", text)
    return f"{said} (line {at[1]})" if at and f"({at[1]})" not in said else said


def _types() -> tuple[Any, Any]:
    """The rows of the two tables as numba has them."""
    import numba

    rows = [numba.from_dtype(_signed(layout.dtype(ffi, f"struct cl_policy_{what}"))) for what in ("view", "app")]
    return rows[0], rows[1]


def compile_policy(function: Callable[..., Any], name: str) -> tuple[int, dict[str, int | float], tuple[object, ...]]:
    """Address of the C function, its settings with their defaults, and what must stay alive. Raises Refused."""
    import numba
    from numba import types

    python = getattr(function, "py_func", function)
    defaults = parameters(python)
    what = f"use policy {name}"
    view, app = _types()
    signature = types.void(types.CPointer(view), types.CPointer(app))
    try:
        inner = numba.njit(error_model="numpy", nogil=True)(python)
        settings = (types.float64 if isinstance(d, float) else types.int64 for d in defaults.values())
        inner.compile((view, types.Array(app, 1, "C", aligned=False), *settings))  # so that what it says is of this one
        body = _body(inner, defaults)
        entry = numba.cfunc(signature, error_model="numpy", nopython=True)(_entry(body))
    except Exception as error:  # numba's own, and whatever its stages come upon
        said = said_by_numba(error, python.__code__.co_filename)
        hint = "loops, arithmetic and the table's fields suffice"
        if re.search(r"type of <class 'function'>", said):
            hint = "decorate the function that it calls with @numba.njit"
        raise Refused(what, f"numba cannot compile it: {said}", hint) from error
    needs = set().union(*(calls_outside(overload.library.get_llvm_str()) for overload in body.overloads.values()))
    if needs:
        raise Refused(what, why_not(needs), "a policy is arithmetic on the table it is given, and nothing else")
    return int(entry.address), defaults, (inner, body, entry)

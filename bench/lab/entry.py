"""A policy as the C function that the engine calls: compiled by numba, checked, and kept on disk.

The checks are those of the iokernel's policies written in Python (iokernel/policy/numba.py): it allocates nothing, may
not raise, calls nothing outside. So it has its tables, and nothing else to look at.

Code is kept under a digest of all that it was made of (libos/numba/fingerprint.py), in a folder of its own beside
handlers' ($CORELANE_CACHE_DIR, or ~/.cache/corelane): whatever changes, it is compiled again, and checked again. A
policy that is made of what may change unseen, or for which there is no place, is compiled in each process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...iokernel.policy.numba import calls_outside, said_by_numba, why_not
from ...libos.numba.cache import HandlerCache
from ...libos.numba.fingerprint import Unknown, fingerprint
from ...runtime.errors import Refused
from . import table as t

TABLES = ("view", "jobs", "cores", "kinds", "memory")
KIND = "policies"  # the folder's name
# Nothing in Python calls what a policy is made of.
_OPTIONS = {"error_model": "numpy", "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Of a user's own: an index beyond a table's end is seen, and nothing is read or written there. What numba raises then
# is the only thing that such a policy may raise: it is checked as it is without.
_OWN = {**_OPTIONS, "boundscheck": True}


@lru_cache
def _types() -> tuple[Any, ...]:
    import numba

    rows = [numba.from_dtype(dtype) for dtype in (t.VIEW, t.JOB, t.CORE, t.KIND)]
    return (*rows, numba.float64, numba.from_dtype(t.FUTURE), numba.float64)


def _entry(policy: Any, defaults: Sequence[int | float], oracle: bool) -> Callable[..., None]:
    """The C entry point as a Python function for numba to compile. policy: a dispatcher.

    Of what the policy returns only that it left its tables is looked at: the code is checked for what else could raise.
    """
    from numba import carray, types
    from numba.core.extending import intrinsic

    def compiled(given: tuple[Any, ...]) -> Any:
        policy.compile(given)
        overload = policy.overloads[given]

        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            context.add_linking_libs((overload.library,))
            status, _ = context.call_internal_no_propagate(builder, overload.fndesc, overload.signature, args)
            return status.is_error

        return types.boolean(*given), emit

    # The text is of our own words and numbers alone. Without a module's name its code would be of this process.
    tables = [*TABLES, *(["future"] if oracle else [])]
    rooms = ["", "room", 'view["n_cores"]', 'view["n_kinds"]', 'view["n_memory"]', "room"]
    given = [f"carray({name}, {room})" for name, room in zip(tables, rooms, strict=False)][1:]
    given += [f"params[{i}]" if isinstance(d, float) else f"int(params[{i}])" for i, d in enumerate(defaults)]
    names = [f"a{i}" for i in range(1 + len(given))]
    scope: dict[str, Any] = {"__name__": __name__, "carray": carray, "compiled": compiled}
    exec(f"def call(context, {', '.join(names)}):\n    return compiled(({', '.join(names)},))\n", scope)
    scope["call"] = intrinsic(scope["call"])
    text = f"""def entry(first, jobs, cores, kinds, memory, future, par):
    view = carray(first, 1)[0]
    room = view["room"]
    params = carray(par, view["n_params"])
    if call(view, {", ".join(given)}):
        view["astray"] = {t.NO_ROW}
"""
    exec(text, scope)
    return scope["entry"]  # type: ignore[no-any-return]


def _kept(
    python: Callable[..., Any],
    kinds: Sequence[type],
    oracle: bool,
    options: dict[str, Any],
    check: Callable[[Any], None],
) -> Any:
    """Where its code is, or will be once it has passed the check; None: nowhere."""
    from numba.core.registry import cpu_target

    sources = [Path(inspect.getfile(made)).read_text() for made in (_entry, calls_outside)]
    made_with = (str(_types()), [kind.__name__ for kind in kinds], oracle, *sources)
    try:
        key = fingerprint(python, options, str(cpu_target.target_context.codegen().magic_tuple()), *made_with)
        return HandlerCache(python, key, check, KIND)
    except (Unknown, RuntimeError, OSError, RecursionError):
        return None


@lru_cache(maxsize=64)
def entry_of(
    function: Callable[..., Any], name: str, defaults: tuple[int | float, ...], oracle: bool
) -> tuple[int, tuple[object, ...]]:
    """Address of the C function, and what must stay alive. name: "module:function" is a user's own; defaults: of its
    settings; oracle: it wants the future. Refused for what may not be."""
    import numba
    from numba import types
    from numba.core.ccallback import CFunc
    from numba.core.registry import cpu_target
    from numba.core.sigutils import normalize_signature

    python = getattr(function, "py_func", function)
    policy = numba.njit(**_OPTIONS)(python)
    rows = _types()
    signature = types.void(*(types.CPointer(row) for row in rows))

    def check(_: object) -> None:
        needs = set().union(*(calls_outside(o.library.get_llvm_str()) for o in policy.overloads.values()))
        if needs:
            raise Refused(f"use policy {name}", why_not(needs), "a policy is arithmetic on the tables it is given")

    options = _OWN if ":" in name else _OPTIONS
    kept = _kept(python, [type(d) for d in defaults], oracle, options, check)
    found = kept.load_overload(signature, cpu_target.target_context) if kept is not None else None
    if found is not None:
        return int(found.library.get_pointer_to_function(found.fndesc.llvm_cfunc_wrapper_name)), (found,)
    arrays = (rows[0], *(types.Array(row, 1, "C") for row in rows[1:]))  # as carray has them
    given = arrays[:5] + (arrays[5:6] if oracle else ())
    settings = tuple(types.float64 if isinstance(d, float) else types.int64 for d in defaults)
    try:
        policy.compile((*given, *settings))  # so that what it says is of this one
        called = numba.njit(**options)(python) if options is not _OPTIONS else policy
        made = _entry(called, defaults, oracle)
        entry = CFunc(made, normalize_signature(signature), {}, {"error_model": "numpy", "nopython": True})
        if kept is not None:
            entry._cache = kept
        entry.compile()
    except Refused:
        raise
    except Exception as error:  # numba's own, and whatever its stages come upon
        said = said_by_numba(error, python.__code__.co_filename)
        raise Refused(f"use policy {name}", f"numba cannot compile it: {said}", "see bench/lab/README.md") from error
    check(entry)
    return int(entry.address), (called, entry)

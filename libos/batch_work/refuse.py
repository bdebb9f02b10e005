"""What compiled code may not do on a uthread: found in its references to numba's runtime, before it runs.

A function's module has all that was linked into it. What numba compiles apart (a `numba.cfunc` that is called through
a pointer, a function that calls itself with other types) is looked for as well, and looked at. Importing this imports
numba.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from numba.core.ccallback import CFunc
from numba.core.types import Dispatcher

from ...runtime.errors import CorelaneError

# What no job's code may refer to: why, and what to do instead.
_UNFIT = {
    "numba_parallel_for": (
        "a function that it calls has parallel=True, which starts threads that the runtime knows nothing of",
        "leave that out, or start one job for each part",
    ),
    "numba_get_np_random_state": (
        "it or what it calls draws from np.random, whose state is the thread's, and jobs take turns on a thread",
        "draw from a numpy.random.Generator that is an argument, one for each job",
    ),
    "numba_get_py_random_state": (
        "it or what it calls draws from random, whose state is the thread's, and jobs take turns on a thread",
        "draw from a numpy.random.Generator that is an argument, one for each job",
    ),
}

# By which numba calls LAPACK, of which some frame takes between 1 and 8 MiB (OpenBLAS, factoring a 200 x 200 matrix).
_LAPACK = ("numba_xxgetrf", "numba_xxpotrf", "numba_xgesv", "numba_ez_")
_LAPACK_STACK_BYTES = 8 << 20
_UNRESOLVED = ".numba.unresolved$"  # in the name of a variable: the code that is called is in another library


def refuse_unfit(name: str, libraries: Iterable[Any]) -> None:
    """Raise CorelaneError if a job's code may not run beside others."""
    declared = set().union(*map(declarations, libraries))
    for symbol, (why, hint) in _UNFIT.items():
        if symbol in declared:
            raise CorelaneError(f"compile batch function {name}", why, hint)


def stack_bytes(libraries: Iterable[Any]) -> int:
    """The least stack that code needs for what it calls of libraries, 0 if it calls none."""
    calls_lapack = any(name.startswith(_LAPACK) for library in libraries for name in declarations(library))
    return _LAPACK_STACK_BYTES if calls_lapack else 0


def refuse_small_stack(what: str, needs: int, has: int) -> None:
    """Raise CorelaneError if the uthreads of a runtime have less stack than code needs."""
    if needs > has:
        why = f"np.linalg needs more stack than the {has} bytes of this runtime's uthreads"
        raise CorelaneError(what, why, f'make it with kind="batch" or Scheduler(stack_bytes={needs >> 20} << 20)')


def declarations(library: Any) -> set[str]:
    """The functions of numba's runtime and of C to which code refers, with all that was linked into it."""
    return {f.name for f in library._final_module.functions if f.is_declaration}


def libraries_of(dispatcher: Any, overload: Any, args: tuple[Any, ...] = ()) -> list[Any]:
    """The library of an overload, and those of what it calls that was compiled apart. args: it is called with these."""
    dispatchers = _dispatchers(dispatcher, {})
    made = {o.fndesc.llvm_func_name: o.library for d in dispatchers.values() for o in d.overloads.values()}
    pointers = [
        value for d in dispatchers.values() for value in (*_named(d.py_func), *args) if isinstance(value, CFunc)
    ]
    found = [overload.library, *(pointer._library for pointer in pointers)]
    for library in found:  # which grows
        names = (variable.name for variable in library._final_module.global_variables)
        apart = [made.get(name.removeprefix(_UNRESOLVED)) for name in names if name.startswith(_UNRESOLVED)]
        found += [other for other in apart if other is not None and other not in found]
    return found


def _dispatchers(dispatcher: Any, found: dict[int, Any]) -> dict[int, Any]:
    """It, and all that are called from its overloads, by their ids."""
    if id(dispatcher) not in found:
        found[id(dispatcher)] = dispatcher
        for overload in list(dispatcher.overloads.values()):
            types = getattr(overload.type_annotation, "typemap", {})  # kept on disk, it is a text
            for kind in types.values():
                if isinstance(kind, Dispatcher):
                    _dispatchers(kind.dispatcher, found)
    return found


def _named(function: Any) -> Iterator[Any]:
    """What a Python function's names outside of it stand for, as far as they are there."""
    code = function.__code__
    yield from (function.__globals__[name] for name in code.co_names if name in function.__globals__)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not set yet
            continue

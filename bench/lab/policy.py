"""Policies of the laboratory by name: found, compiled to the C function that the engine calls, and checked.

    policy = load("fifo")                              # a file of policies/
    policy = load("mine:longest", {"quantum_us": 50})  # a function of a module of one's own

The checks are those of the iokernel's policies written in Python (iokernel/policy/numba.py): it allocates nothing, may
not raise, calls nothing outside. So it has its tables, and nothing else to look at.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...iokernel.policy.modules import import_anew
from ...iokernel.policy.numba import calls_outside, said_by_numba, why_not
from ...runtime.errors import ConfigError, Refused
from ...runtime.imports import come_first
from . import table as t

TABLES = ("view", "jobs", "cores", "kinds", "memory")
HOW = f"def mine({', '.join(TABLES)}, setting=1)"


@dataclass(frozen=True)
class Policy:
    """A policy that can be called. oracle: it is given the future. ticks: it is called at intervals only. words: of
    memory, as `WORDS` of policies/__init__.py. keep: what must stay alive while it may be called."""

    name: str
    settings: Mapping[str, float]
    address: int
    oracle: bool
    ticks: bool
    words: tuple[int, int, int, int]
    source: str
    sweep: Mapping[str, tuple[float, ...]]
    keep: tuple[object, ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value:g}" for name, value in self.settings.items())
        return f"{self.name} ({given})" if given else self.name


def names() -> list[str]:
    """Of the policies that are here."""
    return sorted(p.stem for p in (Path(__file__).parent / "policies").glob("*.py") if not p.stem.startswith("_"))


def known(spec: str, settings: Mapping[str, float] | None = None) -> Policy:
    """What `load` gives, but not compiled: its address is 0."""
    module, function = _find(spec)
    defaults, oracle = parameters(function, spec)
    given = dict(settings or {})
    for name, value in given.items():
        if name not in defaults:
            can = f"it has {', '.join(defaults)}" if defaults else "it has none"
            raise ConfigError(f"{spec}.{name}", "this policy has no such setting", can)
        if not isinstance(value, int | float) or (isinstance(defaults[name], int) and value != int(value)):
            raise ConfigError(f"{spec}.{name}", f"{value!r} is no setting", "a whole number, as its default is")
    words = tuple(getattr(module, "WORDS", (0, 0, 0, 0)))
    source, sweep = str(getattr(module, "SOURCE", "a user's own")), dict(getattr(module, "SWEEP", {}))
    ticks = bool(getattr(module, "TICKS", False))
    return Policy(spec, defaults | given, 0, oracle, ticks, words, source, sweep)


def load(spec: str, settings: Mapping[str, float] | None = None) -> Policy:
    """The policy of that name, or "module:function". ConfigError for what there is not, Refused for what may not be."""
    policy = known(spec, settings)
    address, keep = _compiled(_find(spec)[1], spec)
    return replace(policy, address=address, keep=keep)


def _find(spec: str) -> tuple[Any, Callable[..., Any]]:
    where, colon, name = spec.rpartition(":")
    if not colon and spec in names():
        module = importlib.import_module(f"{__package__}.policies.{spec}")
        return module, getattr(module, spec)
    if not colon or not where or not name.isidentifier():
        raise ConfigError(f"policy {spec!r}", "there is none of that name", f"{', '.join(names())}, or module:function")
    if "" not in sys.path:
        come_first()
    try:
        module = import_anew(where)
    except ImportError as error:
        why = f"cannot import {where}: {error}"
        raise ConfigError(f"policy {spec!r}", why, f"it must be in {os.getcwd()} or on the PYTHONPATH") from error
    if not inspect.isfunction(getattr(getattr(module, name, None), "py_func", getattr(module, name, None))):
        raise ConfigError(f"policy {spec!r}", f"{where} has no function {name}", "name a function of that module")
    return module, getattr(module, name)


def parameters(function: Callable[..., Any], name: str) -> tuple[dict[str, int | float], bool]:
    """Settings with their defaults, and whether it wants the future. Refused if its signature is not a policy's."""
    python = getattr(function, "py_func", function)
    wanted = list(inspect.signature(python).parameters.values())
    if tuple(p.name for p in wanted[: len(TABLES)]) != TABLES:
        raise Refused(f"use policy {name}", f"it does not begin with {', '.join(TABLES)}", HOW)
    rest = wanted[len(TABLES) :]
    oracle = bool(rest) and rest[0].name == "future"
    settings = {p.name: p.default for p in rest[oracle:]}
    for key, default in settings.items():
        if type(default) not in (int, float):
            raise Refused(f"use policy {name}", f"its setting {key} has no number for a default", HOW)
    return settings, oracle


@lru_cache
def _types() -> tuple[Any, ...]:
    import numba

    rows = [numba.from_dtype(dtype) for dtype in (t.VIEW, t.JOB, t.CORE, t.KIND)]
    return (*rows, numba.float64, numba.from_dtype(t.FUTURE), numba.float64)


def _body(policy: Any, defaults: Mapping[str, int | float], oracle: bool) -> Any:
    """The policy as a function of the tables alone."""
    import numba

    words = [f"params[{i}]" if isinstance(d, float) else f"int(params[{i}])" for i, d in enumerate(defaults.values())]
    tables = [*TABLES, *(["future"] if oracle else [])]
    scope = {"policy": policy}
    exec(f"def body({', '.join(TABLES)}, future, params):\n    policy({', '.join([*tables, *words])})\n", scope)
    options = {"error_model": "numpy", "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(**options)(scope["body"])


def _entry(body: Any) -> Callable[..., None]:
    """The C entry point as a Python function for numba to compile."""
    from numba import carray, types
    from numba.core.extending import intrinsic

    @intrinsic
    def call(typingctx: Any, view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, future: Any, par: Any) -> Any:
        given = (view, jobs, cores, kinds, memory, future, par)
        body.compile(given)
        overload = body.overloads[given]

        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            context.add_linking_libs((overload.library,))
            context.call_internal_no_propagate(builder, overload.fndesc, overload.signature, args)
            return context.get_dummy_value()

        return types.void(*given), emit

    def entry(first: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, future: Any, par: Any) -> None:
        view = carray(first, 1)[0]
        room = view["room"]
        call(
            view,
            carray(jobs, room),
            carray(cores, view["n_cores"]),
            carray(kinds, view["n_kinds"]),
            carray(memory, view["n_memory"]),
            carray(future, room),
            carray(par, view["n_params"]),
        )

    return entry


@lru_cache(maxsize=64)
def _compiled(function: Callable[..., Any], name: str) -> tuple[int, tuple[object, ...]]:
    """Address of the C function, and what must stay alive."""
    import numba
    from numba import types

    python = getattr(function, "py_func", function)
    defaults, oracle = parameters(function, name)
    rows = _types()
    arrays = (rows[0], *(types.Array(row, 1, "C", aligned=False) for row in rows[1:]))
    given = arrays[:5] + (arrays[5:6] if oracle else ())
    settings = tuple(types.float64 if isinstance(d, float) else types.int64 for d in defaults.values())
    try:
        inner = numba.njit(error_model="numpy", nogil=True)(python)
        inner.compile((*given, *settings))  # so that what it says is of this one
        body = _body(inner, defaults, oracle)
        signature = types.void(*(types.CPointer(row) for row in rows))
        entry = numba.cfunc(signature, error_model="numpy", nopython=True)(_entry(body))
    except Exception as error:  # numba's own, and whatever its stages come upon
        said = said_by_numba(error, python.__code__.co_filename)
        raise Refused(f"use policy {name}", f"numba cannot compile it: {said}", "see bench/lab/README.md") from error
    needs = set().union(*(calls_outside(o.library.get_llvm_str()) for o in body.overloads.values()))
    if needs:
        raise Refused(f"use policy {name}", why_not(needs), "a policy is arithmetic on the tables it is given")
    return int(entry.address), (inner, body, entry)

"""Policies of the laboratory by name: found, and what they say of themselves. entry.py compiles them.

    load("fifo")                              # a file of policies/
    load("mine:longest", {"quantum_us": 50})  # a function of a module of one's own

Of a user's own the module is read anew each time, since it may have been edited.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...iokernel.policy.modules import import_anew
from ...runtime.errors import ConfigError, Refused
from ...runtime.imports import come_first
from .entry import TABLES, entry_of

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

    @property
    def own(self) -> bool:
        """Whether it is a user's own, of which anything may be expected."""
        return ":" in self.name

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
    function = _find(spec)[1]
    defaults, oracle = parameters(function, spec)
    address, keep = entry_of(function, spec, tuple(defaults.values()), oracle)
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

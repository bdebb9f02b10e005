"""Core-allocation policies by name, with settings by name: loaded, tried, and installed in an iokernel that runs.

    policy = load("delay", {"target_us": 20})          # built in
    policy = load("mine:headroom", {"spare": 2})       # a Python function, compiled by numba (numba.py)
    policy = load("./mine.so:headroom", {"spare": 2})  # a C function (shared_object.py)
    PolicyHost(pointer).install(policy)                # from the next decision on

What is not built in is first tried in a process of its own (trial.py) and refused in one sentence if it does not
behave: a Python policy's module is imported there before it is imported here, so one that never comes to the end of its
import, or ends the process, harms nobody. Then a policy is bounded while it runs (host.h). docs/policies.md says
what a policy may do.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...runtime.clock import default_clock
from ...runtime.errors import ConfigError, CorelaneError, Refused, check
from .._native import ffi, lib
from .verdict import why_ejected

Number = int | float


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a policy. scale: words of view.params for one of the unit; least: what 0 stands for, as a word."""

    name: str
    default: Number
    about: str
    scale: int = 1
    least: int = 0

    def held(self, value: Number) -> Number:
        """What holds where that is given."""
        return self.least / self.scale if self.least and value * self.scale < self.least else value


BUILTIN: Mapping[str, tuple[Setting, ...]] = {
    "static": (),
    "shenango": (),
    "delay": (
        Setting("target_us", 10.0, "age of the oldest waiting thing at which an application gets a core", 1000, 1),
        Setting("calm", 1, "checks in a row with an idle core until it goes back", 1, 1),
        Setting("moves_percent", 10, "of batch work's core time that moves to and from it may take", 1, 1),
    ),
    "fair": (
        Setting("slice_us", 50.0, "how far ahead its holder is when a core changes hands", 1000, 1),
        Setting("credit_us", 10_000.0, "how far behind an application can fall and be owed it", 1000, 1),
    ),
    "attained": (
        Setting("first_us", 10_000.0, "core time after which a batch application leaves the first level", 1000, 1),
        Setting("ratio", 10, "of each level's limit to the one before", 1, 1),
        Setting("levels", 3, "how many there are, 2 to 16", 1, 2),
        Setting("promote", 8, "times its core time without a core, until it counts as new", 1, 1),
    ),
}


@dataclass(frozen=True)
class Policy:
    """A policy that can be called: spec as it was given, the C function's address, the words of view.params.

    settings: by name, defaults included. guarded: not built in, so called through the guard. keep: what must stay alive
    as long as the address may be called; a Policy that is kept keeps it.
    """

    spec: str
    address: int
    params: tuple[int, ...]
    settings: Mapping[str, Number]
    guarded: bool
    keep: tuple[object, ...] = field(default=(), repr=False, compare=False)
    found: _Found | None = field(default=None, repr=False, compare=False)

    def with_settings(self, **settings: Number) -> Policy:
        """The same, with other settings; those that are not named are as they are. It is not read or tried again."""
        found = self.found or _find(self.spec)
        named = {**self.settings, **settings}
        return replace(self, params=found.words(self.spec, named), settings=found.named(self.spec, named))

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value:g}" for name, value in self.settings.items())
        return f"{self.spec} ({given})" if given else self.spec


def load(spec: str, params: Mapping[str, Number] | Sequence[int] = (), *, trial: bool = True) -> Policy:
    """The policy `spec`: a built-in name, "module:function" or "path.so:function".

    params: settings by name, in the units that their names say, or the words of view.params as they are. trial: whether
    one that is not built in is tried first, in another process (about a second, with numba three); False is for tests,
    and for code that has been tried. The file is read as it is now, also one that was loaded before. Raises ConfigError
    for a spec or a setting that does not exist, Refused or CorelaneError with the reason for a policy that cannot be
    used.
    """
    tried = None
    if trial and spec not in BUILTIN:
        from .trial import run

        if not _parts(spec)[2]:
            _find(spec).words(spec, params)  # what a file says of itself is found sooner than by a trial
        tried = run(spec, params)
    found = _find(spec)
    words, named = found.words(spec, params), found.named(spec, params)
    if found.load is None:
        return Policy(spec, found.address, words, named, False, found=found)
    if tried is not None and tried != found.digest:
        raise Refused(f"policy {spec!r} is refused", "its file was changed while it was tried", "load it again")
    address, keep = found.load()
    return Policy(spec, address, words, named, True, keep, found)


def validate(spec: str, settings: Mapping[str, Any], where: str = "policy") -> None:
    """Check a policy's name and its settings, as a configuration gives them. ConfigError names the key.

    Loads no C code and compiles nothing; a Python policy's module is imported, for its settings, and nothing bounds
    that: `load` tries it first.
    """
    _find(spec).words(where, settings)


@dataclass(frozen=True)
class _Found:
    """A policy before it is loaded. encode: settings to words."""

    settings: tuple[Setting, ...]
    guarded: bool
    address: int = 0
    load: Callable[[], tuple[int, tuple[object, ...]]] | None = None
    signed: bool = False  # settings are int64, and those whose default is a float are passed as the bits of one
    digest: str = ""  # of the file

    def named(self, where: str, params: Mapping[str, Number] | Sequence[int]) -> dict[str, Number]:
        """All settings by name; of words given as they are, only those that have a name."""
        if params and not isinstance(params, Mapping):
            return {s.name: int(word) / s.scale for s, word in zip(self.settings, params, strict=False) if word}
        given = dict(params) if isinstance(params, Mapping) else {}
        known = {s.name: s for s in self.settings}
        for name, value in given.items():
            if name not in known:
                can = f"it has {', '.join(known)}" if known else "it has none"
                raise ConfigError(f"{where}.{name}", "this policy has no such setting", can)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not number or (value < 0 and not self.signed):
                hint = "a number" if self.signed else "a number, 0 or more"
                raise ConfigError(f"{where}.{name}", f"{value!r} is no setting", hint)
            whole = known[name].scale == 1 and not (self.signed and isinstance(known[name].default, float))
            if (whole and value != int(value)) or not -(2**63) <= value * known[name].scale < 2**63:
                raise ConfigError(f"{where}.{name}", f"{value!r} is no setting", "a whole number below 2**63")
        return {s.name: s.held(given.get(s.name, s.default)) for s in self.settings}

    def words(self, where: str, params: Mapping[str, Number] | Sequence[int]) -> tuple[int, ...]:
        """The words of view.params."""
        if params and not isinstance(params, Mapping):
            if len(params) > lib.CL_POLICY_PARAMS:
                raise ConfigError(where, f"{len(params)} settings", f"a policy has {lib.CL_POLICY_PARAMS} at most")
            out = [int(word) for word in params]
        elif self.signed:
            from .numba import words

            out = words(self.named(where, params), {s.name: s.default for s in self.settings})
        else:
            by_name = self.named(where, params)
            out = [round(by_name[s.name] * s.scale) for s in self.settings]
        return tuple(out + [0] * (lib.CL_POLICY_PARAMS - len(out)))


def _find(spec: str) -> _Found:
    """What a spec names. Imports a Python policy's module; reads a shared object, but does not load it."""
    if spec in BUILTIN:
        return _Found(BUILTIN[spec], False, int(ffi.cast("uintptr_t", lib.cl_policy_find(os.fsencode(spec)))))
    where, name, python = _parts(spec)
    return _find_python(spec, where, name) if python else _find_compiled(Path(where), name)


def check_spec(spec: str) -> None:
    """Raise ConfigError for what is neither a built-in policy's name nor module:function or file.so:function."""
    if spec not in BUILTIN:
        _parts(spec)


def _parts(spec: str) -> tuple[str, str, bool]:
    """Module or file, function, and whether it is a Python module's, of what is not built in."""
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name.isidentifier():
        known = ", ".join(BUILTIN)
        raise ConfigError(
            f"policy {spec!r}", "there is none of that name", f"{known}, module:function or file.so:function"
        )
    return where, name, not where.endswith(".so") and "/" not in where


def _find_compiled(path: Path, symbol: str) -> _Found:
    from . import shared_object as policy_so

    content = policy_so.read(path)
    names = policy_so.inspect(path, content, symbol)

    def opened() -> tuple[int, tuple[object, ...]]:
        return policy_so.load(path, content, symbol), ()

    digest = hashlib.sha256(content).hexdigest()
    return _Found(tuple(Setting(n, 0, "") for n in names), True, load=opened, digest=digest)


def _find_python(spec: str, module: str, name: str) -> _Found:
    from . import modules as policy_import
    from . import numba as policy_numba

    what = f"policy {spec!r}"
    imported = _import(what, module)
    if not hasattr(imported, name):
        raise ConfigError(what, f"{module} has no {name}", "name a function of it")
    function = getattr(imported, name)
    if not callable(function):
        raise ConfigError(what, f"{name} is no function", "name a function of that module")
    defaults = policy_numba.parameters(getattr(function, "py_func", function))

    def compiled() -> tuple[int, tuple[object, ...]]:
        address, _, keep = policy_numba.compile_policy(function, spec)
        return address, keep

    settings = tuple(Setting(n, default, "") for n, default in defaults.items())
    return _Found(settings, True, load=compiled, signed=True, digest=policy_import.digest(imported))


def _import(what: str, module: str) -> Any:
    """A module of the user's, whose import may end in any way; SystemExit is no wish to end this process."""
    from .modules import import_anew

    try:
        return import_anew(module)
    except ModuleNotFoundError as error:
        path = f"it must be in {os.getcwd()} or on the PYTHONPATH of the process that loads it"
        hint = path if error.name and f"{module}.".startswith(f"{error.name}.") else ""
        raise ConfigError(what, f"cannot import {module}: {error}", hint or f"install what {module} needs") from error
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(what, f"cannot import {module}: {said}", "mend that module") from error


class PolicyHost:
    """A `struct cl_policy_host` of C, for the thread that controls it. The loop that calls it is elsewhere."""

    def __init__(self, pointer: Any) -> None:
        self._host = pointer
        self._kept: dict[int, Policy] = {}  # by ticket: those that the loop may still call
        self._seen = 0  # events, by the count of policies ejected

    def set(self, policy: Policy) -> int:
        """Have `policy` decide from the next decision on; returns its ticket. Does not wait for the loop."""
        setting, err = ffi.new("struct cl_policy_setting *"), ffi.new("char[256]")
        setting.fn, setting.guarded = ffi.cast("cl_policy_fn", policy.address), policy.guarded
        setting.params[0 : len(policy.params)] = policy.params
        ticket = int(check(lib.cl_policy_host_set(self._host, setting, err), f"install policy {policy.spec}", err))
        self._kept[ticket] = policy
        return ticket

    def taken(self, ticket: int) -> bool:
        """Whether the loop decides by this setting, or a later one; then lets go of what older ones needed."""
        done = bool(lib.cl_policy_host_taken(self._host, ticket))
        if done:
            self._kept = {t: p for t, p in self._kept.items() if t >= ticket}
        return done

    def install(self, policy: Policy, timeout_s: float = 2.0) -> None:
        """`set`, and wait until the loop has it. CorelaneError if the loop made no decision in that time."""
        ticket = self.set(policy)
        deadline = time.monotonic() + timeout_s
        while not self.taken(ticket):
            if time.monotonic() > deadline:
                hint = "it will when it decides next; is the loop running, and are cores to be given out?"
                raise CorelaneError(f"install policy {policy.spec}", f"no decision was made in {timeout_s:g} s", hint)
            time.sleep(0.0005)

    @property
    def current(self) -> str:
        """What decides now, in words."""
        out = ffi.new("struct cl_policy_setting *")
        lib.cl_policy_host_current(self._host, out)
        policy = self._kept.get(int(out.ticket))
        if policy is not None and int(ffi.cast("uintptr_t", out.fn)) == policy.address:
            return str(policy)
        index = 0
        while (name := lib.cl_policy_name(index)) != ffi.NULL:
            if lib.cl_policy_find(name) == out.fn:
                return str(ffi.string(name).decode())
            index += 1
        return "unknown"

    def stats(self) -> dict[str, float]:
        """Counters of struct cl_policy_stats, its ticks as ns."""
        out = ffi.new("struct cl_policy_stats *")
        lib.cl_policy_host_stats(self._host, out)
        clock = default_clock()
        counts: dict[str, float] = {}
        for name, _ in ffi.typeof("struct cl_policy_stats").fields:
            value = int(getattr(out, name))
            if name.endswith("ticks"):
                counts[name.replace("ticks", "ns")] = clock.ticks_to_ns(value)
            else:
                counts[name] = value
        return counts

    def event(self) -> str:
        """A sentence about a policy that was ejected since the last call; "" if none was."""
        out = ffi.new("struct cl_policy_event *")
        ejected = int(self.stats()["ejected"])
        if ejected == self._seen or not lib.cl_policy_host_event(self._host, out):
            return ""
        self._seen = ejected
        policy = self._kept.get(int(out.ticket))
        name = policy.spec if policy else "of an older setting"
        return f"policy {name} was ejected: {why_ejected(out)}; `delay` decides now"

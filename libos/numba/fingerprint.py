"""What compiled code was made of, as a digest: the key under which it is kept on disk.

A function's bytecode, and all that it reaches by name, whatever module it lies in: globals and closures with their
values, however they were computed, default arguments, constants of imported modules, functions that it calls and what
those reach, user-written intrinsics and overloads, also those of builtins, operators and attributes. What belongs to
Python, numpy, numba and corelane.libos goes by name, and their versions (the sources of corelane.libos) are part of
every digest; only numbers and texts in their modules are looked at, as a time zone is computed.

`Unknown` is raised for a value that cannot be told apart from a changed one, such as an address or an object of a
foreign class: code that was made of it is not kept.

Importing this module does not import numba. Where nobody has imported it, no object can be numba's, and nobody has
given it overloads.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import enum
import hashlib
import importlib.util
import itertools
import operator
import os
import sys
import sysconfig
import types as python
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

_HOME = Path(__file__).resolve().parents[1]  # libos/
_PACKAGE = __package__.rpartition(".")[0]
_BY_VERSION = ("numba", "numpy", "llvmlite", _PACKAGE, f"{_PACKAGE.rpartition('.')[0]}.runtime")
_STDLIB = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib"))
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_CONFIG = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "ENABLE_AVX", "DISABLE_JIT")


# Where a package says its own version, which is read, not imported.
_VERSION_FILES = (("numba", "_version.py"), ("llvmlite", "_version.py"), ("numpy", "version.py"))


class Unknown(Exception):
    """A value of which nobody can say whether it changed."""


@lru_cache(maxsize=1)
def versions() -> tuple[str, ...]:
    """Of all that goes by name. Raises Unknown where a package does not say."""
    sources = hashlib.sha256()
    for folder in (_HOME, _HOME.parent / "runtime"):
        for path in sorted(folder.rglob("*.py")):
            sources.update(path.read_bytes())
    return (sys.version, *(_says_of_itself(*place) for place in _VERSION_FILES), sources.hexdigest())


def _says_of_itself(package: str, name: str) -> str:
    """The text of a file of a package."""
    try:
        found = importlib.util.find_spec(package)
        folders = list(found.submodule_search_locations or ()) if found else []
        return Path(folders[0], name).read_text()
    except (OSError, ValueError, ImportError, IndexError) as error:
        raise Unknown(f"the version of {package}") from error


def fingerprint(function: Callable[..., Any], *more: object) -> str:
    """Digest of a function and of further values: types, settings. Raises Unknown."""
    walk = _Walk()
    if walk.numba is not None:
        walk.numba.typing.refresh()  # overloads that were declared since are known
    for what in (versions(), _environment(), _settings(walk.numba), function, more):
        walk.add(what)
    for name in sorted(vars(operator)):  # `a + b` names none of them
        walk.add_overloads(vars(operator)[name])
    return walk.digest.hexdigest()


def import_numba() -> None:
    """Import numba, and note its settings if it was not there yet."""
    global _untouched
    if "numba" not in sys.modules:
        _untouched = _Numba().settings()


_untouched: list[str] | None = None


def _settings(numba: _Numba | None) -> list[str]:
    """numba's, as far as somebody may have changed them in this process. One whose code is on disk does without numba,
    and is to have the same digest as the one that put it there."""
    found = [] if numba is None else numba.settings()
    return [] if found == _untouched else found


def _environment() -> list[str]:
    """What numba makes its settings of."""
    words = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NUMBA_")]
    with contextlib.suppress(OSError):
        words.append(Path(".numba_config.yaml").read_text(errors="surrogateescape"))
    return words


def reached(function: Callable[..., Any]) -> list[Any]:
    """The numba functions that a function reaches by name, as far as they can be followed."""
    walk = _Walk(strict=False)
    walk.add(function)
    return walk.dispatchers


def _by_name(what: Any) -> bool:
    """Whether it belongs to what `versions` covers."""
    name = what.__name__ if isinstance(what, python.ModuleType) else getattr(what, "__module__", None)
    return isinstance(name, str) and _covered(name)


def _covered(module: str) -> bool:
    if any(module == package or module.startswith(package + ".") for package in _BY_VERSION):
        return True
    top = module.partition(".")[0]
    if top not in sys.stdlib_module_names or top == "__main__":
        return False
    file = getattr(sys.modules.get(top), "__file__", None)  # a user's own `code.py` is not Python's
    return file is None or (str(Path(file).resolve()).startswith(_STDLIB) and "site-packages" not in file)


def _codes(code: python.CodeType) -> Iterator[python.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, python.CodeType):
            yield from _codes(const)


def _is_handed_on(code: python.CodeType, name: str) -> bool:
    """Whether what a name stands for is more than asked for attributes: given to another function, say."""
    for each in _codes(code):
        found = [at for at in dis.get_instructions(each) if at.opname not in ("EXTENDED_ARG", "CACHE")]
        for at, after in itertools.pairwise(found):
            loaded = at.opname in ("LOAD_GLOBAL", "LOAD_DEREF") and at.argval == name
            if loaded and after.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                return True
    return False


_MISSING = object()


def _attribute(module: python.ModuleType, name: str) -> Any:
    """As numba looks it up: a module may make it when it is asked for (PEP 562). _MISSING: it does not."""
    try:
        return getattr(module, name)
    except Exception:
        return _MISSING


class _Numba:
    """What of numba its objects are told by, and what it has been taught. numba is imported."""

    def __init__(self) -> None:
        import numba
        from numba.core import config, types
        from numba.core.ccallback import CFunc
        from numba.core.dispatcher import Dispatcher
        from numba.core.extending import _Intrinsic
        from numba.core.registry import cpu_target

        self.typing: Any = cpu_target.typing_context
        self.dispatcher, self.intrinsic, self.cfunc, self.type = Dispatcher, _Intrinsic, CFunc, types.Type
        self._config: Any = config
        self._home = os.path.dirname(str(numba.__file__)) + os.sep

    def is_given_by_user(self, overload: Any) -> bool:
        """Whether a function that numba was given as the meaning of another one is not numba's or ours. Some of its own
        are made by it, and are of no module."""
        if overload is None or _by_name(overload):
            return False
        code = getattr(overload, "__code__", None)
        return code is None or not code.co_filename.startswith(self._home)

    def settings(self) -> list[str]:
        """Those that change what it makes of a function."""
        return [str(getattr(self._config, name, None)) for name in _CONFIG]


class _Walk:
    """Feeds values to a digest, each with its type and its length, so that no two values look alike.

    strict: raise Unknown for a value that may change unseen; else go on behind it.
    """

    def __init__(self, strict: bool = True) -> None:
        self.digest = hashlib.sha256()
        self.dispatchers: list[Any] = []
        self.numba = _Numba() if "numba" in sys.modules else None
        # What is not there has no instances, as () has none.
        numpy: Any = sys.modules.get("numpy")
        self._arrays: Any = (numpy.ndarray, numpy.generic) if numpy else ()
        self._dtypes: Any = numpy.dtype if numpy else ()
        self._ufunc: Any = numpy.ufunc if numpy else ()
        self._dispatcher: Any = self.numba.dispatcher if self.numba else ()
        self._intrinsic: Any = self.numba.intrinsic if self.numba else ()
        self._cfunc: Any = self.numba.cfunc if self.numba else ()
        self._strict = strict
        self._attributes: dict[str, list[Any]] | None = None
        self._modules: dict[tuple[int, tuple[str, ...]], python.ModuleType] = {}
        self._seen: dict[int, tuple[int, Any]] = {}  # by id: its number, and itself, so that no other gets the id

    def _put(self, *words: object) -> None:
        for word in words:
            raw = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
            self.digest.update(b"%d:" % len(raw))
            self.digest.update(raw)

    def _unknown(self, what: str) -> None:
        if self._strict:
            raise Unknown(what)

    def add(self, what: Any, names: tuple[str, ...] = ()) -> None:
        """Add a value. names: attributes that are looked at if it is a module; (): all."""
        if type(what) in _PLAIN:
            self._put(type(what).__name__, repr(what))
            return
        if isinstance(what, python.ModuleType):
            self._add_module(what, names)
            return
        # Anything else may be one object in one process and two equal ones in another.
        if isinstance(what, (python.FunctionType, type, list, dict, self._dispatcher, self._intrinsic)):
            if id(what) in self._seen:
                self._put("again", self._seen[id(what)][0])
                return
            self._seen[id(what)] = (len(self._seen), what)
        self._put(type(what).__module__, type(what).__qualname__)
        self._add_object(what)

    def _add_object(self, what: Any) -> None:
        if isinstance(what, python.FunctionType):
            self._add_function(what)
        elif isinstance(what, self._dispatcher):
            self.dispatchers.append(what)
            self.add(what.py_func)
            self.add(what.targetoptions)
            self.add({name: str(kind) for name, kind in what.locals.items()})
            self._put(what._compiler.pipeline_class.__qualname__)
            if not what._can_compile:  # for these types alone, and what it returns is converted to what they say
                self._put(*sorted(str(made.signature) for made in what.overloads.values()))
        elif isinstance(what, self._intrinsic):
            self.add(what._defn)
        elif isinstance(what, self._cfunc):
            self.add(what._pyfunc)
            self._put(str(what._sig))
        elif isinstance(what, python.CodeType):
            self._add_code(what)
        elif isinstance(what, self._arrays):
            self._add_array(what)
        elif isinstance(what, self._dtypes):
            self._put(what.str, repr(what))
        elif isinstance(what, enum.Enum):
            self._put(what.name)
            self.add(what.value)
        elif isinstance(what, tuple | list):
            self._put(len(what), *getattr(what, "_fields", ()))
            for item in what:
                self.add(item)
        elif isinstance(what, dict):
            self._put(len(what))
            for key, value in what.items():
                self.add(key)
                self.add(value)
        elif isinstance(what, set | frozenset):
            self._put(*sorted(_digest_of(item, self._strict) for item in what))
        elif isinstance(what, type):
            self._add_class(what)
        else:
            self._add_other(what)

    def _add_module(self, module: python.ModuleType, names: tuple[str, ...]) -> None:
        self._put("module", module.__name__)
        if (id(module), names) in self._modules:
            return
        self._modules[id(module), names] = module
        covered = _by_name(module)
        if not names and not covered:
            if "__getattr__" in vars(module):  # it may have any
                self._unknown(f"the module {module.__name__} as a value")
            names = tuple(sorted(name for name in vars(module) if not name.startswith("__")))
        for name in names:
            value = vars(module).get(name, _MISSING) if covered else _attribute(module, name)
            if value is not _MISSING and (not covered or type(value) in _PLAIN):
                self._put(name)
                self.add(value, names)

    def _add_function(self, function: python.FunctionType) -> None:
        names: tuple[str, ...] = ()
        if _by_name(function):
            self._put(function.__module__, function.__qualname__)
        else:
            names = tuple(sorted({name for code in _codes(function.__code__) for name in code.co_names}))
            self.add(function.__code__)
            self.add(function.__defaults__)
            self.add(function.__kwdefaults__)
            for name in names:
                if name in function.__globals__:
                    self._put(name)
                    self._add_named(function, name, function.__globals__[name], names)
                elif hasattr(builtins, name):
                    self.add_overloads(getattr(builtins, name))
                for given in self._overloads_of_attribute(name):
                    self.add(given)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                self._put("empty cell")
                continue
            self._add_named(function, name, value, names)
        self.add_overloads(function)

    def _add_named(self, function: python.FunctionType, name: str, value: Any, names: tuple[str, ...]) -> None:
        """What a name of a function stands for."""
        handed_on = isinstance(value, python.ModuleType) and _is_handed_on(function.__code__, name)
        self.add(value, () if handed_on else names)

    def _add_code(self, code: python.CodeType) -> None:
        self._put(code.co_filename, code.co_firstlineno, code.co_name, code.co_code, code.co_linetable)
        self._put(code.co_argcount, code.co_kwonlyargcount, code.co_flags, getattr(code, "co_exceptiontable", b""))
        self._put(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        for const in code.co_consts:
            self.add(const)

    def add_overloads(self, function: Any) -> None:
        """What user code gave to numba as this function's meaning (numba.extending.overload, register_jitable)."""
        if self.numba is None:
            return
        try:
            typed = self.numba.typing.resolve_value_type(function)
        except Exception:  # numba does not know it
            return
        for template in getattr(typed, "templates", ()):
            given = getattr(template, "_overload_func", None)
            if self.numba.is_given_by_user(given):
                self.add(given)

    def _overloads_of_attribute(self, name: str) -> list[Any]:
        """The same of `value.name` and `value.name()`, of any type (overload_attribute, overload_method)."""
        if self.numba is None:
            return []
        if self._attributes is None:
            self._attributes = {}
            for templates in self.numba.typing._attributes.values():
                for template in templates:
                    given = getattr(template, "_overload_func", None)
                    if self.numba.is_given_by_user(given):
                        self._attributes.setdefault(template._attr, []).append(given)
        return self._attributes.get(name, [])

    def _add_array(self, what: Any) -> None:
        """An array, or a scalar of numpy's."""
        array = sys.modules["numpy"].asarray(what)
        if array.dtype.hasobject:
            self._unknown("an array of objects")
            return
        self._put(array.dtype.str, repr(array.dtype), array.shape, array.strides, array.flags.writeable)
        self._put(array.tobytes())

    def _add_class(self, kind: type) -> None:
        self._put(kind.__module__, kind.__qualname__)
        if _by_name(kind) or issubclass(kind, BaseException):
            return
        if issubclass(kind, enum.Enum):
            for member in kind:
                self.add(member)
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            self.add(kind._fields)
        elif hasattr(kind, "class_type"):  # numba.experimental.jitclass
            self._put(str(kind.class_type))
            self.add(dict(kind.class_type.jit_methods))
            self.add(dict(kind.class_type.jit_static_methods))
            self.add({name: dict(parts) for name, parts in kind.class_type.jit_props.items()})
        else:
            self._unknown(f"the class {kind.__qualname__}")

    def _add_other(self, what: Any) -> None:
        if self.numba is not None and isinstance(what, self.numba.type) and _by_name(type(what)):
            self._put(str(what), getattr(what, "symbol", ""), str(getattr(what, "sig", "")))
        elif isinstance(what, (python.BuiltinFunctionType, self._ufunc)):
            if not isinstance(what, self._ufunc) and not isinstance(what.__self__, python.ModuleType | type(None)):
                self._unknown("a method of an object")
                return
            self._put(getattr(what, "__module__", None), getattr(what, "__qualname__", what.__name__))
            self.add_overloads(what)
        elif type(what).__module__ == "_cffi_backend" and type(what).__name__ in ("Lib", "CompiledFFI", "CompiledLib"):
            self._put(repr(what).partition(" at ")[0])
        elif _by_name(type(what)) and not hasattr(what, "__dict__") and "at 0x" not in repr(what):
            self._put(repr(what))
        elif type(what).__module__.startswith(("numba.", "numpy")) and _by_name(what) and hasattr(what, "__name__"):
            self._put(what.__module__, what.__name__)
        else:
            self._unknown(f"{type(what).__qualname__}")


def _digest_of(item: Any, strict: bool) -> str:
    walk = _Walk(strict)
    walk.add(item)
    return walk.digest.hexdigest()

"""Arguments of the wrong type, told in one sentence with what to give instead.

    @typed("make a store")
    def __init__(self, memory_bytes: int = 1 << 26, ...) -> None:

A call is held to the function's own annotations before it runs. ConfigError names the parameter, its value and what was
expected; an unknown name, with the one that is meant, and a missing one are said the same way. Numbers that do not fit
their C type and texts that cannot be encoded, which only the body finds, too. For C a text or path ends at its first
zero byte: one that has such a byte would be taken for another one, and is refused.
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from .errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bytes: "bytes",
    type(None): "None",
}


def typed(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a function or method. what: what it does, as errors begin: "make a runtime"."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise _bare(what, function, signature, args) or _unbound(what, signature, error, kwargs) from None
            kinds = _kinds(function)
            for name, value in bound.arguments.items():
                if name in kinds and not fits(value, kinds[name]):
                    raise ConfigError(what, f"{name} is {_shown(value)}", f"expected {expected(kinds[name])}")
                if kinds.get(name, Any) is not Any and _has_zero_byte(value):
                    raise ConfigError(what, f"{name} is {_shown(value)}", "expected no zero byte in it")
            try:
                return function(*args, **kwargs)
            except OverflowError as error:
                raise ConfigError(what, str(error), "give a number within its limits") from error
            except UnicodeEncodeError as error:
                raise ConfigError(what, f"{error.object!r} has characters that cannot be encoded") from error

        return checked

    return decorate


def typed_class(what: str) -> Callable[[C], C]:
    """The same for a dataclass, whose constructor is made for it."""

    def decorate(cls: C) -> C:
        cls.__init__ = typed(what)(cls.__init__)  # type: ignore[misc]
        return cls

    return decorate


def _bare(what: str, function: Any, signature: inspect.Signature, args: tuple[Any, ...]) -> ConfigError | None:
    """A decorator that has options alone, and was written without them."""
    options = list(signature.parameters.values())
    if len(args) != 1 or not inspect.isfunction(args[0]) or any(o.kind != o.KEYWORD_ONLY for o in options):
        return None
    name = function.__name__
    needed = ", ".join(f"{o.name}=..." for o in options if o.default is o.empty)
    return ConfigError(f"{what} {args[0].__name__}", f"@{name} is called with options", f"write @{name}({needed})")


def _unbound(what: str, signature: inspect.Signature, error: TypeError, given: Mapping[str, object]) -> ConfigError:
    import difflib  # only for this message

    names = [name for name in signature.parameters if name != "self"]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else "known here: " + ", ".join(names)
            return ConfigError(what, f"there is no parameter {name!r}", hint)
    return ConfigError(what, str(error), f"its parameters: {', '.join(names)}")


@functools.lru_cache(maxsize=256)
def _kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations that can be evaluated: what is imported for type checkers only cannot, and is not looked at."""
    kinds = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.annotation
        if isinstance(kind, str):
            try:
                kind = eval(kind, function.__globals__)
            except (NameError, AttributeError):
                continue
        if kind is not inspect.Parameter.empty and parameter.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            kinds[name] = kind
    return kinds


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of the type that an annotation says; True for annotations that say nothing here."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if kind is None or kind is type(None):
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, a) for a in args)
    if origin is typing.Literal:
        return any(type(value) is type(a) and value == a for a in args)
    if kind is bool:
        return isinstance(value, bool) or type(value).__name__ == "bool_"
    if kind is int:
        return not isinstance(value, bool) and _is_index(value)
    if kind is float:
        return not isinstance(value, bool) and (_is_index(value) or isinstance(value, float) or _is_number(value))
    if origin is tuple:
        return isinstance(value, tuple | list) and _all_fit(value, args)
    if origin in (Mapping, dict):
        return isinstance(value, Mapping) and all(fits(k, args[0]) and fits(v, args[1]) for k, v in value.items())
    if origin in (Sequence, list):
        listed = (
            hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, str | bytes | Mapping)
        )
        return listed and all(fits(v, args[0]) for v in value)
    if origin is Iterable:
        return hasattr(value, "__iter__") and not isinstance(value, str | bytes)
    if kind is Callable or origin is Callable:
        return callable(value)
    if isinstance(origin or kind, type) and not getattr(kind, "_is_protocol", False):
        return isinstance(value, origin or kind)
    return True


def _all_fit(value: Sequence[Any], args: tuple[Any, ...]) -> bool:
    if len(args) == 2 and args[1] is Ellipsis:
        return all(fits(v, args[0]) for v in value)
    return len(value) == len(args) and all(map(fits, value, args))


def _has_zero_byte(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and "\0" in os.fsdecode(value)


def _is_index(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    """numpy's, which are no floats for Python but can be made one."""
    return type(value).__module__ == "numpy" and hasattr(value, "__float__") and getattr(value, "ndim", 1) == 0


def expected(kind: Any) -> str:
    """What may be given, in words."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(expected(a) for a in args))
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(a) for a in args)
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return "a tuple of " + ", ".join(expected(a) for a in args)
    if origin in (tuple, Sequence, list, Iterable):
        return f"a list, each {expected(args[0])}"
    if origin in (Mapping, dict):
        return f"a dict of {expected(args[0])} to {expected(args[1])}"
    if kind is Callable or origin is Callable:
        return "a function"
    if kind in _WORDS:
        return _WORDS[kind]
    name = getattr(origin or kind, "__name__", str(kind))
    return "a path" if name == "PathLike" else f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def _shown(value: Any) -> str:
    text = repr(value)
    shown = text if len(text) <= 60 else text[:57] + "..."
    return (
        shown
        if isinstance(value, str | bytes | int | float | type(None))
        else f"{shown}, of type {type(value).__name__}"
    )

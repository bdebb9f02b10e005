"""Dataclasses filled from TOML, with errors that name file, line, key, value and what was expected instead.

A section is a dataclass whose fields are made by `option`:

    @dataclass(frozen=True)
    class Nic:
        queues: int = option(1, "receive and transmit queues", low=1, high=64)
        mode: str = option("auto", "how XDP is attached", choices=("auto", "native", "generic"))

Types of fields: bool, int, float, str, `X | None`, tuple[X, ...], another section, and dict[str, section] or
dict[str, X] for tables with names of the user's own. `check` functions see a value of the right type, of a table each
name, and raise ValueError with what was expected instead. A field `class_` is the option `class`.
runtime/config.py has corelane's sections.

A group of options that a constructor takes is such a class too, with `Group` as its base: one made in Python is then
held to the same limits.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .errors import ConfigError
from .files import why_unreadable

T = TypeVar("T")
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}


def option(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[Any] = (),
    check: Callable[[Any], object] | None = None,
    example: str = "",
    octal: bool = False,
) -> Any:
    """A field of a section. default: its value if the file does not give one (a callable makes one);
    low and high are allowed values themselves. example: a name in a table of sections, for `sample`. octal: a number
    that people write so."""
    metadata = {"doc": doc, "low": low, "high": high, "choices": tuple(choices), "check": check, "example": example}
    metadata["octal"] = octal
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Group:
    """Base of a dataclass of options: it cannot be made with a value outside of its limits.

    Raises ConfigError with the class, the field, the value and what was expected. What options must be together is not
    looked at: `check()` of a section does that once it is read.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        cls: Any = type(self)  # a dataclass
        reader, hints = _Reader(cls.__name__, ""), _hints(cls)
        for field in dataclasses.fields(cls):
            reader.given(hints[field.name], field.metadata, getattr(self, field.name), field.name)


@functools.cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


_NO_TOML = (ValueError, RecursionError)  # TOMLDecodeError; a number of thousands of digits; nested thousands deep


def load(cls: type[T], path: str | Path) -> T:
    """Read a TOML file into section `cls`; ConfigError if it cannot be read, parsed or used."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "give its path with --config" if isinstance(error, OSError) else "save it as UTF-8, as TOML is"
        raise ConfigError(f"read the configuration {path}", why_unreadable(error), hint) from error
    return loads(cls, text, str(path))


def loads(cls: type[T], text: str, source: str = "<text>", overrides: Sequence[str] = ()) -> T:
    """The same from a text. overrides: like "nic.queues=4", as given on a command line; they win over the text."""
    try:
        data = tomllib.loads(text)
    except _NO_TOML as error:
        raise ConfigError(f"{source}", f"not valid TOML: {error}", "see https://toml.io") from error
    section: T = _Reader(source, text).section(cls, data, ())
    return override(section, overrides)


def override(section: T, overrides: Sequence[str]) -> T:
    """A copy of `section` with assignments like "nic.queues=4" made; a bare word is taken as a text."""
    paths = []
    for assignment in overrides:
        key, equals, value = assignment.partition("=")
        path = tuple(part.strip() for part in key.split("."))
        if not equals or not all(path):
            raise ConfigError(f"--set {assignment}", "not of the form key=value", "for example --set nic.queues=4")
        try:
            parsed = tomllib.loads(f"x = {value.strip()}")["x"]
        except _NO_TOML:
            parsed = value.strip()
        section = _Reader(f"--set {assignment}", "").changed(section, path, parsed, ())
        paths.append(path)
    # What must go together is looked at when all are made: their order says nothing.
    whole = _Reader(f"--set {overrides[0]}" if len(overrides) == 1 else "the command line", "")
    for path in paths:
        whole.check_along(section, path)
    return section


def sample(cls: type[Any], prefix: str = "", name: str = "NAME") -> str:
    """A commented TOML text with every option, its default and what may stand there."""
    values: list[str] = []
    tables: list[str] = []
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        path = f"{prefix}.{_key(field)}" if prefix else _key(field)
        doc = field.metadata.get("doc", "")
        if dataclasses.is_dataclass(kind):
            tables.append(f"# {doc}\n[{path}]\n{sample(typing.cast(type[Any], kind), path, name)}")
        elif typing.get_origin(kind) is dict:
            inner = typing.get_args(kind)[1]
            if dataclasses.is_dataclass(inner):
                one = f"{path}.{field.metadata.get('example') or name}"
                tables.append(f"# {doc}\n[{one}]\n{sample(typing.cast(type[Any], inner), one, name)}")
            else:
                tables.append(f"# {doc}: each {_expected(inner, field.metadata)}\n[{path}]\n")
        else:
            values.append(f"# {doc}: {_expected(kind, field.metadata)}\n{_default_line(field)}\n")
    return "\n".join(["".join(values), *tables]) if values else "\n".join(tables)


def _key(field: dataclasses.Field[Any]) -> str:
    """The option of a field: its name, without the underscore that keeps Python's own words free."""
    return field.name.rstrip("_")


def _default_line(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    else:
        assert field.default_factory is not dataclasses.MISSING  # every option has one of the two
        value = field.default_factory()
    if value is None:
        return f"# {_key(field)} ="
    return f"{_key(field)} = {oct(value) if field.metadata.get('octal') else _toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return str(value)


def _expected(kind: Any, metadata: Mapping[str, Any]) -> str:
    """What may stand there, in words."""
    if metadata.get("choices"):
        return "one of " + ", ".join(_toml(c) for c in metadata["choices"])
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        return " or ".join(_expected(a, metadata) for a in inner)
    if origin is tuple:
        return f"a list, each {_expected(args[0], metadata)}"
    if origin is dict or dataclasses.is_dataclass(kind):
        return "a table"
    low, high = metadata.get("low"), metadata.get("high")
    words: str = _NAMES[kind]
    if kind in (int, float) and low is not None and high is not None:
        return f"{words} from {oct(low)} to {oct(high)}" if metadata.get("octal") else f"{words} from {low} to {high}"
    if kind in (int, float) and low is not None:
        return f"{words}, {low} or more"
    return words


class _Reader:
    """Turns parsed TOML into sections; `source` and `text` are for messages only."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self.text = text

    def refuse(self, path: tuple[str, ...], why: str, hint: str = "") -> ConfigError:
        line = self.line_of(path)
        where = f"{self.source}:{line}" if line else self.source
        return ConfigError(f"{where}: {'.'.join(path)}" if path else where, why, hint)

    def line_of(self, path: tuple[str, ...]) -> int:
        """Line of a key, 0 if it was not found: tomllib does not say, so this looks for the text of it."""
        table: list[str] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            header = re.match(r"\s*\[+([^\]]+)\]", line)
            if header:
                table = _split_key(header[1])
                if tuple(table) == path:
                    return number
            key = re.match(r"\s*([^=#\[]+?)\s*=", line)
            if key:
                here = (*table, *_split_key(key[1]))
                if here == path or here == path[: len(here)]:
                    return number
        return 0

    def section(self, cls: type[Any], data: Any, path: tuple[str, ...]) -> Any:
        if not isinstance(data, dict):
            raise self.refuse(path, f"is {_toml(data)}", "expected a table")
        fields = {_key(f): f for f in dataclasses.fields(cls)}
        hints = typing.get_type_hints(cls)
        for key in data:
            if key not in fields:
                raise self.unknown(cls, key, path)
        values = {}
        for key, value in data.items():
            field = fields[key]
            values[field.name] = self.value(hints[field.name], field.metadata, value, (*path, key))
        made = cls(**values)
        self.check_whole(made, path)
        return made

    def check_whole(self, section: Any, path: tuple[str, ...]) -> None:
        """A section's own `check()` looks at several options together; it raises ValueError."""
        check = getattr(section, "check", None)
        if check is not None:
            try:
                check()
            except ValueError as error:
                raise self.refuse(path, str(error)) from None

    def check_along(self, section: Any, path: tuple[str, ...]) -> None:
        """`check_whole` of the sections on the way to the option at `path`, the innermost first."""
        below = [section]
        for key in path[:-1]:
            below.append(below[-1][key] if isinstance(below[-1], dict) else getattr(below[-1], key))
        for depth in reversed(range(len(below))):
            self.check_whole(below[depth], path[:depth])

    def unknown(self, cls: type[Any], key: str, path: tuple[str, ...]) -> ConfigError:
        import difflib  # only for this message

        known = [_key(f) for f in dataclasses.fields(cls)]
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "known here: " + ", ".join(sorted(known))
        return self.refuse((*path, key), "no such option", hint)

    def value(self, kind: Any, metadata: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> Any:
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if dataclasses.is_dataclass(kind):
            return self.section(typing.cast(type[Any], kind), value, path)
        if origin is dict:
            return dict(self.table(args[1], metadata, value, path))
        if origin in (typing.Union, types.UnionType):
            return self.alternative([a for a in args if a is not type(None)], metadata, value, path)
        if origin is tuple:
            if not isinstance(value, list):
                raise self.wrong(kind, metadata, value, path)
            single = {**metadata, "check": None}
            out: Any = tuple(self.value(args[0], single, v, path) for v in value)
        elif kind is float and type(value) is int:
            out = float(value)
        elif type(value) is kind:
            out = value
        else:
            raise self.wrong(kind, metadata, value, path)
        self.check_value(kind, metadata, out, path)
        return out

    def given(self, kind: Any, metadata: Mapping[str, Any], value: Any, name: str) -> None:
        """Refuse the value of a field that was given in Python, where a tuple stands for a list and None is a value."""
        origin, optional = typing.get_origin(kind), type(None) in typing.get_args(kind)
        if (value is None and optional) or dataclasses.is_dataclass(kind) or origin is dict:
            return
        self.value(kind, metadata, list(value) if isinstance(value, tuple) else value, (name,))

    def alternative(self, kinds: list[Any], metadata: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> Any:
        for kind in kinds:
            fits = isinstance(value, list) if typing.get_origin(kind) is tuple else type(value) is kind
            if fits or (len(kinds) == 1):
                return self.value(kind, metadata, value, path)
        raise self.refuse(path, f"is {_toml(value)}", "expected " + " or ".join(_expected(k, metadata) for k in kinds))

    def table(
        self, kind: Any, metadata: Mapping[str, Any], value: Any, path: tuple[str, ...]
    ) -> Iterator[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise self.refuse(path, f"is {_toml(value)}", "expected a table")
        for name, inner in value.items():
            if metadata.get("check"):
                try:
                    metadata["check"](name)
                except ValueError as error:
                    raise self.refuse((*path, name), f"the name {name!r} cannot be used", f"expected {error}") from None
            yield name, self.value(kind, {**metadata, "check": None}, inner, (*path, name))

    def wrong(self, kind: Any, metadata: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> ConfigError:
        return self.refuse(path, f"is {_toml(value)}", f"expected {_expected(kind, metadata)}")

    def check_value(self, kind: Any, metadata: Mapping[str, Any], value: Any, path: tuple[str, ...]) -> None:
        if typing.get_origin(kind) is not tuple:
            choices, low, high = metadata.get("choices"), metadata.get("low"), metadata.get("high")
            outside = isinstance(value, int | float) and (
                (low is not None and value < low) or (high is not None and value > high) or value != value
            )
            if outside or (choices and value not in choices):
                raise self.wrong(kind, metadata, value, path)
        check = metadata.get("check")
        if check is not None:
            try:
                check(value)
            except ValueError as error:
                raise self.refuse(path, f"is {_toml(value)}", f"expected {error}") from None

    def changed(self, section: Any, path: tuple[str, ...], value: Any, done: tuple[str, ...]) -> Any:
        """`section` with the option at `path` replaced; tables of the user's own names are made as needed."""
        key, rest = path[0], path[1:]
        hints = typing.get_type_hints(type(section))
        fields = {_key(f): f for f in dataclasses.fields(section)}
        if key not in fields:
            raise self.unknown(type(section), key, done)
        field = fields[key]
        old, kind, here = getattr(section, field.name), hints[field.name], (*done, key)
        entry = typing.get_args(kind)[1] if typing.get_origin(kind) is dict else None
        if not rest:
            new = self.value(kind, field.metadata, value, here)
        elif dataclasses.is_dataclass(kind):
            new = self.changed(old, rest, value, here)
        elif entry is not None and not dataclasses.is_dataclass(entry) and len(rest) == 1:
            new = {**old, **dict(self.table(entry, field.metadata, {rest[0]: value}, here))}
        elif entry is not None and dataclasses.is_dataclass(entry) and len(rest) > 1:
            inner = old.get(rest[0]) or typing.cast(type[Any], entry)()
            dict(self.table(type(inner), field.metadata, {rest[0]: {}}, here))  # is the name allowed?
            new = {**old, rest[0]: self.changed(inner, rest[1:], value, (*here, rest[0]))}
        else:
            raise self.refuse((*done, *path), "no such option", f"{'.'.join(here)} is no table of options")
        return dataclasses.replace(section, **{field.name: new})


def _split_key(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in text.split(".")]

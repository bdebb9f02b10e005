"""Client histories and whether they are linearizable (history.h), from Python.

    history = History()
    put = history.invoke(1, "put", "colour", "red")        # client 1; times are a count of calls, or give at=
    history.complete(put)
    got = history.invoke(2, "get", "colour")
    history.complete(got, "red")
    assert history.check().right

Values are text, bytes, or whole numbers (of keys that are added to). An operation that is not completed has an unknown
outcome; one that certainly had no effect is taken out by `drop`.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ....runtime.errors import CorelaneError
from ..._native import ffi, lib

Kind = Literal["get", "put", "cas", "append", "add", "delete"]
Value = str | bytes | int | None
Word = Literal["right", "wrong", "undecided"]

_KINDS: dict[str, int] = {
    "get": lib.CL_HISTORY_GET,
    "put": lib.CL_HISTORY_PUT,
    "cas": lib.CL_HISTORY_CAS,
    "append": lib.CL_HISTORY_APPEND,
    "add": lib.CL_HISTORY_ADD,
    "delete": lib.CL_HISTORY_DELETE,
}
_VERDICTS: dict[int, Word] = {
    lib.CL_HISTORY_RIGHT: "right",
    lib.CL_HISTORY_WRONG: "wrong",
    lib.CL_HISTORY_UNDECIDED: "undecided",
}
CONFIGURATIONS = 1_000_000
MEMO_BYTES = 64 << 20


@dataclass
class Operation:
    """One operation of one client. `returned` None: the outcome is unknown."""

    client: int
    kind: Kind
    key: Hashable
    invoked: int
    value: Value = None  # put, append, add; the new one of cas
    expected: Value = None  # cas
    returned: int | None = None
    result: Value = None  # get: the value, None for none; append, add: the value afterwards if it is known
    refused: bool = False  # cas: another value was there; delete, and those that need the key: there was none
    needs_key: bool = False  # append, add: refuse an absent key

    def __str__(self) -> str:
        given = ", ".join(repr(v) for v in (self.expected, self.value) if v is not None)
        when = f"{self.invoked}..{'?' if self.returned is None else self.returned}"
        answer = "unknown" if self.returned is None else "refused" if self.refused else repr(self.result)
        return f"{when} client {self.client}: {self.kind}({self.key!r}{', ' * bool(given)}{given}) -> {answer}"


@dataclass(frozen=True)
class Verdict:
    """What the check found. `stuck` is the operation that had to come next and could not, `ops` those of its key."""

    word: Word
    configurations: int
    stuck: Operation | None = None
    ops: tuple[Operation, ...] = ()

    @property
    def right(self) -> bool:
        """Whether the history is linearizable. False, too, if that could not be decided within the limits."""
        return self.word == "right"

    def __str__(self) -> str:
        if self.right:
            return "linearizable"
        said = "not linearizable" if self.word == "wrong" else "undecided within the limits of the search"
        lines = [f"{said}; the search got stuck at:  {self.stuck}", "operations of that key:"]
        return "\n".join([*lines, *(f"  {op}" for op in self.ops)])


def _word(value: Value) -> int:
    """A value as a state of the search."""
    if value is None:
        return int(lib.CL_HISTORY_ABSENT)
    if isinstance(value, int):
        if not 0 <= value < 1 << 62:
            raise CorelaneError("check a history", f"the number {value} is not in 0..2^62-1")
        return value
    text = value.encode() if isinstance(value, str) else value
    return int(lib.cl_history_digest(text, len(text)))


def _text(value: Value) -> bytes:
    if isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    raise CorelaneError("check a history", f"append takes text, not {value!r}")


def _fields(op: Operation, key: int) -> dict[str, int]:
    returned = op.returned is not None
    output = 0
    flags = lib.CL_HISTORY_REFUSED * op.refused | lib.CL_HISTORY_NEEDS_KEY * op.needs_key
    if op.kind == "get":
        output = _word(op.result) if returned else 0
    elif op.kind in ("append", "add") and returned and not op.refused and op.result is not None:
        output = _word(op.result)
        flags |= lib.CL_HISTORY_HAS_OUTPUT
    given = other = 0
    if op.kind == "append":
        text = _text(op.value)
        given, other = lib.cl_history_piece(text, len(text)), lib.cl_history_factor(len(text))
    elif op.kind in ("put", "cas", "add"):
        given, other = _word(op.value), _word(op.expected)
    return {
        "key": key,
        "invoked": op.invoked,
        "returned": lib.CL_HISTORY_UNKNOWN if op.returned is None else op.returned,
        "input": given,
        "other": other,
        "output": output,
        "client": op.client,
        "kind": _KINDS[op.kind],
        "flags": flags,
    }


def check(
    operations: Iterable[Operation], *, configurations: int = CONFIGURATIONS, memo_bytes: int = MEMO_BYTES
) -> Verdict:
    """Whether a history is linearizable. More than so many configurations or bytes a key: "undecided"."""
    listed = list(operations)
    keys: dict[Hashable, int] = {}
    ops = ffi.new("struct cl_history_op[]", [_fields(op, keys.setdefault(op.key, len(keys))) for op in listed])
    checker = ffi.gc(lib.cl_history_new(configurations, memo_bytes), lib.cl_history_delete)
    if not checker:
        raise CorelaneError("check a history", "there is no memory")
    out = ffi.new("struct cl_history_result *")
    word = _VERDICTS[lib.cl_history_check(checker, ops, len(listed), out)]
    if word == "right":
        return Verdict(word, int(out.configurations))
    same_key = sorted((op for op in listed if keys[op.key] == out.bad_key), key=lambda op: op.invoked)
    return Verdict(word, int(out.configurations), listed[out.bad_op], tuple(same_key))


@dataclass
class History:
    """A history as it is recorded. One thread, or one lock around it: times must be those of the calls."""

    operations: list[Operation] = field(default_factory=list)
    _count: Any = field(default_factory=itertools.count, repr=False)

    def invoke(
        self,
        client: int,
        kind: Kind,
        key: Hashable,
        value: Value = None,
        *,
        expected: Value = None,
        needs_key: bool = False,
        at: int | None = None,
    ) -> Operation:
        """Note that a client begins an operation. `at`: a time of your own clock, the same for all clients."""
        began = next(self._count) if at is None else at
        op = Operation(client, kind, key, began, value, expected, needs_key=needs_key)
        self.operations.append(op)
        return op

    def complete(self, op: Operation, result: Value = None, *, refused: bool = False, at: int | None = None) -> None:
        """Note its answer."""
        op.returned = next(self._count) if at is None else at
        op.result, op.refused = result, refused

    def drop(self, op: Operation) -> None:
        """Take out an operation that certainly had no effect, such as one that was never sent."""
        self.operations = [other for other in self.operations if other is not op]

    def check(self, *, configurations: int = CONFIGURATIONS, memo_bytes: int = MEMO_BYTES) -> Verdict:
        """Whether what was recorded is linearizable."""
        return check(self.operations, configurations=configurations, memo_bytes=memo_bytes)

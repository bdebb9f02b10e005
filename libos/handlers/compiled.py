"""A compiled handler, however it came to be: compiled now (compile.py), or read from the disk (kept.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Remark(NamedTuple):
    """What the lint found in one line, and the line of the handler's source that it is about."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class CompiledHandler:
    """A handler as C sees it.

    address: of the entry point. remarks: what the lint found. from_cache: whether the code came from
    the disk. keep: what must stay alive as long as C may call the address. arg: its state's address, which C hands to
    it; 0 for none. stack_bytes: the least that a uthread which runs it must have, 0 for any. dispatcher, entry: numba's
    objects of the function and of the entry point; None of what was read from the disk.
    """

    address: int
    remarks: tuple[Remark, ...]
    from_cache: bool
    keep: tuple[object, ...]
    arg: int = 0
    stack_bytes: int = 0
    dispatcher: Any = None
    entry: Any = None

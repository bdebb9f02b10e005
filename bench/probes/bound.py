"""The least that counting costs: numba's code with a decrement and a branch at each turn around an innermost loop.

Nothing looks at a word and nothing gives out fuel: the count starts so high that it never runs out, and what follows if
it does is one instruction that takes no register. So this is a floor under every probe that counts such turns, whatever
it does when the count is used up. For measuring only. Importing this imports numba.
"""

from __future__ import annotations

from numba.core.codegen import JITCodeLibrary

from ...libos.batch_work.compile import ProbedLibrary
from ...libos.batch_work.ir import Block, Function, dominators, loops, parse
from ...libos.batch_work.refill import UNLIKELY, weights
from ...libos.batch_work.strips import Report

_COUNT = "%clp.count"


def count_turns(text: str) -> str:
    """The text of an optimised module with a count at each turn of the loops right around innermost ones."""
    module = parse(text)
    for function in module.functions():
        found, _ = loops(function, dominators(function))
        around = [loop.header for loop in found if loop.children and not any(c.children for c in loop.children)]
        for number, header in enumerate(around):
            _count(function, header, number)
        if around:
            # Given to an asm, the count stays in memory, as a probe's does; else LLVM derives it from the loop's own.
            function.entry.lines[:0] = [
                f"  {_COUNT} = alloca i64",
                f"  store i64 {1 << 62}, ptr {_COUNT}",
                f'  call void asm sideeffect "", "=*m,~{{memory}}"(ptr elementtype(i64) {_COUNT})',
            ]
    return str(module) + "\n".join([*weights(), ""])


def _count(function: Function, header: str, number: int) -> None:
    first = function.blocks[header]
    rest = Block(f"%clp.rest.{number}", lines=first.lines, terminator=first.terminator)
    for to in rest.succ:
        for phi in function.blocks[to].phis:
            phi.incoming[rest.name] = phi.incoming.pop(header)
    old, new, low, out = (f"%clp.{what}.{number}" for what in ("old", "new", "low", "out"))
    first.lines = [
        f"  {old} = load i64, ptr {_COUNT}",
        f"  {new} = sub i64 {old}, 1",
        f"  store i64 {new}, ptr {_COUNT}",
        f"  {low} = icmp slt i64 {new}, 0",
    ]
    first.terminator = f"  br i1 {low}, label {out}, label {rest.name}, {UNLIKELY}"
    never = Block(out, lines=['  call void asm sideeffect "ud2", ""()'], terminator="  unreachable")
    for made in (rest, never):
        function.blocks[made.name] = made


class BoundLibrary(ProbedLibrary):
    """Counts, but no looks."""

    def _optimize_final_module(self) -> None:
        JITCodeLibrary._optimize_final_module(self)
        self._replace(count_turns(str(self._final_module)), Report())

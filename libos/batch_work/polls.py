"""The places of a function where it polls the flag: how they poll, and when loops come by them each turn.

Where a place gets fuel from, and what a poll does, is behind them (refill.py).
"""

from __future__ import annotations

import re

from .ir import NAME, Block, Function, also_from, split_edge
from .refill import FUEL, RAX, STAMP, UNLIKELY, UNTIMED, WORDS, Target, cell, load_word_address, look, word


class Looks:
    """Looks of one function. site: the next free cell. function: what is worked on, itself or a copy of a loop of its;
    apart: it is a copy, whose fuel is its own. slots: allocas that it has to make, by name and type."""

    def __init__(self, function: Function, target: Target, site: int) -> None:
        self.function = function
        self.target = target
        self.site = site
        self.apart = False
        self.slots: list[tuple[str, str]] = []
        self._names = 0

    def fresh(self, what: str) -> str:
        self._names += 1
        return f"%clp.{what}.{self._names}"

    def refill(self, into: str, rest: str = "") -> list[str]:
        """Look, and set the fuel. rest: the fuel that was left, if that is not what the count says."""
        self.site += 1
        saved, left = self.fresh("p"), self.fresh("p")
        return [
            word("%clp.last", FUEL, left),
            *([f"  store i64 {rest}, ptr {left}"] if rest else []),
            word("%clp.last", RAX, saved),
            look(self.target, self.site - 1, saved),
            f"  {into} = load i64, ptr {left}",
            *([f"  store i64 {into}, ptr %clp.fuel"] if self.apart else []),
        ]

    def count_down(self, header: str, cost: int) -> None:
        """Take fuel off at the beginning of each turn. Not at its end: the block that jumps back stays the one that
        tests for the exit, as loop strength reduction and the placement of blocks like it."""
        first, rest = self._split(header)
        made = self._less(first, cost, rest.name)
        self.function.blocks[made.name] = made

    def look_each_turn(self, header: str, before: Block | None = None) -> None:
        """Load the word and branch, at the beginning of each turn. Nothing is counted, so no end of a strip comes where
        the processor does not expect it; what it has begun to load ahead would be lost there. before: where to load
        the word's address from once; if None, each turn does, and the loops within keep a register."""
        first, rest = self._split(header)
        made = Block(self.fresh("look"), terminator=f"  br label {rest.name}")
        wanted, fuel, word_at = self.fresh("wanted"), self.fresh("fuel"), self.fresh("word")
        (before or first).lines += self._word_address(word_at)
        first.lines += self._wanted(word_at, wanted)
        first.terminator = f"  br i1 {wanted}, label {made.name}, label {rest.name}, {UNLIKELY}"
        made.lines = [f"  {fuel} = load i64, ptr %clp.fuel"] if self.apart else []
        made.lines += self.refill(self.fresh("fuel"), fuel if self.apart else "")
        self.function.blocks[made.name] = made

    def _split(self, header: str) -> tuple[Block, Block]:
        """Split the header of a loop behind its phis: the first block, to be filled, and the rest."""
        first = self.function.blocks[header]
        rest = Block(self.fresh("turn"), lines=first.lines, terminator=first.terminator)
        for to in rest.succ:
            for phi in self.function.blocks[to].phis:
                phi.incoming[rest.name] = phi.incoming.pop(header)
        first.lines = []
        self.function.blocks[rest.name] = rest
        return first, rest

    def _word_address(self, into: str) -> list[str]:
        """The address of the word, which stays while the function runs: all threads of a runtime have the same."""
        return load_word_address(self.target, into, self.fresh("tp"), self.fresh("at"))

    def _wanted(self, word_at: str, into: str) -> list[str]:
        """Whether the word says that somebody wants something."""
        seen, wanted = self.fresh("seen"), self.fresh("wanted")
        return [
            f"  {seen} = load atomic i64, ptr {word_at} monotonic, align 8",
            f"  {wanted} = or i64 {seen}, {int(self.target.always)}",
            f"  {into} = icmp ne i64 {wanted}, 0",
        ]

    def count_down_edge(self, latch: str, header: str, cost: int) -> None:
        """Take fuel off on the way from one block to another."""
        block = Block(self.fresh("turn"), terminator=f"  br label {header}")
        split_edge(self.function, latch, header, block)
        look = self._less(block, cost, header)
        self.function.blocks[look.name] = look
        also_from(self.function, header, block.name, look.name)

    def _less(self, block: Block, cost: int, then: str) -> Block:
        """Take fuel off at the end of a block that goes on to `then`; the block that polls if none is left."""
        old, new, low, full = (self.fresh(n) for n in ("fuel", "fuel", "low", "fuel"))
        look = Block(self.fresh("look"), terminator=f"  br label {then}")
        block.lines += [
            f"  {old} = load i64, ptr %clp.fuel",
            f"  {new} = sub i64 {old}, {cost}",
            f"  store i64 {new}, ptr %clp.fuel",
            f"  {low} = icmp slt i64 {new}, 0",
        ]
        block.terminator = f"  br i1 {low}, label {look.name}, label {then}, {UNLIKELY}"
        look.lines = self.refill(full)
        return look

    def enter(self, has_loops: bool) -> None:
        """Once, at the end: the fuel count and the slots, and a poll of the flag where the function begins."""
        function = self.function
        old = function.entry
        entry, slow = Block("%clp.entry"), Block("%clp.entry.slow")
        moved = [line for line in old.lines if re.match(rf"  {NAME} = alloca ", line)]
        old.lines = [line for line in old.lines if line not in moved]
        entry.lines = moved
        if has_loops:
            # Part of what polls get the address of, the fuel stays in memory, at an address from rsp: loops miss a
            # register more than they mind the latency of a subtraction there, once a turn of what is around the
            # innermost.
            entry.lines += [f"  %clp.last = alloca [{WORDS} x i64]", word("%clp.last", FUEL, "%clp.fuel")]
            entry.lines += [f"  {name} = alloca {kind}, align 8" for name, kind in self.slots]
            for number in (STAMP, UNTIMED):
                at = self.fresh("p")
                entry.lines += [word("%clp.last", number, at), f"  store i64 0, ptr {at}"]
            entry.lines += [f"  %clp.full = load atomic i64, ptr {cell(self.site - 1)} monotonic, align 8"]
            entry.lines += ["  store i64 %clp.full, ptr %clp.fuel"]
        entry.lines += [*self._word_address("%clp.word"), *self._wanted("%clp.word", "%clp.poll")]
        entry.terminator = f"  br i1 %clp.poll, label {slow.name}, label {old.name}, {UNLIKELY}"
        slow.lines = ["  call preserve_allcc void @clp.slow()"]
        slow.terminator = f"  br label {old.name}"
        function.blocks = {entry.name: entry, **function.blocks, slow.name: slow}

"""A copy of an innermost loop as a function of its own.

A second copy within the function would double what the loops around it keep in registers, and what loop strength
reduction counts for them; behind a call it costs them nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .ir import NAME, Block, Function, Loop, Phi
from .refill import call_ceded


@dataclass
class Outlined:
    """function: the copy; it has the fuel in an alloca %clp.fuel of its own. loop: in it. call: a block that calls it
    and goes on behind the loop, to be jumped to instead of the header. out, out_kind: the alloca that results come
    through, which the caller has to make, and its type."""

    function: Function
    loop: Loop
    call: Block
    out: str
    out_kind: str


def outline(
    function: Function, loop: Loop, before: Block, types: dict[str, str], fresh: Callable[[str], str]
) -> Outlined:
    """Copy a loop whose preheader is `before`. What is used behind it has to come through phis of its exits (LCSSA).

    The copy is `void (ptr out)`, reached like a poll (refill.py): fuel, inputs and results, and the number of the
    exit, are in `out`.
    """
    blocks = [function.blocks[name] for name in function.blocks if name in loop.blocks]
    _let_live(function, blocks)
    exits = list(dict.fromkeys(to for block in blocks for to in block.succ if to not in loop.blocks))
    starts = {phi.name: (fresh("start"), phi) for phi in function.blocks[loop.header].phis}
    inputs = [(types[name], name) for name in _inputs(function, loop, blocks) if name in types]
    results = [phi.kind for to in exits for phi in function.blocks[to].phis]
    takes = [(phi.kind, start) for start, phi in starts.values()] + inputs
    slots = _Slots(["i64", "ptr", "i32", *results, *(kind for kind, _ in takes)])
    made = Function("", {})
    entry = Block("%clp.entry", terminator=f"  br label {loop.header}")
    entry.lines = ["  %clp.fuel = alloca i64", *slots.load(_FUEL, "%clp.out", "%clp.fuel.in", fresh)]
    entry.lines += ["  store i64 %clp.fuel.in, ptr %clp.fuel", *slots.load(_LAST, "%clp.out", "%clp.last", fresh)]
    for number, (_, name) in enumerate(takes, _RESULTS + len(results)):
        entry.lines += slots.load(number, "%clp.out", name, fresh)
    leaves = _leaves(function, loop, exits, slots, fresh)
    for block in (entry, *_copies(blocks, loop, {name: start for name, (start, _) in starts.items()}), *leaves):
        made.blocks[block.name] = block
    name = f'"{function.name.strip(chr(34))}.{fresh("long")[1:]}"'
    made.header = f"define internal preserve_allcc void @{name}(ptr %clp.out) noinline nounwind noredzone {{"
    given = [phi.incoming[before.name] for _, phi in starts.values()] + [name for _, name in inputs]
    out = fresh("out")
    call = _call(function, (name, given), exits, slots, out, fresh)
    return Outlined(made, Loop(loop.header, list(loop.latches), set(loop.blocks)), call, out, slots.kind)


_LIFETIME = re.compile(rf"call void @llvm\.lifetime\.(?:start|end)\b.* ({NAME})\)")


def _let_live(function: Function, blocks: list[Block]) -> None:
    """Drop the lifetimes, all over the function, of allocas that have some in these blocks.

    The copy has no alloca for them, only a pointer, which LLVM refuses. Dropped in the copy alone, other slots of the
    function's frame could share the memory that the copy works on.
    """
    lives = {found[1] for block in blocks for line in block.lines if (found := _LIFETIME.search(line))}
    for block in function.blocks.values() if lives else ():
        block.lines = [x for x in block.lines if not ((found := _LIFETIME.search(x)) and found[1] in lives)]


_FUEL, _LAST, _WAY, _RESULTS = range(4)  # slots; behind the results are what the loop starts from, and its inputs


class _Slots:
    """Fields of the struct that all goes through. It is packed: a vector's alignment would cost the caller a register
    to align its frame."""

    def __init__(self, kinds: list[str]) -> None:
        self.kinds = kinds
        self.kind = "<{ " + ", ".join(kinds) + " }>"

    def _at(self, number: int, base: str, into: str) -> str:
        return f"  {into} = getelementptr inbounds {self.kind}, ptr {base}, i32 0, i32 {number}"

    def load(self, number: int, base: str, into: str, fresh: Callable[[str], str]) -> list[str]:
        pointer = fresh("p")
        return [self._at(number, base, pointer), f"  {into} = load {self.kinds[number]}, ptr {pointer}, align 1"]

    def store(self, number: int, base: str, value: str, fresh: Callable[[str], str]) -> list[str]:
        pointer = fresh("p")
        return [self._at(number, base, pointer), f"  store {self.kinds[number]} {value}, ptr {pointer}, align 1"]


def _inputs(function: Function, loop: Loop, blocks: list[Block]) -> list[str]:
    """Names that a loop and the phis behind it use and the loop does not define, but for those that its header's phis
    start from."""
    text, defined = [], set(loop.blocks)
    for block in blocks:
        defined |= {phi.name for phi in block.phis}
        defined |= {found[1] for line in block.lines if (found := re.match(rf"\s*({NAME}) = ", line))}
        text += [*block.lines, block.terminator]
    text += [
        v for to in function.blocks.values() for phi in to.phis for b, v in phi.incoming.items() if b in loop.blocks
    ]
    used = dict.fromkeys(name for line in text for name in re.findall(NAME, line))
    return [name for name in used if name not in defined]


def _copies(blocks: list[Block], loop: Loop, starts: dict[str, str]) -> list[Block]:
    out = []
    for block in blocks:
        made = Block(block.name, lines=list(block.lines), terminator=block.terminator)
        for phi in block.phis:
            incoming = {b: v for b, v in phi.incoming.items() if b in loop.blocks}
            if block.name == loop.header:
                incoming["%clp.entry"] = starts[phi.name]
            made.phis.append(Phi(phi.name, phi.kind, incoming))
        out.append(made)
    return out


def _leaves(
    function: Function, loop: Loop, exits: list[str], slots: _Slots, fresh: Callable[[str], str]
) -> list[Block]:
    """What is behind the copy, an exit each: keep the fuel, what the exit's phis would be, and its number."""
    out, slot = [], _RESULTS
    for number, to in enumerate(exits):
        block = Block(to, terminator="  ret void")
        fuel = fresh("fuel")
        block.lines = [f"  {fuel} = load i64, ptr %clp.fuel", *slots.store(_FUEL, "%clp.out", fuel, fresh)]
        block.lines += slots.store(_WAY, "%clp.out", str(number), fresh)
        for phi in function.blocks[to].phis:
            result = fresh("v")
            block.phis.append(Phi(result, phi.kind, {b: v for b, v in phi.incoming.items() if b in loop.blocks}))
            block.lines += slots.store(slot, "%clp.out", result, fresh)
            slot += 1
        out.append(block)
    return out


def _call(
    function: Function,
    what: tuple[str, list[str]],
    exits: list[str],
    slots: _Slots,
    out: str,
    fresh: Callable[[str], str],
) -> Block:
    """Call the copy, and go on where it left the loop. what: its name, and what it takes."""
    block, fuel, left, way = Block(fresh("long")), fresh("fuel"), fresh("fuel"), fresh("way")
    block.lines = [f"  {fuel} = load i64, ptr %clp.fuel", *slots.store(_FUEL, out, fuel, fresh)]
    block.lines += slots.store(_LAST, out, "%clp.last", fresh)
    for number, value in enumerate(what[1], len(slots.kinds) - len(what[1])):
        block.lines += slots.store(number, out, value, fresh)
    block.lines += [call_ceded(f"@{what[0]}", out, keeps_vectors=False), *slots.load(_FUEL, out, left, fresh)]
    block.lines += [f"  store i64 {left}, ptr %clp.fuel", *slots.load(_WAY, out, way, fresh)]
    slot = _RESULTS
    for to in exits:
        for phi in function.blocks[to].phis:
            result = fresh("v")
            block.lines += slots.load(slot, out, result, fresh)
            slot += 1
            phi.incoming[block.name] = result
    others = " ".join(f"i32 {number}, label {to}" for number, to in enumerate(exits) if number)
    block.terminator = f"  switch i32 {way}, label {exits[0]} [ {others} ]" if others else f"  br label {exits[0]}"
    return block

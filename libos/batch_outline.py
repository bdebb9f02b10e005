"""A copy of an innermost loop as a function of its own.

A second copy within the function would double what the loops around it keep in registers, and what loop strength
reduction counts for them; behind a call it costs them nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .batch_ir import NAME, Block, Function, Loop, Phi


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

    The copy is `i32 (i64 fuel, ptr last, ptr out, inputs...)`: it leaves fuel and results in `out`, and returns the
    number of the exit.
    """
    blocks = [function.blocks[name] for name in function.blocks if name in loop.blocks]
    exits = list(dict.fromkeys(to for block in blocks for to in block.succ if to not in loop.blocks))
    slots = _Slots(["i64"] + [phi.kind for to in exits for phi in function.blocks[to].phis])
    starts = {phi.name: (fresh("start"), phi) for phi in function.blocks[loop.header].phis}
    inputs = [(types[name], name) for name in _inputs(function, loop, blocks) if name in types]
    made = Function("", {})
    entry = Block("%clp.entry", terminator=f"  br label {loop.header}")
    entry.lines = ["  %clp.fuel = alloca i64", "  store i64 %clp.fuel.in, ptr %clp.fuel"]
    leaves = _leaves(function, loop, exits, slots, fresh)
    for block in (entry, *_copies(blocks, loop, {name: start for name, (start, _) in starts.items()}), *leaves):
        made.blocks[block.name] = block
    name = f'"{function.name.strip(chr(34))}.{fresh("long")[1:]}"'
    parameters = [f"{phi.kind} {start}" for start, phi in starts.values()] + [f"{kind} {name}" for kind, name in inputs]
    parameters = ["i64 %clp.fuel.in", "ptr %clp.last", "ptr %clp.out", *parameters]
    made.header = f"define internal preserve_allcc i32 @{name}({', '.join(parameters)}) noinline nounwind {{"
    given = [f"{phi.kind} {phi.incoming[before.name]}" for _, phi in starts.values()]
    given += [f"{kind} {name}" for kind, name in inputs]
    out = fresh("out")
    call = _call(function, (name, given), exits, slots, out, fresh)
    return Outlined(made, Loop(loop.header, list(loop.latches), set(loop.blocks)), call, out, slots.kind)


class _Slots:
    """Fields of the struct that results come through; the first is the fuel."""

    def __init__(self, kinds: list[str]) -> None:
        self.kind = "{ " + ", ".join(kinds) + " }"

    def at(self, number: int, base: str, into: str) -> str:
        return f"  {into} = getelementptr inbounds {self.kind}, ptr {base}, i32 0, i32 {number}"


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
    """What is behind the copy, an exit each: keep the fuel and what the exit's phis would be, and return its number."""
    out, slot = [], 0
    for number, to in enumerate(exits):
        block = Block(to, terminator=f"  ret i32 {number}")
        fuel, pointer = fresh("fuel"), fresh("p")
        block.lines = [f"  {fuel} = load i64, ptr %clp.fuel", slots.at(0, "%clp.out", pointer)]
        block.lines.append(f"  store i64 {fuel}, ptr {pointer}")
        for phi in function.blocks[to].phis:
            result, pointer = fresh("v"), fresh("p")
            slot += 1
            block.phis.append(Phi(result, phi.kind, {b: v for b, v in phi.incoming.items() if b in loop.blocks}))
            block.lines += [slots.at(slot, "%clp.out", pointer), f"  store {phi.kind} {result}, ptr {pointer}"]
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
    """Call the copy, and go on where it left the loop."""
    block, fuel, left, pointer, way = Block(fresh("long")), fresh("fuel"), fresh("fuel"), fresh("p"), fresh("way")
    arguments = ", ".join([f"i64 {fuel}", "ptr %clp.last", f"ptr {out}", *what[1]])
    block.lines = [
        f"  {fuel} = load i64, ptr %clp.fuel",
        f"  {way} = call preserve_allcc i32 @{what[0]}({arguments})",
        slots.at(0, out, pointer),
        f"  {left} = load i64, ptr {pointer}",
        f"  store i64 {left}, ptr %clp.fuel",
    ]
    slot = 0
    for to in exits:
        for phi in function.blocks[to].phis:
            result, pointer = fresh("v"), fresh("p")
            slot += 1
            block.lines += [slots.at(slot, out, pointer), f"  {result} = load {phi.kind}, ptr {pointer}"]
            phi.incoming[block.name] = result
    others = " ".join(f"i32 {number}, label {to}" for number, to in enumerate(exits) if number)
    block.terminator = f"  switch i32 {way}, label {exits[0]} [ {others} ]" if others else f"  br label {exits[0]}"
    return block

"""What is known of loops: which of them count, how far, and which seldom come by the loops within them.

Only reads a function, but for hide_counters. strips.py asks this before it changes a loop; answers are about the
text as it is now.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .ir import NAME, Block, Function, Loop, definitions, dominates

MANY = 128  # of values that follow from one counter
BRANCH = re.compile(rf"^  br i1 ({NAME}), label ({NAME}), label ({NAME})")
_COMPARE = re.compile(r"icmp (?:samesign )?(\w+) (i\d+) (\S+), (\S+)$")
_ADD = re.compile(r"(?:add (?:nuw |nsw )*|or disjoint )i\d+ (\S+), (-?\d+)$")
_AFFINE = re.compile(rf"\s*({NAME}) = (add|sub|mul|shl|or|sext|zext|trunc|getelementptr)\b(.*)")
_NUMBER = re.compile(r"-?\d+")
_OPPOSITE = {"eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sgt": "sle", "sle": "sgt"} | {
    "ult": "uge",
    "uge": "ult",
    "ugt": "ule",
    "ule": "ugt",
}
_SWAPPED = {"eq": "eq", "ne": "ne", "slt": "sgt", "sgt": "slt", "sle": "sge", "sge": "sle"} | {
    "ult": "ugt",
    "ugt": "ult",
    "ule": "uge",
    "uge": "ule",
}


@dataclass(frozen=True)
class Count:
    """An exit test that counts: the branch of block `at` leaves the loop when `predicate` (of value against bound) is
    false."""

    at: str
    stays_if_true: bool
    predicate: str  # of staying in the loop
    kind: str
    value: str  # what is compared
    bound: str
    counter: str  # the phi of the header that counts
    first: str  # what it starts from; the phi itself if that comes from several blocks
    step: int
    unused: str  # the compare, if nobody else uses it
    ahead: int = 0  # what to add to `first` so that `value` is that and whole steps


def count_of(function: Function, loop: Loop, idom: dict[str, str]) -> Count | None:
    """An exit test that every turn comes by, of a counter with a constant step against a bound that stays."""
    if len(loop.latches) != 1:
        return None
    known = definitions(function)
    own = loop.own()
    for name in (b for b in function.blocks if b in own):
        block = function.blocks[name]
        branch = BRANCH.match(block.terminator)
        if not branch or name not in idom or not dominates(idom, name, loop.latches[0]):
            continue
        if (branch[2] in loop.blocks) == (branch[3] in loop.blocks):
            continue
        where, line = known.get(branch[1], ("", ""))
        compare = _COMPARE.match(line)
        if not compare or where != name:
            continue
        found = _as_count(function, loop, block, branch, compare, known)
        if found:
            return found
    return None


def _as_count(
    function: Function,
    loop: Loop,
    block: Block,
    branch: re.Match[str],
    compare: re.Match[str],
    known: dict[str, tuple[str, str]],
) -> Count | None:
    predicate, kind, left, right = compare.groups()
    if kind not in ("i32", "i64"):
        return None
    stays = branch[2] in loop.blocks
    for value, bound, pred in ((left, right, predicate), (right, left, _SWAPPED[predicate])):
        if bound.startswith("%") and known.get(bound, ("", ""))[0] in loop.blocks:
            continue
        if not bound.startswith("%") and not _NUMBER.fullmatch(bound):
            continue
        found = _counter(function, loop, value, known)
        if found is None:
            continue
        counter, first, step, ahead = found
        staying = pred if stays else _OPPOSITE[pred]
        up, down = staying[1:] in ("lt", "le"), staying[1:] in ("gt", "ge")
        if staying == "ne" or (ahead == 0 and ((up and step > 0) or (down and step < 0))):
            unused = branch[1] if _uses(function, branch[1]) == 2 else ""
            return Count(block.name, stays, staying, kind, value, bound, counter, first, step, unused, ahead)
    return None


def _uses(function: Function, name: str) -> int:
    """How often a value is named, its definition included; more if another's name begins like it."""
    uses = 0
    for block in function.blocks.values():
        uses += sum(line.count(name) for line in block.lines) + block.terminator.count(name)
        uses += sum(list(phi.incoming.values()).count(name) for phi in block.phis)
    return uses


def _counter(
    function: Function, loop: Loop, value: str, known: dict[str, tuple[str, str]]
) -> tuple[str, str, int, int] | None:
    """The phi of the header that `value` is, or becomes in this turn or the next; where it starts, its step, and how
    far ahead of whole steps the value is (of unrolled turns, one in the middle may be the one that is compared)."""
    for phi in function.blocks[loop.header].phis:
        following = phi.incoming[loop.latches[0]]
        added = _ADD.match(known.get(following, ("", ""))[1])
        if not added or added[1] != phi.name or int(added[2]) == 0 or abs(int(added[2])) > 1 << 20:
            continue
        step, ahead = int(added[2]), 0
        if value not in (phi.name, following):
            between = _ADD.match(known.get(value, ("", ""))[1])
            if not between or between[1] != phi.name:
                continue
            ahead = int(between[2]) - step
        starts = {v for block, v in phi.incoming.items() if block != loop.latches[0]}
        # Of several starts, the preheader that will be made has a phi.
        return phi.name, starts.pop() if len(starts) == 1 else phi.name, step, ahead
    return None


def hide_counters(function: Function, loop: Loop, types: dict[str, str], fresh: Callable[[str], str]) -> None:
    """Hide from loop strength reduction a counter that more values follow from than there are registers: it would keep
    one in memory for each, and step them all at each turn."""
    for phi in function.blocks[loop.header].phis:
        if phi.kind not in ("i32", "i64") or _multiples(function, loop, phi.name) < MANY:
            continue
        hidden = fresh("hid")
        types[hidden] = phi.kind
        named = re.compile(rf"{re.escape(phi.name)}(?![-\w.$])")
        for block in (function.blocks[name] for name in loop.blocks):
            block.lines = [
                line
                if re.search(rf"= (add|icmp)\b.* {named.pattern}", line) and block.name in loop.own()
                else named.sub(hidden, line)
                for line in block.lines
            ]
            block.terminator = named.sub(hidden, block.terminator)
            for other in block.phis:
                if block.name != loop.header:
                    other.incoming = {b: hidden if v == phi.name else v for b, v in other.incoming.items()}
        first = function.blocks[loop.header]
        first.lines.insert(0, f'  {hidden} = call {phi.kind} asm "", "=r,0"({phi.kind} {phi.name})')


def _multiples(function: Function, loop: Loop, counter: str) -> int:
    """How many values within a loop follow from a phi of its header by additions and multiplications."""
    found, grew = {counter}, True
    lines = [match for name in loop.blocks for line in function.blocks[name].lines if (match := _AFFINE.match(line))]
    while grew:
        more = {line[1] for line in lines if line[1] not in found and not found.isdisjoint(re.findall(NAME, line[3]))}
        grew = bool(more)
        found |= more
    return len(found)


def most_turns(function: Function, count: Count) -> int | None:
    """The most turns that the bound allows, if that shows: constants, or what was masked (remainders of unrolling)."""
    known = definitions(function)
    if _NUMBER.fullmatch(count.first):
        if _NUMBER.fullmatch(count.bound):
            turns = (int(count.bound) - int(count.first)) // count.step + 1
            return turns if turns > 0 else None
        most = _masked(count.bound, known)
        return None if most is None or count.first != "0" or count.step < 0 else most // count.step + 1
    if count.bound == "0" and count.step < 0:  # counts what was masked down to 0
        return _masked(count.first, known)
    return None


def _masked(value: str, known: dict[str, tuple[str, str]]) -> int | None:
    found = re.match(r"and i\d+ \S+, (\d+)$", known.get(value, ("", ""))[1])
    return int(found[1]) if found else None


def children_are_rare(function: Function, loop: Loop, counts: list[Count | None]) -> bool:
    """Whether a turn may come by none of the loops within, by a choice that is not just that those have no turns to
    run. counts: of the loops within."""
    if len(loop.latches) != 1:
        return False
    known = definitions(function)
    ranges = set()
    for count in counts:
        if count is not None:
            ranges |= _origins(count.first, known) | _origins(count.bound, known)
    for block, _ in ways_past_children(function, loop):
        branch = BRANCH.match(block.terminator)
        if branch and not _origins(branch[1], known) & ranges:
            return True
    return False


def _origins(value: str, known: dict[str, tuple[str, str]], depth: int = 8) -> set[str]:
    """What a value is computed from, itself included; loads and phis are where that ends."""
    if not value.startswith("%"):
        return set()
    line = known.get(value, ("", ""))[1]
    found = {value}
    if depth and not re.match(r"(tail )?(load|call|phi|alloca) ?", line):
        for name in re.findall(NAME, line):
            found |= _origins(name, known, depth - 1)
    return found


def ways_past_children(function: Function, loop: Loop) -> list[tuple[Block, bool]]:
    """Branches between the loops within and a way to the latch that meets none of them; True: taken if true."""
    own = loop.own()
    passes, grew = set(loop.latches), True
    while grew:  # backwards from the latch
        more = {b for b in own - passes if passes & set(function.blocks[b].succ) and b not in loop.latches}
        grew = bool(more)
        passes |= more
    found = []
    for block in (b for name, b in function.blocks.items() if name in passes and name not in loop.latches):
        branch = BRANCH.match(block.terminator)
        if not branch or "!prof" in block.terminator:
            continue
        stays = [to in passes for to in branch.group(2, 3)]
        if stays[0] != stays[1] and branch[3 if stays[0] else 2] in loop.blocks:
            found.append((block, stays[0]))
    return found


def early_exits(function: Function, loop: Loop, count: Count) -> list[tuple[str, str]]:
    """Edges that leave an innermost loop, but for that of the exit test that counts."""
    return [
        (name, to)
        for name in (b for b in function.blocks if b in loop.blocks)
        for to in function.blocks[name].succ
        if to not in loop.blocks and name != count.at
    ]

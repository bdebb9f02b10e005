"""Loops whose turns all cost the same: the loops within them make as many turns each time, as is known ahead.

Rows of 3 to some hundreds of elements are such loops (`shape[1]`, a constant). A row may be shorter than what asking
for fuel takes, so nothing is asked there: what a row costs is reckoned once, ahead of the loop around it, which runs in
strips of so many rows. Where rows are longer, a copy of the whole nest runs instead (outline.py), which polls at
each row, and within long ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .fuel import Fresh, Strips, left
from .ir import Function, Loop, definitions
from .loops import Count

MOST = 1024  # units of a row that is counted with others: some 0.1 us. Beside a longer one, a poll is little


@dataclass(frozen=True)
class Row:
    """A loop within: how it counts, what it may start from, and what a turn costs."""

    loop: Loop
    count: Count
    firsts: list[str]
    cost: int


def rows(
    function: Function, loop: Loop, counts: dict[int, Count | None], costs: Callable[[Loop], int | None]
) -> list[Row]:
    """The loops within one that run from and to what is known ahead of it. costs: of a turn; None for loops that are a
    part of the turn around them."""
    known = definitions(function)
    out = []
    for child in loop.children:
        cost, count = costs(child), counts[id(child)]
        if cost is None:
            continue
        if count is None or not _ahead(count.bound, loop, known):
            continue
        phi = next(phi for phi in function.blocks[child.header].phis if phi.name == count.counter)
        firsts: set[str] = set()
        starts = [value for block, value in phi.incoming.items() if block not in child.blocks]
        if all(_collect(function, loop, value, known, firsts) for value in starts):
            out.append(Row(child, count, sorted(firsts), cost))
    return out


def _ahead(value: str, loop: Loop, known: dict[str, tuple[str, str]]) -> bool:
    return not value.startswith("%") or known.get(value, ("", ""))[0] not in loop.blocks


def _collect(
    function: Function, loop: Loop, value: str, known: dict[str, tuple[str, str]], into: set[str], depth: int = 4
) -> bool:
    """Add what a value may be, of what is known ahead of the loop: behind a vector loop the rest starts from where that
    ended, or from the beginning. False if it may be something else."""
    if _ahead(value, loop, known):
        into.add(value)
        return True
    where, _ = known[value]
    phi = next((phi for phi in function.blocks[where].phis if phi.name == value), None)
    if phi is None or depth == 0 or where == loop.header:
        return False
    return all(_collect(function, loop, v, known, into, depth - 1) for v in phi.incoming.values())


def reckon(rows: list[Row], own: int, fresh: Fresh) -> tuple[str, str, list[str]]:
    """What a turn of the loop around the rows costs, ahead of it: whether all rows are short (an i1), log2 of the cost,
    rounded up (an i64), and the lines for them. own: the cost of a turn without the rows."""
    total, few, lines = str(own), "true", []
    for row in rows:
        strips = Strips(row.loop, row.count, max(0, (row.cost - 1).bit_length()), "", shares=False)
        worst = "0"
        for first in row.firsts:
            distance, more = left(row.count, first, row.count.bound, fresh)
            frozen, short, both, further = fresh("d"), fresh("short"), fresh("few"), fresh("d")
            if row.count.ahead:
                whole = fresh("d")
                more.append(f"  {whole} = sub i64 {distance}, {row.count.ahead}")
                distance = whole
            lines += [
                *more,
                f"  {frozen} = freeze i64 {distance}",  # here no test of the loop's own says that it is well defined
                f"  {short} = icmp ule i64 {frozen}, {strips.within(MOST)}",
                f"  {both} = and i1 {few}, {short}",
                f"  {further} = call i64 @llvm.umax.i64(i64 {worst}, i64 {frozen})",
            ]
            few, worst = both, further
        units, sum_ = fresh("u"), fresh("u")
        lines += [*strips.units(worst, units, fresh), f"  {sum_} = add i64 {total}, {units}"]
        total = sum_
    least, zeros, shift = fresh("u"), fresh("z"), fresh("shift")
    lines += [
        f"  {least} = or i64 {total}, 1",
        f"  {zeros} = call i64 @llvm.ctlz.i64(i64 {least}, i1 true)",
        f"  {shift} = sub i64 64, {zeros}",
    ]
    return few, shift, lines

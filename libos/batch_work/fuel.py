"""Arithmetic of loops that are cut into strips: distances, turns, and the fuel for them, as lines of LLVM's text.

A distance is how far a counter is from its bound, an i64; a turn brings it nearer by the loop's step. What a turn costs
is a power of two, so that fuel and distance become each other by a shift.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .ir import Loop
from .loops import Count

Fresh = Callable[[str], str]


@dataclass
class Strips:
    """A loop that is cut: its exit test, log2 of a turn's cost, and the alloca of the strip's end."""

    loop: Loop
    count: Count
    shift: int
    limit: str
    shares: bool  # half of the fuel is left to the loops within
    turn: str = ""  # if shift is not known before the loop begins: what it is then, an i64

    @property
    def by(self) -> int:
        """log2 of the fuel for a distance of 1; the step rounded down to a power of two."""
        return self.shift - (abs(self.count.step).bit_length() - 1)

    def within(self, fuel: int) -> int:
        """The distance that some fuel lasts for."""
        return fuel >> self.by if self.by >= 0 else fuel << -self.by

    def units(self, distance: str, into: str, fresh: Fresh) -> list[str]:
        """Fuel for a distance (that it lasts for): its turns, rounded up if the step is no power of two, times the
        cost."""
        if self.turn:
            steps = fresh("n")
            by = abs(self.count.step).bit_length() - 1
            return [f"  {steps} = lshr i64 {distance}, {by}", f"  {into} = shl i64 {steps}, {self.turn}"]
        return [f"  {into} = {'shl' if self.by >= 0 else 'lshr'} i64 {distance}, {abs(self.by)}"]

    def lasts(self, fuel: str, distance: str, into: str, fresh: Fresh) -> list[str]:
        """Whether fuel that is 0 or more lasts for a distance. Not by its units: 64 bits may not hold those."""
        far = fresh("n")
        if self.turn:
            steps = fresh("n")
            by = abs(self.count.step).bit_length() - 1
            return [
                f"  {steps} = lshr i64 {distance}, {by}",
                f"  {far} = lshr i64 {fuel}, {self.turn}",
                f"  {into} = icmp ule i64 {steps}, {far}",
            ]
        return [
            f"  {far} = {'lshr' if self.by >= 0 else 'shl'} i64 {fuel}, {abs(self.by)}",
            f"  {into} = icmp ule i64 {distance}, {far}",
        ]


def left(count: Count, at: str, bound: str, fresh: Fresh, extend: str = "zext") -> tuple[str, list[str]]:
    """The distance from `at` to a bound."""
    distance = fresh("d")
    pair = f"{bound}, {at}" if count.step > 0 else f"{at}, {bound}"
    lines = [f"  {distance} = sub {count.kind} {pair}"]
    if count.kind == "i32":
        wide = fresh("d")
        lines.append(f"  {wide} = {extend} i32 {distance} to i64")
        distance = wide
    return distance, lines


def _moved(count: Count, at: str, distance: str, fresh: Fresh) -> tuple[str, list[str]]:
    """The counter, so far on from `at`."""
    to, lines = fresh("to"), []
    if count.kind == "i32":
        narrow = fresh("d")
        lines.append(f"  {narrow} = trunc i64 {distance} to i32")
        distance = narrow
    return to, [*lines, f"  {to} = {'add' if count.step > 0 else 'sub'} {count.kind} {at}, {distance}"]


def next_strip(strips: Strips, at: str, fresh: Fresh, *, ahead: bool) -> list[str]:
    """As many turns as the fuel lasts, one at least, and what is left behind them if that is no more than half of them;
    what they cost is taken off the fuel. ahead: on the way into the loop, where the bound may lie behind."""
    count = strips.count
    fuel, turns, some, span, part, rest, ours = (fresh(n) for n in ("fuel", "n", "n", "span", "part", "fuel", "fuel"))
    distance, lines = left(count, at, count.bound, fresh)
    lines += [
        f"  {fuel} = load i64, ptr %clp.fuel",
        f"  {ours} = lshr i64 {fuel}, {int(strips.shares)}",
        f"  {turns} = lshr i64 {ours}, {strips.turn or strips.shift}",
        f"  {some} = call i64 @llvm.umax.i64(i64 {turns}, i64 1)",
        f"  {span} = mul i64 {some}, {abs(count.step)}",
    ]
    if strips.shares:
        lines.append(f"  {part} = call i64 @llvm.umin.i64(i64 {distance}, i64 {span})")
    else:
        more, far, near = fresh("span"), fresh("span"), fresh("near")
        lines += [
            f"  {more} = lshr i64 {span}, 1",
            f"  {far} = add i64 {span}, {more}",
            f"  {near} = icmp ule i64 {distance}, {far}",
            f"  {part} = select i1 {near}, i64 {distance}, i64 {span}",
        ]
    if ahead:
        comes, chosen = fresh("ahead"), fresh("part")
        lines.append(f"  {comes} = icmp {count.predicate} {count.kind} {at}, {count.bound}")
        lines.append(f"  {chosen} = select i1 {comes}, i64 {part}, i64 0")
        part = chosen
    units = fresh("u")
    less = f"call i64 @llvm.usub.sat.i64(i64 {fuel}, i64 {units})" if strips.shares else f"sub i64 {fuel}, {units}"
    lines += [*strips.units(part, units, fresh), f"  {rest} = {less}"]
    to, moved = _moved(count, at, part, fresh)
    return [*lines, f"  store i64 {rest}, ptr %clp.fuel", *moved, f"  store {count.kind} {to}, ptr {strips.limit}"]

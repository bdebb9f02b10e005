"""Putting probes into the loops of one function (batch_probes.py says what is put where, and why).

The fuel and the ends of strips live in memory, `%clp.fuel` and `%clp.lim.N`. LLVM's SROA turns the ends into registers
afterwards (batch_compile.py runs it), and the fuel of outlined copies; a function's own fuel stays in its frame, in
`%clp.last` (batch_refill.py).

Invariant: fuel is 0 or more wherever a turn of a loop has taken fuel off as it began. Within such a turn it may be
less, by what loops took on credit, and behind a strip by half of what a look gives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import batch_cost, batch_steady
from .batch_ir import (
    NAME,
    Block,
    Function,
    Loop,
    also_from,
    dominators,
    loops,
    preheader,
    split_edge,
)
from .batch_loops import (
    BRANCH,
    Count,
    children_are_rare,
    count_of,
    early_exits,
    hide_counters,
    most_turns,
    ways_past_children,
)
from .batch_outline import Outlined, outline
from .batch_refill import (
    FUEL,
    LIKELY,
    RARE,
    RAX,
    STAMP,
    UNLIKELY,
    UNTIMED,
    USUAL,
    WORDS,
    Target,
    cell,
    look,
    word,
)

ON_CREDIT = 1024  # a loop that costs no more than this does not ask whether the fuel lasts, if the one around it will
PART_OF_FREE = 64  # what such a loop is reckoned at in a turn around it, where it is free


@dataclass
class Report:
    """What was done: number of loops by kind, and functions that got probes. unprobed_calls: places that call compiled
    functions whose code is not here (through a pointer, or compiled apart), which run without probes. steady: loops
    whose turns have a cost that is known ahead. each_turn: loops that look at each turn. missing: why there are no probes at all; "" if all went well."""

    functions: int = 0
    strips: int = 0
    countdowns: int = 0
    short: int = 0
    unprobed_calls: int = 0
    steady: int = 0
    each_turn: int = 0
    missing: str = ""


@dataclass
class _Strips:
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


class Prober:
    """Puts probes into one function. types: of its values (batch_ir.types_of). inner: see batch_cost.cost. site: the
    next free cell. made: functions that go with it."""

    def __init__(
        self,
        function: Function,
        types: dict[str, str],
        target: Target,
        report: Report,
        inner: dict[str, int],
        site: int,
    ) -> None:
        self.function = function
        self.types = types
        self.made: list[Function] = []
        self.target = target
        self.report = report
        self.site = site
        self._names = 0
        self._limits: list[tuple[str, str]] = []
        self._outs: list[tuple[str, str]] = []
        self._searches: set[int] = set()
        self._light: set[int] = set()
        self._counted_down: set[int] = set()
        self._steady: dict[int, str] = {}
        self._paid_around: set[int] = set()
        self._sharing: set[int] = set()
        self._copies: list[list[Loop]] = []
        self._apart = False  # at work on a copy, whose fuel is its own
        self._costs = {b.name: batch_cost.cost(b.lines, inner) + 1 for b in function.blocks.values()}

    def fresh(self, what: str) -> str:
        self._names += 1
        return f"%clp.{what}.{self._names}"

    def run(self) -> None:
        """Change the function. Innermost loops come first, since what is short adds to the cost of its parent."""
        idom = dominators(self.function)
        found, odd = loops(self.function, idom)
        counts = {id(loop): count_of(self.function, loop, idom) for loop in found}
        short = self._short(found, counts)
        self._sort(found, counts, short)
        for loop in found:
            if id(loop) in self._light:
                self._look_ahead(loop, counts, short)
        self._probe_all(found, counts, short)
        self.report.short += len(short)
        for latch, header in odd:
            self._count_down_edge(latch, header, 20)
            self.report.countdowns += 1
        self._enter(bool(found or odd))
        self.report.functions += 1

    def _sort(self, found: list[Loop], counts: dict[int, Count | None], short: dict[int, int]) -> None:
        """Find out what the loops around others are."""
        for loop in found:
            count = counts[id(loop)]
            if loop.children and count is not None and self._is_search(loop, counts):
                self._searches.add(id(loop))
                for block, past in ways_past_children(self.function, loop):
                    # Else the register allocator spills what short turns need, for the sake of the loops within.
                    block.terminator += f", {USUAL if past else RARE}"
            elif loop.children and id(loop) not in short:
                light = count is not None and all(
                    id(child) in short or self._may_be_free(child, counts[id(child)]) for child in loop.children
                )
                (self._light if light else self._counted_down).add(id(loop))
            if loop.children:
                hide_counters(self.function, loop, self.types, self.fresh)

    def _probe_all(self, found: list[Loop], counts: dict[int, Count | None], short: dict[int, int]) -> None:
        turns = {id(loop): self._turn(loop, short) for loop in found}
        for loop in found:
            if id(loop) not in short and id(loop) not in self._paid_around:
                self._probe(loop, counts[id(loop)], turns[id(loop)])

    def _look_ahead(self, loop: Loop, counts: dict[int, Count | None], short: dict[int, int]) -> None:
        """If it can be known ahead of a loop what its turns cost: ask nothing within, or let a copy run in which each
        loop asks for itself."""

        def turn(child: Loop) -> int | None:
            return None if id(child) in short else self._turn(child, short)

        rows = batch_steady.rows(self.function, loop, counts, turn)
        if not rows:
            return
        paid = {id(row.loop) for row in rows}
        others = [child for child in loop.children if id(child) not in paid and id(child) not in short]
        function, fresh = self.function, self.fresh
        before = preheader(function, loop, fresh)
        away = outline(function, loop, before, self.types, fresh)
        self.made.append(away.function)
        self._outs.append((away.out, away.out_kind))
        self._probe_apart(away)
        own = sum(self._costs[b] for b in loop.own()) + sum(short.get(id(child), 0) for child in loop.children)
        total, few = str(own + PART_OF_FREE * len(others)), "true"
        for row in rows:
            strips = _Strips(loop, row.count, max(0, (row.cost - 1).bit_length()), "", shares=False)
            most, worst = self._within(strips, batch_steady.MOST), "0"
            for first in row.firsts:
                distance, lines = self._left(row.count, first, row.count.bound)
                left, short_row, both, further = fresh("d"), fresh("short"), fresh("few"), fresh("d")
                before.lines += [
                    *lines,
                    f"  {left} = freeze i64 {distance}",  # here no test of the loop's own says that it is well defined
                    f"  {short_row} = icmp ule i64 {left}, {most}",
                    f"  {both} = and i1 {few}, {short_row}",
                    f"  {further} = call i64 @llvm.umax.i64(i64 {worst}, i64 {left})",
                ]
                few, worst = both, further
            units, more = fresh("u"), fresh("u")
            before.lines += [*self._units(strips, worst, units), f"  {more} = add i64 {total}, {units}"]
            total = more
        less, zeros, shift = fresh("u"), fresh("z"), fresh("shift")
        before.lines += [
            f"  {less} = or i64 {total}, 1",
            f"  {zeros} = call i64 @llvm.ctlz.i64(i64 {less}, i1 true)",
            f"  {shift} = sub i64 64, {zeros}",
        ]
        function.blocks[away.call.name] = away.call
        before.terminator = f"  br i1 {few}, label {loop.header}, label {away.call.name}, {LIKELY}"
        self._steady[id(loop)] = shift
        self.report.steady += 1
        self._paid_around |= paid
        self._sharing |= {id(loop)} if others else set()

    def _probe_apart(self, away: Outlined) -> None:
        """Put probes into the copy of a loop around others."""
        kept = self.function, self._apart, self._limits, self._outs
        self.function, self._apart, self._limits, self._outs = away.function, True, [], []
        idom = dominators(self.function)
        found, _ = loops(self.function, idom)
        counts = {id(loop): count_of(self.function, loop, idom) for loop in found}
        short = self._short(found, counts)
        self._light |= {id(loop) for loop in found if loop.children}
        self._copies.append(found)  # so that no other loop gets the id of one of these
        self._probe_all(found, counts, short)
        away.function.entry.lines[:0] = [
            f"  {name} = alloca {kind}, align 8" for name, kind in self._limits + self._outs
        ]
        self.function, self._apart, self._limits, self._outs = kept

    def _turn(self, loop: Loop, short: dict[int, int]) -> int:
        """What a turn costs, without what the loops within take off for themselves."""
        within = PART_OF_FREE if id(loop) in self._light else 4
        return sum(self._costs[b] for b in loop.own()) + sum(short.get(id(child), within) for child in loop.children)

    def _short(self, found: list[Loop], counts: dict[int, Count | None]) -> dict[int, int]:
        """Loops that are not worth a probe, as their bounds show, and what they cost altogether."""
        short: dict[int, int] = {}
        for loop in found:
            count = counts[id(loop)]
            turns = None if count is None else most_turns(self.function, count)
            if turns is not None and (cost := turns * self._turn(loop, short)) < batch_cost.FEW:
                short[id(loop)] = cost
        return short

    def _may_be_free(self, loop: Loop, count: Count | None) -> bool:
        """Innermost, and with nothing to give back."""
        return not loop.children and count is not None and not early_exits(self.function, loop, count)

    def _probe(self, loop: Loop, count: Count | None, cost: int) -> None:
        if count is not None and not loop.children:
            self._pay(loop, count, cost)
        elif count is not None and id(loop) in self._light and id(loop) not in self._steady:
            self._look_each_turn(loop.header)
            self.report.each_turn += 1
            return
        elif count is not None and id(loop) in self._searches | self._light:
            self._strip_here(loop, count, cost)
        else:
            self._count_down(loop.header, cost)
            self.report.countdowns += 1
            return
        self.report.strips += 1

    def _is_search(self, loop: Loop, counts: dict[int, Count | None]) -> bool:
        """Short turns that may come by none of the loops within."""
        own = sum(self._costs[b] for b in loop.own())
        within = [counts[id(child)] for child in loop.children]
        return own <= batch_cost.CHEAP_TURN and children_are_rare(self.function, loop, within)

    def _pay(self, loop: Loop, count: Count, cost: int) -> None:
        """An innermost loop that counts: pay for it when it begins and let it be, or leave it to a copy that runs in
        strips, which is a function of its own."""
        function, fresh = self.function, self.fresh
        strips = _Strips(loop, count, max(0, (cost - 1).bit_length()), self.fresh("lim"), shares=False)
        before = preheader(function, loop, fresh)
        away = outline(function, loop, before, self.types, fresh)
        self.made.append(away.function)
        self._outs.append((away.out, away.out_kind))
        self._strip_apart(away, count, strips.shift)
        first = self._first(loop, count, before)
        if loop.parent is not None and id(loop.parent) in self._searches:
            # What follows stays here: computed ahead of the search, it would take that one's registers.
            at = fresh("at")
            before.lines.append(f'  {at} = call {count.kind} asm sideeffect "", "=r,0"({count.kind} {first})')
            first = at
        left, distance = self._left(count, first, count.bound)
        before.lines += distance
        paid, low = Block(fresh("paid"), terminator=f"  br label {loop.header}"), Block(fresh("low"))
        fuel, units, rest, full = (fresh(n) for n in ("fuel", "u", "fuel", "fuel"))
        paid.lines = [
            *self._units(strips, left, units),
            f"  {fuel} = load i64, ptr %clp.fuel",
            f"  {rest} = sub i64 {fuel}, {units}",
            f"  store i64 {rest}, ptr %clp.fuel",
        ]
        split_edge(function, before.name, loop.header, paid)
        asks = self._ask_if_long(strips, left, before, paid)
        had = self._enough(strips, left, asks, paid.name, low.name)
        # If little is left, look early: to call the copy for it costs more. Else the loop is longer than an interval.
        gives, half, little, look = fresh("gives"), fresh("half"), fresh("little"), Block(fresh("look"))
        low.lines = [
            f"  {gives} = load atomic i64, ptr {cell(self.site)} monotonic, align 8",
            f"  {half} = lshr i64 {gives}, 1",
            f"  {little} = icmp ult i64 {had}, {half}",
        ]
        low.terminator = f"  br i1 {little}, label {look.name}, label {away.call.name}"
        look.lines = self._refill(full, had if self._apart else "")
        self._enough(strips, left, look, paid.name, away.call.name)
        for made in (low, look, away.call):
            function.blocks[made.name] = made
        for source, to in early_exits(function, loop, count):
            self._give_back(strips, source, to, count.bound)

    def _ask_if_long(self, strips: _Strips, left: str, before: Block, paid: Block) -> Block:
        """Let a loop begin that costs little, in one that looks soon: on credit, or for nothing where that one reckons
        with it. The block where a longer one goes on."""
        function, loop = self.function, strips.loop
        free, credit = (loop.parent and id(loop.parent) in some for some in (self._light, self._counted_down))
        if not free and not credit:
            return before
        asks, short, to = Block(self.fresh("asks")), self.fresh("short"), paid.name
        function.blocks[asks.name] = asks
        if free:
            begin = Block(self.fresh("begin"), terminator=f"  br label {loop.header}")
            split_edge(function, paid.name, loop.header, begin)
            to = begin.name
        most = self._within(strips, ON_CREDIT)
        before.lines.append(f"  {short} = icmp ule i64 {left}, {most}")
        before.terminator = f"  br i1 {short}, label {to}, label {asks.name}, {LIKELY}"
        return asks

    def _within(self, strips: _Strips, fuel: int) -> int:
        """The distance that some fuel lasts for."""
        return fuel >> strips.by if strips.by >= 0 else fuel << -strips.by

    def _enough(self, strips: _Strips, left: str, block: Block, paid: str, otherwise: str) -> str:
        """Let a block go to `paid` if the fuel lasts for the distance that is left, and likely so; what it has."""
        count, fuel, lasts, enough = (self.fresh(n) for n in ("fuel", "fuel", "lasts", "enough"))
        block.lines += [
            f"  {count} = load i64, ptr %clp.fuel",
            f"  {fuel} = call i64 @llvm.smax.i64(i64 {count}, i64 0)",
            f"  {lasts} = {'lshr' if strips.by >= 0 else 'shl'} i64 {fuel}, {abs(strips.by)}",
            f"  {enough} = icmp ule i64 {left}, {lasts}",
        ]
        block.terminator = f"  br i1 {enough}, label {paid}, label {otherwise}, {LIKELY}"
        return fuel

    def _strip_apart(self, away: Outlined, count: Count, shift: int) -> None:
        """Let the copy run in strips."""
        whole, self.function, self._apart = (self.function, self._apart), away.function, True
        strips = _Strips(away.loop, count, shift, self.fresh("lim"), shares=False)
        away.function.entry.lines.insert(0, f"  {strips.limit} = alloca {count.kind}")
        exits = early_exits(self.function, away.loop, count)
        self._strip(strips)
        for source, to in exits:
            limit = self.fresh("lim")
            back = self._give_back(strips, source, to, limit)
            back.lines.insert(0, f"  {limit} = load {count.kind}, ptr {strips.limit}")
        self.function, self._apart = whole

    def _strip_here(self, loop: Loop, count: Count, cost: int) -> None:
        """Let a loop around others run in strips: one that seldom comes by those, or whose turns they are a part of."""
        turn = self._steady.get(id(loop), "")
        shift = max(0, (cost - 1).bit_length())
        strips = _Strips(loop, count, shift, self.fresh("lim"), not turn or id(loop) in self._sharing, turn)
        self._limits.append((strips.limit, count.kind))
        self._strip(strips)

    def _strip(self, strips: _Strips) -> None:
        """Cut the loop: a strip on the way in, and another where the exit test finds that it is at the end of one."""
        loop, count = strips.loop, strips.count
        before = preheader(self.function, loop, self.fresh)
        first = self._first(loop, count, before)
        begin, grant = self.fresh("begin"), self.fresh("grant")
        before.retarget(loop.header, begin)
        for phi in self.function.blocks[loop.header].phis:
            phi.incoming[grant] = phi.incoming.pop(before.name)
        self._grant(strips, first, (begin, grant, loop.header), entry=True)
        self._end_of_strip(strips)

    def _grant(self, strips: _Strips, at: str, names: tuple[str, str, str], *, entry: bool) -> None:
        """Blocks that give out a strip: look if the fuel does not last for a turn, then set the strip's end. names: of
        the first, the last, and where that goes on. entry: on the way into the loop, where the bound may lie behind;
        elsewhere the last strip has used up the fuel."""
        on, look, grant = Block(names[0]), Block(self.fresh("look")), Block(names[1])
        fuel, low, full = (self.fresh(n) for n in ("fuel", "low", "fuel"))
        rest = ""
        if entry:
            asks = on
            if not strips.shares:
                grant, asks = Block(self.fresh("grant")), self._all_on_credit(strips, at, on, names[1])
                join = Block(names[1], terminator=f"  br label {names[2]}")
                self.function.blocks[join.name] = join
            asks.lines.append(f"  {fuel} = load i64, ptr %clp.fuel")
            one = str(1 << strips.shift)
            if strips.turn:
                one = self.fresh("u")
                asks.lines.append(f"  {one} = shl i64 1, {strips.turn}")
            asks.lines.append(f"  {low} = icmp slt i64 {fuel}, {one}")
            asks.terminator = f"  br i1 {low}, label {look.name}, label {grant.name}, {UNLIKELY}"
            rest = fuel if self._apart else ""
        else:
            on.terminator = f"  br label {look.name}"
            if strips.shares:
                rest = "0"
            elif self._apart:
                rest = fuel
                look.lines.append(f"  {fuel} = load i64, ptr %clp.fuel")
        look.lines += self._refill(full, rest)
        look.terminator = f"  br label {grant.name}"
        grant.lines += self._next_strip(strips, at, ahead=entry and strips.count.predicate != "ne")
        grant.terminator = f"  br label {names[2] if grant.name == names[1] else names[1]}"
        for made in (on, look, grant):
            self.function.blocks[made.name] = made

    def _all_on_credit(self, strips: _Strips, at: str, on: Block, then: str) -> Block:
        """Let all that is left be one strip if half of what a look gives would pay for what the fuel does not last for;
        the block where it goes on if not."""
        fresh, count = self.fresh, strips.count
        gives, half, fuel, sum_, reach, within, whole, units, rest = (
            fresh(n) for n in ("gives", "half", "fuel", "sum", "reach", "n", "whole", "u", "fuel")
        )
        left, lines = self._left(count, at, count.bound)
        steps, by = left, 0
        if strips.turn:
            by = abs(count.step).bit_length() - 1
            steps = fresh("n")
            lines.append(f"  {steps} = lshr i64 {left}, {by}")
        on.lines += [
            *lines,
            f"  {gives} = load atomic i64, ptr {cell(self.site)} monotonic, align 8",
            f"  {half} = lshr i64 {gives}, 1",
            f"  {fuel} = load i64, ptr %clp.fuel",
            f"  {sum_} = add i64 {fuel}, {half}",
            f"  {reach} = call i64 @llvm.smax.i64(i64 {sum_}, i64 0)",
            f"  {within} = lshr i64 {reach}, {strips.turn}"
            if strips.turn
            else f"  {within} = {'lshr' if strips.by >= 0 else 'shl'} i64 {reach}, {abs(strips.by)}",
            f"  {whole} = icmp ule i64 {steps}, {within}",
        ]
        asks, every = Block(fresh("asks")), Block(fresh("all"), terminator=f"  br label {then}")
        on.terminator = f"  br i1 {whole}, label {every.name}, label {asks.name}, {LIKELY}"
        every.lines = [
            *self._units(strips, left, units),
            f"  {rest} = sub i64 {fuel}, {units}",
            f"  store i64 {rest}, ptr %clp.fuel",
            f"  store {count.kind} {count.bound}, ptr {strips.limit}",
        ]
        for made in (asks, every):
            self.function.blocks[made.name] = made
        return asks

    def _refill(self, into: str, rest: str = "") -> list[str]:
        """Look, and set the fuel. rest: the fuel that was left, if that is not what the count says."""
        self.site += 1
        saved, left = self.fresh("p"), self.fresh("p")
        return [
            word("%clp.last", FUEL, left),
            *([f"  store i64 {rest}, ptr {left}"] if rest else []),
            word("%clp.last", RAX, saved),
            look(self.site - 1, saved),
            f"  {into} = load i64, ptr {left}",
            *([f"  store i64 {into}, ptr %clp.fuel"] if self._apart else []),
        ]

    def _end_of_strip(self, strips: _Strips) -> None:
        """The exit test compares with the strip's end; what follows it tells that from the bound, and goes on."""
        function, fresh, count = self.function, self.fresh, strips.count
        block = function.blocks[count.at]
        branch = BRANCH.match(block.terminator)
        assert branch
        stay, out = (branch[2], branch[3]) if count.stays_if_true else (branch[3], branch[2])
        bound, inside, at, goes_on = fresh("end"), fresh("in"), fresh("at"), fresh("goes")
        if count.unused:
            block.lines = [line for line in block.lines if not line.startswith(f"  {count.unused} = ")]
        block.lines += [
            f"  {bound} = load {count.kind}, ptr {strips.limit}",
            f"  {inside} = icmp {count.predicate} {count.kind} {count.value}, {bound}",
        ]
        end, on, grant = Block(fresh("end")), fresh("on"), fresh("grant")
        tail = re.search(r"(, !llvm\.loop ![0-9]+)", block.terminator)
        block.terminator = f"  br i1 {inside}, label {stay}, label {end.name}, {LIKELY}{tail[1] if tail else ''}"
        for phi in function.blocks[out].phis:
            phi.incoming[end.name] = phi.incoming.pop(count.at)
        # Hidden, or loop strength reduction would make a second counter of the distance to the bound.
        end.lines = [
            f'  {at} = call {count.kind} asm "", "=r,0"({count.kind} {count.value})',
            f"  {goes_on} = icmp {count.predicate} {count.kind} {at}, {count.bound}",
        ]
        end.terminator = f"  br i1 {goes_on}, label {on}, label {out}"
        function.blocks[end.name] = end
        self._grant(strips, at, (on, grant, stay), entry=False)
        also_from(function, stay, count.at, grant)
        around = strips.loop.parent
        while around:  # leaving this loop may be a turn of the next one
            around.blocks.add(end.name)
            if out == around.header:
                around.latches = [end.name if name == count.at else name for name in around.latches]
            around = around.parent

    def _give_back(self, strips: _Strips, source: str, to: str, limit: str) -> Block:
        """Behind an exit that was not counted for: the fuel of the turns up to `limit` that were not run."""
        fresh, count = self.fresh, strips.count
        back = Block(fresh("back"), terminator=f"  br label {to}")
        fuel, more = fresh("fuel"), fresh("fuel")
        left, back.lines = self._left(count, count.counter, limit, "sext")
        if count.predicate != "ne":  # the last step may have gone beyond
            clamped = fresh("d")
            back.lines.append(f"  {clamped} = call i64 @llvm.smax.i64(i64 {left}, i64 0)")
            left = clamped
        units = fresh("u")
        back.lines += [
            *self._units(strips, left, units),
            f"  {fuel} = load i64, ptr %clp.fuel",
            f"  {more} = add i64 {fuel}, {units}",
            f"  store i64 {more}, ptr %clp.fuel",
        ]
        split_edge(self.function, source, to, back)
        return back

    def _first(self, loop: Loop, count: Count, before: Block) -> str:
        """What the counter starts from, as the preheader sees it."""
        (counter,) = (phi for phi in self.function.blocks[loop.header].phis if phi.name == count.counter)
        return counter.incoming[before.name]

    def _left(self, count: Count, at: str, bound: str, extend: str = "zext") -> tuple[str, list[str]]:
        """The distance from `at` to the bound, an i64."""
        distance = self.fresh("d")
        pair = f"{bound}, {at}" if count.step > 0 else f"{at}, {bound}"
        lines = [f"  {distance} = sub {count.kind} {pair}"]
        if count.kind == "i32":
            wide = self.fresh("d")
            lines.append(f"  {wide} = {extend} i32 {distance} to i64")
            distance = wide
        return distance, lines

    def _units(self, strips: _Strips, distance: str, into: str) -> list[str]:
        """Fuel for a distance (that it lasts for): its turns, rounded up if the step is no power of two, times the
        cost."""
        if strips.turn:
            steps = self.fresh("n")
            by = abs(strips.count.step).bit_length() - 1
            return [f"  {steps} = lshr i64 {distance}, {by}", f"  {into} = shl i64 {steps}, {strips.turn}"]
        return [f"  {into} = {'shl' if strips.by >= 0 else 'lshr'} i64 {distance}, {abs(strips.by)}"]

    def _moved(self, count: Count, at: str, distance: str) -> tuple[str, list[str]]:
        """The counter, so far on from `at`."""
        to, lines = self.fresh("to"), []
        if count.kind == "i32":
            narrow = self.fresh("d")
            lines.append(f"  {narrow} = trunc i64 {distance} to i32")
            distance = narrow
        return to, [*lines, f"  {to} = {'add' if count.step > 0 else 'sub'} {count.kind} {at}, {distance}"]

    def _next_strip(self, strips: _Strips, at: str, *, ahead: bool) -> list[str]:
        """As many turns as the fuel lasts, one at least, and what is left behind them if that is no more than half of
        them; what they cost is taken off the fuel."""
        count, fresh = strips.count, self.fresh
        fuel, turns, some, span, part, rest = (fresh(n) for n in ("fuel", "n", "n", "span", "part", "fuel"))
        left, lines = self._left(count, at, count.bound)
        ours = fresh("fuel")
        lines += [
            f"  {fuel} = load i64, ptr %clp.fuel",
            f"  {ours} = lshr i64 {fuel}, {int(strips.shares)}",
            f"  {turns} = lshr i64 {ours}, {strips.turn or strips.shift}",
            f"  {some} = call i64 @llvm.umax.i64(i64 {turns}, i64 1)",
            f"  {span} = mul i64 {some}, {abs(count.step)}",
        ]
        if strips.shares:
            lines.append(f"  {part} = call i64 @llvm.umin.i64(i64 {left}, i64 {span})")
        else:
            more, far, near = fresh("span"), fresh("span"), fresh("near")
            lines += [
                f"  {more} = lshr i64 {span}, 1",
                f"  {far} = add i64 {span}, {more}",
                f"  {near} = icmp ule i64 {left}, {far}",
                f"  {part} = select i1 {near}, i64 {left}, i64 {span}",
            ]
        if ahead:
            comes, chosen = fresh("ahead"), fresh("part")
            lines.append(f"  {comes} = icmp {count.predicate} {count.kind} {at}, {count.bound}")
            lines.append(f"  {chosen} = select i1 {comes}, i64 {part}, i64 0")
            part = chosen
        units = fresh("u")
        less = f"call i64 @llvm.usub.sat.i64(i64 {fuel}, i64 {units})" if strips.shares else f"sub i64 {fuel}, {units}"
        lines += [*self._units(strips, part, units), f"  {rest} = {less}"]
        to, moved = self._moved(count, at, part)
        lines += [f"  store i64 {rest}, ptr %clp.fuel", *moved, f"  store {count.kind} {to}, ptr {strips.limit}"]
        return lines

    def _count_down(self, header: str, cost: int) -> None:
        """Take fuel off at the beginning of each turn. Not at its end: the block that jumps back stays the one that
        tests for the exit, as loop strength reduction and the placement of blocks like it."""
        function = self.function
        first = function.blocks[header]
        rest = Block(self.fresh("turn"), lines=first.lines, terminator=first.terminator)
        for to in rest.succ:
            for phi in function.blocks[to].phis:
                phi.incoming[rest.name] = phi.incoming.pop(header)
        first.lines = []
        look = self._less(first, cost, rest.name)
        for made in (rest, look):
            function.blocks[made.name] = made

    def _look_each_turn(self, header: str) -> None:
        """Load the word and branch, at the beginning of each turn. Nothing is counted, so no end of a strip comes where
        the processor does not expect it; what it has begun to load ahead would be lost there."""
        function = self.function
        first = function.blocks[header]
        rest = Block(self.fresh("turn"), lines=first.lines, terminator=first.terminator)
        for to in rest.succ:
            for phi in function.blocks[to].phis:
                phi.incoming[rest.name] = phi.incoming.pop(header)
        look = Block(self.fresh("look"), terminator=f"  br label {rest.name}")
        wanted = self.fresh("look")
        first.lines = self._word(wanted)
        first.terminator = f"  br i1 {wanted}, label {look.name}, label {rest.name}, {UNLIKELY}"
        rest_of_fuel = self.fresh("fuel")
        look.lines = [f"  {rest_of_fuel} = load i64, ptr %clp.fuel"] if self._apart else []
        look.lines += self._refill(self.fresh("fuel"), rest_of_fuel if self._apart else "")
        for made in (rest, look):
            function.blocks[made.name] = made

    def _word(self, into: str) -> list[str]:
        """Whether the word says that somebody wants something. Its address is this thread's: a signal may have moved
        the uthread to another one since the last turn."""
        pointer, at, word_at, seen, wanted = (self.fresh(n) for n in ("tp", "at", "word", "seen", "wanted"))
        return [
            f"  {pointer} = call ptr @llvm.thread.pointer.p0()",
            f"  {at} = getelementptr i8, ptr {pointer}, i64 {self.target.word_offset}",
            f"  {word_at} = load atomic ptr, ptr {at} monotonic, align 8",
            f"  {seen} = load atomic i64, ptr {word_at} monotonic, align 8",
            f"  {wanted} = or i64 {seen}, {int(self.target.always)}",
            f"  {into} = icmp ne i64 {wanted}, 0",
        ]

    def _count_down_edge(self, latch: str, header: str, cost: int) -> None:
        """Take fuel off on the way from one block to another."""
        block = Block(self.fresh("turn"), terminator=f"  br label {header}")
        split_edge(self.function, latch, header, block)
        look = self._less(block, cost, header)
        self.function.blocks[look.name] = look
        also_from(self.function, header, block.name, look.name)

    def _less(self, block: Block, cost: int, then: str) -> Block:
        """Take fuel off at the end of a block that goes on to `then`; the block that looks if none is left."""
        old, new, low, full = (self.fresh(n) for n in ("fuel", "fuel", "low", "fuel"))
        look = Block(self.fresh("look"), terminator=f"  br label {then}")
        block.lines += [
            f"  {old} = load i64, ptr %clp.fuel",
            f"  {new} = sub i64 {old}, {cost}",
            f"  store i64 {new}, ptr %clp.fuel",
            f"  {low} = icmp slt i64 {new}, 0",
        ]
        block.terminator = f"  br i1 {low}, label {look.name}, label {then}, {UNLIKELY}"
        look.lines = self._refill(full)
        return look

    def _enter(self, has_loops: bool) -> None:
        """The counters, and a look at the word."""
        function = self.function
        old = function.entry
        entry, slow = Block("%clp.entry"), Block("%clp.entry.slow")
        moved = [line for line in old.lines if re.match(rf"  {NAME} = alloca ", line)]
        old.lines = [line for line in old.lines if line not in moved]
        entry.lines = moved
        if has_loops:
            # Part of what looks get the address of, the fuel stays in memory, at an address from rsp: loops miss a
            # register more than they mind the latency of a subtraction there, once a turn of what is around the
            # innermost.
            entry.lines += [f"  %clp.last = alloca [{WORDS} x i64]", word("%clp.last", FUEL, "%clp.fuel")]
            entry.lines += [f"  {name} = alloca {kind}, align 8" for name, kind in self._limits + self._outs]
            for number in (STAMP, UNTIMED):
                at = self.fresh("p")
                entry.lines += [word("%clp.last", number, at), f"  store i64 0, ptr {at}"]
            entry.lines += [f"  %clp.full = load atomic i64, ptr {cell(self.site - 1)} monotonic, align 8"]
            entry.lines += ["  store i64 %clp.full, ptr %clp.fuel"]
        entry.lines += self._word("%clp.look")
        entry.terminator = f"  br i1 %clp.look, label {slow.name}, label {old.name}, {UNLIKELY}"
        slow.lines = ["  call preserve_allcc void @clp.slow()"]
        slow.terminator = f"  br label {old.name}"
        function.blocks = {entry.name: entry, **function.blocks, slow.name: slow}

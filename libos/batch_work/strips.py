"""Putting probes into the loops of one function (probes.py says what is put where, and why).

The fuel and the ends of strips are in memory, `%clp.fuel` and `%clp.lim.N`. LLVM's SROA turns the ends into registers
afterwards (compile.py runs it), and the fuel of outlined copies; a function's own fuel stays in its frame, in
`%clp.last` (refill.py).

Invariant: fuel is 0 or more wherever a turn of a loop has taken fuel off as it began. Within such a turn it may be
less, by what loops took on credit, and behind a strip by half of what a poll gives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import cost as batch_cost
from . import steady as batch_steady
from .fuel import Strips, left, next_strip
from .ir import Block, Function, Loop, also_from, dominates, dominators, loops, preheader, split_edge
from .loops import (
    BRANCH,
    Count,
    children_are_rare,
    count_of,
    early_exits,
    hide_counters,
    most_turns,
    ways_past_children,
)
from .outline import Outlined, outline
from .polls import Looks
from .refill import LIKELY, RARE, UNLIKELY, USUAL, Target, cell

ON_CREDIT = 1024  # a loop that costs no more than this does not ask whether the fuel lasts, if the one around it will
FREE_IN_ROWS = 2048  # nor does a row in the copy of a loop around rows of one length, which polls at each
_HAS_EFFECT = re.compile(r"\b(call|invoke|atomicrmw|cmpxchg|volatile)\b")
PART_OF_FREE = 64  # what such a loop is reckoned at in a turn around it, where it is free


@dataclass
class Report:
    """What was done: number of loops by kind, and functions that got probes. unprobed_calls: places that call compiled
    functions whose code is not here (through a pointer, or compiled apart), which run without probes. steady: loops
    whose turns have a cost that is known ahead. each_turn: loops that poll at each turn. missing: why there are no
    probes at all; "" if all went well."""

    functions: int = 0
    strips: int = 0
    countdowns: int = 0
    short: int = 0
    unprobed_calls: int = 0
    steady: int = 0
    each_turn: int = 0
    missing: str = ""


class Prober(Looks):
    """Puts probes into one function. types: of its values (batch_ir.types_of). inner: see batch_cost.cost. made:
    functions that go with it."""

    def __init__(
        self,
        function: Function,
        types: dict[str, str],
        target: Target,
        report: Report,
        inner: dict[str, int],
        site: int,
    ) -> None:
        super().__init__(function, target, site)
        self.types = types
        self.made: list[Function] = []
        self.report = report
        self._searches: set[int] = set()
        self._light: set[int] = set()
        self._counted_down: set[int] = set()
        self._each_turn: set[int] = set()
        self._steady: dict[int, str] = {}
        self._paid_around: set[int] = set()
        self._sharing: set[int] = set()
        self._copies: list[list[Loop]] = []
        self._costs = {b.name: batch_cost.cost(b.lines, inner) + 1 for b in function.blocks.values()}

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
            self.count_down_edge(latch, header, 20)
            self.report.countdowns += 1
        self.enter(bool(found or odd))
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
                if light and any(id(child) not in short for child in loop.children):
                    self._each_turn.add(id(loop))
            if loop.children:
                hide_counters(self.function, loop, self.types, self.fresh)

    def _probe_all(self, found: list[Loop], counts: dict[int, Count | None], short: dict[int, int]) -> None:
        turns = {id(loop): self._turn(loop, short) for loop in found}
        probed = [loop for loop in found if id(loop) not in short and id(loop) not in self._paid_around]
        self._each_turn |= {id(loop) for loop in probed if counts[id(loop)] is None}
        idom = dominators(self.function)
        looked: set[int] = set()  # loops that poll at each turn, by a poll of their own or within
        for loop in probed:
            if any(
                id(child) in looked and all(dominates(idom, child.header, latch) for latch in loop.latches)
                for child in loop.children
            ):
                looked.add(id(loop))
                continue
            if id(loop) in self._each_turn:
                looked.add(id(loop))
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
        before = preheader(self.function, loop, self.fresh)
        away = self._outline(loop, before)
        self._probe_apart(away)
        own = sum(self._costs[b] for b in loop.own()) + sum(short.get(id(child), 0) for child in loop.children)
        few, shift, lines = batch_steady.reckon(rows, own + PART_OF_FREE * len(others), self.fresh)
        before.lines += lines
        self.function.blocks[away.call.name] = away.call
        before.terminator = f"  br i1 {few}, label {loop.header}, label {away.call.name}, {LIKELY}"
        self._steady[id(loop)] = shift
        self._each_turn.discard(id(loop))
        self.report.steady += 1
        self._paid_around |= paid
        self._sharing |= {id(loop)} if others else set()

    def _outline(self, loop: Loop, before: Block) -> Outlined:
        """Make a copy of a loop as a function of its own, and its slot."""
        away = outline(self.function, loop, before, self.types, self.fresh)
        self.made.append(away.function)
        self.slots.append((away.out, away.out_kind))
        return away

    def _probe_apart(self, away: Outlined) -> None:
        """Put probes into the copy of a loop around others."""
        kept = self.function, self.apart, self.slots
        self.function, self.apart, self.slots = away.function, True, []
        idom = dominators(self.function)
        found, _ = loops(self.function, idom)
        counts = {id(loop): count_of(self.function, loop, idom) for loop in found}
        short = self._short(found, counts)
        around = {id(loop) for loop in found if loop.children}
        self._light |= around
        self._each_turn |= around
        self._copies.append(found)  # so that no other loop gets the id of one of these
        self._probe_all(found, counts, short)
        away.function.entry.lines[:0] = [f"  {name} = alloca {kind}, align 8" for name, kind in self.slots]
        self.function, self.apart, self.slots = kept

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
        if id(loop) in self._each_turn:
            self.look_each_turn(loop.header, None if loop.children else preheader(self.function, loop, self.fresh))
            self.report.each_turn += 1
            return
        assert count is not None  # else it polls at each turn
        if not loop.children:
            self._pay(loop, count, cost)
        elif id(loop) in self._searches | self._light:
            self._strip_here(loop, count, cost)
        else:
            self.count_down(loop.header, cost)
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
        strips = Strips(loop, count, max(0, (cost - 1).bit_length()), self.fresh("lim"), shares=False)
        before = preheader(function, loop, fresh)
        away = self._outline(loop, before)
        self._strip_apart(away, count, strips.shift)
        first = self._first(loop, count, before)
        if loop.parent is not None and id(loop.parent) in self._searches:
            # What follows stays here: computed ahead of the search, it would take that one's registers.
            at = fresh("at")
            before.lines.append(f'  {at} = call {count.kind} asm sideeffect "", "=r,0"({count.kind} {first})')
            first = at
        distance, lines = left(count, first, count.bound, fresh)
        before.lines += lines
        paid, low = Block(fresh("paid"), terminator=f"  br label {loop.header}"), Block(fresh("low"))
        fuel, units, rest, full = (fresh(n) for n in ("fuel", "u", "fuel", "fuel"))
        paid.lines = [
            *strips.units(distance, units, fresh),
            f"  {fuel} = load i64, ptr %clp.fuel",
            f"  {rest} = sub i64 {fuel}, {units}",
            f"  store i64 {rest}, ptr %clp.fuel",
        ]
        split_edge(function, before.name, loop.header, paid)
        asks = self._ask_if_long(strips, distance, before, paid)
        gives = cell(self.site)
        had, half = self._enough(strips, distance, gives, asks, (paid.name, low.name))
        # If little is left, poll early: to call the copy for it costs more. Else the loop is longer than an interval.
        little, look = fresh("little"), Block(fresh("look"))
        low.lines = [f"  {little} = icmp slt i64 {had}, {half}"]
        low.terminator = f"  br i1 {little}, label {look.name}, label {away.call.name}"
        look.lines = self.refill(full, had if self.apart else "")
        self._enough(strips, distance, gives, look, (paid.name, away.call.name))
        for made in (low, look, away.call):
            function.blocks[made.name] = made
        for source, to in early_exits(function, loop, count):
            self._give_back(strips, source, to, count.bound)

    def _ask_if_long(self, strips: Strips, distance: str, before: Block, paid: Block) -> Block:
        """Let a loop begin that costs little, in one that polls soon: on credit, or for nothing where that one reckons
        with it. In a search, which may meet many of them before it polls, on credit only while fuel is left. The block
        where a longer one goes on."""
        function, loop = self.function, strips.loop
        free, credit, search = (
            loop.parent and id(loop.parent) in some for some in (self._light, self._counted_down, self._searches)
        )
        if not free and not credit and not search:
            return before
        asks, short, to = Block(self.fresh("asks")), self.fresh("short"), paid.name
        function.blocks[asks.name] = asks
        if free:
            begin = Block(self.fresh("begin"), terminator=f"  br label {loop.header}")
            split_edge(function, paid.name, loop.header, begin)
            to = begin.name
        most = strips.within(FREE_IN_ROWS if self.apart else ON_CREDIT)
        before.lines.append(f"  {short} = icmp ule i64 {distance}, {most}")
        if search:
            fuel, some, both = (self.fresh(n) for n in ("fuel", "some", "short"))
            before.lines += [
                f"  {fuel} = load i64, ptr %clp.fuel",
                f"  {some} = icmp sge i64 {fuel}, 0",
                f"  {both} = and i1 {short}, {some}",
            ]
            short = both
        before.terminator = f"  br i1 {short}, label {to}, label {asks.name}, {LIKELY}"
        return asks

    def _enough(
        self, strips: Strips, distance: str, place: str, block: Block, ways: tuple[str, str]
    ) -> tuple[str, str]:
        """Let a block go the first of two ways, likely, if the fuel and half of what a poll gives last for a distance.
        The fuel, and the half. place: of the poll, as its cell."""
        gives, half, fuel, both, reach, enough = (
            self.fresh(n) for n in ("gives", "half", "fuel", "fuel", "reach", "enough")
        )
        block.lines += [
            f"  {gives} = load atomic i64, ptr {place} monotonic, align 8",
            f"  {half} = lshr i64 {gives}, 1",
            f"  {fuel} = load i64, ptr %clp.fuel",
            f"  {both} = add i64 {fuel}, {half}",
            f"  {reach} = call i64 @llvm.smax.i64(i64 {both}, i64 0)",
            *strips.lasts(reach, distance, enough, self.fresh),
        ]
        block.terminator = f"  br i1 {enough}, label {ways[0]}, label {ways[1]}, {LIKELY}"
        return fuel, half

    def _strip_apart(self, away: Outlined, count: Count, shift: int) -> None:
        """Let the copy run in strips."""
        whole, self.function, self.apart = (self.function, self.apart), away.function, True
        strips = Strips(away.loop, count, shift, self.fresh("lim"), shares=False)
        away.function.entry.lines.insert(0, f"  {strips.limit} = alloca {count.kind}")
        exits = early_exits(self.function, away.loop, count)
        self._strip(strips)
        for source, to in exits:
            limit = self.fresh("lim")
            back = self._give_back(strips, source, to, limit)
            back.lines.insert(0, f"  {limit} = load {count.kind}, ptr {strips.limit}")
        self.function, self.apart = whole

    def _strip_here(self, loop: Loop, count: Count, cost: int) -> None:
        """Let a loop around others run in strips: one that seldom comes by those, or whose turns they are a part of."""
        turn = self._steady.get(id(loop), "")
        shift = max(0, (cost - 1).bit_length())
        strips = Strips(loop, count, shift, self.fresh("lim"), not turn or id(loop) in self._sharing, turn)
        self.slots.append((strips.limit, count.kind))
        self._strip(strips)

    def _strip(self, strips: Strips) -> None:
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

    def _grant(self, strips: Strips, at: str, names: tuple[str, str, str], *, entry: bool) -> None:
        """Blocks that give out a strip: poll if the fuel does not last for a turn, then set the strip's end. names: of
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
            rest = fuel if self.apart else ""
        else:
            on.terminator = f"  br label {look.name}"
            if strips.shares:
                rest = "0"
            elif self.apart:
                rest = fuel
                look.lines.append(f"  {fuel} = load i64, ptr %clp.fuel")
        look.lines += self.refill(full, rest)
        look.terminator = f"  br label {grant.name}"
        grant.lines += next_strip(strips, at, self.fresh, ahead=entry and strips.count.predicate != "ne")
        grant.terminator = f"  br label {names[2] if grant.name == names[1] else names[1]}"
        for made in (on, look, grant):
            self.function.blocks[made.name] = made

    def _all_on_credit(self, strips: Strips, at: str, on: Block, then: str) -> Block:
        """Let all that is left be one strip if half of what a poll gives would pay for what the fuel does not last for;
        the block where it goes on if not."""
        fresh, count = self.fresh, strips.count
        distance, lines = left(count, at, count.bound, fresh)
        on.lines += lines
        units, rest = fresh("u"), fresh("fuel")
        asks, every = Block(fresh("asks")), Block(fresh("all"), terminator=f"  br label {then}")
        fuel, _ = self._enough(strips, distance, cell(self.site), on, (every.name, asks.name))
        every.lines = [
            *strips.units(distance, units, fresh),
            f"  {rest} = sub i64 {fuel}, {units}",
            f"  store i64 {rest}, ptr %clp.fuel",
            f"  store {count.kind} {count.bound}, ptr {strips.limit}",
        ]
        for made in (asks, every):
            self.function.blocks[made.name] = made
        return asks

    def _end_of_strip(self, strips: Strips) -> None:
        """The exit test compares with the strip's end; what follows it tells that from the bound, and goes on."""
        function, fresh, count = self.function, self.fresh, strips.count
        block = function.blocks[count.at]
        branch = BRANCH.match(block.terminator)
        assert branch
        stay, out = (branch[2], branch[3]) if count.stays_if_true else (branch[3], branch[2])
        bound, inside, same = fresh("end"), fresh("in"), fresh("same")
        at, goes_on = fresh("at"), fresh("goes")
        if count.unused:
            block.lines = [line for line in block.lines if not line.startswith(f"  {count.unused} = ")]
        may_repeat = all(" = " in line and not _HAS_EFFECT.search(line) for line in block.lines)
        block.lines += [
            f"  {bound} = load {count.kind}, ptr {strips.limit}",
            f"  {inside} = icmp {count.predicate} {count.kind} {count.value}, {bound}",
        ]
        # Through the test again where that does no harm: the turns of a strip are then a loop within, which LLVM can
        # align (probes.py).
        again = count.at == strips.loop.header != stay and not strips.loop.children and may_repeat
        if strips.loop.children or (len(strips.loop.blocks) > 1 and not again):
            # Frozen in each turn, or LLVM would see that turns leave the end of their strip alone and make two loops of
            # this one, strips around turns. Loop strength reduction then has the addresses of the loops within begin
            # anew in each strip, and takes more registers to step them.
            block.lines += [
                f"  {same} = freeze {count.kind} {bound}",
                f"  store {count.kind} {same}, ptr {strips.limit}",
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
        self._grant(strips, at, (on, grant, count.at if again else stay), entry=False)
        if again:
            for phi in block.phis:
                phi.incoming[grant] = phi.name
        else:
            also_from(function, stay, count.at, grant)
        around = strips.loop.parent
        while around:  # leaving this loop may be a turn of the next one
            around.blocks.add(end.name)
            if out == around.header:
                around.latches = [end.name if name == count.at else name for name in around.latches]
            around = around.parent

    def _give_back(self, strips: Strips, source: str, to: str, limit: str) -> Block:
        """Behind an exit that was not counted for: the fuel of the turns up to `limit` that were not run."""
        fresh, count = self.fresh, strips.count
        back = Block(fresh("back"), terminator=f"  br label {to}")
        fuel, more = fresh("fuel"), fresh("fuel")
        at = fresh("at")  # hidden, as behind a strip
        hidden = f'  {at} = call {count.kind} asm "", "=r,0"({count.kind} {count.counter})'
        distance, lines = left(count, at, limit, fresh, "sext")
        back.lines = [hidden, *lines]
        if count.predicate != "ne":  # the last step may have gone beyond
            clamped = fresh("d")
            back.lines.append(f"  {clamped} = call i64 @llvm.smax.i64(i64 {distance}, i64 0)")
            distance = clamped
        units = fresh("u")
        back.lines += [
            *strips.units(distance, units, fresh),
            f"  {fuel} = load i64, ptr %clp.fuel",
            f"  {more} = add i64 {fuel}, {units}",
            f"  store i64 {more}, ptr %clp.fuel",
        ]
        split_edge(self.function, source, to, back)
        return back

    def _first(self, loop: Loop, count: Count, before: Block) -> str:
        """What the counter starts from, as the preheader sees it, whole steps before what is compared."""
        (counter,) = (phi for phi in self.function.blocks[loop.header].phis if phi.name == count.counter)
        first = counter.incoming[before.name]
        if count.ahead == 0:
            return first
        moved = self.fresh("first")
        before.lines.append(f"  {moved} = add {count.kind} {first}, {count.ahead}")
        return moved

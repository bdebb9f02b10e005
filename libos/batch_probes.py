"""Putting probes into optimised LLVM code.

This runs after LLVM's optimiser, on the final text of a module with everything that was linked into it: loops are
vectorised and unrolled already and stay as they are. So the results of a probed function are those of the plain one,
bit for bit, and array expressions and numba's own helpers (sorting, say) get probes like the code of the user. The text
has passed loop-simplify and LCSSA: one latch a loop, and phis behind it for what is used there.

How often to look is counted in *fuel*: units of the estimated cost of an instruction. A function has one fuel count.
Where it runs out, `@clp.refill` looks at the word, and sets the count anew for about TARGET_US.

    innermost loop that counts to an invariant bound: exists twice. Few turns ahead when it begins: it runs as it was,
        and its cost is taken off the fuel. Else it runs in strips: the copy's exit test compares with the end of the
        strip, `lim`, instead of the bound; what follows the strip looks if the fuel is gone, and goes on. Inside either
        loop no instruction is added.
    loop of cheap turns that seldom comes by the loops within it (a search): strips, without a second copy; the loops
        within look for themselves.
    loop whose turns are few, as the bound shows (remainders of unrolling): no probe; its cost is in its parent's turn.
    every other loop: fuel is taken off at the end of each turn, and a branch.
    function that has loops or may call itself: looks when it is entered, by a load and a branch.

Estimates are bad where memory is slow, so they are corrected while running: each place that refills has a cell of
`@clp.sites` with the fuel that it gives out; the next refill measures by the time stamp counter how long that lasted,
and adjusts the giver's cell. Only how often a probe looks depends on it, never a result.

What keeps a strip as tight as the plain loop: branch weights, so that the register allocator knows what lies between
strips as rare, and an empty `asm` around the counter behind a strip, through which loop strength reduction cannot see
(it would count the distance to the bound as well, every turn).

All counters live in allocas, which LLVM's SROA turns into registers afterwards (batch_compile.py runs it).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .batch_ir import (
    NAME,
    Block,
    Function,
    Loop,
    Module,
    also_from,
    clone_loop,
    definitions,
    dominates,
    dominators,
    loops,
    parse,
    preheader,
    split_edge,
)

TARGET_US = 0.8
RAISE = 4  # a short interval grows by 1 in 16: slowly, since turns that are cheap now may become dear again
FIRST_FUEL = 1024  # of a site's first interval: a tenth of a microsecond or so, until it was measured
LEAST_FUEL, MOST_FUEL = 16, 1 << 22
FEW = 512  # loops that cost less than this altogether are not looked at
FIRST_STRIP = 1024  # a loop that costs no more than this is run as it was
CHEAP_TURN = 24  # where two instructions more a turn would show

# Without weights the register allocator takes what is between strips for as hot as the strips.
_UNLIKELY, _LIKELY, _RARE, _USUAL = (f"!prof !99000{n}" for n in (1, 2, 3, 4))
_WEIGHTS = {_UNLIKELY: (1, 100_000), _LIKELY: (1000, 1), _RARE: (1, 32), _USUAL: (32, 1)}

_COSTS = (
    (re.compile(r"\b(phi|bitcast|getelementptr|freeze|inttoptr|ptrtoint|trunc)\b"), 0),
    (re.compile(r"= (sdiv|udiv|srem|urem) "), 12),
    (re.compile(r"= (fdiv|frem) |@llvm\.sqrt"), 8),
    (re.compile(r"call [^@]*@llvm\.(lifetime|assume|dbg|experimental\.noalias)"), 0),
    (re.compile(r"call [^@]*@llvm\.mem(cpy|set|move)"), 40),
    (re.compile(r"call [^@]*@llvm\."), 2),
    (re.compile(r"(\bcall\b|@llvm\.masked\.gather)"), 30),
)
_COMPARE = re.compile(r"icmp (?:samesign )?(\w+) (i\d+) (\S+), (\S+)$")
_ADD = re.compile(r"add (?:nuw |nsw )*i\d+ (\S+), (-?\d+)$")
_BRANCH = re.compile(rf"^  br i1 ({NAME}), label ({NAME}), label ({NAME})")
_CALLED = re.compile(r'\bcall\b[^@\n]*@("[^"]*"|[-\w.$]+)\(')
_THROUGH_POINTER = re.compile(rf"\bcall\b[^@%(]*{NAME}\(")
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
class Target:
    """What probes look at and call.

    word_offset: of the pointer to the word, from the thread pointer (a thread-local in the initial-exec model). slow:
    the C function `void (void)` for a word that is not 0. ticks_per_us: of the time stamp counter. always: act as if
    the word were never 0, for measuring when probes look. word: its address, for naive probes only. pad: bytes ahead
    of each function behind a 64-byte line's begin, for measuring what the place of code does; -1: wherever it comes
    to lie.
    """

    word_offset: int
    slow: str
    ticks_per_us: float
    always: bool = False
    word: int = 0
    pad: int = -1


@dataclass
class Report:
    """What was done: number of loops by kind, and functions that got probes. unprobed_calls: places that call compiled
    functions whose code is not here (through a pointer, or compiled apart), which run without probes."""

    functions: int = 0
    strips: int = 0
    countdowns: int = 0
    short: int = 0
    unprobed_calls: int = 0


@dataclass(frozen=True)
class _Count:
    """An exit test that counts: the branch of block `at` leaves the loop when `predicate` (of value against bound) is
    false."""

    at: str
    stays_if_true: bool
    predicate: str  # of staying in the loop
    kind: str
    value: str  # what is compared
    bound: str
    first: str  # what the counter starts from
    step: int
    unused: str  # the compare, if nobody else uses it


def _refill(target: Target) -> str:
    """The functions behind the probes. preserve_allcc: the callers' registers are left alone, vectors above all."""
    ticks = int(TARGET_US * target.ticks_per_us)
    wanted = "or i64 %seen, 1" if target.always else "or i64 %seen, 0"
    return f"""
define internal preserve_allcc void @clp.slow() noinline cold nounwind {{
  call void @{target.slow}()
  ret void
}}

define internal preserve_allcc i64 @clp.refill(ptr %site, ptr %last) noinline cold nounwind {{
entry:
  %fuel = load atomic i64, ptr %site monotonic, align 8
  %then = load i64, ptr %last, align 8
  %giver_at = getelementptr i8, ptr %last, i64 8
  %giver = load ptr, ptr %giver_at, align 8
  store ptr %site, ptr %giver_at, align 8
  %tp = call ptr @llvm.thread.pointer.p0()
  %pointer = getelementptr i8, ptr %tp, i64 {target.word_offset}
  %word = load ptr, ptr %pointer, align 8
  %seen = load atomic i64, ptr %word monotonic, align 8
  %wanted = {wanted}
  %look = icmp ne i64 %wanted, 0
  %now = call i64 @llvm.readcyclecounter()
  br i1 %look, label %slow, label %measure, {_UNLIKELY}
slow:
  call preserve_allcc void @clp.slow()
  %after = call i64 @llvm.readcyclecounter()
  br label %measure
measure:
  %from = phi i64 [ %now, %entry ], [ %after, %slow ]
  store i64 %from, ptr %last, align 8
  %took = sub i64 %now, %then
  %unknown = icmp eq i64 %then, 0
  br i1 %unknown, label %same, label %known
known:
  %gave = load atomic i64, ptr %giver monotonic, align 8
  %long = icmp ugt i64 %took, {ticks + ticks // 6}
  br i1 %long, label %less, label %perhaps
less:
  %scaled = mul i64 %gave, {ticks}
  %exact = udiv i64 %scaled, %took
  %eighth = lshr i64 %gave, 3
  %lower = call i64 @llvm.umax.i64(i64 %exact, i64 %eighth)
  %floor = call i64 @llvm.umax.i64(i64 %lower, i64 {LEAST_FUEL})
  br label %set
perhaps:
  %short = icmp ult i64 %took, {ticks - ticks // 6}
  br i1 %short, label %more, label %same
more:
  %part = lshr i64 %gave, {RAISE}
  %higher = add i64 %gave, %part
  %ceiling = call i64 @llvm.umin.i64(i64 %higher, i64 {MOST_FUEL})
  br label %set
set:
  %new = phi i64 [ %floor, %less ], [ %ceiling, %more ]
  store atomic i64 %new, ptr %giver monotonic, align 8
  br label %same
same:
  ret i64 %fuel
}}
"""


_DECLARED = {
    "ptr @llvm.thread.pointer.p0()": "llvm.thread.pointer.p0",
    "i64 @llvm.readcyclecounter()": "llvm.readcyclecounter",
    "i64 @llvm.umax.i64(i64, i64)": "llvm.umax.i64",
    "i64 @llvm.umin.i64(i64, i64)": "llvm.umin.i64",
}


def _cost(lines: Iterable[str], inner: dict[str, int]) -> int:
    total = 0
    for line in lines:
        called = _CALLED.search(line)
        if called and called[1] in inner:
            total += inner[called[1]]
            continue
        total += next((cost for pattern, cost in _COSTS if pattern.search(line)), 1)
    return total


class _Prober:
    """Puts probes into one function."""

    def __init__(self, function: Function, target: Target, report: Report, inner: dict[str, int], site: int) -> None:
        self.function = function
        self.target = target
        self.report = report
        self.inner = inner
        self.site = site  # the next free cell
        self._names = 0
        self._limits: list[tuple[str, str]] = []
        self._outer_strips: set[int] = set()
        self._costs = {b.name: _cost(b.lines, inner) + 1 for b in function.blocks.values()}

    def fresh(self, what: str) -> str:
        self._names += 1
        return f"%clp.{what}.{self._names}"

    def run(self) -> None:
        """Change the function. Innermost loops come first, since what is short adds to the cost of its parent."""
        idom = dominators(self.function)
        found, odd = loops(self.function, idom)
        counts = {id(loop): self._count(loop, idom) for loop in found}
        self._outer_strips = {
            id(x) for x in found if x.children and counts[id(x)] is not None and self._children_are_rare(x)
        }
        for loop in found:
            if id(loop) in self._outer_strips:
                self._call_children_rare(loop)
        short: dict[int, int] = {}
        for loop in found:
            cost = sum(self._costs[b] for b in loop.own() if b in self._costs)
            cost += sum(short.get(id(child), 4) for child in loop.children)
            count = counts[id(loop)]
            turns = None if count is None else self._few(count)
            if turns is not None and turns * cost < FEW:
                short[id(loop)] = turns * cost
                self.report.short += 1
            elif count is not None and not loop.children:
                self._two_versions(loop, count, cost)
                self.report.strips += 1
            elif count is not None and id(loop) in self._outer_strips:
                self._strip(loop, count, cost)
                self.report.strips += 1
            else:
                self._count_down([(latch, loop.header) for latch in loop.latches], cost)
                self.report.countdowns += 1
        for edge in odd:
            self._count_down([edge], 20)
            self.report.countdowns += 1
        self._enter(bool(found or odd))
        self.report.functions += 1

    # What is known of a loop

    def _children_are_rare(self, loop: Loop) -> bool:
        """Whether short turns may come by none of the loops within. (Those then look for themselves.)"""
        if sum(self._costs[b] for b in loop.own()) > CHEAP_TURN:
            return False
        own, seen, todo = loop.own(), {loop.header}, [loop.header]
        while todo:
            name = todo.pop()
            if name in loop.latches:
                return len(loop.latches) == 1
            for to in self.function.blocks[name].succ:
                if to in own and to not in seen:
                    seen.add(to)
                    todo.append(to)
        return False

    def _call_children_rare(self, loop: Loop) -> None:
        """Tell the register allocator that short turns are the rule: else it spills what they need, for the sake of the
        loops within."""
        own = loop.own()
        passes, grew = set(loop.latches), True
        while grew:  # backwards from the latch: what gets there by no loop within
            more = {b for b in own - passes if passes & set(self.function.blocks[b].succ) and b not in loop.latches}
            grew = bool(more)
            passes |= more
        for name in passes - set(loop.latches):
            block = self.function.blocks[name]
            branch = _BRANCH.match(block.terminator)
            if not branch or "!prof" in block.terminator:
                continue
            stays = [to in passes for to in branch.group(2, 3)]
            if stays[0] != stays[1] and branch[3 if stays[0] else 2] in loop.blocks:
                block.terminator += f", {_USUAL if stays[0] else _RARE}"

    def _count(self, loop: Loop, idom: dict[str, str]) -> _Count | None:
        """An exit test that every turn comes by, of a counter with a constant step against a bound that stays."""
        if len(loop.latches) != 1:
            return None
        known = definitions(self.function)
        latch = loop.latches[0]
        for name in loop.own():
            block = self.function.blocks[name]
            branch = _BRANCH.match(block.terminator)
            if not branch or name not in idom or not dominates(idom, name, latch):
                continue
            if (branch[2] in loop.blocks) == (branch[3] in loop.blocks):
                continue
            where, line = known.get(branch[1], ("", ""))
            compare = _COMPARE.match(line)
            if not compare or where != name:
                continue
            found = self._as_count(loop, block, branch, compare, known)
            if found:
                return found
        return None

    def _as_count(
        self, loop: Loop, block: Block, branch: re.Match[str], compare: re.Match[str], known: dict[str, tuple[str, str]]
    ) -> _Count | None:
        predicate, kind, left, right = compare.groups()
        if kind not in ("i32", "i64"):
            return None
        stays = branch[2] in loop.blocks
        for value, bound, pred in ((left, right, predicate), (right, left, _SWAPPED[predicate])):
            if bound.startswith("%") and known.get(bound, ("", ""))[0] in loop.blocks:
                continue
            if not bound.startswith("%") and not re.fullmatch(r"-?\d+", bound):
                continue
            counter = self._counter(loop, value, known)
            if counter is None:
                continue
            staying = pred if stays else _OPPOSITE[pred]
            first, step = counter
            if not (
                staying == "ne"
                or (staying[1:] in ("lt", "le") and step > 0)
                or (staying[1:] in ("gt", "ge") and step < 0)
            ):
                continue
            uses = sum(line.count(branch[1]) for b in self.function.blocks.values() for line in b.lines)
            uses += sum(
                list(phi.incoming.values()).count(branch[1]) for b in self.function.blocks.values() for phi in b.phis
            )
            uses += sum(b.terminator.count(branch[1]) for b in self.function.blocks.values())
            unused = branch[1] if uses == 2 else ""
            return _Count(block.name, stays, staying, kind, value, bound, first, step, unused)
        return None

    def _counter(self, loop: Loop, value: str, known: dict[str, tuple[str, str]]) -> tuple[str, int] | None:
        """Where `value` starts and its step, if it is a phi of the header or what that becomes in the next turn."""
        phis = {phi.name: phi for phi in self.function.blocks[loop.header].phis}
        for phi in phis.values():
            following = phi.incoming[loop.latches[0]]
            if value not in (phi.name, following):
                continue
            added = _ADD.match(known.get(following, ("", ""))[1])
            if not added or added[1] != phi.name or int(added[2]) == 0 or abs(int(added[2])) > 1 << 20:
                continue
            starts = {v for block, v in phi.incoming.items() if block != loop.latches[0]}
            if len(starts) == 1:
                return starts.pop(), int(added[2])
            return phi.name, int(added[2])  # the preheader that will be made has a phi for it
        return None

    def _few(self, count: _Count) -> int | None:
        """The most turns that the bound allows, if that shows."""
        known = definitions(self.function)
        if re.fullmatch(r"-?\d+", count.first):
            if re.fullmatch(r"-?\d+", count.bound):
                turns = (int(count.bound) - int(count.first)) // count.step + 1
                return turns if turns > 0 else None
            most = self._masked(count.bound, known)
            return None if most is None or count.first != "0" or count.step < 0 else most // count.step + 1
        if count.bound == "0" and count.step < 0:  # counts what was masked down to 0
            return self._masked(count.first, known)
        return None

    @staticmethod
    def _masked(value: str, known: dict[str, tuple[str, str]]) -> int | None:
        found = re.match(r"and i\d+ \S+, (\d+)$", known.get(value, ("", ""))[1])
        return int(found[1]) if found else None

    # Changing it

    def _two_versions(self, loop: Loop, count: _Count, cost: int) -> None:
        """An innermost loop that counts: as it is for when few turns are left at its beginning, and in strips."""
        function, fresh = self.function, self.fresh
        shift = max(0, (cost - 1).bit_length())
        before = preheader(function, loop, fresh)
        first = self._first(loop, count, before)
        short, begin, grant = Block(fresh("short")), fresh("begin"), fresh("grant")
        names = clone_loop(function, loop, grant, fresh)
        copy = Loop(names[loop.header], [names[b] for b in loop.latches], {names[b] for b in loop.blocks}, loop.parent)
        copied = replace(
            count, at=names[count.at], value=names[count.value], unused=names[count.unused] if count.unused else ""
        )
        around = loop.parent
        while around:
            around.blocks |= copy.blocks
            around = around.parent
        rare = loop.parent is not None and id(loop.parent) in self._outer_strips
        lines = []
        if rare:  # what follows stays here: computed ahead of the outer loop, it would take that one's registers
            at = fresh("at")
            lines, first = [f'  {at} = call {count.kind} asm sideeffect "", "=r,0"({count.kind} {first})'], at
        left, distance = self._left(count, first)
        lines += distance
        few, old, new = fresh("few"), fresh("fuel"), fresh("fuel")
        units, paid = self._units(left, count, shift)
        before.lines += [*lines, f"  {few} = icmp ule i64 {left}, {max(1, FIRST_STRIP >> shift) * abs(count.step)}"]
        short.lines = [*paid, f"  {old} = load i64, ptr %clp.fuel", f"  {new} = sub i64 {old}, {units}"]
        short.lines.append(f"  store i64 {new}, ptr %clp.fuel")
        split_edge(function, before.name, loop.header, short)
        short.terminator = f"  br label {loop.header}"
        if rare:
            self._look_if_low(short, loop.header, new)
        before.terminator = f"  br i1 {few}, label {short.name}, label {begin}"
        limit = fresh("lim")
        self._limits.append((limit, count.kind))
        self._grant(count, first, limit, shift, (begin, grant, copy.header), ahead=count.predicate != "ne")
        self._end_of_strip(copy, copied, limit, shift)

    def _strip(self, loop: Loop, count: _Count, cost: int) -> None:
        """Cut a loop that counts, and seldom comes by those within it, into strips."""
        shift = max(0, (cost - 1).bit_length())
        limit, begin, grant = (self.fresh(n) for n in ("lim", "begin", "grant"))
        self._limits.append((limit, count.kind))
        before = preheader(self.function, loop, self.fresh)
        first = self._first(loop, count, before)
        before.retarget(loop.header, begin)
        for phi in self.function.blocks[loop.header].phis:
            phi.incoming[grant] = phi.incoming.pop(before.name)
        self._grant(count, first, limit, shift, (begin, grant, loop.header), ahead=count.predicate != "ne")
        self._end_of_strip(loop, count, limit, shift)

    def _grant(
        self, count: _Count, at: str, limit: str, shift: int, names: tuple[str, str, str], *, ahead: bool = False
    ) -> None:
        """Blocks that give out a strip: look if there is no fuel, then set `limit`. names: of the first, the last, and
        where that goes on. ahead: the bound may lie behind; then the strip is empty."""
        on, look, grant = Block(names[0]), Block(self.fresh("look")), Block(names[1])
        fuel, low, full = (self.fresh(n) for n in ("fuel", "low", "fuel"))
        on.lines = [f"  {fuel} = load i64, ptr %clp.fuel", f"  {low} = icmp sle i64 {fuel}, 0"]
        on.terminator = f"  br i1 {low}, label {look.name}, label {grant.name}, {_UNLIKELY}"
        look.lines = [self._refill(full), f"  store i64 {full}, ptr %clp.fuel"]
        look.terminator = f"  br label {grant.name}"
        grant.lines = self._next_strip(count, at, limit, shift, ahead)
        grant.terminator = f"  br label {names[2]}"
        for made in (on, look, grant):
            self.function.blocks[made.name] = made

    def _look_if_low(self, before: Block, header: str, fuel: str) -> None:
        """On the way into a loop whose parent does not look at each turn."""
        low, full, look = self.fresh("low"), self.fresh("fuel"), Block(self.fresh("look"))
        before.lines.append(f"  {low} = icmp slt i64 {fuel}, 0")
        before.terminator = f"  br i1 {low}, label {look.name}, label {header}, {_UNLIKELY}"
        look.lines = [self._refill(full), f"  store i64 {full}, ptr %clp.fuel"]
        look.terminator = f"  br label {header}"
        self.function.blocks[look.name] = look
        also_from(self.function, header, before.name, look.name)

    def _refill(self, into: str) -> str:
        return f"  {into} = call preserve_allcc i64 @clp.refill(ptr {self._new_site()}, ptr %clp.last)"

    def _end_of_strip(self, loop: Loop, count: _Count, limit: str, shift: int) -> None:
        """The exit test compares with the strip's end; what follows it tells that from the bound, and goes on."""
        function, fresh = self.function, self.fresh
        block = function.blocks[count.at]
        branch = _BRANCH.match(block.terminator)
        assert branch
        stay, out = (branch[2], branch[3]) if count.stays_if_true else (branch[3], branch[2])
        bound, inside, at, goes_on = fresh("end"), fresh("in"), fresh("at"), fresh("goes")
        if count.unused:
            block.lines = [line for line in block.lines if not line.startswith(f"  {count.unused} = ")]
        block.lines += [
            f"  {bound} = load {count.kind}, ptr {limit}",
            f"  {inside} = icmp {count.predicate} {count.kind} {count.value}, {bound}",
        ]
        end, on, grant = Block(fresh("end")), fresh("on"), fresh("grant")
        tail = re.search(r"(, !llvm\.loop ![0-9]+)", block.terminator)
        block.terminator = f"  br i1 {inside}, label {stay}, label {end.name}, {_LIKELY}{tail[1] if tail else ''}"
        for phi in function.blocks[out].phis:
            phi.incoming[end.name] = phi.incoming.pop(count.at)
        # Hidden, or loop strength reduction would make a second counter of the distance to the bound.
        end.lines = [
            f'  {at} = call {count.kind} asm "", "=r,0"({count.kind} {count.value})',
            f"  {goes_on} = icmp {count.predicate} {count.kind} {at}, {count.bound}",
        ]
        end.terminator = f"  br i1 {goes_on}, label {on}, label {out}"
        function.blocks[end.name] = end
        self._grant(count, at, limit, shift, (on, grant, stay))
        also_from(function, stay, count.at, grant)
        around = loop.parent
        while around:  # leaving this loop may be a turn of the next one
            around.blocks.add(end.name)
            if out == around.header:
                around.latches = [end.name if name == count.at else name for name in around.latches]
            around = around.parent

    def _first(self, loop: Loop, count: _Count, before: Block) -> str:
        """What the counter starts from, as the preheader sees it."""
        for phi in self.function.blocks[loop.header].phis:
            if phi.name == count.first:
                return phi.incoming[before.name]
        return count.first

    def _left(self, count: _Count, at: str) -> tuple[str, list[str]]:
        """The distance from `at` to the bound, an unsigned i64."""
        distance = self.fresh("d")
        pair = f"{count.bound}, {at}" if count.step > 0 else f"{at}, {count.bound}"
        lines = [f"  {distance} = sub {count.kind} {pair}"]
        if count.kind == "i32":
            wide = self.fresh("d")
            lines.append(f"  {wide} = zext i32 {distance} to i64")
            distance = wide
        return distance, lines

    def _units(self, distance: str, count: _Count, shift: int) -> tuple[str, list[str]]:
        """Fuel for a distance (of fewer than 2^40): its turns, rounded up if the step is no power of two, times the
        cost."""
        by = shift - (abs(count.step).bit_length() - 1)
        units = self.fresh("u")
        return units, [f"  {units} = {'shl' if by >= 0 else 'lshr'} i64 {distance}, {abs(by)}"]

    def _moved(self, count: _Count, at: str, distance: str) -> tuple[str, list[str]]:
        """The counter, so far on from `at`."""
        to, lines = self.fresh("to"), []
        if count.kind == "i32":
            narrow = self.fresh("d")
            lines.append(f"  {narrow} = trunc i64 {distance} to i32")
            distance = narrow
        return to, [*lines, f"  {to} = {'add' if count.step > 0 else 'sub'} {count.kind} {at}, {distance}"]

    def _next_strip(self, count: _Count, at: str, limit: str, shift: int, ahead: bool) -> list[str]:
        """As many turns as the fuel lasts."""
        fuel, turns, some, span, part, rest = (self.fresh(n) for n in ("fuel", "n", "n", "span", "part", "fuel"))
        left, lines = self._left(count, at)
        lines += [
            f"  {fuel} = load i64, ptr %clp.fuel",
            f"  {turns} = lshr i64 {fuel}, {shift}",
            f"  {some} = call i64 @llvm.umax.i64(i64 {turns}, i64 1)",
            f"  {span} = mul i64 {some}, {abs(count.step)}",
            f"  {part} = call i64 @llvm.umin.i64(i64 {left}, i64 {span})",
        ]
        if ahead:
            comes, chosen = self.fresh("ahead"), self.fresh("part")
            lines.append(f"  {comes} = icmp {count.predicate} {count.kind} {at}, {count.bound}")
            lines.append(f"  {chosen} = select i1 {comes}, i64 {part}, i64 0")
            part = chosen
        units, paid = self._units(part, count, shift)
        to, moved = self._moved(count, at, part)
        return [
            *lines,
            *paid,
            f"  {rest} = sub i64 {fuel}, {units}",
            f"  store i64 {rest}, ptr %clp.fuel",
            *moved,
            f"  store {count.kind} {to}, ptr {limit}",
        ]

    def _count_down(self, edges: list[tuple[str, str]], cost: int) -> None:
        """Take fuel off on each of the edges, which go back in one loop."""
        for latch, header in edges:
            old, new, low, full = (self.fresh(n) for n in ("fuel", "fuel", "low", "fuel"))
            block, look = Block(self.fresh("turn")), Block(self.fresh("look"))
            block.lines = [
                f"  {old} = load i64, ptr %clp.fuel",
                f"  {new} = sub i64 {old}, {cost}",
                f"  store i64 {new}, ptr %clp.fuel",
                f"  {low} = icmp slt i64 {new}, 0",
            ]
            block.terminator = f"  br label {header}"
            split_edge(self.function, latch, header, block)
            look.lines = [
                self._refill(full),
                f"  store i64 {full}, ptr %clp.fuel",
            ]
            look.terminator = f"  br label {header}"
            block.terminator = f"  br i1 {low}, label {look.name}, label {header}, {_UNLIKELY}"
            self.function.blocks[look.name] = look
            also_from(self.function, header, block.name, look.name)

    def _enter(self, has_loops: bool) -> None:
        """The counters, and a look at the word."""
        function = self.function
        old = function.entry
        entry, slow = Block("%clp.entry"), Block("%clp.entry.slow")
        moved = [line for line in old.lines if re.match(rf"  {NAME} = alloca ", line)]
        old.lines = [line for line in old.lines if line not in moved]
        entry.lines = moved
        if has_loops:
            entry.lines += ["  %clp.fuel = alloca i64", "  %clp.last = alloca [2 x i64]"]
            entry.lines += [f"  {name} = alloca {kind}" for name, kind in self._limits]
            entry.lines += ["  store i64 0, ptr %clp.last"]
            entry.lines += [f"  %clp.full = load atomic i64, ptr {self._cell(self.site - 1)} monotonic, align 8"]
            entry.lines += ["  store i64 %clp.full, ptr %clp.fuel"]
        wanted = "or i64 %clp.seen, 1" if self.target.always else "or i64 %clp.seen, 0"
        entry.lines += [
            "  %clp.tp = call ptr @llvm.thread.pointer.p0()",
            f"  %clp.at = getelementptr i8, ptr %clp.tp, i64 {self.target.word_offset}",
            "  %clp.word = load ptr, ptr %clp.at, align 8",
            "  %clp.seen = load atomic i64, ptr %clp.word monotonic, align 8",
            f"  %clp.wanted = {wanted}",
            "  %clp.look = icmp ne i64 %clp.wanted, 0",
        ]
        entry.terminator = f"  br i1 %clp.look, label {slow.name}, label {old.name}, {_UNLIKELY}"
        slow.lines = ["  call preserve_allcc void @clp.slow()"]
        slow.terminator = f"  br label {old.name}"
        function.blocks = {entry.name: entry, **function.blocks, slow.name: slow}

    def _cell(self, site: int) -> str:
        return f"getelementptr inbounds (i64, ptr @clp.sites, i64 {site})"

    def _new_site(self) -> str:
        self.site += 1
        return self._cell(self.site - 1)


def _recursive(functions: list[Function]) -> set[str]:
    """Names of functions that can come to call themselves."""
    calls = {
        f.name: {c for b in f.blocks.values() for line in b.lines for c in _CALLED.findall(line)} for f in functions
    }
    found = set()
    for name in calls:
        seen: set[str] = set()
        todo = [name]
        while todo:
            for to in calls.get(todo.pop(), ()):
                if to not in seen:
                    seen.add(to)
                    todo.append(to)
        if name in seen:
            found.add(name)
    return found


def _ours(function: Function) -> bool:
    """Not numba's wrappers for Python and C, which call the function once, nor its reference counting."""
    return not function.name.strip('"').startswith(("_ZN7cpython", "cfunc.", "NRT_", "numba_"))


def _unprobed_calls(functions: list[Function]) -> int:
    """Calls of compiled functions that are not in this module: they are other libraries' code, without probes."""
    here, total = {f.name for f in functions}, 0
    for line in (line for f in functions for block in f.blocks.values() for line in block.lines):
        called = _CALLED.search(line)
        apart = called is not None and called[1].strip('"').startswith("_ZN") and called[1] not in here
        total += apart or _THROUGH_POINTER.search(line) is not None
    return total


_serial = itertools.count()


def _make_private(module: Module) -> dict[str, str]:
    """Make what was linked in this module's own, and return the new names, to be put in all over the text.

    numba loads the same functions without probes too, and its loader would take one for the other.
    """
    renamed = {}
    for function in module.functions():
        if _ours(function) and function.header.startswith("define linkonce_odr "):
            function.header = function.header.replace("define linkonce_odr ", "define internal ", 1)
            renamed[function.name] = f'"{function.name.strip(chr(34))}.clp.{next(_serial)}"'
    return renamed


def _rename(text: str, names: dict[str, str]) -> str:
    return re.sub(r'@("[^"]*"|[-\w.$]+)', lambda m: f"@{names.get(m[1], m[1])}", text)


def add_probes(text: str, target: Target) -> tuple[str, Report]:
    """The text of a module with probes in its loops and recursive functions, and what was done."""
    module, report = parse(text), Report()
    ours = [f for f in module.functions() if _ours(f)]
    report.unprobed_calls = _unprobed_calls(ours)
    recursive = _recursive(ours)
    inner: dict[str, int] = {}
    looping = set()
    for function in ours:
        if any(loops(function, dominators(function))):
            looping.add(function.name)
        elif function.name not in recursive:
            inner[function.name] = 10 + sum(_cost(b.lines, {}) for b in function.blocks.values())
    renamed = _make_private(module)
    site = 0
    for function in ours:
        if function.name not in looping | recursive:
            continue
        prober = _Prober(function, target, report, inner, site)
        prober.run()
        site = prober.site
        # The attributes say what the function does to memory, and it now does more.
        function.header = re.sub(r" #\d+( |$)", r" nounwind\1", function.header)
    if report.functions == 0:
        return text, report
    module.parts.append(
        f"@clp.sites = internal global [{max(site, 1)} x i64] [{', '.join([f'i64 {FIRST_FUEL}'] * max(site, 1))}]"
    )
    whole = _rename(str(module), renamed)
    declared = [
        f"declare {line}"
        for line, name in _DECLARED.items()
        if not re.search(rf"^declare .*@{re.escape(name)}\(", whole, re.M)
    ]
    if not re.search(rf"^declare .*@{target.slow}\(", whole, re.M):
        declared.append(f"declare void @{target.slow}()")
    weights = [f'{name[6:]} = !{{!"branch_weights", i32 {a}, i32 {b}}}' for name, (a, b) in _WEIGHTS.items()]
    return whole + _refill(target) + "\n".join([*declared, *weights, ""]), report


def place(text: str, pad: int) -> str:
    """Let functions begin so many bytes (a multiple of 16) behind the begin of a line of 64."""
    if pad < 0:
        return text
    attributes = f'"patchable-function-prefix"="{pad}" align 64'
    return re.sub(r"^(define .*) \{$", rf"\1 {attributes} {{", text, flags=re.M)


def add_naive_probes(text: str, target: Target) -> str:
    """A look at the word at the end of every turn of every loop, for comparison."""
    module, number = parse(text), 0
    renamed = _make_private(module)
    for function in module.functions():
        if not _ours(function):
            continue
        for loop in loops(function, dominators(function))[0]:
            for latch in loop.latches:
                number += 1
                look, slow = Block(f"%clp.look.{number}"), Block(f"%clp.slow.{number}")
                word = f"inttoptr (i64 {target.word} to ptr)"
                look.lines = [
                    f"  %clp.seen.{number} = load atomic i64, ptr {word} monotonic, align 8",
                    f"  %clp.any.{number} = icmp ne i64 %clp.seen.{number}, 0",
                ]
                look.terminator = f"  br label {loop.header}"
                split_edge(function, latch, loop.header, look)
                slow.lines = [f"  call void @{target.slow}()"]
                slow.terminator = f"  br label {loop.header}"
                look.terminator = f"  br i1 %clp.any.{number}, label {slow.name}, label {loop.header}"
                function.blocks[slow.name] = slow
                also_from(function, loop.header, look.name, slow.name)
    whole = _rename(str(module), renamed)
    return text if not number else f"{whole}declare void @{target.slow}()\n"

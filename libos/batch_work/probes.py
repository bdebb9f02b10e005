"""Putting probes into optimised LLVM code.

This runs after LLVM's optimiser, on the final text of a module with everything that was linked into it: loops are
vectorised and unrolled already and stay as they are. So the results of a probed function are those of the plain one,
bit for bit, and array expressions and numba's own helpers (sorting, say) get probes like the code of the user. The text
has passed loop-simplify and LCSSA: one latch a loop, and phis behind it for what is used there.

How often to poll is counted in *fuel*: units of the estimated cost of an instruction (cost.py). A function has
one fuel count. Where it runs out, `@clp.refill` polls the flag, and sets the count anew (refill.py).

    innermost loop that counts to an invariant bound (loops.py): if the fuel lasts to its end, that is taken off
        when the loop begins, and it runs as it was; an exit before the end gives back what it did not use. Else a copy
        of it runs in strips: the exit test compares with the end of the strip, `lim`, instead of the bound; what
        follows the strip polls and goes on. Inside either no instruction is added. The copy is a function of its own
        (outline.py): a second loop here would double what the loops around it have to keep in registers.
    loop around such loops, which make as many turns each time (steady.py): strips of turns whose cost is reckoned
        when it begins, and nothing is asked within; where a turn is too long for that, a copy runs in which it is.
    other loop that counts and whose loops within are short ones that count: polls at each turn, a load of the word and
        a branch, and those within are free unless they are long. Strips would cost more: the processor does not expect
        their ends, and what it has begun to load ahead is lost there.
    loop of cheap turns that seldom comes by the loops within it (a search): strips of half the fuel; the loops within
        look for themselves.
    where such a strip would end, or a loop begins with less fuel than it takes to its end: if half an interval more
        would do, all the rest is one strip, and the fuel goes below 0. Short rows then end where they would without
        probes, and the branch predictor meets no other ends in between.
    loop whose turns are few, as the bound shows (remainders of unrolling): no probe; its cost is in its parent's turn.
    loop that does not count: polls at each turn. What that takes is a guess, and a count of its own costs more than a
        poll does. Where turns are short, four of them are one (unroll.py).
    loop whose turns all come by such a poll of a loop within it: nothing.
    every other loop: fuel is taken off at the beginning of each turn, and a branch.
    function that has loops or may call itself: polls when it is entered, by a load and a branch.

What keeps a strip as tight as the plain loop: branch weights, so that the register allocator knows what lies between
strips as rare; an empty `asm` around the counter behind a strip, and behind an early exit, through which loop strength
reduction cannot see (it would count the distance to the bound as well, every turn); and the begin of a cache line,
where the innermost loops of copies are put, since a short one that straddles two lines may take twice as long.

Start reading here; strips.py is what changes a function, by polls (polls.py) and strips (fuel.py);
ir.py is what it stands on.
"""

from __future__ import annotations

import itertools
import re

from . import refill as batch_refill
from .cost import CALLED, cost
from .ir import NAME, Block, Function, Module, also_from, dominators, loops, parse, split_edge, types_of
from .refill import Target
from .strips import Prober, Report

# Of metadata; LLVM numbers its own from 0 on, and unroll.py begins at 970 000.
_FIRST_NODE, _FIRST_NODE_TO_MEASURE = 980_000, 985_000
TIGHT = 16  # lines of a loop that one cache line may hold
_THROUGH_POINTER = re.compile(rf"\bcall\b[^@%(]*{NAME}\(")


def _recursive(functions: list[Function]) -> set[str]:
    """Names of functions that can come to call themselves."""
    calls = {
        f.name: {c for b in f.blocks.values() for line in b.lines for c in CALLED.findall(line)} for f in functions
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
        called = CALLED.search(line)
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
            inner[function.name] = 10 + sum(cost(b.lines, {}) for b in function.blocks.values())
    types = types_of(str(module))
    renamed = _make_private(module)
    made: list[Function] = []
    site = 0
    for function in ours:
        if function.name not in looping | recursive:
            continue
        prober = Prober(function, types[function.name.strip('"')], target, report, inner, site)
        prober.run()
        made += prober.made
        site = prober.site
        # The attributes say what the function does to memory, and it now does more.
        function.header = re.sub(r" #\d+( |$)", r" nounwind\1", function.header)
        function.header = re.sub(r" \{$", " noredzone {", function.header)  # for call_ceded
    if report.functions == 0:
        return text, report
    module.parts += [batch_refill.cells(site), *made]
    aligned = _align(made, _FIRST_NODE, TIGHT)
    whole = _rename(str(module), renamed) + "\n".join([*aligned, ""])
    declared = batch_refill.externals(target) + [
        f"declare {line}"
        for line, name in batch_refill.DECLARED.items()
        if not re.search(rf"^declare .*@{re.escape(name)}\(", whole, re.M)
    ]
    if not re.search(rf"^declare .*@{target.slow}\(", whole, re.M):
        declared.append(f"declare void @{target.slow}()")
    return whole + batch_refill.functions(target) + "\n".join([*declared, *batch_refill.weights(), ""]), report


def place(text: str, target: Target) -> str:
    """For measuring: let functions begin target.pad bytes (a multiple of 16) behind the begin of a cache line, and if
    target.align says so, innermost loops at the begin of one. pad -1: as is."""
    if target.pad < 0:
        return text
    attributes = f'"patchable-function-prefix"="{target.pad}" align 64'
    whole = _align_loops(text) if target.align else text
    return re.sub(r"^(define .*) \{$", rf"\1 {attributes} {{", whole, flags=re.M)


def _align_loops(text: str) -> str:
    module = parse(text)
    return str(module) + "\n".join([*_align(list(module.functions()), _FIRST_NODE_TO_MEASURE), ""])


def _align(functions: list[Function], first: int, most: int | None = None) -> list[str]:
    """Let innermost loops, of at most so many lines, begin at the begin of a cache line: one that straddles two takes
    up to twice as long. The lines that this needs at the module's end, of metadata numbered from `first` on."""
    number, lines = itertools.count(first, 2), []
    for function in functions:
        for loop in loops(function, dominators(function))[0]:
            turn = (name for name in loop.blocks if not name.startswith("%clp."))  # without what lies between strips
            length = sum(len(function.blocks[name].lines) for name in turn)
            if loop.children or (most is not None and length > most):
                continue
            n = next(number)
            lines += [f"!{n} = distinct !{{!{n}, !{n + 1}}}", f'!{n + 1} = !{{!"llvm.loop.align", i32 64}}']
            for latch in loop.latches:  # one node for all: where they differ LLVM heeds none
                block = function.blocks[latch]
                block.terminator = re.sub(r", !llvm\.loop !\d+", "", block.terminator) + f", !llvm.loop !{n}"
    return lines


def add_naive_probes(text: str, target: Target) -> str:
    """A poll of the flag at the end of every turn of every loop, for comparison."""
    module, number = parse(text), 0
    renamed = _make_private(module)
    for function in module.functions():
        if not _ours(function):
            continue
        for loop in loops(function, dominators(function))[0]:
            for latch in loop.latches:
                number += 1
                look, slow = Block(f"%clp.poll.{number}"), Block(f"%clp.slow.{number}")
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

"""Unrolling of short loops that do not count, ahead of probes: one poll then serves several turns.

Such a loop polls at each turn (probes.py), which is two or three instructions more. A walk of a tree takes eight
a turn, and how far ahead the processor sees is counted in instructions. LLVM leaves such loops as they are, since it
cannot know how often they turn; on demand it puts copies of the body one behind the other, each with its exits.
Operations and their order stay the same.
"""

from __future__ import annotations

import itertools
import re

from . import cost as batch_cost
from .ir import dominators, loops, parse
from .loops import count_of

TURNS = 4  # for one poll; eight loads that miss take less than a microsecond
_MOST_COST = 24  # of a turn: a longer one minds a poll less
_MOST_BLOCKS = 8
_FIRST_NODE = 970_000  # of metadata; LLVM numbers its own from 0 on


def mark_loops(text: str) -> str | None:
    """The text of a module in which loops worth it are marked for LLVM's unroller, and no others; None if there are
    none. The module has passed loop-simplify: a loop has one latch."""
    module, number = parse(text), itertools.count(_FIRST_NODE, 2)
    nodes, any_is_short = [], False
    for function in module.functions():
        idom = dominators(function)
        for loop in loops(function, idom)[0]:
            blocks = [function.blocks[name] for name in loop.blocks]
            short = (
                not loop.children
                and len(blocks) <= _MOST_BLOCKS
                and sum(batch_cost.cost(block.lines, {}) + 1 for block in blocks) <= _MOST_COST
                and count_of(function, loop, idom) is None
            )
            any_is_short |= short
            wish = f'!"llvm.loop.unroll.count", i32 {TURNS}' if short else '!"llvm.loop.unroll.disable"'
            for latch in loop.latches:
                n, block = next(number), function.blocks[latch]
                nodes += [f"!{n} = distinct !{{!{n}, !{n + 1}}}", f"!{n + 1} = !{{{wish}}}"]
                block.terminator = re.sub(r", !llvm\.loop !\d+", "", block.terminator) + f", !llvm.loop !{n}"
    return str(module) + "\n".join([*nodes, ""]) if any_is_short else None

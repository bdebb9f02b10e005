"""An uneven split of work over cores: parts by speed, none above its cap. A row of `memory` is ROW words: speed, cap (a
part of the whole), and, out, the part."""

from __future__ import annotations

from typing import Any

from .tool import tool

ROW = 3
SPEED, CAP, PART = 0, 1, 2


@tool
def split(memory: Any, base: Any, n: Any) -> None:
    """Parts that sum to 1 and end as early as the caps allow: who is at its cap leaves the rest to the others, by their
    speed. Where all caps together are less than 1, by speed alone: somebody has to do it."""
    caps = 0.0
    for i in range(n):
        memory[base + ROW * i + PART] = -1.0
        caps += memory[base + ROW * i + CAP]
    left = 1.0
    while True:
        speed = 0.0
        for i in range(n):
            if memory[base + ROW * i + PART] < 0.0:
                speed += memory[base + ROW * i + SPEED]
        capped, spent = False, 0.0
        for i in range(n):
            row = base + ROW * i
            if memory[row + PART] < 0.0 and caps >= 1.0 and left * memory[row + SPEED] / speed > memory[row + CAP]:
                memory[row + PART] = memory[row + CAP]
                spent += memory[row + CAP]
                capped = True
        if not capped:
            for i in range(n):
                row = base + ROW * i
                if memory[row + PART] < 0.0:
                    memory[row + PART] = left * memory[row + SPEED] / speed
            return
        left -= spent

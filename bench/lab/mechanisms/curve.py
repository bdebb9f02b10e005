"""The convergence curve of a job: loss = 1 / (a p + b) + c by progress p, fitted to points that it reported. WORDS
words a job: how many points, whose they are, and the points; when there is no more room, every second one goes."""

from __future__ import annotations

from typing import Any

from .tool import tool

MOST = 12
WORDS = 3 + 2 * MOST
POINTS, WHOSE, STRIDE, FIRST = 0, 1, 2, 3
_TRIES = 24  # values of c that are tried


@tool
def note_loss(memory: Any, at: Any, progress: Any, loss: Any, whose: Any) -> None:
    """A job reported a loss (0: it reports none)."""
    if memory[at + POINTS] == 0.0 or memory[at + WHOSE] != whose:
        memory[at + POINTS], memory[at + WHOSE] = 0.0, whose
    n = int(memory[at + POINTS])
    if loss <= 0.0 or (n > 0 and progress <= memory[at + FIRST + 2 * n - 2]):
        return
    if n == MOST:
        for i in range(MOST // 2):
            memory[at + FIRST + 2 * i] = memory[at + FIRST + 4 * i]
            memory[at + FIRST + 2 * i + 1] = memory[at + FIRST + 4 * i + 1]
        n = MOST // 2
    memory[at + FIRST + 2 * n], memory[at + FIRST + 2 * n + 1] = progress, loss
    memory[at + POINTS] = n + 1


@tool
def _fit(memory: Any, at: Any, c: Any) -> Any:
    """For that c the a and b of least squares of 1 / (loss - c), and the squared error in the loss."""
    n = int(memory[at + POINTS])
    sx, sy, sxx, sxy = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        x, y = memory[at + FIRST + 2 * i], 1.0 / (memory[at + FIRST + 2 * i + 1] - c)
        sx, sy, sxx, sxy = sx + x, sy + y, sxx + x * x, sxy + x * y
    a = (n * sxy - sx * sy) / (n * sxx - sx * sx)
    b = (sy - a * sx) / n
    error = 0.0
    for i in range(n):
        off = 1.0 / (a * memory[at + FIRST + 2 * i] + b) + c - memory[at + FIRST + 2 * i + 1]
        error += off * off
    return a, b, error


@tool
def left_by_loss(memory: Any, at: Any, target: Any) -> Any:
    """Work that a job has left until its loss is at the target, from its last point on; 0: not to be told, for it has
    less than three points, or its curve never gets there."""
    n = int(memory[at + POINTS])
    if n < 3 or target <= 0.0:
        return 0.0
    last, loss = memory[at + FIRST + 2 * n - 2], memory[at + FIRST + 2 * n - 1]
    least, total = 1e300, 0.0
    for i in range(_TRIES):
        c = min(loss, target) * i / _TRIES
        a, b, error = _fit(memory, at, c)
        if a > 0.0 and error < least:
            least, total = error, (1.0 / (target - c) - b) / a
    return max(total - last, 0.0)

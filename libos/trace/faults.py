"""Page faults of handlers as a stage: how many there were, times what one costs here.

When a fault came and how long it took no counter says. A message's record has how many its thread had since the slow
one before (`struct cl_trace_message`), so these are shared out by the time that handlers ran meanwhile: exact where all
were recorded and faults come evenly, too many where only a sample was. What one costs is measured where the records are
read. The stage never takes more than the handler ran.
"""

from __future__ import annotations

import functools
import mmap
import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

PAGES = 64


@functools.cache
def cost_us() -> float:
    """What a page costs that is touched for the first time, beyond what the next touch does: the middle one of PAGES.
    Measured once."""
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        first, again = (statistics.median(_touch_ns(memory)) for _ in range(2))
    return max(first - again, 0.0) / 1e3


def _touch_ns(memory: mmap.mmap) -> list[int]:
    took = []
    for page in range(PAGES):
        begun = time.perf_counter_ns()
        memory[page * mmap.PAGESIZE] = 1
        took.append(time.perf_counter_ns() - begun)
    return took


def of_handlers(messages: Array, ran: Array, each: float) -> Array:
    """Ticks of what each handler ran that page faults explain. each: ticks that one costs."""
    import numpy

    out = numpy.zeros(len(messages))
    counted = messages["faults"].astype(float)
    if each <= 0 or not counted.any():
        return out
    own = ran / numpy.maximum(messages["shared"], 1)
    for kthread in numpy.unique(messages["kthread"][counted > 0]):
        rows = numpy.nonzero(messages["kthread"] == kthread)[0]
        rows = rows[numpy.argsort(messages["begin"][rows] + messages["end"][rows], kind="stable")]
        total, slow = numpy.cumsum(own[rows]), numpy.nonzero(counted[rows] > 0)[0]
        meanwhile = numpy.diff(total[slow], prepend=0.0)  # what all ran, from the slow one before to its end
        rows = rows[slow]
        part = own[rows] / numpy.maximum(meanwhile, 1.0)
        out[rows] = numpy.minimum(counted[rows] * each * part, ran[rows])
    return out

"""corelane.bench.harness: the rules of measuring, so that no benchmark has its own.

    session.py   one run of one benchmark: interleaving, canary slices, arms, figures, the document
    jitter.py    the canary: gaps of spinning threads, and which percentiles they alone explain
    patience.py  --patient: waits for quieter rounds, measures loud ones again
    openloop.py  load points, peak search, sweeps that say where they stopped and why
    numbers.py   percentiles with unanswered requests as infinite, pairwise ratios
    pairs/       the p99 of arms over those of others, by turns in pairs, until each is decided
    tails/       the p99 of an arm over another's, by turns, without what the host took
    machine.py   what the measurement ran on; the cache-line round trip between the cores used
    power.py     /dev/cpu_dma_latency, held for all arms or for none
    usage.py     CPU time and context switches of threads
    document.py  the JSON document: its shape, and the check of it
    table.py     the text a person reads
    plot.py      plots by matplotlib, and the lint that every one of them passes

Nothing here imports numpy but tails/, when it compares; matplotlib only when a plot is asked for.
"""

from .numbers import Ratio, pairwise
from .openloop import Point
from .session import Session

__all__ = ["Point", "Ratio", "Session", "pairwise"]

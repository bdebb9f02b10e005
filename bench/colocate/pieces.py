"""Where the time of a request goes beside the job, piece by piece: ours, beside raw hand-overs of the same run.

Ours is stamped by who does the piece: the loop that takes the frame and decides, the job that loses the core, kv's
kthread that begins, and kv's trace of each request (mode full). All stamps are of one clock, the processor's counter.
That costs kv some time a request, so these slots are their own and no figure is of them.

Raw hand-overs have the stamps of raw.h. With kv's handler (RAW_KV) both sides leave each other the caches as kv and the
job do: so a piece that ours and RAW_KV have alike is what sharing a core costs whoever does it.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...drivers.nic.loadgen.loadgen import Memcached as Traffic
from ...iokernel.control.moves import BESIDES, Move, parts_of, whole
from ...runtime.clock import default_clock
from ...runtime.trace import Segment
from .._native import lib
from ..harness.session import Session
from .arms import LOW_RPS, LOW_TARGET_US, Beside, Ours
from .raw import RAW, RAW_KV

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

DECIDES, SEES, YIELDS, BEGINS = "taken until decided", "until the job sees it", "until it yields", "until kv begins"
PICKS, STARTS, ENDS, SENDS = "until kv has the frame", "until its handler", "handler", "until the doorbell"
ORDER = (DECIDES, SEES, YIELDS, BEGINS, PICKS, STARTS, ENDS, SENDS)
FREES, RETURNS = "doorbell until the core is the job's", "until the job runs"
BACK = (FREES, RETURNS)
WARM = (PICKS, STARTS, ENDS, SENDS)  # what a request takes where kv has the core: from the loop's look on
SLOTS, SLOT_S = 12, 0.02  # of each arm: a ring of records holds as many requests
BESIDE, BACK_TO, ALONE = "pieces: beside the job", "pieces: back to the job", "pieces: kv alone"
SHOWN = (("median", 0.5), ("p90", 0.9), ("p99", 0.99))
FEWEST = 100  # requests, for a row


def measure(session: Session, cores: tuple[int, int], traffic: Traffic, raw: Mapping[str, Sequence[Beside]]) -> None:
    """Rows of the pieces: ours beside the job and alone, and those of raw hand-overs in slots that have been taken."""
    session.say("where the time of a request goes")
    found: dict[str, list[Mapping[str, Sequence[float]]]] = {BESIDE: [], BACK_TO: [], ALONE: []}
    with contextlib.ExitStack() as stack:
        ours = Ours(stack, cores, traffic, trace="full")
        segment = stack.enter_context(Segment.of_process(ours.kv.pid))
        ours.alone(1000.0, 0.05)
        for _ in range(SLOTS):
            there, back = beside(ours, segment)
            found[BESIDE].append(there)
            found[BACK_TO].append(back)
            found[ALONE].append(alone(ours, segment))
    for name in (RAW, RAW_KV):
        found[f"pieces: {name}"] = [slot.pieces for slot in raw.get(name, ())]
    for name, slots in found.items():
        add_rows(session, name, slots)
    session.settings["pieces"] = {name: medians(slots) for name, slots in found.items()}


def beside(ours: Ours, segment: Segment) -> tuple[Mapping[str, Sequence[float]], Mapping[str, Sequence[float]]]:
    """A slot beside the job: the way to kv and the way back."""
    ours.made.set_policy("delay", f"target_us={LOW_TARGET_US:g} moves_percent=100")
    with ours.job.working():
        segment.skip()
        ours.made.moves()
        ours.made.beside("kv", ours.job, LOW_RPS, SLOT_S)
        moves, records = ours.made.moves(), segment.read()
    return joined(moves, records.messages), way_back(moves, records.messages)


def alone(ours: Ours, segment: Segment) -> Mapping[str, Sequence[float]]:
    """A slot of kv with the core to itself."""
    ours.made.set_policy("delay", f"target_us={LOW_TARGET_US:g}")
    segment.skip()
    ours.made.beside("kv", None, LOW_RPS, SLOT_S)
    messages = segment.read().messages
    edges = [messages[name].astype(float) for name in ("pickup", "start", "end", "sent")]
    return dict(zip(WARM, _us([edges[0], *(b - a for a, b in itertools.pairwise(edges))]), strict=True))


def joined(moves: Sequence[Move], messages: Array) -> Mapping[str, Sequence[float]]:
    """us of each piece, of the requests for which the core was moved to kv: a move belongs to the first request that kv
    picked up after it had begun, if that was there when it was decided."""
    import numpy as np

    ends = messages[np.argsort(messages["begin"])]
    begin = ends["begin"].astype(np.int64)
    picked = begin + ends["pickup"]
    rows: list[list[float]] = []
    for wanted, done in asked(moves):
        stamps = [whole(low, wanted.tsc) for low in (done.decided, done.lost, done.left, done.back)]
        at = int(np.searchsorted(picked, stamps[-1]))
        if at < len(ends) and begin[at] <= stamps[0]:
            came = int(begin[at])
            after = [came + int(ends[name][at]) for name in ("pickup", "start", "end", "sent")]
            rows.append([float(b - a) for a, b in itertools.pairwise([came, *stamps, *after])])
    columns = np.array(rows).reshape(-1, len(ORDER)).T
    return dict(zip(ORDER, _us(columns), strict=True))


def way_back(moves: Sequence[Move], messages: Array) -> Mapping[str, Sequence[float]]:
    """us of each of BACK, of moves from kv, which has parked, to the job: from the last doorbell that kv had rung."""
    import numpy as np

    rung = np.sort(messages["begin"].astype(np.int64) + messages["sent"])
    rows: list[list[float]] = []
    for wanted, done in ended(moves, lib.CL_IO_STEP_PARKED):
        decided, back = (whole(low, wanted.tsc) for low in (done.decided, done.back))
        at = int(np.searchsorted(rung, decided)) - 1
        if at >= 0 and done.back:
            rows.append([float(decided - rung[at]), float(back - decided)])
    return dict(zip(BACK, _us(np.array(rows).reshape(-1, len(BACK)).T), strict=True))


def ended(moves: Sequence[Move], step: int) -> Iterable[tuple[Move, Move]]:
    """Moves that began with this step: their decision and their end."""
    kept = [move for move in moves if move.what not in BESIDES]
    for wanted, done in itertools.pairwise(kept):
        if (wanted.what, wanted.step, done.what) == (lib.CL_IO_LOG_WANTED, step, lib.CL_IO_LOG_DONE):
            yield wanted, done


def asked(moves: Sequence[Move]) -> Iterable[tuple[Move, Move]]:
    """Moves from the job, which runs, to kv: their decision and their end, with all stamps."""
    return [both for both in ended(moves, lib.CL_IO_STEP_REQUEST) if parts_of(*both) is not None]


def _us(ticks: Iterable[Any]) -> list[list[float]]:
    """As lists; stamps of two cores may differ by the skew of their counters, and what would be negative is 0."""
    us = 1e6 / default_clock().hz
    return [[max(float(value) * us, 0.0) for value in column] for column in ticks]


def together(slots: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Each piece of all slots, ascending."""
    names = list(dict.fromkeys(name for slot in slots for name in slot))
    return {name: sorted(value for slot in slots for value in slot.get(name, ())) for name in names}


def medians(slots: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Of each piece, us."""
    return {name: statistics.median(values) for name, values in together(slots).items() if values}


def add_rows(session: Session, name: str, slots: Sequence[Mapping[str, Sequence[float]]]) -> None:
    """Rows of an arm: each piece's percentiles by itself, and how many requests they are of."""
    pieces = together(slots)
    n = min(map(len, pieces.values()), default=0)
    if n < FEWEST:
        session.skip(name, f"{n} requests are too few to say where their time goes")
        return
    for what, q in SHOWN:
        values = {f"{piece}, us": found[min(int(q * len(found)), len(found) - 1)] for piece, found in pieces.items()}
        session.arm(f"{name}, {what}", requests=n, **values)

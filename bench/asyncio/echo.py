"""A TCP echo on asyncio: what 100 connections get out of it in a closed loop, how long an answer takes at half of what
uvloop carries, and what an idle server takes of a core.

Each loop's server is asked over AF_XDP, which the figures are of, and by a client on kernel sockets, beside: that one
is itself the limit of what is asked. What bounds ours stands beside the figures: the same echo in C on our TCP, a
reflector of segments, and the interpreter's own time for a message (entry.py). A service that does something stands
beside the echo on memory links: a rate limiter (limiter.py).
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...drivers.linux import netns
from ...runtime.errors import SystemLimit
from ..harness import rest
from ..harness.numbers import pairwise
from ..harness.openloop import Point, middle
from ..harness.session import Session
from ..tcp import links
from . import entry, limiter, loops, places
from .loops import OURS, STOCK, UVLOOP
from .places import CONNECTIONS, Floors, Served
from .server import ECHO, PORTS, PROTOCOLS, STREAMS

OVER, STREAMS_OVER, P99 = "asyncio.over_uvloop", "asyncio.streams_over_uvloop", "asyncio.p99_over_uvloop"
MEMORY, NUMBA, IDLE = "asyncio.over_uvloop_memory", "embed.numba_over_asyncio", "idle.asyncio_busy"
FIGURES = (OVER, STREAMS_OVER, MEMORY, P99, NUMBA, IDLE)
FORMS = (PROTOCOLS, STREAMS)
KERNEL = "kernel client"
IN_C, IN_C_KERNEL, REFLECTOR = "echo in C on our TCP", f"echo in C on our TCP, {KERNEL}", "reflector"
ON_MEMORY, STREAMS_ON_MEMORY = (f"{OURS}, {form}, memory NIC" for form in FORMS)
NUMBA_ON_MEMORY, REFLECTOR_ON_MEMORY = "numba handler, memory NIC", "reflector, memory NIC"
ENTRY = "Python entry"
FLOORS = (IN_C, IN_C_KERNEL, REFLECTOR)
BY_KERNEL = (UVLOOP, OURS)
ROUNDS = 5
HALF = 0.5  # of what uvloop carries
ENTRY_LEAST_S = 0.01
IDLE_LEAST_S = 1.0
SHARES = {"rates": 0.65, "tails": 0.2, "idle": 0.1, "entry": 0.05}


def arm_name(loop: str, form: str, *, kernel: bool = False) -> str:
    """A row's name. kernel: asked by a client on kernel sockets."""
    return f"{loop}, {form}, {KERNEL}" if kernel else f"{loop}, {form}"


def at_half(name: str) -> str:
    """The row of an arm in the open loop."""
    return f"{name}, at half of uvloop's rate"


def usable(session: Session, what: Callable[[str], Sequence[str]]) -> list[str]:
    """The loops that can be measured on veth pairs here; the others' arms, `what` of them, are skipped with the
    reason."""
    found = []
    for loop in loops.ALL:
        why = netns.missing() or loops.missing(loop)
        if loop in loops.BASELINES and not session.baseline:
            why = "--no-baseline was given"
        if not why:
            found.append(loop)
        for arm in what(loop) if why else ():
            session.skip(arm, why)
    return found


def _arms_of(loop: str) -> list[str]:
    forms = [arm_name(loop, form) for form in FORMS]
    return forms + [arm_name(loop, form, kernel=True) for form in FORMS if loop in BY_KERNEL]


def measure(session: Session, seconds: float) -> None:
    """All of it."""
    entry_ns = _entry(session, SHARES["entry"] * seconds)
    with contextlib.ExitStack() as stack:
        cores = session.two_cores
        on_loops = usable(session, _arms_of)
        served = {loop: Served(stack, cores, loop, ECHO) for loop in on_loops}
        floors = None if netns.missing() else Floors(stack, cores)
        rates = _rates(session, served, floors, SHARES["rates"] * seconds)
        _figures(session, rates, entry_ns)
        carried = rates.get(arm_name(UVLOOP, PROTOCOLS), [])
        if carried and floors:
            _tails(session, served, floors, HALF * statistics.median(carried), SHARES["tails"] * seconds)
        if served:
            _idle(session, served, max(SHARES["idle"] * seconds, IDLE_LEAST_S))


def _entry(session: Session, seconds: float) -> list[float]:
    """ns that the interpreter takes for a message, by rounds; none where it cannot be measured."""
    with tempfile.TemporaryDirectory(prefix="corelane-bench-") as folder:
        try:
            extension = entry.compile_into(Path(folder))
        except SystemLimit as error:
            session.skip(ENTRY, str(error))
            return []
        slot = max(seconds / ROUNDS, ENTRY_LEAST_S)
        of_core = partial(entry.message_ns, extension, session.two_cores[1], CONNECTIONS, links.REQUEST_BYTES, slot)
        took = session.interleave({ENTRY: of_core}, ROUNDS)[ENTRY]
    session.arm(ENTRY, n=len(took), ns=statistics.median(took), most_rps=1e9 / statistics.median(took), runs=took)
    return took


def _rates(
    session: Session, served: Mapping[str, Served], floors: Floors | None, seconds: float
) -> dict[str, list[float]]:
    """Answers a second of all arms in closed loops, by rounds."""
    arms: dict[str, Callable[[float], Point]] = {}
    for loop, place in served.items():
        for form in FORMS:
            arms[arm_name(loop, form)] = partial(place.ask, PORTS[form], 0.0)
            if loop in BY_KERNEL:
                arms[arm_name(loop, form, kernel=True)] = partial(place.ask_by_kernel, PORTS[form], 0.0)
    if floors:
        arms |= {
            IN_C: partial(floors.in_c, 0.0),
            IN_C_KERNEL: partial(floors.in_c_by_kernel, 0.0),
            REFLECTOR: partial(floors.reflector, 0.0),
        }
    else:
        for name in FLOORS:
            session.skip(name, str(netns.missing()))
    with contextlib.ExitStack() as stack:
        memory = {NUMBA_ON_MEMORY: places.numba_on_memory, REFLECTOR_ON_MEMORY: places.reflector_on_memory}
        of_ours = {ON_MEMORY: PROTOCOLS, STREAMS_ON_MEMORY: STREAMS}
        if why := loops.missing(OURS):
            for name in of_ours:
                session.skip(name, why)
        else:
            memory |= {name: partial(places.loop_on_memory, form) for name, form in of_ours.items()}
        if why := limiter.missing() or loops.missing(OURS):
            for name in limiter.ARMS:
                session.skip(name, why)
        else:
            memory |= limiter.ARMS
        for name, on_memory in memory.items():
            arms[name] = partial(stack.enter_context(on_memory(session.two_cores)), 1.0)
        slot = seconds / ROUNDS / len(arms)
        points = session.interleave({name: partial(arm, slot) for name, arm in arms.items()}, ROUNDS)
    for name, several in points.items():
        session.point(name, middle(several))
    return {name: [point.achieved_rps for point in several] for name, several in points.items()}


def _ratio(rates: Mapping[str, Sequence[float]], above: str, below: str) -> float:
    """The median ratio of two arms, pair by pair; 0 if one of them was not measured."""
    if not rates.get(above) or not rates.get(below):
        return 0.0
    return pairwise(rates[above], rates[below]).median


def _set(
    session: Session, figure: str, rates: Mapping[str, Sequence[float]], arms: tuple[str, str], beside: dict[str, float]
) -> None:
    """A figure of two arms' rates; not of arms that answered nothing in a round, nor of arms that were not measured."""
    above, below = (rates.get(arm, ()) for arm in arms)
    if not above or not below:
        return  # the skipped arms say why
    if not all(above) or not all(below):
        session.figure(figure, None, reason="in some round a server answered nothing")
        return
    session.ratio_figure(figure, above, below, beside={name: ratio for name, ratio in beside.items() if ratio})


def _figures(session: Session, rates: Mapping[str, Sequence[float]], entry_ns: Sequence[float]) -> None:
    """What follows from the rates, with the bounds beside."""
    for figure, form in ((OVER, PROTOCOLS), (STREAMS_OVER, STREAMS)):
        theirs, by_kernel = arm_name(UVLOOP, form), arm_name(UVLOOP, form, kernel=True)
        beside = {
            "over the stock loop": _ratio(rates, arm_name(OURS, form), arm_name(STOCK, form)),
            "with a kernel client": _ratio(rates, arm_name(OURS, form, kernel=True), by_kernel),
            "bound with a kernel client: the echo in C": _ratio(rates, IN_C_KERNEL, by_kernel),
            "bound: the echo in C on our TCP": _ratio(rates, IN_C, theirs),
            "bound: a reflector of segments": _ratio(rates, REFLECTOR, theirs),
        }
        if form == PROTOCOLS and entry_ns and rates.get(IN_C) and all(rates[IN_C]):
            both = {IN_C: _with_entries(rates[IN_C], entry_ns)} | {theirs: rates.get(theirs, ())}
            beside["that echo, and a Python entry for each request"] = _ratio(both, IN_C, theirs)
        _set(session, figure, rates, (arm_name(OURS, form), theirs), beside)
    _set(session, MEMORY, rates, (ON_MEMORY, arm_name(UVLOOP, PROTOCOLS)), {})
    beside = {
        "the echo": _ratio(rates, NUMBA_ON_MEMORY, ON_MEMORY),
        "the echo, over our loop's streams": _ratio(rates, NUMBA_ON_MEMORY, STREAMS_ON_MEMORY),
        "bound by client and link: a reflector of segments": _ratio(rates, REFLECTOR_ON_MEMORY, limiter.OURS),
    }
    _set(session, NUMBA, rates, (limiter.NUMBA, limiter.OURS), beside)


def _with_entries(rates: Sequence[float], entry_ns: Sequence[float]) -> list[float]:
    """Answers a second if a server did nothing but what it does at `rates` and, behind it, an entry for each."""
    return [1 / (1 / rate + ns * 1e-9) for rate, ns in zip(rates, entry_ns, strict=False)]


def _tails(session: Session, served: Mapping[str, Served], floors: Floors, rate: float, seconds: float) -> None:
    """p99 in an open loop at one rate for all."""
    arms: dict[str, Callable[[float, float], Point]] = {
        arm_name(loop, PROTOCOLS): partial(place.ask, PORTS[PROTOCOLS]) for loop, place in served.items()
    }
    arms[IN_C] = floors.in_c
    slot = seconds / ROUNDS / len(arms)
    found = session.interleave({name: partial(arm, rate, slot) for name, arm in arms.items()}, ROUNDS)
    for name, points in found.items():
        session.point(at_half(name), middle(points))
    p99 = {name: [point.p99_us for point in points] for name, points in found.items()}
    ours, theirs = arm_name(OURS, PROTOCOLS), arm_name(UVLOOP, PROTOCOLS)
    _set(session, P99, p99, (ours, theirs), {"bound: the echo in C on our TCP": _ratio(p99, IN_C, theirs)})


def _idle(session: Session, served: Mapping[str, Served], seconds: float) -> None:
    """What the servers take of a core while nobody asks them, all at the same time."""
    rest.demand("idle servers")
    before = {loop: place.busy_s() for loop, place in served.items()}
    begin = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - begin
    busy = {loop: (place.busy_s() - before[loop]) / took for loop, place in served.items()}
    row: dict[str, Any] = {f"{loop}_cores": value for loop, value in busy.items()}
    session.arm("idle", seconds=took, **row)
    if OURS in busy:
        others = {f"{loop} on Linux": value for loop, value in busy.items() if loop != OURS}
        session.figure(IDLE, busy[OURS], runs=[busy[OURS]], beside=others)

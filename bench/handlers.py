"""Handlers in C, numba and Python, and an asyncio server on Linux: what a request through each costs.

All do the same: echo 22 bytes. C, numba and Python run in embedded mode on one core, loaded over a memory link from the
other; asyncio runs on Linux' UDP stack, loaded over AF_XDP on a veth pair by the same generator (root). The Python
handler runs once more over AF_XDP on such a pair, so that asyncio is compared over the same link too. First each
arm's peak is looked for; then, arm by arm in turn, OVERLOAD times that peak is offered and the answers a second are
counted: in overload the server is busy throughout, so two arms differ by what a request costs them and not by when a
search stopped. C and numba are a few per cent apart and the machine changes by more from turn to turn: each of their
turns is short and has one of a second C server behind it, numba is compared with both, and what the second does over
the first stands beside the ratio.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..apps import echo as app
from ..drivers.linux import netns
from ..libos.handlers.python import PythonHandler
from ._native import ffi
from .baseline.asyncio_echo import AsyncioEcho
from .harness import rig
from .harness.numbers import pairwise
from .harness.openloop import Measure, Point, middle, search_peak
from .harness.plot import Canvas
from .harness.session import Session

SUMMARY = "echo through a C, a numba and a Python handler; an asyncio UDP server on Linux"
FIGURES = ("handlers.numba_over_c", "handlers.python_rps", "handlers.python_over_asyncio")

KINDS = ("c", "numba", "python")
AGAIN = "c again"
ASYNCIO = "asyncio on Linux"
OVER_AF_XDP = "python over AF_XDP"
WITHOUT_NETWORK = "python without a network"
ONE_LINK = "both on a veth pair"  # beside the figure that compares our memory link with asyncio's veth pair
PORT = 9000
PAYLOAD_BYTES, BURST = 22, 64
ROUNDS, SHORT_ROUNDS = 7, 30
SHORT_CANARY_S = 0.02
OVERLOAD, RAISES = 1.3, 12
START_RPS = {"c": 1e6, AGAIN: 1e6, "numba": 1e6, "python": 5e4, ASYNCIO: 5e3, OVER_AF_XDP: 5e4}
LINKS = {
    "c, numba, c again, python": "memory link: generator and server in one process",
    OVER_AF_XDP: "generator and server each on AF_XDP, on a veth pair",
    ASYNCIO: "generator on AF_XDP, server on the kernel's UDP, on a veth pair",
}


def run(session: Session) -> None:
    """Find the peaks, then overload all arms in turn."""
    cores = session.two_cores
    session.settings |= {
        "message": "one request of 22 bytes (a frame of one cache line) and its reply",
        "checksums": rig.CHECKSUMS,
        "links": LINKS,
        "throughput": f"answers a second while {OVERLOAD} times the arm's peak is offered",
    }
    with contextlib.ExitStack() as stack:
        arms: dict[str, Measure] = {}
        explain: dict[str, Measure] = {}
        for kind in (*KINDS, AGAIN):
            made = stack.enter_context(rig.embedded(partial(_bind, "c" if kind == AGAIN else kind), cores))
            arms[kind], explain[kind] = made.load.measure, made.load.explain
        short = {name: arms[name] for name in ("c", "numba", AGAIN)}
        del arms[AGAIN]
        arms |= _veth_arms(session, stack, cores, explain)
        rates = _peaks(session, arms, explain)
        rates |= dict.fromkeys(short, _full(short["c"], max(rates["c"], rates["numba"]), 0.02 * session.seconds))
        points = _overload(session, short, rates, 0.25, SHORT_ROUNDS, SHORT_CANARY_S)
        longer = {name: measure for name, measure in arms.items() if name not in short}
        points |= _overload(session, longer, rates, 0.35, ROUNDS)
        bound = _without_network(session, 0.05 * session.seconds)
    achieved = {name: [p.achieved_rps for p in taken] for name, taken in points.items()}
    for name in points:
        session.point(f"{name}, overloaded", middle(points[name]))
    both = [(first + second) / 2 for first, second in zip(achieved["c"], achieved[AGAIN], strict=True)]
    itself = pairwise(achieved[AGAIN], achieved["c"])
    session.ratio_figure("handlers.numba_over_c", achieved["numba"], both, beside={"c over itself": itself.median})
    session.note(f"the second C server answered {itself} times what the first did, {SHORT_ROUNDS} short turns each")
    beside = {WITHOUT_NETWORK: statistics.median(bound)}
    session.figure("handlers.python_rps", statistics.median(achieved["python"]), runs=achieved["python"], beside=beside)
    if ASYNCIO in arms:
        compare_with_asyncio(session, achieved)
    else:
        session.figure("handlers.python_over_asyncio", None, reason=session.skipped[ASYNCIO])


def compare_with_asyncio(session: Session, achieved: Mapping[str, Sequence[float]]) -> None:
    """The ratio of the Python handler's answers a second to asyncio's, and beside it that over one link. achieved: of
    each arm, by round."""
    ratio = pairwise(achieved[OVER_AF_XDP], achieved[ASYNCIO])
    session.ratio_figure(
        "handlers.python_over_asyncio", achieved["python"], achieved[ASYNCIO], beside={ONE_LINK: ratio.median}
    )
    session.settings["python_over_asyncio_same_link"] = {"value": ratio.median, "runs": ratio.pairs}
    session.note(f"both over AF_XDP and a veth pair, the same generator: {ratio} times asyncio's answers/s")


def _full(measure: Measure, rate: float, seconds: float) -> float:
    """A rate, from `rate` on, of which OVERLOAD times as much is too much, where a search was stopped by the machine.

    It is offered to all that are compared: a ratio is of equal loads.
    """
    for _ in range(RAISES):
        point = measure(OVERLOAD * rate, seconds)
        if point.achieved_rps < point.due_rps / OVERLOAD**0.5:
            break
        rate *= OVERLOAD
    return rate


def _overload(
    session: Session,
    arms: dict[str, Measure],
    rates: dict[str, float],
    part: float,
    rounds: int,
    canary_s: float | None = None,
) -> dict[str, list[Point]]:
    """Each arm at OVERLOAD times its rate, in turns that take `part` of the session's time."""
    slot = part * session.seconds / (rounds * len(arms))
    bodies: dict[str, Callable[[], Point]] = {
        name: partial(measure, OVERLOAD * rates[name], slot) for name, measure in arms.items()
    }
    return session.interleave(bodies, rounds, canary_s)


def _without_network(session: Session, seconds: float) -> list[float]:
    """Requests a second that the Python handler answers where they lie in memory already, round by round; with a
    row."""
    handler = PythonHandler(app.handler("python", PORT).function)
    with _on_core(session.two_cores[1]):
        bodies = {WITHOUT_NETWORK: partial(calls_per_s, handler, seconds / ROUNDS)}
        rates = session.interleave(bodies, ROUNDS, SHORT_CANARY_S)[WITHOUT_NETWORK]
    session.arm(WITHOUT_NETWORK, achieved_rps=statistics.median(rates))
    return rates


def calls_per_s(handler: PythonHandler, seconds: float) -> float:
    """How many requests a second the handler answers, called as C calls it, for so long."""
    reqs, payloads = ffi.new("struct cl_udp_req[]", BURST), ffi.new("uint8_t[]", 2 * BURST * PAYLOAD_BYTES)
    for i in range(BURST):
        reqs[i].data = payloads + 2 * i * PAYLOAD_BYTES
        reqs[i].reply = payloads + (2 * i + 1) * PAYLOAD_BYTES
        reqs[i].len = reqs[i].room = PAYLOAD_BYTES
        reqs[i].port, reqs[i].peer.port = PORT, 20000
    done, begin = 0, time.perf_counter()
    while (took := time.perf_counter() - begin) < seconds or not done:
        handler.callback(reqs, BURST, ffi.NULL)
        done += BURST
    assert all(req.reply_len == PAYLOAD_BYTES for req in reqs)
    return done / max(took, 1e-9)


@contextlib.contextmanager
def _on_core(cpu: int) -> Iterator[None]:
    """This thread on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _bind(kind: str, runtime: Any) -> None:
    runtime.bind(app.handler(kind, PORT))


def _veth_arms(
    session: Session, stack: contextlib.ExitStack, cores: tuple[int, int], explain: dict[str, Measure]
) -> dict[str, Measure]:
    """The asyncio server, started for each measurement, and ours on such a link; or why there are none.

    explain: gets what says where they end.
    """
    why = None if session.baseline else "--no-baseline was given"
    why = why or netns.missing()
    if why:
        session.skip(ASYNCIO, why)
        session.skip(OVER_AF_XDP, why)
        return {}
    link = rig.LinuxLink(stack, cores, port=PORT)

    def serve(far: netns.Interface, port: int) -> contextlib.AbstractContextManager[Any]:
        return AsyncioEcho(cpu=cores[1], address=far.address, port=port, netns=far.namespace.name)

    def measure(rate: float, seconds: float) -> Point:
        return link.measure(serve, rate, seconds)[0]

    ours = rig.LinuxLink(stack, cores, port=PORT)
    ours.counted_by(stack.enter_context(rig.on_af_xdp(ours.far, cores[1], partial(_bind, "python"))))
    explain |= {ASYNCIO: partial(link.explain, serve), OVER_AF_XDP: ours.load.explain}
    return {ASYNCIO: measure, OVER_AF_XDP: ours.ask}


def _peaks(session: Session, arms: dict[str, Measure], explain: dict[str, Measure]) -> dict[str, float]:
    """Each arm's highest carried load, as points, and why there is no higher one; 0.35 of the time."""
    slot = 0.35 * session.seconds / len(arms)
    rates = {}
    for name, measure in arms.items():
        session.say(f"peak of {name}")
        found = search_peak(measure, start_rps=START_RPS[name], seconds=slot, explain=explain[name])
        # Nothing carried: overload what it did answer.
        rates[name] = found.peak_rps or max(p.achieved_rps for p in found.points) or START_RPS[name]
        if found.peak:
            session.point(f"{name}, peak", found.peak)
        session.stop(name, found.stop, found.because)
    return rates


def plot(document: dict[str, Any]) -> Canvas:
    """Answers a second of each arm in overload."""
    shown = [a for a in document["arms"] if a["name"].endswith(", overloaded")]
    canvas = Canvas(
        "Echo through handlers of each kind",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in shown),
    )
    names = [a["name"].removesuffix(", overloaded") for a in shown]
    canvas.bars(names, [a["achieved_rps"] for a in shown], ylabel="throughput of one core (requests/s)", log=True)
    canvas.caption(
        f"Median of {ROUNDS} interleaved rounds, of C and numba of {SHORT_ROUNDS} short ones; {OVERLOAD} times each "
        "arm's peak offered, open loop."
    )
    return canvas

"""The load tool against servers whose latency is known: does it report what was injected, at the rate that was asked?

The reference server keeps each request as long as the request says, and files how long after the request was to be
sent its answer went off: what it injected, the way there, and how late the tool sent, as a tool that measures from the
intended time has to report. The tool's percentiles are compared with those, of the same requests, all of them: the
difference is the way back, and whatever the tool does wrong. A pause of the machine is in both. Beside it the same
against what was injected alone. The server has the second core, the tool the first one.

Rates: arrivals at equal distances, so that what is achieved is not a matter of chance; by the tool over kernel sockets,
and over corelane's own stack on a memory link, whose other end sends back what it gets. Beside it the same over AF_XDP
on a veth pair, where the kernel carries each frame, up to the rate that this gives.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...drivers.linux import netns
from ...libos import Runtime
from ...runtime.hist import Hist
from ..harness.numbers import plain
from ..harness.openloop import Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session
from .dataplane import PORT, reflecting, reflecting_on_af_xdp, veth
from .measuring import point_of
from .reference.reference import Reference
from .sockload.sockload import Asked, SockLoad

SUMMARY = "the load tool: what it reports of servers with known delays, and the rates that it keeps"
FIGURES = ("load.error", "load.rate_error")

ROUNDS = 3
PERCENTS = (50.0, 99.0, 99.9)
HOLD_LEAST_NS, HOLD_MEAN_NS, HOLD_TABLE = 500_000, 700_000, 1 << 14  # shifted exponential: p50 1 ms, p99.9 5.3 ms
ERROR_RATES = {"UDP": (10_000, 50_000, 100_000, 200_000), "TCP": (10_000, 50_000, 100_000)}
SOCKET_RATE, MEMORY_RATE = 200_000, 1_000_000
AF_XDP_RATES = (250_000, 500_000, 1_000_000)
MEMORY_SOCKETS = 4  # of the dataplane: answers wait in few, and are taken many at a time
CONNECTIONS = {"UDP": 16, "TCP": 1000}
LEAST_S = 0.05
Reflecting = Callable[[int, int], AbstractContextManager[tuple[Runtime, str]]]
Over = Callable[[tuple[int, int], float, float], Point]


@dataclass(frozen=True)
class Seen:
    """One load: what was reported; how long after they were due the server answered the same requests; how long it kept
    them. ns."""

    measured: Point
    reported: Hist
    answered: Hist
    injected: Hist

    @property
    def error(self) -> float:
        """The largest relative error of the percentiles."""
        return _apart(self.reported, self.answered)

    @property
    def over_injected(self) -> float:
        """By how much of what was injected the percentiles differ from it, at most."""
        return _apart(self.reported, self.injected)


def _apart(reported: Hist, of: Hist) -> float:
    return max(abs(reported.percentile(p) - of.percentile(p)) / of.percentile(p) for p in PERCENTS)


def holds() -> tuple[int, ...]:
    """How long requests are kept, ns: the same values at every run."""
    drawn = random.Random(1)
    return tuple(HOLD_LEAST_NS + int(drawn.expovariate(1 / HOLD_MEAN_NS)) for _ in range(HOLD_TABLE))


class Injected:
    """A reference server and the tool's engine before it. udp: the transport."""

    def __init__(self, transport: str, cores: tuple[int, int], hold_ns: tuple[int, ...], arrivals: str) -> None:
        udp = transport == "UDP"
        self.server = Reference(udp=udp, cpu=cores[1])
        self.load = SockLoad(
            Asked(
                protocol="echo",
                address="127.0.0.1",
                port=self.server.port,
                udp=udp,
                connections=CONNECTIONS[transport],
                cpus=(cores[0],),
                hold_ns=hold_ns,
                arrivals=arrivals,
            )
        )

    def __enter__(self) -> Injected:
        self.load.connect()
        return self

    def __exit__(self, *why: object) -> None:
        self.load.close()
        self.server.close()

    def measure(self, rate: float, seconds: float) -> Seen:
        """One load; the requests on both sides of the comparison are the same."""
        self.server.clear()
        result = self.load.run(rate, seconds)
        return Seen(point_of(result), result.latency, self.server.since_due, self.server.kept)


def run(session: Session) -> None:
    """Percentiles at each rate, and the rates."""
    session.settings |= {
        "message": "a datagram or a stretch of a TCP stream of 64 bytes, and its answer",
        "injected": "0.5 ms and an exponential time of mean 0.7 ms; p50 1 ms, p99 3.7 ms, p99.9 5.3 ms",
        "connections": CONNECTIONS,
    }
    cores = session.two_cores
    errors(session, cores)
    achieved(session, cores)


def errors(session: Session, cores: tuple[int, int]) -> None:
    """load.error: the largest over transports, rates and percentiles, of the median of the rounds."""
    loads = [(transport, rate) for transport, rates in ERROR_RATES.items() for rate in rates]
    seconds = max(0.7 * session.seconds / len(loads) / ROUNDS, LEAST_S)

    def one(transport: str, rate: float) -> Seen:
        with Injected(transport, cores, holds(), "poisson") as injected:
            return injected.measure(rate, seconds)

    arms = {f"{transport}, {rate:,}/s": partial(one, transport, rate) for transport, rate in loads}
    conclude_errors(session, session.interleave(arms, ROUNDS))


def conclude_errors(session: Session, found: dict[str, list[Seen]]) -> None:
    """load.error, and rows with what was reported beside what was known. found: the rounds of each load."""
    for name, rounds in found.items():
        row = session.point(name, middle([seen.measured for seen in rounds]))
        for percent in PERCENTS:
            reported, answered, injected = (
                statistics.median(hist.percentile(percent) / 1e3 for hist in hists)
                for hists in zip(*((seen.reported, seen.answered, seen.injected) for seen in rounds), strict=True)
            )
            row[f"injected_p{percent:g}_us"] = plain(injected)
            row[f"answered_p{percent:g}_us"] = plain(answered)
            row[f"p{percent:g}_error"] = plain((reported - answered) / answered)
    worst = {name: statistics.median(seen.error for seen in rounds) for name, rounds in found.items()}
    largest = max(worst, key=lambda name: worst[name])
    runs = [max(found[name][i].error for name in found) for i in range(len(found[largest]))]
    if all(math.isfinite(error) for error in worst.values()):
        over = {
            f"{name}, over what was injected": statistics.median(seen.over_injected for seen in rounds)
            for name, rounds in found.items()
        }
        session.figure("load.error", worst[largest], runs=runs, beside=worst | over)
    else:
        lost = ", ".join(name for name, error in worst.items() if not math.isfinite(error))
        session.figure("load.error", None, reason=f"requests stayed unanswered at {lost}: the sockets' cores are full")


def achieved(session: Session, cores: tuple[int, int]) -> None:
    """load.rate_error: how far the answered rate was from the one asked for."""
    judged: list[tuple[Over, str, int]] = [
        (over_sockets, "kernel sockets", SOCKET_RATE),
        (partial(over_own_stack, reflecting), "memory NIC", MEMORY_RATE),
    ]
    with contextlib.ExitStack() as stack:
        shown: list[tuple[Over, str, int]] = []
        if why := netns.missing():
            for rate in AF_XDP_RATES:
                session.skip(_rate_arm("AF_XDP", rate), why)
        else:
            over = partial(over_own_stack, partial(reflecting_on_af_xdp, stack.enter_context(veth())))
            shown = [(over, "AF_XDP", rate) for rate in AF_XDP_RATES]
        seconds = max(0.3 * session.seconds / (len(judged) + len(shown)) / ROUNDS, LEAST_S)
        arms = {_rate_arm(way, rate): partial(over, cores, rate, seconds) for over, way, rate in judged + shown}
        found = session.interleave(arms, ROUNDS)
    conclude_rates(session, found, {_rate_arm(way, rate) for _, way, rate in judged})


def _rate_arm(way: str, rate: int) -> str:
    return f"rate, UDP, {way}, {rate:,}/s"


def conclude_rates(session: Session, found: dict[str, list[Point]], judged: Collection[str]) -> None:
    """load.rate_error: the worst of those judged; beside it each of all."""
    off: dict[str, list[float]] = {}
    for name, points in found.items():
        rate = float(name.rpartition(" ")[2].removesuffix("/s").replace(",", ""))
        row = session.point(name, middle(points))
        off[name] = [abs(point.achieved_rps / rate - 1) for point in points]
        row["rate_error"] = statistics.median(off[name])
    beside = {name: statistics.median(values) for name, values in off.items()}
    runs = [max(off[name][i] for name in judged) for i in range(len(next(iter(off.values()))))]
    session.figure("load.rate_error", max(beside[name] for name in judged), runs=runs, beside=beside)


def over_sockets(cores: tuple[int, int], rate: float, seconds: float) -> Point:
    """The tool over kernel sockets, against the reference server."""
    with Injected("UDP", cores, (), "uniform") as injected:
        return injected.measure(rate, seconds).measured


def over_own_stack(reflected: Reflecting, cores: tuple[int, int], rate: float, seconds: float) -> Point:
    """The tool over corelane's own stack: its uthread on cores[0], what sends all back on cores[1]."""
    with reflected(*cores) as (runtime, address):
        asked = Asked(
            protocol="echo",
            address=address,
            port=PORT,
            udp=True,
            connections=MEMORY_SOCKETS,
            arrivals="uniform",
            runtime=runtime,
        )
        with SockLoad(asked) as load:
            load.connect()
            return point_of(load.run(rate, seconds))


def plot(document: dict[str, Any]) -> Canvas:
    """The relative error of each percentile, by load."""
    canvas = Canvas(
        "load: reported over injected",
        message=document["settings"]["message"],
        n=sum(row["answered"] for row in document["arms"]),
    )
    labels, values, colours = [], [], []
    for number, row in enumerate(document["arms"]):
        for percent in PERCENTS:
            error = row.get(f"p{percent:g}_error")
            if error is not None and not isinstance(error, str):
                labels.append(f"{row['name']}, p{percent:g}")
                values.append(100 * float(error))
                colours.append(number)
    canvas.bars(labels, values, ylabel="relative error of the reported latency (%)", colours=colours, log=True)
    return canvas

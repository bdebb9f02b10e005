"""The order of a measurement: the client's own share, the server's keys, the load, what it says.

A session of the harness has the power setting, the canary on the CPUs of the load, the machine's description and the
document (bench/harness/session.py). An interrupt ends the load, and the document has what there is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..harness.numbers import pairwise, plain
from ..harness.session import Session
from ..harness.table import quantity
from .measuring import Measured, Plan, Server, measure_share
from .searching import Found, Limit, Swept, in_turns, rates, search, sweep

NAME = "corelane load"
CANARY_S = 0.2
TELL_S = 1.0


@dataclass(frozen=True)
class Job:
    """What is to be done. rate: one, or the ends of a range. limit: for --slo, or a sweep's end. other: a second
    server, in turns with the first. rounds: of each, in turns, if there is another."""

    plan: Plan
    rate: tuple[float, float]
    seconds: float
    other: Plan | None = None
    rounds: int = 3
    sweep: bool = False
    slo: Limit | None = None
    points: int = 10
    tries: int = 24
    share: bool = True


@dataclass
class Outcome:
    """What there is: loads by arm, and what was found. started_s: seconds since 1970."""

    measured: dict[str, list[Measured]] = field(default_factory=dict)
    swept: dict[str, Swept] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)
    interrupted: bool = False
    started_s: float = field(default_factory=time.time)


class Progress:
    """Says how far a load is, about once a second."""

    def __init__(self, say: Callable[[str], None], what: str, total_s: float = 0.0) -> None:
        self._say, self._what, self._total_s = say, what, total_s
        self._next_s = TELL_S

    def __call__(self, seconds: float, sent: int, answered: int) -> None:
        if seconds >= self._next_s:
            self._next_s = seconds + TELL_S
            of = f" of {self._total_s:g}" if self._total_s else ""
            self._say(f"{self._what}: {seconds:.0f}{of} s, {sent:,} sent, {answered:,} answered")


def run(job: Job, session: Session) -> Outcome:
    """Do it. CorelaneError if a server cannot be loaded at all."""
    out = Outcome()
    session.settings |= settings_of(job)
    try:
        _run(job, session, out)
    except KeyboardInterrupt:
        out.interrupted = True
    out.interrupted |= any(m.result.aborted for each in out.measured.values() for m in each)
    if out.interrupted:
        session.note("it was interrupted: this is what there was by then")
    _document(job, session, out)
    return out


def settings_of(job: Job) -> dict[str, Any]:
    """What was asked for, for the document."""
    plan = job.plan
    return {
        "target": plan.target.shown,
        "other": job.other.target.shown if job.other else None,
        "address": f"{plan.target.address} port {plan.target.port}",
        "protocol": plan.protocol,
        "way": plan.way,
        "reflector": plan.reflector,
        "tls": ("any server" if plan.insecure else "verified") if plan.target.tls else None,
        "rate": list(job.rate),
        "seconds": job.seconds,
        "warm_s": plan.warm_s,
        "connections": max(plan.connections, plan.threads),
        "depth": plan.depth,
        "threads": plan.threads,
        "cpus": list(plan.cpus),
        "spin": plan.spin,
        "fresh": plan.fresh,
        "arrivals": plan.arrivals.described,
        "workload": plan.workload.name if plan.target.stores else None,
        "asks": plan.workload.described if plan.target.stores else None,
        "seed": plan.seed,
        "percentile": plan.asked,
        "client_share": {},
    }


def _run(job: Job, session: Session, out: Outcome) -> None:
    plans = {job.plan.target.shown: job.plan}
    if job.other:
        name = job.other.target.shown
        plans[name if name not in plans else f"{name} again"] = job.other
    share = None
    if job.share:
        session.say(f"measuring the client's own share, against a reflector on {job.plan.reflector}")
        share = measure_share(job.plan, job.rate[0], min(1.0, max(job.seconds / 5, 0.05)))
        session.settings["client_share"] = (
            {"why": share.why} if share.why else {f"{name}_us": plain(us) for name, us in share.by_name().items()}
        )
    servers = {name: Server(plan, share) for name, plan in plans.items()}
    try:
        for name, server in servers.items():
            stores = server.plan.preload and server.plan.target.stores
            session.say(f"{name}: connecting{', storing the keys' if stores else ''}")
            server.prepare(Progress(session.say, f"{name}: storing keys"))
        _load(job, session, servers, out)
    finally:
        for server in servers.values():
            server.close()


def _load(job: Job, session: Session, servers: dict[str, Server], out: Outcome) -> None:
    for name in servers:
        out.measured[name] = []

    def measure(name: str, rate: float) -> Measured:
        shown = f"{name}: {rate:,.0f} requests/s" if rate else f"{name}: replaying"
        session.take_canary(CANARY_S if job.seconds >= 1 else None)
        warm_s = servers[name].plan.warm_s
        session.say(f"{shown} for {job.seconds:g} s")
        tick = Progress(session.say, shown, job.seconds + warm_s)
        measured = servers[name].measure(rate, job.seconds, tick=tick, explained=session.canary.explained)
        out.measured[name].append(measured)
        return measured

    def seen(measured: Measured) -> None:
        p = measured.point
        session.say(f"  p50 {quantity(p.p50_us)} us, p99 {quantity(p.p99_us)} us, p99.9 {quantity(p.p999_us)} us")

    if job.sweep:
        ladder = rates(*job.rate, job.points)
        out.swept |= {name: Swept() for name in servers}
        in_turns([sweep(partial(measure, name), ladder, job.slo, seen, swept) for name, swept in out.swept.items()])
    elif job.slo:
        slo = job.slo
        out.found |= {name: Found(slo) for name in servers}
        each = out.found.items()
        in_turns([search(partial(measure, name), *job.rate, slo, job.tries, seen, found) for name, found in each])
    else:
        for _ in range(job.rounds if job.other else 1):
            for name in servers:
                seen(measure(name, job.rate[1]))
                if out.measured[name][-1].result.aborted:
                    return


def _document(job: Job, session: Session, out: Outcome) -> None:
    """What the session's document gets: a row a load, why a curve stops, what was found."""
    for name, loads in out.measured.items():
        for measured in sorted(loads, key=lambda m: m.point.offered_rps) if job.sweep or job.slo else loads:
            session.arms.append(measured.row(name))
    for name, swept in out.swept.items():
        if swept.stop:
            session.stop_uncounted(name, swept.stop)
    session.settings["found"] = {
        name: {
            "limit": str(found.limit),
            "keeps_rps": found.keeps_rps,
            "breaks_rps": plain(found.breaks_rps),
            "text": str(found),
        }
        for name, found in out.found.items()
    }
    session.settings["compared"] = compared(out)
    session.settings["interrupted"] = out.interrupted


def compared(out: Outcome) -> dict[str, Any]:
    """The first server's percentiles over the second one's, pair by pair; empty if there is one, or a search."""
    if len(out.measured) != 2 or out.found or out.swept:
        return {}
    (one, first), (other, second) = out.measured.items()
    pairs = min(len(first), len(second))
    told: dict[str, Any] = {"over": [one, other]}
    for key in ("p50_us", "p90_us", "p99_us", "p999_us"):
        above = [float(getattr(m.point, key)) for m in first[:pairs]]
        below = [float(getattr(m.point, key)) for m in second[:pairs]]
        if pairs and all(0 < v < float("inf") for v in (*above, *below)):
            ratio = pairwise(above, below)
            told[key.removesuffix("_us")] = {"value": ratio.median, "runs": list(ratio.pairs)}
    return told


def session_for(job: Job, options: argparse.Namespace) -> Session:
    """The session of a job: its canary watches the CPUs of the load."""
    return Session(
        NAME,
        seconds=job.seconds,
        cores=job.plan.cpus or None,
        baseline=False,
        options=options,
        shallow_idle=not options.deep_idle,
    )

"""uvicorn with a small ASGI application on each loop: GETs of kept connections, by the client of ../http, in a closed
loop."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..harness import rest
from ..harness.numbers import pairwise
from ..harness.session import Session
from ..http import http
from . import alone, echo, loops, server
from .loops import OURS, STOCK, UVLOOP
from .places import CONNECTIONS, Served

FIGURE = "asyncio.http_over_uvloop"
FIGURES = (FIGURE,)
CASE = http.Case("greeting", keep=True, tls=False)
ROUNDS = 5
ALONE = "uvicorn without a network"


def arm_name(loop: str) -> str:
    """A row's name."""
    return f"{loop}, uvicorn"


class Site:
    """uvicorn on a loop, with a client of HTTP at the near end of its pair."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, int], loop: str) -> None:
        self.served = Served(stack, cores, loop, server.WEB)
        self.client = http.Client(self.served.veth.near, self.served.veth.far.mac.hex(":"), cores[0], stack)

    def measure(self, seconds: float) -> http.Found:
        """GETs for so long."""
        rest.demand("a server on a veth pair")
        return http.measure(self.client, CASE, seconds, self._busy, CONNECTIONS)

    def _busy(self) -> tuple[float, float]:
        return self.served.busy_s(), time.monotonic()


def measure(session: Session, seconds: float) -> None:
    """All loops by turns."""
    if why := server.web_missing() or http.client_missing():
        for loop in loops.ALL:
            session.skip(arm_name(loop), why)
        return
    with contextlib.ExitStack() as stack:
        sites = {loop: Site(stack, session.two_cores, loop) for loop in echo.usable(session, lambda x: [arm_name(x)])}
        if not sites:
            return
        slot = seconds / ROUNDS / (len(sites) + 1)
        bodies: dict[str, Callable[[], Any]] = {loop: partial(site.measure, slot) for loop, site in sites.items()}
        bodies[ALONE] = partial(alone.rate, session.two_cores[1], CONNECTIONS, slot)
        found = session.interleave(bodies, ROUNDS)
    without = found.pop(ALONE)
    session.arm(ALONE, rate=statistics.median(without), runs=without)
    for loop, several in found.items():
        medians = {
            field: statistics.median(getattr(one, field) for one in several)
            for field in ("rate", "p50_us", "p99_us", "client_busy", "server_busy")
        }
        wrong = {field: sum(getattr(one, field) for one in several) for field in ("wrong", "failed")}
        session.arm(arm_name(loop), **medians, **wrong)
    conclude(session, {loop: [one.rate for one in several] for loop, several in found.items()} | {ALONE: without})


def conclude(session: Session, rates: dict[str, list[float]]) -> None:
    """The figure, from answers a second by rounds."""
    if OURS not in rates or UVLOOP not in rates:
        return  # the skipped arms say why
    if not all(rates[OURS]) or not all(rates[UVLOOP]):
        session.figure(FIGURE, None, reason="in some round a server answered nothing")
        return
    beside = {}
    if all(rates.get(STOCK, [0.0])):
        beside["over the stock loop"] = pairwise(rates[OURS], rates[STOCK]).median
    if ALONE in rates:
        beside[f"bound: {ALONE}"] = pairwise(rates[ALONE], rates[UVLOOP]).median
    session.ratio_figure(FIGURE, rates[OURS], rates[UVLOOP], beside=beside)

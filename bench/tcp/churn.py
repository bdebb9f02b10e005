"""Connections that are set up, ask once, and are closed: how many a second one core takes, over the memory NIC."""

from __future__ import annotations

import contextlib
import statistics

from ..harness.load import Load
from ..harness.openloop import Measure
from ..harness.peaks import find_peaks
from ..harness.session import Session
from . import links
from .server import BLOCKING

FIGURE, BLOCKING_FIGURE = "tcp.connections_per_s", "tcp.blocking_connections_per_s"
FIGURES = (FIGURE, BLOCKING_FIGURE)
OURS, ATTACHED, BLOCK = "connections, event form", "connections, attached", "connections, blocking form"
FLOOR = "connections, reflector"
AT_ONCE = 256


def measure(session: Session, seconds: float) -> None:
    """Peaks of both forms, and attached, open loop: a connection is answered when both of its ends are closed."""
    cores = session.two_cores
    session.settings["churn"] = {"at_once": AT_ONCE, "closed_by": "the client first: the server keeps no TIME_WAIT"}
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(links.memory(cores))
        blocking = stack.enter_context(links.memory(cores))
        block = stack.enter_context(blocking.client("churn", connections=AT_ONCE, server_port=BLOCKING))
        arms: dict[str, Measure] = {
            OURS: Load(stack.enter_context(link.client("churn", connections=AT_ONCE)), link.busy_s).measure,
            BLOCK: Load(block, blocking.busy_s).measure,
            ATTACHED: Load(stack.enter_context(links.attached(cores, "churn", connections=AT_ONCE))).measure,
            FLOOR: stack.enter_context(links.floor(cores, "churn", connections=AT_ONCE)).measure,
        }
        found = find_peaks(session, arms, seconds=seconds)
    peaks = {name: [curve.peak_rps for curve in searched] for name, searched in found.items()}
    bound = {"bound: a reflector of segments": statistics.median(peaks[FLOOR])}
    beside = {"attached": statistics.median(peaks[ATTACHED])} | bound
    session.figure(FIGURE, statistics.median(peaks[OURS]), runs=peaks[OURS], beside=beside)
    session.figure(BLOCKING_FIGURE, statistics.median(peaks[BLOCK]), runs=peaks[BLOCK], beside=bound)

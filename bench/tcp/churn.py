"""Connections that are set up, ask once, and are closed: how many a second one core takes, over the memory NIC."""

from __future__ import annotations

import contextlib
import statistics

from ..harness.load import Load
from ..harness.openloop import Measure
from ..harness.peaks import find_peaks
from ..harness.session import Session
from . import links

FIGURE = "tcp.connections_per_s"
FIGURES = (FIGURE,)
OURS, ATTACHED = "connections, event form", "connections, attached"
AT_ONCE = 256


def measure(session: Session, seconds: float) -> None:
    """Peaks of both modes, open loop: a connection is answered when both of its ends are closed."""
    cores = session.two_cores
    session.settings["churn"] = {"at_once": AT_ONCE, "closed_by": "the client first: the server keeps no TIME_WAIT"}
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(links.memory(cores))
        arms: dict[str, Measure] = {
            OURS: Load(stack.enter_context(link.client("churn", connections=AT_ONCE)), link.busy_s).measure,
            ATTACHED: Load(stack.enter_context(links.attached(cores, "churn", connections=AT_ONCE))).measure,
        }
        found = find_peaks(session, arms, seconds=seconds)
    peaks = {name: [curve.peak_rps for curve in searched] for name, searched in found.items()}
    beside = {"attached": statistics.median(peaks[ATTACHED])}
    session.figure(FIGURE, statistics.median(peaks[OURS]), runs=peaks[OURS], beside=beside)

"""Tracing: what it costs servers that their requests are written down, all of them or a sample, beside ones that write
nothing; and whether what is written down is true.

An echo server, the key-value store over UDP, and the same over TCP, each embedded on one core, with one client. The
mode changes by turns within a run (costs.py): the process, its memory and its code are the same in all.
"""

from __future__ import annotations

from typing import Any

from ..harness import rig
from ..harness.plot import Canvas
from ..harness.session import Session
from . import causes, costs, gaps, right, sums, turns

SUMMARY = "tracing: what it costs echo and the key-value store to write down all requests, or a sample; and is it true"
FIGURES = (
    "trace.throughput_cost",
    "trace.kv_throughput_cost",
    "trace.tcp_throughput_cost",
    "trace.p99_cost",
    "trace.kv_p99_cost",
    "trace.tcp_p99_cost",
    "trace.sampled_cost",
    "trace.sum_error",
    "trace.gap_found",
    "trace.blame_right",
    "trace.causes_right",
)

TRUE = 0.1  # of the time, each, for sums and for gaps
KEYS, FEW_KEYS, SHORT_S = 100_000, 10_000, 3.0


def run(session: Session) -> None:
    """Whether blame is right, in virtual time; what it costs each server; whether sums, gaps and causes are true."""
    keys = FEW_KEYS if session.seconds < SHORT_S else KEYS
    session.settings |= {
        "message": "echo: one request of 22 bytes and its reply; kv: one GET of a 16-byte key and its 64-byte value",
        "handler": "C",
        "checksums": rig.CHECKSUMS,
        "sampled": "1 of 1024, and about the 4 slowest of each millisecond",
        "turns": f"{1e3 * turns.TURN_S:.0f} ms of each mode, of which the last {turns.COUNTED} windows count",
        "throughput": f"closed loops, {costs.WINDOW} requests under way over UDP, {costs.CONNECTIONS} over TCP",
        "keys": keys,
    }
    right.measure(session)
    costs.measure(session, keys)
    sums.measure(session, TRUE * session.seconds)
    gaps.measure(session, TRUE * session.seconds)
    causes.measure(session)


def plot(document: dict[str, Any]) -> Canvas:
    """What each mode answers in a closed loop."""
    rows = [row for row in document["arms"] if row["name"].endswith("closed loop")]
    canvas = Canvas(
        "tracing servers: answers a second in a closed loop, the median of turns",
        message=document["settings"]["message"],
        n=sum(int(row["answered"]) for row in rows),
        size=(14, 5),
    )
    canvas.bars(
        [row["name"] for row in rows], [float(row["achieved_rps"]) for row in rows], ylabel="answers (requests/s)"
    )
    return canvas

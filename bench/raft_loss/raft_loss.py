"""Raft's transport between two nodes on a link that loses datagrams, beside go-back-N.

Both sides are the code that a node runs (apps/raft/transport/channel.h), on a modelled link of 10 Gb/s in virtual time:
no figure depends on the machine. Whether the n-th datagram of a direction is lost follows from the seed and n, so both
protocols meet the same losses. Go-back-N has the same window, header and timers, and knows more than one in hardware
does (go_back_n.c).

A stream keeps the window full, in datagrams of full length, one way. Requests come at drawn times, are answered at
once, and count from the time at which they were due.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.numbers import number
from ..harness.plot import Canvas
from ..harness.session import Session

SUMMARY = "Raft's transport over a link that loses 0.01 to 10 % of all datagrams; go-back-N beside it"
FIGURES = ("raft-loss.goodput", "raft-loss.over_go_back_n", "raft-loss.p999_us")

OURS, THEIRS = "channel", "go-back-N"
PROTOCOLS = {OURS: lib.CL_BENCH_LOSS_CHANNEL, THEIRS: lib.CL_BENCH_LOSS_GO_BACK_N}
RACK, ZONES = "rack", "zones"
LINKS = {RACK: 10, ZONES: 250}  # one way, us
GBPS = 10
LOSSES = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1)
JUDGED_LOSS = 0.01
LOADS_PER_S = (1_000, 20_000)
REQUEST_BYTES, ANSWER_BYTES = 256, 64
SEEDS = (1, 2, 3)

WARM_NS = 20_000_000
STREAM_NS_PER_S = 8_000_000  # of virtual time, for each second of the run
LEAST_STREAM_NS = 20_000_000
REQUESTS_PER_S = 3_000
LEAST_REQUESTS = 1_000


@dataclass(frozen=True)
class Case:
    """A protocol on a link. delay_us: one way. loss: of each datagram, 0 to 1."""

    protocol: str
    delay_us: float
    loss: float
    seed: int = 1


def _run(case: Case, call: Any, *args: Any) -> Any:
    settings = ffi.new(
        "struct cl_bench_loss_settings *",
        {
            "seed": case.seed,
            "protocol": PROTOCOLS[case.protocol],
            "bits_per_s": int(GBPS * 1e9),
            "delay_ns": int(case.delay_us * 1000),
            "loss": case.loss,
        },
    )
    result, err = ffi.new("struct cl_bench_loss_result *"), ffi.new("char[256]")
    if call(settings, *args, result, err):
        raise CorelaneError(f"raft_loss: {ffi.string(err).decode()}")
    if result.twice:
        raise CorelaneError(f"raft_loss: {case}: {result.twice} frames came twice: the transport is broken")
    return result


def stream(case: Case, measure_ns: int, warm_ns: int = WARM_NS) -> Any:
    """Frames of full length with the window full: a `struct cl_bench_loss_result`.

    Raises CorelaneError if a frame came twice.
    """
    return _run(case, lib.cl_bench_loss_stream, warm_ns, measure_ns)


def requests(case: Case, per_s: float, n: int) -> tuple[np.ndarray[Any, Any], Any]:
    """Latencies of n requests in us, inf where none was answered, and a `struct cl_bench_loss_result`.

    Raises CorelaneError if a frame came twice.
    """
    took = np.zeros(n, np.uint64)
    result = _run(
        case,
        lib.cl_bench_loss_requests,
        per_s,
        n,
        REQUEST_BYTES,
        ANSWER_BYTES,
        ffi.cast("uint64_t *", took.ctypes.data),
    )
    return np.where(took == np.iinfo(np.uint64).max, np.inf, took / 1e3), result


def of_bound(result: Any, loss: float) -> float:
    """Frames that came / those that the link does not lose: no protocol has more than 1, but by the seed's luck."""
    sent = result.ns * GBPS / 8 / lib.CL_BENCH_LOSS_DATAGRAM_BYTES
    return float(result.delivered / (sent * (1 - loss)))


def _percentile(sorted_us: np.ndarray[Any, Any], part: float) -> float:
    """Nearest rank."""
    return float(sorted_us[max(int(np.ceil(part * len(sorted_us))), 1) - 1])


def _cases(session: Session) -> Iterator[tuple[str, str, float]]:
    for link in LINKS:
        for loss in LOSSES:
            for protocol in PROTOCOLS if session.baseline else (OURS,):
                yield protocol, link, loss


def _again(result: Any) -> dict[str, Any]:
    """What a row says of datagrams, both ways."""
    return {
        "sent_again_share": result.sent_again / max(result.datagrams, 1),
        "timeouts": result.timeouts,
        "probes": result.probes,
        "n": result.datagrams,
    }


def _streams(session: Session) -> dict[tuple[str, str, float], list[float]]:
    """Rows of full windows; what each seed came to, of what the link does not lose."""
    measure_ns, found = max(int(session.seconds * STREAM_NS_PER_S), LEAST_STREAM_NS), {}
    for protocol, link, loss in _cases(session):
        parts, results = [], []
        for seed in SEEDS:
            results.append(stream(Case(protocol, LINKS[link], loss, seed), measure_ns))
            parts.append(of_bound(results[-1], loss))
        found[protocol, link, loss] = parts
        part = statistics.median(parts)
        whole = lib.CL_BENCH_LOSS_FRAME_BYTES / lib.CL_BENCH_LOSS_DATAGRAM_BYTES
        session.arm(
            f"{protocol}, {link}, full window",
            loss_percent=100 * loss,
            goodput_over_rate=part * (1 - loss) * whole,
            over_bound=part,
            over_bound_min=min(parts),
            over_bound_max=max(parts),
            **_again(results[0]),
        )
    return found


def _tails(session: Session) -> dict[tuple[str, str, float, int], float]:
    """Rows of requests; the p99.9 of each."""
    n, found = max(int(session.seconds * REQUESTS_PER_S), LEAST_REQUESTS), {}
    for per_s in LOADS_PER_S:
        for protocol, link, loss in _cases(session):
            took, result = requests(Case(protocol, LINKS[link], loss, SEEDS[0]), per_s, n)
            took.sort()
            found[protocol, link, loss, per_s] = _percentile(took, 0.999)
            session.arm(
                f"{protocol}, {link}, {per_s}/s",
                loss_percent=100 * loss,
                **{f"virtual_{name}_us": _percentile(took, p) for name, p in (("p50", 0.5), ("p99", 0.99))},
                virtual_p999_us=found[protocol, link, loss, per_s],
                sent=n,
                answered=int(np.isfinite(took).sum()),
                **_again(result),
            )
    return found


def run(session: Session) -> None:
    """All losses on all links: a full window, then requests. About session.seconds and a half."""
    session.say("full windows")
    streams = _streams(session)
    session.say("requests")
    tails = _tails(session)
    worst = min((streams[OURS, RACK, loss] for loss in LOSSES), key=statistics.median)
    session.figure("raft-loss.goodput", statistics.median(worst), runs=worst)
    if session.baseline:
        ratios = [
            statistics.median(parts) / statistics.median(streams[THEIRS, link, loss])
            for (who, link, loss), parts in streams.items()
            if who == OURS and loss
        ]
        session.figure("raft-loss.over_go_back_n", min(ratios), runs=ratios)
    session.figure("raft-loss.p999_us", tails[OURS, RACK, JUDGED_LOSS, LOADS_PER_S[0]])
    session.settings["message"] = (
        f"a datagram of {lib.CL_BENCH_LOSS_FRAME_BYTES} bytes of a frame one way, or a request of "
        f"{REQUEST_BYTES} bytes and its answer of {ANSWER_BYTES}"
    )
    session.settings["links"] = {name: {"gbps": GBPS, "one_way_us": us} for name, us in LINKS.items()}
    session.settings["seeds"] = SEEDS
    session.note("virtual time: the same on every machine; the canary says nothing about it")


def _drawn(document: dict[str, Any], name: str, value: str) -> tuple[list[float], list[float]]:
    """Losses in % and values of an arm's rows; no loss has no place on a logarithmic axis."""
    rows = [row for row in document["arms"] if row["name"] == name and row["loss_percent"]]
    return [row["loss_percent"] for row in rows], [number(row[value]) for row in rows]


def _goodput_panel(canvas: Canvas, document: dict[str, Any], protocols: list[str]) -> None:
    for i, protocol in enumerate(protocols):
        for link, style in zip(LINKS, ("-", "--"), strict=True):
            drawn = _drawn(document, f"{protocol}, {link}, full window", "goodput_over_rate")
            canvas.curve(*drawn, label=f"{protocol}, {link}", colour=i, style=style)
    whole = lib.CL_BENCH_LOSS_FRAME_BYTES / lib.CL_BENCH_LOSS_DATAGRAM_BYTES
    losses = [loss for loss in LOSSES if loss]
    canvas.curve(
        [100 * loss for loss in losses],
        [whole * (1 - loss) for loss in losses],
        label="not lost by the link",
        colour=5,
        style=":",
        marker="",
    )
    canvas.axes[0].set_ylabel("goodput over the link's rate (1)")
    canvas.axes[0].set_ylim(0, 1)


def plot(document: dict[str, Any]) -> Canvas:
    """Against loss: goodput of both links, and p99.9 of requests, a panel a link."""
    names = {row["name"] for row in document["arms"]}
    protocols = [name for name in PROTOCOLS if any(arm.startswith(f"{name},") for arm in names)]
    n = sum(row["n"] for row in document["arms"])
    canvas = Canvas(
        "raft_loss: Raft's transport on a link that loses",
        message=document["settings"]["message"],
        n=n,
        panels=3,
        size=(14, 6.5),
    )
    _goodput_panel(canvas, document, protocols)
    for panel, link in enumerate(LINKS, 1):
        for i, protocol in enumerate(protocols):
            for per_s, style in zip(LOADS_PER_S, ("-", "--"), strict=True):
                drawn = _drawn(document, f"{protocol}, {link}, {per_s}/s", "virtual_p999_us")
                canvas.curve(*drawn, label=f"{protocol}, {link}, {per_s}/s", colour=i, style=style, panel=panel)
        canvas.axes[panel].set_ylabel(f"p99.9 of requests (us), {LINKS[link]} us one way")
        canvas.axes[panel].set_yscale("log")
    for axis in canvas.axes:
        axis.set_xscale("log")
        axis.set_xlabel("datagrams that the link loses (%)")
    canvas.caption(
        f"n counts datagrams. {GBPS} Gb/s in virtual time; full window: median of {len(SEEDS)} seeds. All curves "
        f"stop at a loss of {100 * LOSSES[-1]:g} %, the most that was asked for. "
        "p99.9 counts from the intended time."
    )
    return canvas

"""Isolation: an application's latency at half load, alone and beside a neighbour that sends as fast as it can.

The victim is the echo application on the worker core, loaded through the iokernel's uplink at half of the load that it
carries alone. The neighbour keeps its transmit ring full all the time, with small frames and with full ones out of the
uplink, and with frames to itself, which it never reads, so that they end in drops. It is attached in every arm; alone
means that it is silent.

With a third core the neighbour runs there. With two it shares the victim's: it sleeps, and fills its ring every two
milliseconds. That time is taken from the victim and so part of the figure; its share is printed, and one more arm, a
neighbour that takes such time and sends nothing, shows what of the figure it explains.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import Any

from ..iokernel import AppSettings
from .flooder import Flooder
from .harness import rig, usage
from .harness.numbers import pairwise
from .harness.openloop import Point, middle, search_peak
from .harness.plot import Canvas
from .harness.session import Session

SUMMARY = "an application's p99 at half load beside a neighbour that floods, over alone"
FIGURES = ("isolation.victim_p99_ratio",)

ROUNDS = 7
FLOODS = {  # arm: destination, bytes of a frame
    "beside small frames": ("uplink", 60),
    "beside full frames": ("uplink", 1514),
    "beside dropped frames": ("self", 60),
}
SILENT = "beside a busy silent one"


def run(session: Session) -> None:
    """Find the victim's load, then measure the arms in turns."""
    loop, worker = session.two_cores
    apart = session.cores[2] if len(session.cores) > 2 else worker
    session.settings |= {
        "message": "one request of 22 bytes (a frame of one cache line) and its reply",
        "checksums": rig.CHECKSUMS,
        "neighbour_cpu": apart,
        "neighbour_shares_the_victims_core": apart == worker,
    }
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(
            rig.iokernel(["echo"], (loop, worker), apps={"flooder": AppSettings(ipv4="10.77.0.3")})
        )
        assert made.iokernel is not None  # rig.iokernel gives one
        flooder = Flooder(made.iokernel.socket_path, "flooder", apart)
        stack.callback(flooder.close)
        peak = search_peak(made.load.measure, start_rps=5e5, seconds=0.2 * session.seconds)
        # Where the machine let no load pass whole, half of what was answered at most is still a load to compare at.
        most = peak.peak_rps or max(p.achieved_rps for p in peak.points)
        rate = max(most / 2, 1000.0)
        session.settings |= {"victim_peak_rps": peak.peak_rps, "victim_peak_stop": peak.stop, "victim_rps": rate}
        slot = 0.7 * session.seconds / ROUNDS / (2 + len(FLOODS))
        bodies = {"alone": partial(made.load.measure, rate, slot)}
        for name, (kind, size) in FLOODS.items():
            bodies[name] = partial(beside, made, flooder, rate, slot, kind, size)
        if apart == worker:
            bodies[SILENT] = partial(beside, made, flooder, rate, slot, "silent", 60)
        got = session.interleave(bodies, ROUNDS)
    for name, points in got.items():
        session.point(name, middle(points))
    judge(session, got)


def judge(session: Session, got: dict[str, list[Point]]) -> None:
    """The figure: pair by pair, from the flood that is worst for the victim. No value if requests were lost."""
    alone = [p.p99_us for p in got["alone"]]
    ratios = {}
    for name in [*FLOODS, SILENT]:
        if name not in got:
            continue
        flooded = [p.p99_us for p in got[name]]
        pairs = [(f, a) for f, a in zip(flooded, alone, strict=True) if math.isfinite(f) and math.isfinite(a)]
        lost = len(alone) - len(pairs)
        if 2 * lost >= len(alone):
            why = f"p99 is infinite (requests unanswered) in {lost} of {len(alone)} rounds, {name} or alone"
            session.figure(FIGURES[0], None, reason=why)
            return
        ratios[name] = pairwise([f for f, _ in pairs], [a for _, a in pairs])
        left_out = f", {lost} rounds with an infinite p99 left out" if lost else ""
        session.note(f"p99 {name} over alone: {ratios[name]}{left_out}")
    if ratios.pop(SILENT, None):
        silent = [p.p99_us for p in got[SILENT]]
        for name in FLOODS:
            pairs = [(p.p99_us, s) for p, s in zip(got[name], silent, strict=True)]
            finite = [(f, s) for f, s in pairs if math.isfinite(f) and math.isfinite(s)]
            if finite:
                over = pairwise([f for f, _ in finite], [s for _, s in finite])
                session.note(f"p99 {name} over {SILENT}, the switch's own part: {over}")
    worst = max(ratios, key=lambda name: ratios[name].median)
    session.settings["figure_from"] = worst
    session.figure(FIGURES[0], ratios[worst].median, runs=ratios[worst].pairs)


def beside(made: rig.Rig, flooder: Flooder, rate: float, seconds: float, kind: str, size: int) -> Point:
    """One point of the victim while the neighbour floods, with what the flood was."""
    assert made.iokernel is not None
    before, used = _neighbour(made), usage.of_process(flooder.pid)
    flooder.start(kind, size, seconds, made.iokernel.stats()["uplinks"][0]["mac"])
    point = made.load.measure(rate, seconds)
    result = flooder.wait(seconds + 10)
    after, cost = _neighbour(made), usage.of_process(flooder.pid) - used
    point.extra |= {
        "neighbour_fps": (after["tx_taken"] - before["tx_taken"]) / seconds,
        "neighbour_rounds_cut_short": after["backlogged"] - before["backlogged"],
        "neighbour_core_share": cost.busy_s / seconds,
        "neighbour_ring_ran_empty": result["empty"],
    }
    return point


def _neighbour(made: rig.Rig) -> dict[str, Any]:
    assert made.iokernel is not None
    return next(a for a in made.iokernel.stats()["apps"] if a["name"] == "flooder")


def plot(document: dict[str, Any]) -> Canvas:
    """The p99 of each arm, or what there is in its place if that is infinite."""
    canvas = Canvas(
        "isolation: a victim at half load beside a flooding neighbour",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in document["arms"]),
    )
    arms = document["arms"]
    finite = [p for p in ("p99_us", "p90_us", "p50_us") if all(isinstance(a[p], int | float) for a in arms)]
    key = finite[0] if finite else "achieved_rps"
    label = f"{key.removesuffix('_us')} (us)" if finite else "answered (requests/s)"
    canvas.bars([str(a["name"]) for a in arms], [float(a[key]) for a in arms], ylabel=label)
    if key != "p99_us":
        canvas.caption("No p99: requests stayed unanswered in some arm.")
    for arm in document["arms"]:
        if "neighbour_fps" in arm:
            share = 100 * float(arm["neighbour_core_share"])
            canvas.caption(
                f"{arm['name']}: {arm['neighbour_fps']:,.0f} frames/s, {share:.2g} % of a core to send them."
            )
    return canvas

"""UDP echo over AF_XDP with many requests under way: how many doorbells, each a system call, a burst of answers takes.

Three servers by turns on one veth pair, asked by the same client with 64 requests under way at any time: the raw
reflector, which answers all that it finds by one doorbell (bench/afxdp/reflector.h); the same one that verifies the
checksums of what comes and makes those of answers, as a host has to; and a runtime with the C echo handler. What
the second one has of the first is the bound of any host, and stands beside the figure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ...drivers.linux import netns
from ...drivers.nic.loadgen.loadgen import Closed
from ..afxdp.pair import PAYLOAD_BYTES, Serve, bench_on, checking_reflector, embedded, reflector
from ..harness import rest
from ..harness.numbers import pairwise
from ..harness.openloop import Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session

FIGURE = "ground.afxdp_burst"
WINDOW = 64
ROUNDS = 9
FLOOR, BOUND, OURS = (f"AF_XDP burst, {what}" for what in ("reflector", "reflector with checksums", "embedded"))
ARMS: dict[str, Serve] = {FLOOR: reflector, BOUND: checking_reflector, OURS: embedded}


def measure(session: Session, seconds: float) -> None:
    """All arms, and FIGURE: answers a second of ours over the reflector's, round by round."""
    missing = netns.missing()
    if not missing and len(session.cores) < 2:
        missing = "a client and a server need two cores, and this process may use one"
    if missing:
        for name in ARMS:
            session.skip(name, missing)
        return
    session.settings["burst"] = {"under_way": WINDOW, "message": f"a UDP echo of {PAYLOAD_BYTES} bytes"}
    slot = seconds / (ROUNDS * len(ARMS))
    with contextlib.ExitStack() as stack:
        bench = bench_on(stack, session.cores, "auto", Closed(WINDOW))

        def arm(serve: Serve) -> Callable[[], Point]:
            def body() -> Point:
                rest.demand("a server on a veth pair")
                with serve(bench.place):
                    return bench.load.measure(0.0, slot)

            return body

        points = session.interleave({name: arm(serve) for name, serve in ARMS.items()}, ROUNDS)
    for name, several in points.items():
        session.point(name, middle(several))
    floor, bound, ours = ([p.achieved_rps for p in points[name]] for name in (FLOOR, BOUND, OURS))
    beside = {"bound: with checksums": pairwise(bound, floor).median, "of that bound": pairwise(ours, bound).median}
    session.ratio_figure(FIGURE, ours, floor, beside=beside)


def draw(canvas: Canvas, document: dict[str, Any], panel: int) -> None:
    """Answers a second by arm."""
    rows = [row for row in document["arms"] if row["name"] in ARMS]
    if not rows:
        canvas.caption("AF_XDP: not measured here.")
        return
    names = [str(row["name"]).removeprefix("AF_XDP burst, ") for row in rows]
    canvas.bars(names, [row["achieved_rps"] / 1e3 for row in rows], ylabel="answers (1000/s)", panel=panel)
    canvas.caption(f"Second: UDP echo over AF_XDP on a veth, {WINDOW} requests under way, medians of {ROUNDS} rounds.")

"""UDP echo over AF_XDP on a veth pair, unloaded: what the libos adds to a raw reflector, and what Linux's stack takes.

One generator, an AF_XDP client thread on one end of the pair, asks one server after the other on the other end, all at
the same address, on the same core, under the same power setting:

    reflector        AF_XDP with nothing above it (reflector.h): the floor
    embedded         a runtime on the NIC, one spinning kthread, the C echo handler
    iokernel         the same application attached to an iokernel whose uplink is the NIC
    linux spin       a C server on a kernel socket, receiving without blocking in a loop
    linux block      the same, sleeping in the receive call

All of them, the generator too, use the XDP mode that users of AfXdp get ("auto"). Reflector and embedded run once more
on a second pair in the other mode, which shows whether "auto" chose well. The XDP program is attached only while a
server that uses it runs: the Linux arms have the plain veth. Every frame on a veth is copied by the kernel in its
sender's system call, so two such calls are the largest part of every arm: the reflector says how long its own takes.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from ...drivers.linux import netns
from ...runtime.errors import CorelaneError
from ..harness import rest
from ..harness.numbers import number
from ..harness.openloop import Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session
from .pair import PAYLOAD_BYTES, Bench, Serve, bench_on, embedded, iokernel, linux, reflector

SUMMARY = "UDP echo over AF_XDP on veth against a raw reflector and Linux's own stack"
FIGURES = ("afxdp.p50_over_reflector", "afxdp.linux_spin_over_ours", "afxdp.linux_block_over_ours")

ROUNDS = 15  # short ones: arms of one round shall meet the same phase of a machine that others use too


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark alone."""
    parser.add_argument("--rate", type=float, default=10_000.0, help="requests a second of every arm (10000: unloaded)")
    parser.add_argument(
        "--xdp-mode",
        choices=("auto", "generic", "native"),
        default="auto",
        help="where the XDP program runs (auto: where AfXdp runs it); reflector and embedded also run in the other",
    )


OURS: dict[str, Serve] = {"reflector": reflector, "embedded": embedded, "iokernel": iokernel}
BESIDE = ("reflector", "embedded")  # measured in the other XDP mode as well
LINUX_SETTINGS = (
    "one recvfrom and one sendto a datagram by syscall(2), no pause while spinning, unconnected socket (64 peers), no "
    "SO_BUSY_POLL (a veth has no queue to poll); recvmmsg of 32 is slower here"
)
LINUX: dict[str, Serve] = {"linux spin": linux("spin"), "linux block": linux("block")}


def run(session: Session) -> None:
    """Measure all arms on one veth pair, interleaved; without root or a second core say so and skip."""
    if missing := netns.missing():
        session.skip("all arms", missing)
        return
    if len(session.cores) < 2:
        session.skip("all arms", "a client and a server need two cores, and this process may use one")
        return
    asked = getattr(session.options, "xdp_mode", "auto")
    rate = getattr(session.options, "rate", 10_000.0)
    session.settings |= {"message": f"a UDP echo of {PAYLOAD_BYTES} bytes, request and reply", "linux": LINUX_SETTINGS}
    with contextlib.ExitStack() as stack:
        first = bench_on(stack, session.cores, asked)
        mode = first.place.mode
        other = "native" if mode == "generic" else "generic"
        second = bench_on(stack, session.cores, other)
        session.settings |= {"xdp_mode": mode, "xdp_mode_asked": asked}
        arms = {name: (serve, first) for name, serve in (OURS | (LINUX if session.baseline else {})).items()}
        arms |= {f"{name} {other}": (OURS[name], second) for name in BESIDE}
        points = _measure(session, arms, rate)
        session.settings["doorbell_us"] = _doorbell_us(session, first, rate)
    _report(session, points)


def _measure(session: Session, arms: Mapping[str, tuple[Serve, Bench]], rate: float) -> dict[str, list[Point]]:
    """Every arm in every round, its server made and removed each time: only one program may be on an interface."""
    slot = session.seconds / (ROUNDS * len(arms))

    def arm(serve: Serve, bench: Bench) -> Callable[[], Point]:
        def body() -> Point:
            rest.demand("a server on a veth pair")
            with serve(bench.place):
                return bench.load.measure(rate, slot)

        return body

    return session.interleave({name: arm(*one) for name, one in arms.items()}, ROUNDS)


def _doorbell_us(session: Session, bench: Bench, rate: float) -> float:
    """Median time of the system call in which the reflector sends one answer; 0 if there were none."""
    with bench.place.reflector() as server:
        server.time_doorbells()
        bench.load.measure(rate, session.seconds / 20)
        taken = server.doorbells_ns
    return statistics.median(taken) / 1e3 if taken else 0.0


def _report(session: Session, points: Mapping[str, list[Point]]) -> None:
    for name, several in points.items():
        session.point(name, middle(several))
    p50 = {name: [p.p50_us for p in several] for name, several in points.items()}
    _ratio(session, "afxdp.p50_over_reflector", p50["embedded"], p50["reflector"])
    for figure, name in (("linux_spin", "linux spin"), ("linux_block", "linux block")):
        if name in p50:
            _ratio(session, f"afxdp.{figure}_over_ours", p50[name], p50["embedded"])
        else:
            session.figure(f"afxdp.{figure}_over_ours", None, reason="baselines were not asked for")
    iokernel, floor = statistics.median(p50["iokernel"]), statistics.median(p50["reflector"])
    sharing = len(session.cores) < 3
    session.note(
        f"iokernel mode: p50 {iokernel:.2f} us, the reflector's {floor:.2f}"
        + ("; loop and kthread share one core here and wake each other" if sharing else "")
    )
    mode = session.settings.get("xdp_mode", "auto")
    for name, ours in ((n, p50[n]) for n in BESIDE):
        for key, values in p50.items():
            if key.startswith(f"{name} "):
                where = f"{key}: p50 {statistics.median(values):.2f} us"
                session.note(f"{where}; in {mode} XDP mode, that of the figures: {statistics.median(ours):.2f} us")
    session.note("both directions are one sendto each, in which the kernel copies the frame to the other end's memory")
    if bell := session.settings.get("doorbell_us"):
        session.note(
            f"the server's sendto takes {bell:.2f} us (median), {100 * bell / floor:.0f} % of the reflector's round "
            "trip; the client's is its like"
        )


def _ratio(session: Session, figure: str, above: list[float], below: list[float]) -> None:
    """The figure from the rounds in which both arms answered at least half of their requests; says how many did not."""
    pairs = [(a, b) for a, b in zip(above, below, strict=True) if math.isfinite(a) and math.isfinite(b)]
    lost = len(above) - len(pairs)
    if 2 * lost >= len(above):
        why = f"in {lost} of {len(above)} rounds an arm left half of its requests unanswered: is the machine this busy?"
        session.figure(figure, None, reason=why)
        return
    if lost:
        session.note(f"{figure} is without {lost} of {len(above)} rounds: an arm left half of its requests unanswered")
    session.ratio_figure(figure, [a for a, _ in pairs], [b for _, b in pairs])


def plot(document: dict[str, Any]) -> Canvas:
    """The median of every arm; the tail is the machine's, and in the table."""
    arms = document["arms"]
    canvas = Canvas(
        "afxdp: median round trip of an unloaded echo on a veth",
        message=document["settings"].get("message", "a UDP echo"),
        n=sum(int(a["sent"]) for a in arms),
        size=(9, 5),
    )
    finite = {str(a["name"]): number(a["p50_us"]) for a in arms if math.isfinite(number(a["p50_us"]))}
    if not finite:
        raise CorelaneError("no arm of afxdp answered half of its requests", "nothing to plot", "is the machine busy?")
    canvas.bars(list(finite), list(finite.values()), ylabel="p50 from the intended send time (us)")
    if lost := [str(a["name"]) for a in arms if a["name"] not in finite]:
        canvas.caption(f"Not shown, since half of its requests were not answered: {', '.join(lost)}.")
    for name, figure in document["figures"].items():
        if figure["value"] is not None:
            canvas.caption(f"{name} = {figure['value']:.3g} (goal {figure['goal']}, {figure['sense']}).")
    return canvas

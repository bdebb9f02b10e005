"""One connection with as many bytes as it carries, both ways: over the memory NIC, over AF_XDP on a veth pair, and from
Linux to Linux on a veth pair with all its offloads.

A sink copies what comes to a buffer of its own. What we send is compared by the client, byte by byte; what we receive
is compared in tests only, since Linux does not compare either.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from ...drivers.linux import netns
from ..baseline.tcp_sockets import LinuxTcp, bulk
from ..harness import rest
from ..harness.plot import Canvas
from ..harness.session import Session
from . import links
from .reflector import Reflector

GBPS, OVER = "tcp.bulk_gbps", "tcp.bulk_over_veth"
FIGURES = (GBPS, OVER)
IN, OUT, ATTACHED = "bulk to us, memory", "bulk from us, memory", "bulk to us, attached"
FLOOR, XDP_FLOOR = "bulk to a reflector, memory", "bulk to a reflector, AF_XDP"
KEPT = "bulk to a reflector that keeps it, memory"
XDP_IN, XDP_OUT = "bulk to us, AF_XDP", "bulk from us, AF_XDP"
LINUX = "bulk, Linux to Linux, veth"
ROUNDS = 5
WARM_FRACTION = 0.15


def measure(session: Session, seconds: float) -> None:
    """All arms, interleaved."""
    cores = session.two_cores
    session.settings["bulk"] = {"connections": 1, "mtu": 1500, "linux": "veth with TSO and GRO, system's buffers"}
    with contextlib.ExitStack() as stack:
        memory = stack.enter_context(links.memory(cores))
        arms: dict[str, Callable[[float], dict[str, float]]] = {
            IN: partial(over, memory, "send"),
            OUT: partial(over, memory, "receive"),
            ATTACHED: partial(attached, cores),
            FLOOR: partial(to_floor, cores),
            KEPT: partial(to_floor, cores, keeps=True),
        }
        if why := netns.missing():
            for name in (XDP_IN, XDP_OUT, XDP_FLOOR, LINUX):
                session.skip(name, why)
        else:
            xdp = links.Veth(stack, cores)
            arms |= {XDP_IN: partial(on_veth, xdp, "send"), XDP_OUT: partial(on_veth, xdp, "receive")}
            arms[XDP_FLOOR] = partial(on_veth, xdp, "send", floor=True)
            if session.baseline:
                pair = stack.enter_context(netns.link(offloads=True))
                arms[LINUX] = partial(linux_to_linux, pair, cores)
            else:
                session.skip(LINUX, "--no-baseline was given")
        slot = seconds / (ROUNDS * len(arms))
        found = session.interleave({name: partial(arm, slot) for name, arm in arms.items()}, ROUNDS)
    _report(session, found)


def over(link: links.Link, traffic: str, seconds: float) -> dict[str, float]:
    """Gb/s of one connection of the client, and what should not have happened."""
    with link.client(traffic) as load:
        return carried(load, traffic, seconds)


def carried(load: Any, traffic: str, seconds: float) -> dict[str, float]:
    """Gb/s of a client's run: bytes that the server acknowledged, or that came from it and were right."""
    warm_s = WARM_FRACTION * seconds
    before = load.other()
    result = load.run(0.0, seconds - warm_s, warm_s)
    came, went = load.bytes()
    row = {"gbps": 8e-9 * (came if traffic == "receive" else went) / (seconds - warm_s), "wrong": result.wrong}
    gained = {name: count - before[name] for name, count in load.other().items()}
    return row | {name: gained[name] for name in ("gaps", "again", "resent")}


def attached(cores: tuple[int, int], seconds: float) -> dict[str, float]:
    """To our sink behind an iokernel, whose uplink is the client."""
    with links.attached(cores, "send") as load:
        return carried(load, "send", seconds)


def to_floor(cores: tuple[int, int], seconds: float, *, keeps: bool = False) -> dict[str, float]:
    """To a reflector that takes: what client and NIC carry, whatever TCP does. keeps: and sums and copies data, which
    has to come from the client's core then, as its buffers have to go back to it."""
    reflector = partial(Reflector, takes=True, keeps=keeps)
    with links.floor(cores, "send") as floor, reflector(floor.server_end, cpu=floor.cpu):
        return carried(floor.load, "send", seconds)


def on_veth(veth: links.Veth, traffic: str, seconds: float, *, floor: bool = False) -> dict[str, float]:
    """The same over AF_XDP on a veth pair. floor: to the reflector."""
    rest.demand("a server on a veth pair")
    server = veth.floor(takes=True) if floor else veth.ours()
    with server, veth.client(traffic) as load:
        return carried(load, traffic, seconds)


def linux_to_linux(pair: Any, cores: tuple[int, int], seconds: float) -> dict[str, float]:
    """A client on a kernel socket sends to a sink on one, by the sink's count of the same time."""
    rest.demand("Linux on both ends of a veth pair")
    near, far = pair
    where = {"address": far.address, "port": links.PORT_OF["send"]}
    with LinuxTcp(kind="sink", poll="spin", cpu=cores[1], netns=far.namespace.name, **where):
        return {"gbps": bulk(send=True, cpu=cores[0], seconds=seconds, netns=near.namespace.name, **where)}


def _report(session: Session, found: dict[str, list[dict[str, float]]]) -> None:
    gbps = {name: [row["gbps"] for row in rows] for name, rows in found.items()}
    for name, rows in found.items():
        odd = {key: sum(row[key] for row in rows) for key in rows[0] if key != "gbps"}
        odd = {key: count for key, count in odd.items() if count}
        session.arm(name, n=len(rows), gbps=statistics.median(gbps[name]), runs=gbps[name], **odd)
    medians = {name: statistics.median(values) for name, values in gbps.items()}
    others = {"sent by us": OUT, "attached": ATTACHED, "bound: a reflector of segments": FLOOR}
    others |= {"bound: a reflector that sums and copies": KEPT}
    others |= {"AF_XDP, to us": XDP_IN, "AF_XDP, by us": XDP_OUT, "AF_XDP, bound: a reflector of segments": XDP_FLOOR}
    beside = {told: medians[name] for told, name in others.items() if name in medians}
    session.figure(GBPS, medians[IN], runs=gbps[IN], beside=beside)
    if medians.get(LINUX):
        over_linux = {told: value / medians[LINUX] for told, value in beside.items()}
        session.ratio_figure(OVER, gbps[IN], gbps[LINUX], beside=over_linux)
    elif LINUX in gbps:
        session.figure(OVER, None, reason="Linux carried nothing in half of the rounds: is the machine this busy?")


def draw(canvas: Canvas, document: dict[str, Any], panel: int) -> None:
    """Gb/s by arm."""
    rows = [row for row in document["arms"] if "gbps" in row]
    if not rows:
        canvas.caption("Bulk: not measured here.")
        return
    names = [str(row["name"]).removeprefix("bulk ").removeprefix("bulk, ") for row in rows]
    colours = [links.colour_of(name) for name in names]
    values = [float(row["gbps"]) for row in rows]
    canvas.bars(names, values, ylabel="one connection (Gb/s)", panel=panel, colours=colours)
    canvas.caption(f"Bulk: one connection, MTU 1500, medians of {ROUNDS} rounds; Linux has its offloads on.")

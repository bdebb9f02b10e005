"""`make demo`: an iokernel on one core, the key-value store in its own process on another, and an open-loop load.

The iokernel's uplink is the load generator. Beside it, under the same load in the same run: stock memcached, if it is
installed, and the store's own command layer behind a kernel UDP socket, as root (veth and AF_XDP). What was left out is
said in one line with what it would have needed.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import Any

from ..apps.kv import Store
from ..drivers.linux import netns
from ..drivers.nic.loadgen.loadgen import Memcached as Traffic
from .baseline.sockets import LinuxUdp
from .harness import rig
from .harness.document import too_loud
from .harness.numbers import number
from .harness.openloop import Measure, Point, search_peak, sweep, was_carried
from .harness.plot import Canvas
from .harness.session import Session
from .harness.table import align, canary_line, loud_line, machine_line, quantity
from .kv.kv import MEMCACHED, OVER_AF_XDP, add_memcached

SUMMARY = "a short tour: the key-value store under load beside Linux' own sockets (make demo)"
FIGURES = ()

KEYS = 100_000
FEW_KEYS, SHORT_S = 10_000, 2.0  # storing them takes longer than a short run
PORT = 11211
MEMORY_BYTES = 64 << 20
OURS = "corelane kv"
LINUX_KV = "kv on a Linux socket"
LONG_GAP_MS = 1.0  # in which a million requests a second fill a quarter of kv's buffers
UNCARRIED = "it carried no load"
FRACTIONS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.85, 1.0, 1.15)


def run(session: Session) -> None:
    """Find each server's peak, then sweep it."""
    cores = session.two_cores
    keys = KEYS if session.seconds >= SHORT_S else FEW_KEYS
    traffic = Traffic(keys=keys, get_fraction=0.9)
    session.settings |= {
        "message": f"one GET (90 %) or SET of a {traffic.key_bytes}-byte key and a {traffic.value_bytes}-byte value",
        "keys": keys,
        "zipf": traffic.zipf,
        "links": {OURS: "the generator is the iokernel's uplink"},
    }
    words = ["kv", "--option", f"memory_bytes={MEMORY_BYTES}"]
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(rig.iokernel(words, cores, traffic=traffic, port=PORT))
        assert ours.process is not None
        session.say(f"iokernel on core {cores[0]}, kv in process {ours.process.pid} on core {cores[1]}")
        arms: dict[str, Measure] = {OURS: ours.load.measure}
        explain: dict[str, Measure] = {OURS: ours.load.explain}
        add_memcached(session, arms, stack, traffic, explain)
        add_linux_kv(session, arms, stack, traffic, explain)
        for name, measure in arms.items():
            session.say(f"storing {keys:,} keys: {name}")
            measure(1000, 0.05)
        slot = session.seconds / len(arms)
        for name, measure in arms.items():
            session.take_canary()
            session.say(f"how much it carries: {name}")
            peak = search_peak(measure, start_rps=5e5 if name == OURS else 5e4, seconds=0.4 * slot).peak_rps
            if peak <= 0:
                session.skip(name, f"{UNCARRIED}: is the machine busy with something else?")
                continue
            session.say(f"latency against load, up to {peak:,.0f} requests/s: {name}")
            why = explain.get(name)
            session.curve(name, sweep(measure, peak_rps=peak, seconds=0.6 * slot, fractions=FRACTIONS, explain=why))


def add_linux_kv(
    session: Session,
    arms: dict[str, Measure],
    stack: contextlib.ExitStack,
    traffic: Traffic,
    explain: dict[str, Measure],
) -> None:
    """The store's command layer behind a kernel UDP socket in its strongest form, or why it is left out.

    explain: gets what says why its curve stops.
    """
    why = netns.missing() if session.baseline else "--no-baseline was given"
    if why:
        session.skip(LINUX_KV, why)
        return
    link = rig.LinuxLink(stack, session.two_cores, traffic=traffic, port=PORT)
    store = stack.enter_context(Store(MEMORY_BYTES))

    def serve(far: netns.Interface, port: int) -> contextlib.AbstractContextManager[Any]:
        where = {"address": far.address, "netns": far.namespace.name, "port": port}
        return contextlib.closing(LinuxUdp(poll="spin", cpu=session.two_cores[1], batch=32, store=store, **where))  # type: ignore[arg-type]

    def measure(rate: float, seconds: float) -> Point:
        return link.measure(serve, rate, seconds)[0]

    arms[LINUX_KV], explain[LINUX_KV] = measure, partial(link.explain, serve)


def _curves(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The points of each arm, by arm."""
    out: dict[str, list[dict[str, Any]]] = {}
    for arm in document["arms"]:
        out.setdefault(arm["name"], []).append(arm)
    return out


def _best(points: list[dict[str, Any]]) -> float:
    """The highest load of a curve that was carried."""
    return max((float(a["achieved_rps"]) for a in points if was_carried(a)), default=math.nan)


def report(document: dict[str, Any]) -> str:
    """The table of the demo: latency against load, the canary as its last row."""
    settings = document["settings"]
    columns = ("p50_us", "p90_us", "p99_us", "p999_us")
    rows = [["", "requests/s", "answered", "p50 us", "p90 us", "p99 us", "p99.9 us"]]
    for name, points in _curves(document).items():
        for i, p in enumerate(points):
            starred = p.get("explained_by_canary", ())
            tail = [quantity(number(p[c])) + ("*" if c.removesuffix("_us") in starred else " ") for c in columns]
            due = max(p["sent"] + p["dropped"], 1)
            share = f"{100 * p['answered'] / due:.4g} %"
            rows.append([name if i == 0 else "", f"{float(p['achieved_rps']):,.0f}", share, *tail])
    rows += [[name, *("-" for _ in rows[0][1:])] for name in settings["skipped"]]
    delays = document["canary"]["delay_us"]
    rows.append(["the machine alone (canary)", "", "", *(quantity(number(delays[k])) + " " for k in delays)])
    parts = [loud] if (loud := loud_line(document)) else []
    parts += [machine_line(document["machine"]), f"power: {settings['power']}", f"a message: {settings['message']}"]
    parts += [f"how {name} is loaded: {link}" for name, link in settings["links"].items()]
    parts.append("")
    parts += [align(rows), "  * the machine's own gaps, which the canary saw, make half of this value or more", ""]
    parts += [canary_line(document["canary"])]
    parts += [f"{name} stops at: {why}" for name, why in settings["stops"].items()]
    parts += [f"skipped {name}: {why}" for name, why in settings["skipped"].items()]
    return "\n".join(parts)


def closing(document: dict[str, Any]) -> str:
    """The last line: what it comes to."""
    curves = _curves(document)
    ours = _best(curves.get(OURS, []))
    if not math.isfinite(ours):
        return "no load was carried: see corelane doctor, and keep the machine free of other work"
    low = number(curves[OURS][0]["p50_us"])
    said = f"corelane kv: {ours / 1e6:.2f} million requests/s through one core, p50 {quantity(low)} us when unloaded"
    linux = {n: _best(p) for n, p in curves.items() if n in (MEMCACHED, LINUX_KV) and _best(p) > 0}
    on_veth = _best(curves.get(OVER_AF_XDP, []))
    others = [f"{quantity(ours / best)} times {n}{_same_link(on_veth / best)}" for n, best in linux.items()]
    others += [f"no ratio to {n}: {_why_none(document, n)}" for n in (MEMCACHED, LINUX_KV) if n not in linux]
    told = f"{said}; {', '.join(others)}"
    if why := too_loud(document["canary"]):
        return f"{told}; none of it is judged: {why}"
    gap_ms = number(document["canary"]["max_us"]) / 1e3
    if gap_ms < LONG_GAP_MS:
        return told
    still = quantity(gap_ms)
    return f"{told} (the machine stood still for up to {still} ms meanwhile; where it does not, more is carried)"


def _why_none(document: dict[str, Any], name: str) -> str:
    """Why there is no ratio to one of the others, in a few words."""
    why = document["settings"]["skipped"].get(name, UNCARRIED)
    return str(why).partition(": ")[0]


def _same_link(ratio: float) -> str:
    """The ratio without the advantage of our own link, where it was measured."""
    return f" ({quantity(ratio)} times with both on a veth pair)" if math.isfinite(ratio) else ""


def plot(document: dict[str, Any]) -> Canvas:
    """Latency against load, with the machine's own gaps beside it."""
    shown = [a for a in document["arms"] if "offered_rps" in a]
    canvas = Canvas(
        "A key-value store on its own cores: latency against load",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in shown),
        panels=2,
        size=(13.5, 7.5),
        widths=(2.6, 1),
    )
    canvas.latency_curves(document)
    canvas.canary_curves(document, panel=1)
    canvas.axes[0].set_title("kv under an open-loop load", loc="left", fontsize=10)
    canvas.axes[1].set_title("the machine alone (canary)", loc="left", fontsize=10)
    return canvas

"""corelane ps: the iokernel behind a socket and its applications, with rates and drops over a short interval."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

from . import values
from .watch import dropped, failures, fitting, label_of, policy_line, rate_of, rates, snapshot

IMPORTS = ("..iokernel._native",)
_HEAD = ("NAME", "PID", "ADDRESS", "CPUS", "IN/s", "OUT/s", "HANDLED/s", "REPLIED/s", "FAILED", "DROPPED")
# Which columns stay where not all fit, the first ones longest.
_WANTED = ("NAME", "ADDRESS", "IN/s", "OUT/s", "DROPPED", "FAILED", "HANDLED/s", "REPLIED/s", "PID", "CPUS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    parser.add_argument(
        "--interval", type=values.seconds, default=0.5, metavar="S", help="rates over so long (default 0.5)"
    )
    parser.add_argument(
        "--wait", type=values.seconds, default=0, metavar="S", help="wait so long for the iokernel to come up"
    )
    parser.add_argument("--wide", action="store_true", help="all columns (default: those that fit the terminal, or 80)")
    parser.add_argument("--json", action="store_true", help="print all counters as JSON")


def render(stats: dict[str, Any], width: int | None = None) -> str:
    """The statistics as text: the iokernel, then a line an application, then what was dropped.

    width: columns of the terminal; None: as wide as it is.
    """
    head = f"iokernel pid {stats['pid']} on {stats['socket']}, up {stats['uptime_s']:.0f} s, {stats['mode']} polling"
    rows = [list(_HEAD)]
    for app in stats["apps"]:
        known = app.get("counters") is not None
        rows.append(
            [
                label_of(app),
                str(app["pid"]),
                app["ipv4"],
                ",".join(str(c) for c in app["cpus"]) or "any",
                *(f"{rate_of(app, name):,.0f}" for name in ("rx_delivered", "tx_taken")),
                *(f"{rate_of(app, name):,.0f}" if known else "-" for name in ("handled", "replied")),
                f"{failures(app).get('handler_errors', 0):,}" if known else "-",
                f"{sum(dropped(app).values()):,}",
            ]
        )
    lines = [head]
    for loop in stats["loops"]:
        busy = 100 * loop.get("rates", {}).get("busy_s", 0.0)
        lines.append(f"  loop on cpu {loop['cpu']}: {busy:.1f} % busy, {loop['sleeps']:,} sleeps")
    for uplink in stats["uplinks"]:
        moved = uplink.get("rates", {})
        state = "gone" if uplink["gone"] else "up"
        into, out = moved.get("rx_frames", 0), moved.get("tx_frames", 0)
        lines.append(f"  uplink {uplink['name']} {uplink['mac']} {state}: {into:,.0f} in/s, {out:,.0f} out/s")
    lines.append(f"  {policy_line(stats)}")
    if stats["apps"]:
        lines += fitting(rows, _WANTED, _HEAD[:4], width)
    else:
        lines.append("no application is attached: corelane run NAME attaches one")
    lines += [deadline_line(app) for app in stats["apps"] if app.get("deadline") is not None]
    lines += [memory_line(app) for app in stats["apps"] if app.get("memory") is not None]
    for row in (*stats["apps"], *stats["loops"], *stats["uplinks"]):
        label = label_of(row) if row.get("name") else f"loop on cpu {row['cpu']}"
        if lost := dropped(row):
            lines.append(f"{label} dropped: " + ", ".join(f"{n:,} {k}" for k, n in lost.items()))
        if failed := failures(row):
            lines.append(f"{label} failed: " + ", ".join(f"{n:,} {k}" for k, n in failed.items()))
    return "\n".join(piece for line in lines for piece in values.wrapped(line, width))


def deadline_line(app: Mapping[str, Any]) -> str:
    """An application's deadline: how far it is, when it will be done, and what it was promised or told."""
    d = app["deadline"]
    part = 100 * d["done"] / d["work"]
    text = f"{label_of(app)} deadline: {d['state']}, {part:.0f} % of {d['work']:,} {d['counter']} done"
    text += f" in {d['passed_s']:.1f} of {d['within_s']:g} s"
    if d["ends_in_s"] is not None:
        text += f", the end expected at {d['passed_s'] + d['ends_in_s']:.1f} s"
    if d["state"] == "admitted":
        text += f", {d['promised_cores']:.2f} cores promised" + ("" if d["in_time"] else "; it will be late")
    if d["state"] in ("refused", "missed"):
        text += f": {d['text']}"
    return text


def memory_line(app: Mapping[str, Any]) -> str:
    """What an application holds of memory that it can give back."""
    m = app["memory"]
    held, limit, least, most = (m[f"{key}_bytes"] / 2**20 for key in ("held", "limit", "least", "most"))
    text = (
        f"{label_of(app)} elastic memory: {held:,.1f} MiB held, {limit:,.1f} allowed, {least:,.1f} to {most:,.1f} asked"
    )
    denied = "; it is denied cores" if m["denied"] else ""
    return f"{text}; stubborn: {m['text']}{denied}" if m["stubborn"] else text


def run(options: argparse.Namespace) -> int:
    """Print statistics with rates over --interval."""
    from ..runtime.paths import default_socket

    before = snapshot(options.socket, options.wait)
    path = options.socket or default_socket()
    time.sleep(options.interval)
    stats = rates(before, snapshot(path))
    print(json.dumps(stats, indent=1) if options.json else render(stats, None if options.wide else values.width()))
    return 0

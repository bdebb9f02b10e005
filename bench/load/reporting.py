"""The text that a person reads: the loads with their intervals, what is between client and server, and every doubt."""

from __future__ import annotations

from typing import Any

from ..harness.document import too_loud
from ..harness.numbers import PERCENTILES, number
from ..harness.table import align, canary_line, load_table, machine_line, quantity

ODD = ("held", "misses", "wrong", "errors", "broken", "timeouts", "stray", "reconnects", "refused")
NAMES = {"p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9"}


def report(document: dict[str, Any]) -> str:
    """The whole document as text."""
    settings, arms = document["settings"], document["arms"]
    parts = [_asked(settings), machine_line(document["machine"])]
    if arms:
        parts.append(load_table(arms))
        parts.append(_intervals(arms))
        parts += _operations(arms)
        parts += _odd(arms)
    parts += [f"{name} stops at: {why}" for name, why in settings["stops"].items()]
    parts += [f"{name}: {found['text']}" for name, found in settings["found"].items()]
    parts += _compared(settings["compared"])
    parts.append(_share(settings["client_share"], settings["reflector"]))
    parts.append(canary_line(document["canary"]))
    parts += [f"note: {text}" for text in settings["notes"]]
    parts.append(verdict(document))
    return "\n".join(part for part in parts if part)


def servers(settings: dict[str, Any]) -> str:
    """The server, or both of them."""
    return " or ".join(name for name in (settings["target"], settings["other"]) if name)


def _asked(settings: dict[str, Any]) -> str:
    low, high = settings["rate"]
    rate = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
    many = "s" if settings["threads"] > 1 else ""
    depth = f", up to {settings['depth']} requests on each" if settings["depth"] > 1 else ""
    fresh = ", a new one for each request" if settings["fresh"] else ""
    way = "" if settings["way"] == "kernel sockets" else f", over {settings['way']}"
    tls = f", TLS ({settings['tls']})" if settings["tls"] else ""
    turns = f", in turns with {settings['other']}" if settings["other"] else ""
    asks = f"; {settings['workload']}: {settings['asks']}" if settings["asks"] else ""
    return (
        f"{settings['target']} ({settings['address']}): {rate} requests/s, {settings['arrivals']}, "
        f"{settings['connections']} connections{depth}{fresh}, {settings['threads']} thread{many}{way}{tls}"
        f"{turns}{asks}"
    )


def _interval(row: dict[str, Any], name: str) -> str:
    low, high = (number(v) for v in row["intervals_us"][name])
    return f"{quantity(low)} .. {quantity(high) if high != float('inf') else '?'}"


def _intervals(arms: list[dict[str, Any]]) -> str:
    rows = [["95 % interval, us", *(NAMES[name] for name, _ in PERCENTILES), "independent samples", "own lag p99"]]
    for row in arms:
        cells = [_interval(row, name) for name, _ in PERCENTILES]
        rows.append([row["name"], *cells, quantity(row["independent_samples"]), quantity(number(row["lag_us"]["p99"]))])
    return align(rows)


def _operations(arms: list[dict[str, Any]]) -> list[str]:
    """Latency by operation, where there are several."""
    if not any(len(row["operations"]) > 1 for row in arms):
        return []
    rows = [["answered requests, us", "answered", *(NAMES[name] for name, _ in PERCENTILES)]]
    for row in arms:
        for op, of in row["operations"].items():
            cells = [quantity(number(of[f"{name}_us"])) for name, _ in PERCENTILES]
            rows.append([f"{row['name']} {op}", quantity(of["answered"]), *cells])
    return [align(rows)]


def _odd(arms: list[dict[str, Any]]) -> list[str]:
    """Counts of what a plain load has none of, where there are some."""
    names = [name for name in ODD if any(row["counts"][name] for row in arms)]
    if not names:
        return []
    rows = [["counts", *names]]
    rows += [[row["name"], *(quantity(row["counts"][name]) for name in names)] for row in arms]
    return [align(rows)]


def _compared(compared: dict[str, Any]) -> list[str]:
    if not compared:
        return []
    one, other = compared["over"]
    told = []
    for name, shown in NAMES.items():
        if name in compared:
            runs = compared[name]["runs"]
            told.append(f"{shown} {compared[name]['value']:.3g} ({min(runs):.3g} .. {max(runs):.3g})")
    return [f"{one} over {other}, pair by pair: {', '.join(told) or 'no pair was whole'}"]


def _share(share: dict[str, Any], where: str) -> str:
    if not share:
        return ""
    if "why" in share:
        return f"the client's own share is not known: {share['why']}"
    values = " / ".join(quantity(number(share[f"{name}_us"])) for name, _ in PERCENTILES)
    return f"the client's own share, against a reflector on {where}: p50/p90/p99/p99.9 {values} us"


def verdict(document: dict[str, Any]) -> str:
    """Every doubt, with the load that it is about."""
    arms = document["arms"]
    if not arms:
        return "nothing was measured"
    loud = too_loud(document["canary"])
    told = [f"  this machine was taken away from the load: {loud}"] if loud else []
    several = len(arms) > 1
    for row in arms:
        at = f"{row['name']} at {quantity(number(row['offered_rps']))} requests/s: " if several else ""
        told += [f"  {at}{doubt['text']}" for doubt in row["doubts"]]
        if row["heard"]:
            told.append(f"  {at}the first answer that was not right, or not whole, begins with: {row['heard']}")
    if not told:
        return "nothing speaks against this result: stationary, enough independent samples, sent in time, all answered"
    return "\n".join(["do not trust this as it stands:", *told])

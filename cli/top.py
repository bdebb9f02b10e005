"""corelane top: who has the cores, how long work waits, and how cores move, every second."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..runtime.errors import CorelaneError
from . import values
from .watch import columns, dropped, fitting, label_of, policy_line, rate_of, rates, snapshot

IMPORTS = ("..iokernel._native",)
_CLEAR = "\x1b[H\x1b[J"
_HEAD = (
    *("NAME", "CLASS", "CORES", "CORE%", "GUAR/MAX", "IN/s", "OUT/s", "PKT-AGE", "THR-AGE"),
    *("TMR-AGE", "DSK-AGE", "DET50", "DET99", "ACT50", "ACT99"),
    *("GAINED/s", "LOST/s", "ASK/s", "INT/s", "EVICT/s", "DROPS/s"),
)

# Which columns stay where not all fit, the first ones longest.
_WANTED = (
    *("NAME", "CORES", "CORE%", "IN/s", "OUT/s", "DROPS/s", "PKT-AGE", "ACT99", "CLASS", "DET99", "THR-AGE"),
    *("GUAR/MAX", "DET50", "ACT50", "TMR-AGE", "DSK-AGE", "LOST/s", "GAINED/s", "EVICT/s", "INT/s", "ASK/s"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    parser.add_argument(
        "-d", "--delay", type=values.seconds, default=1.0, metavar="S", help="rates over so long (default 1)"
    )
    parser.add_argument(
        "-n", "--count", type=values.positive, metavar="N", help="end after N of them (default: at Ctrl-C)"
    )
    parser.add_argument("--once", action="store_true", help="the same as -n 1")
    parser.add_argument(
        "--wait", type=values.seconds, default=0, metavar="S", help="wait so long for the iokernel to come up"
    )
    parser.add_argument("--wide", action="store_true", help="all columns (default: those that fit the terminal, or 80)")
    parser.add_argument("--json", action="store_true", help="print all statistics as JSON, a line each time")


def run(options: argparse.Namespace) -> int:
    """Print until Ctrl-C, the end of -n, or the end of the iokernel."""
    live = sys.stdout.isatty() and not options.json
    try:
        for shown, stats in enumerate(_watch(1 if options.once else options.count, options)):
            if options.json:
                print(json.dumps(stats), flush=True)
            elif live:
                print(_CLEAR + _fit(render(stats, None if options.wide else values.width())), flush=True)
            else:
                text = render(stats, None if options.wide else values.width())
                print(("\n" if shown else "") + text, flush=True)
    except KeyboardInterrupt:
        return 0  # how one ends it
    return 0


def _watch(count: int | None, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Statistics with rates, one each delay. CorelaneError if the iokernel is not there, or ends."""
    from ..runtime.paths import default_socket

    before = snapshot(options.socket, options.wait)
    path = options.socket or default_socket()
    due = time.monotonic()
    for _ in itertools.count() if count is None else range(count):
        due += options.delay
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            after = snapshot(path)
        except CorelaneError as error:
            raise CorelaneError(f"the iokernel on {path} has ended", hint="corelane up starts one") from error
        yield rates(before, after)
        before = after


def _fit(text: str) -> str:
    """As much of it as a terminal shows."""
    try:
        size = os.get_terminal_size()
    except OSError:
        return text
    return "\n".join(line[: size.columns] for line in text.splitlines()[: max(1, size.lines - 1)])


# Rendering: statistics with rates in, text out.


def render(stats: Mapping[str, Any], width: int | None = None) -> str:
    """The applications, most core use first; then the worker cores; then the allocator of each loop.

    width: columns of the terminal; None: as wide as it is.
    """
    head = f"iokernel pid {stats['pid']} on {stats['socket']}, up {stats['uptime_s']:.0f} s, {stats['mode']} polling"
    lines = [head, policy_line(stats), ""]
    apps = sorted(stats["apps"], key=lambda app: (-_core_percent(app), app["name"]))
    if apps:
        lines += fitting([list(_HEAD), *(_app(app) for app in apps)], _WANTED, ("NAME", "CLASS"), width)
    else:
        lines.append("no application is attached: corelane run NAME attaches one")
    if stats["cores"] is not None:
        lines += ["", *_cores(stats["cores"])]
        for allocator in stats["cores"]["allocators"]:
            lines += ["", *_allocator(allocator)]
    lines.append("")
    for loop in stats["loops"]:
        lines.append(f"loop on cpu {loop['cpu']}: {100 * loop['rates']['busy_s']:.1f} % busy")
    return "\n".join(piece for line in lines for piece in values.wrapped(line, width))


def _core_percent(app: Mapping[str, Any]) -> float:
    return 100 * float(app["cores"]["rates"]["core_s"]) if app["cores"] is not None else 0.0


def _app(app: Mapping[str, Any]) -> list[str]:
    moved, cores = app["rates"], app["cores"]
    drops = sum(rate_of(app, name) for name in dropped(app))
    net = [f"{moved['rx_delivered']:,.0f}", f"{moved['tx_taken']:,.0f}"]
    if cores is None:
        return [label_of(app), "-", "-", "-", "-", *net, *["-"] * 13, f"{drops:,.0f}"]
    rate = cores["rates"]
    return [
        label_of(app),
        cores["class"],
        str(cores["cores"]),
        f"{_core_percent(app):.1f}",
        f"{cores['guaranteed']}/{cores['maximum']}",
        *net,
        _ns(cores.get("packet_age_ns")),
        _ns(cores.get("thread_age_ns")),
        _ns(cores.get("timer_age_ns")),
        _ns(cores.get("storage_age_ns")),
        *(_us(cores["recent"][times][mark]) for times in ("detection", "actuation") for mark in ("p50_us", "p99_us")),
        *(f"{rate[k]:,.0f}" for k in ("moves_in", "moves_out", "asked", "interrupted", "evicted")),
        f"{drops:,.0f}",
    ]


def _cores(cores: Mapping[str, Any]) -> list[str]:
    rows = [["CORE", "OWNER", "STATE", "BUSY%", "MOVES/s"]]
    for core in cores["cpus"]:
        owner = f"{core['owner']}.{core['kthread']}" if core["owner"] is not None else "nobody"
        state = "runs" if core["busy"] else "parked" if core["owner"] is not None else "free"
        rate = core["rates"]
        rows.append([str(core["cpu"]), owner, state, f"{100 * rate['busy_s']:.1f}", f"{rate['moves']:,.0f}"])
    return columns(rows, left=3)


def _allocator(allocator: Mapping[str, Any]) -> list[str]:
    """Decisions in a line, then a line for each step by which kthreads came to their cores."""
    rate, decision = allocator["rates"], allocator["recent"]["decision"]
    lines = [
        f"allocator of loop {allocator['loop']}: {rate['decisions']:,.0f} decisions/s, "
        f"p50 {_us(decision['p50_us'])}, p99 {_us(decision['p99_us'])}; {rate['moves']:,.0f} moves/s; "
        f"{allocator['violations']:,} times work waited beside an idle core, "
        f"{allocator['violations_asleep']:,} while the loop slept, "
        f"{allocator['violations_late']:,} more in {allocator['late_decisions']:,} decisions that came late; "
        f"{allocator['blocked']:,} owners asleep in the kernel beside work that waited"
    ]
    steps = {name: step["n"] for name, step in allocator["actuation"].items() if step["n"]}
    if steps:
        rows = [["STEP", "EVER", "NOW", "P50", "P90", "P99", "MAX"]]
        for name, ever in steps.items():
            step = allocator["recent"]["actuation"][name]
            marks = (_us(step[k]) for k in ("p50_us", "p90_us", "p99_us", "max_us"))
            rows.append([name, f"{ever:,}", f"{step['n']:,}", *marks])
        lines += columns(rows)
    failed = {k: v for k, v in allocator.items() if k.endswith("_failed") and v}
    if failed:
        what = ", ".join(f"{v:,} {k.removesuffix('_failed')}" for k, v in failed.items())
        lines.append(f"refused by the kernel: {what}")
    if unread := sum(v for k, v in allocator.items() if k.endswith("_unread")):
        lines.append(
            f"schedstat or status of a kthread could not be read: {unread:,} times (owners that sleep in the kernel, "
            "and kthreads that use another's core, are not found so)"
        )
    if allocator.get("affinities_changed"):
        lines.append(
            f"bound elsewhere by somebody else, and bound again: {allocator['affinities_changed']:,} kthreads "
            "(keep taskset and cpusets off them)"
        )
    return lines


def _ns(value: float | None) -> str:
    return _us(None if value is None else value / 1e3)


def _us(value: float | None) -> str:
    """Microseconds with three digits, in a unit that keeps them short."""
    if value is None:
        return "-"
    for unit, scale in (("us", 1.0), ("ms", 1e3), ("s", 1e6)):
        if value < 1000 * scale or unit == "s":
            break
    short = value / scale
    return f"{short:.0f}{unit}" if short >= 100 or short == 0 else f"{short:.1f}{unit}"

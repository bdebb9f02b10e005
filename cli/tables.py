"""The tables of `corelane top`: statistics with rates in (watch.rates), text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import values
from .watch import columns, dropped, failures, fitting, label_of, policy_line, rate_of

HEAD = (
    *("NAME", "CLASS", "CORES", "CORE%", "GUAR/MAX", "IN/s", "OUT/s", "PKT-AGE", "THR-AGE"),
    *("TMR-AGE", "DSK-AGE", "DET50", "DET99", "ACT50", "ACT99"),
    *("GAINED/s", "LOST/s", "ASK/s", "INT/s", "EVICT/s", "DROPS/s"),
)

# Which columns stay where not all fit, the first ones longest.
WANTED = (
    *("NAME", "CORES", "CORE%", "IN/s", "OUT/s", "DROPS/s", "PKT-AGE", "ACT99", "CLASS", "DET99", "THR-AGE"),
    *("GUAR/MAX", "DET50", "ACT50", "TMR-AGE", "DSK-AGE", "LOST/s", "GAINED/s", "EVICT/s", "INT/s", "ASK/s"),
)


def render(stats: Mapping[str, Any], width: int | None = None) -> str:
    """The applications, most core use first; then the worker cores; then the allocator of each loop.

    width: columns of the terminal; None: as wide as it is.
    """
    lines = [head_line(stats), policy_line(stats), ""]
    apps = sorted(stats["apps"], key=lambda app: (-_core_percent(app), app["name"]))
    if apps:
        lines += fitting([list(HEAD), *(cells(app) for app in apps)], WANTED, ("NAME", "CLASS"), width)
    else:
        lines.append("no application is attached: corelane run NAME attaches one")
    if told := [row for app in apps for row in services(app)]:
        lines += ["", *fitting([list(SERVICES), *told], SERVICES, ("SERVICE",), width)]
    lines += rest(stats)
    return "\n".join(piece for line in lines for piece in values.wrapped(line, width))


def rest(stats: Mapping[str, Any]) -> list[str]:
    """Worker cores, allocators and loops."""
    lines: list[str] = []
    if stats["cores"] is not None:
        lines += ["", *_cores(stats["cores"])]
        for allocator in stats["cores"]["allocators"]:
            lines += ["", *_allocator(allocator)]
    lines.append("")
    for loop in stats["loops"]:
        lines.append(f"loop on cpu {loop['cpu']}: {100 * loop['rates']['busy_s']:.1f} % busy")
    return lines


SERVICES = ("SERVICE", "REQ/s", "P50", "P99", "P99.9", "WHY")


def services(app: Mapping[str, Any]) -> list[list[str]]:
    """Requests and latency of each service that an application tells of; else its requests, if it counts them. WHY: the
    stage that makes the tail, where somebody has found it."""
    if told := app.get("services"):
        return [
            [
                f"{label_of(app)} {service['name']}",
                f"{service['rates']['requests']:,.0f}",
                *(_us(service["recent"]["latency"][mark]) for mark in ("p50_us", "p99_us", "p999_us")),
                service.get("why", "-"),
            ]
            for service in told
        ]
    if app.get("counters") is None:
        return []
    return [[label_of(app), f"{rate_of(app, 'handled'):,.0f}", "-", "-", "-", app.get("why", "-")]]


def details(app: Mapping[str, Any], width: int | None = None) -> str:
    """Everything of one application: its services, what it drops and fails at, every counter that moves."""
    cpus = ", ".join(map(str, app["cpus"])) or "any"
    lines = [
        f"{label_of(app)}: pid {app['pid']}, {app['ipv4']}, {app['kthreads']} kthreads on cpus {cpus}",
        "",
        *fitting([list(HEAD), cells(app)], WANTED, ("NAME", "CLASS"), width),
    ]
    if told := services(app):
        lines += ["", *fitting([list(SERVICES), *told], SERVICES, ("SERVICE",), width)]
    for what, counted in (("dropped", dropped(app)), ("failed", failures(app))):
        if counted:
            rows = [[what.upper(), "EVER", "/s"]]
            rows += [[name, f"{n:,}", f"{rate_of(app, name):,.0f}"] for name, n in counted.items()]
            lines += ["", *columns(rows)]
    own = (app.get("counters") or {}).get("rates", {})
    moving = sorted(((name, rate) for name, rate in {**app["rates"], **own}.items() if rate), key=lambda p: -abs(p[1]))
    if moving:
        lines += ["", *columns([["COUNTER", "/s"], *([name, f"{rate:,.0f}"] for name, rate in moving)])]
    return "\n".join(piece for line in lines for piece in values.wrapped(line, width))


def head_line(stats: Mapping[str, Any]) -> str:
    """Who is looked at."""
    return f"iokernel pid {stats['pid']} on {stats['socket']}, up {stats['uptime_s']:.0f} s, {stats['mode']} polling"


def _core_percent(app: Mapping[str, Any]) -> float:
    return 100 * float(app["cores"]["rates"]["core_s"]) if app["cores"] is not None else 0.0


def cells(app: Mapping[str, Any]) -> list[str]:
    """What stands in the columns of HEAD."""
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

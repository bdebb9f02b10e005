"""Asking an iokernel for its statistics, twice, so that its counters become rates: for `ps` and `top`."""

from __future__ import annotations

import json
import math
import os
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from ..runtime.closing import Closing
from ..runtime.errors import CorelaneError

# Counters that count lost frames: everything of that name.
_DROP = "dropped_"
FOR_OTHERS = frozenset({"dropped_eth_not_ours", "dropped_arp_not_ours"})
"""Counters of an application's frames that were for all or for others: nobody lost anything."""


def snapshot(path: str | None, wait_s: float = 0.0) -> dict[str, Any]:
    """The iokernel's statistics. path: None for the default, looked up again while this waits: it depends on what is
    there. CorelaneError if none answers within wait_s."""
    with Asked(path) as asked:
        return asked.now(wait_s)


class Asked(Closing):
    """An iokernel that is asked for its statistics again and again, over one connection. Arguments as of `snapshot`."""

    def __init__(self, path: str | None) -> None:
        self._path, self._fd = path, -1

    @property
    def path(self) -> str:
        """Where it listens, or should."""
        from ..runtime.paths import default_socket

        return self._path or default_socket()

    def now(self, wait_s: float = 0.0) -> dict[str, Any]:
        """As `snapshot`."""
        if self._fd >= 0:
            try:
                return self._read()
            except CorelaneError:
                self.close()  # it has ended, or given up who is idle: perhaps there is one
        self._fd = self._connected(wait_s)
        return self._read()

    def close(self) -> None:
        """Ask no more. May be called twice."""
        from ..runtime._native import lib

        fd, self._fd = self._fd, -1
        if fd >= 0:
            lib.cl_control_close(fd)

    def _connected(self, wait_s: float) -> int:
        import errno

        from ..runtime._native import ffi, lib
        from ..runtime.errors import check

        err = ffi.new("char[256]")
        deadline = time.monotonic() + wait_s
        while True:
            path = self.path
            fd = int(lib.cl_control_connect(os.fsencode(path), 1000, err))
            if fd not in (-errno.ENOENT, -errno.ECONNREFUSED) or time.monotonic() >= deadline:
                break
            time.sleep(0.05)
        if fd in (-errno.ENOENT, -errno.ECONNREFUSED):
            raise CorelaneError(f"no iokernel listens on {path}", hint="start one: corelane up", errno=-fd)
        check(fd, f"connect to {path}", err)
        self._path = path  # of the same one from now on
        return fd

    def _read(self) -> dict[str, Any]:
        from ..runtime._native import ffi, lib
        from ..runtime.errors import check

        err, text = ffi.new("char[256]"), ffi.new("char **")
        check(lib.cl_control_stats(self._fd, text, 2000, err), f"ask the iokernel on {self._path}", err)
        try:
            document: dict[str, Any] = json.loads(ffi.string(text[0]))
        finally:
            lib.cl_control_free(text[0])
        return document


def label_of(app: Mapping[str, Any]) -> str:
    """An application's name; of a member of a group with its number, and what it says of itself unless it is ready."""
    state = "" if app.get("member") is None or app["state"] == "ready" else f" {app['state']}"
    return f"{key_of(app)}{state}"


def key_of(app: Mapping[str, Any]) -> str:
    """What names an application, and no other: its name; of a member of a group with its number."""
    return str(app["name"]) if app.get("member") is None else f"{app['name']}[{app['member']}]"


def rates(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """`after`, with two members more in each loop, application, uplink, worker CPU and allocator, and in what an
    application has of the cores: "rates", counters a second since `before`, and nothing else (report.GAUGES); and
    "recent", the histograms by their names, of what came since `before` alone (report.summary, without buckets)."""
    if before["generation"] != after["generation"]:
        before = {"uptime_s": 0.0}  # another iokernel: it has counted from 0 on
    seconds = max(after["uptime_s"] - before["uptime_s"], 1e-9)
    out = dict(after)
    for group, key in (("loops", None), ("apps", "id"), ("uplinks", None)):
        out[group] = _group(before.get(group, []), after.get(group, []), key, seconds)
    if after.get("cores") is not None:
        old, new = before.get("cores") or {}, dict(after["cores"])
        for group, key in (("cpus", "cpu"), ("allocators", "loop")):
            new[group] = _group(old.get(group, []), new[group], key, seconds)
        out["cores"] = new
    return out


def _group(
    before: list[dict[str, Any]], after: list[dict[str, Any]], key: str | None, seconds: float
) -> list[dict[str, Any]]:
    """Rows with their rates; a row's earlier self is the one with the same `key`, or the one in its place."""
    rows = []
    for i, row in enumerate(after):
        earlier = [r for j, r in enumerate(before) if (r[key] == row[key] if key else i == j)]
        old = earlier[0] if earlier else {}
        made = row | _change(old, row, seconds)
        if row.get("cores") is not None:
            made["cores"] = row["cores"] | _change(old.get("cores") or {}, row["cores"], seconds)
        if row.get("counters") is not None:
            made["counters"] = row["counters"] | {"rates": _published(old.get("counters"), row["counters"])}
        if row.get("services"):
            made["services"] = _group(old.get("services") or [], row["services"], "name", seconds)
        rows.append(made)
    return rows


def _published(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, float]:
    """Rates of what an application publishes, over its own times. {}: it has published once only."""
    seconds = new["published_s"] - old["published_s"] if old else 0.0
    if old is None or seconds <= 0:
        return {}
    return {name: (value - old["values"].get(name, 0)) / seconds for name, value in new["values"].items()}


def _change(old: Mapping[str, Any], new: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    return {"rates": _moved(old, new, seconds), "recent": _recent(old, new)}


def _moved(old: Mapping[str, Any], new: Mapping[str, Any], seconds: float) -> dict[str, float]:
    from ..iokernel.control.report import GAUGES

    def is_counter(name: str, value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and name not in GAUGES

    return {k: (v - old.get(k, 0)) / seconds for k, v in new.items() if is_counter(k, v)}


def _recent(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The histograms of a row, and of the groups of them in it."""
    out = {}
    for name, value in new.items():
        if isinstance(value, dict):
            before = old.get(name) or {}
            made = since(before, value) if "buckets_ns" in value else _recent(before, value)
            if made:
                out[name] = made
    return out


def since(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The difference of two histograms; a percentile is its bucket's upper end, and so is the maximum."""
    left = _left(old.get("buckets_ns", []), new["buckets_ns"])
    upto = list(accumulate([count for _, count in left]))
    n = upto[-1] if upto else 0

    def us(fraction: float) -> float | None:
        return round(left[bisect_left(upto, max(math.ceil(fraction * n), 1))][0] / 1e3, 3) if n else None

    marks = {"p50_us": us(0.5), "p90_us": us(0.9), "p99_us": us(0.99), "p999_us": us(0.999)}
    return {"n": n, **marks, "max_us": us(1.0)}


def _left(old: Sequence[Sequence[int]], new: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """What came into which bucket of a histogram, by its upper end, upwards. Counts never fall."""
    if len(old) == len(new):  # the same ones: most of them have got nothing
        return [(now[1], now[2] - was[2]) for was, now in zip(old, new, strict=True) if now[2] != was[2]]
    had = {low: count for low, _, count in old}
    return [(high, count - had.get(low, 0)) for low, high, count in new if count != had.get(low)]


def dropped(row: Mapping[str, Any]) -> dict[str, int]:
    """The non-zero drop counters of an application, a loop or an uplink; of an application also those that it keeps.

    Without FOR_OTHERS.
    """
    counted = {**row, **(row.get("counters") or {}).get("values", {})}
    return {k: int(v) for k, v in counted.items() if _DROP in k and v and k not in FOR_OTHERS}


def failures(row: Mapping[str, Any]) -> dict[str, int]:
    """What handlers of an application failed at, by reason; empty: they did not."""
    values = (row.get("counters") or {}).get("values", {})
    return {k: int(values[k]) for k in ("handler_errors", "handler_faults", "type_errors") if values.get(k)}


def rate_of(row: Mapping[str, Any], name: str) -> float:
    """A second: of a counter of the iokernel's or of the application's own."""
    own = (row.get("counters") or {}).get("rates", {})
    return float(row.get("rates", {}).get(name, own.get(name, 0.0)))


def columns(rows: list[list[str]], left: int = 1) -> list[str]:
    """Rows of text in columns: the first `left` ones to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def fitting(rows: list[list[str]], wanted: Sequence[str], left: Sequence[str], width: int | None) -> list[str]:
    """A table, its heads first, without the columns that are wanted least, as many as it takes.

    wanted: all heads, the most wanted first. left: those of columns that stand to the left. width: None: any.
    """
    heads = rows[0]
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    for shown in range(len(wanted), 1, -1):
        kept = [i for i, head in enumerate(heads) if head in wanted[:shown]]
        if width is None or sum(widths[i] + 2 for i in kept) - 2 <= width:
            break
    return columns([[row[i] for i in kept] for row in rows], sum(heads[i] in left for i in kept))


def policy_line(stats: Mapping[str, Any]) -> str:
    """Who decides which application has which core, in a line."""
    cores = stats.get("cores")
    if cores is None:
        return "cores stay where they were given out: corelane up --policy NAME has them move"
    policy = cores["policy"]
    settings = "".join(f" {key}={value:g}" for key, value in policy["params"].items())
    if policy["ejected"]:
        return f"policy delay, in place of {policy['name']}{settings}: {policy['ejected']}"
    cpus = [str(core["cpu"]) for core in cores["cpus"]]
    return f"policy {policy['name']}{settings}, worker core{'s' * (len(cpus) > 1)} {', '.join(cpus)}"

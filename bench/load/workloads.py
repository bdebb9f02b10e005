"""Operation mixes, popularity of keys, lengths of keys and values, by the names that people know them by.

YCSB: Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, table 2: records of 10 fields of 100
bytes, which are one value here. E's scans are one request for consecutive keys (a multi-get, MGET), of 1 to 100.
Facebook: Atikoglu et al., "Workload analysis of a large-scale key-value store", SIGMETRICS 2012. ETC's lengths are the
models of its section 5 (keys: generalized extreme value; values: a table up to 14 bytes, generalized Pareto beyond).
USR, by its section 3: 16 or 21 byte keys, 2 byte values, 99.8 % GETs. SYS is in its figures 1 and 2 only, without a
model: its numbers here are as Gu et al. read them ("Efficient memory disaggregation with Infiniswap", NSDI 2017,
section 7.2.2); lengths are uniform within each of their ranges. The popularity of keys is a Zipf distribution of 0.99
for all.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...runtime.errors import CorelaneError

TABLE = 1 << 14  # entries that lengths are drawn from
VALUE_MOST = 1 << 30
SCAN_MOST = 100
# Shares of values of 0..14 bytes; what is left is Pareto's (section 5 of the paper).
ETC_SHORT = (
    *(0.00583, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837),
    *(0.08989, 0.00092, 0.00326, 0.01980, 0.00000),
)


@dataclass(frozen=True)
class Workload:
    """What is asked of a store. mix: share of each operation. zipf: exponent of the keys' popularity, 0 for all alike.
    latest: new keys are the popular ones. key_bytes, value_bytes: what lengths are drawn from."""

    name: str
    mix: dict[str, float]
    keys: int = 100_000
    zipf: float = 0.99
    latest: bool = False
    key_bytes: tuple[int, ...] = (17,)
    value_bytes: tuple[int, ...] = (64,)

    @property
    def described(self) -> str:
        """The mix, keys and sizes in a few words."""
        mix = ", ".join(f"{100 * share:.4g} % {name}" for name, share in self.mix.items() if share)
        popular = f"Zipf {self.zipf:g}{', the latest first' if self.latest else ''}" if self.zipf else "uniform"
        return (
            f"{mix}; {self.keys:,} keys of {_span(self.key_bytes)} B, {popular}; values of {_span(self.value_bytes)} B"
        )


def _span(sizes: Sequence[int]) -> str:
    low, high = min(sizes), max(sizes)
    return str(low) if low == high else f"{low} to {high} (mean {sum(sizes) / len(sizes):.0f})"


def _drawn(quantile: Callable[[float], float], low: int, high: int) -> tuple[int, ...]:
    """A table of a distribution, by its quantile function: TABLE values of equal probability, in a random order."""
    values = [min(max(int(quantile((i + 0.5) / TABLE)), low), high) for i in range(TABLE)]
    random.Random(1).shuffle(values)
    return tuple(values)


def _etc_key(u: float) -> float:
    """Generalized extreme value, location 30.7984, scale 8.20449, shape 0.078688."""
    return 30.7984 + 8.20449 / 0.078688 * (math.pow(-math.log(u), -0.078688) - 1)


def _etc_value(u: float) -> float:
    """The table, then generalized Pareto: location 15, scale 214.476, shape 0.348238."""
    for size, share in enumerate(ETC_SHORT):
        if u < share:
            return size
        u -= share
    u /= 1 - sum(ETC_SHORT)
    return 15 + 214.476 / 0.348238 * (math.pow(1 - u, -0.348238) - 1)


def _in_ranges(u: float, *ranges: tuple[float, int, int]) -> float:
    """The quantile of lengths that are uniform from `low` to `high` with probability `share`, for each range."""
    for share, low, high in ranges:
        if u < share:
            return low + u / share * (high + 1 - low)
        u -= share
    return ranges[-1][2]


def _sys() -> Workload:
    keys = _drawn(lambda u: _in_ranges(u, (0.4, 16, 20), (0.6, 20, 45)), 1, 250)
    values = _drawn(lambda u: _in_ranges(u, (0.08, 1, 319), (0.8, 320, 500), (0.12, 501, 10_000)), 1, 10_000)
    return Workload("sys", {"get": 0.75, "set": 0.25}, key_bytes=keys, value_bytes=values)


def _ycsb(letter: str, mix: dict[str, float], latest: bool = False) -> Workload:
    return Workload(f"ycsb-{letter}", mix, latest=latest, key_bytes=(23,), value_bytes=(1000,))


def _etc() -> Workload:
    keys, values = _drawn(_etc_key, 1, 250), _drawn(_etc_value, 0, 1 << 20)
    return Workload("etc", {"get": 30 / 31, "set": 1 / 31}, key_bytes=keys, value_bytes=values)


NAMED: dict[str, Callable[[], Workload]] = {
    "get": lambda: Workload("get", {"get": 1.0}),
    "set": lambda: Workload("set", {"set": 1.0}),
    "ycsb-a": lambda: _ycsb("a", {"get": 0.5, "set": 0.5}),
    "ycsb-b": lambda: _ycsb("b", {"get": 0.95, "set": 0.05}),
    "ycsb-c": lambda: _ycsb("c", {"get": 1.0}),
    "ycsb-d": lambda: _ycsb("d", {"get": 0.95, "insert": 0.05}, latest=True),
    "ycsb-e": lambda: _ycsb("e", {"scan": 0.95, "insert": 0.05}),
    "ycsb-f": lambda: _ycsb("f", {"get": 0.5, "update": 0.5}),
    "etc": _etc,
    "usr": lambda: Workload("usr", {"get": 0.998, "set": 0.002}, key_bytes=(16, 21), value_bytes=(2,)),
    "sys": _sys,
}


def find(name: str) -> Workload:
    """The workload of that name; CorelaneError if there is none."""
    if name.lower() not in NAMED:
        raise CorelaneError(f"there is no workload {name!r}", "", f"choose one of {', '.join(NAMED)}")
    return NAMED[name.lower()]()


def sizes(text: str, most: int = VALUE_MOST) -> tuple[int, ...]:
    """Lengths from "64", "64..1024" (all alike), "1K", or "etc" (its values). CorelaneError if it is none of these."""
    if text.lower() == "etc":
        return _etc().value_bytes
    found = re.fullmatch(r"(\d{1,12})([KM]?)(?:\.\.(\d{1,12})([KM]?))?", text, re.IGNORECASE | re.ASCII)
    if not found:
        raise CorelaneError(f"{text!r} is no length", "", "write it as 64, 4K, 64..1024 or etc")
    low = _bytes(found[1], found[2])
    high = _bytes(found[3], found[4]) if found[3] else low
    if not 1 <= low <= high <= most:
        raise CorelaneError(f"{text!r} is no length", f"lengths are 1 to {most}", "the shorter one comes first")
    return (low,) if low == high else _drawn(lambda u: low + u * (high + 1 - low), low, high)


def _bytes(digits: str, unit: str) -> int:
    return int(digits) << {"": 0, "K": 10, "M": 20}[unit.upper()]


def changed(
    workload: Workload,
    *,
    keys: int | None = None,
    zipf: float | None = None,
    key_bytes: str | None = None,
    value_bytes: str | None = None,
    get: float | None = None,
) -> Workload:
    """The workload with what was said beside its name. get: GETs and SETs only, so many of them GETs."""
    out = workload
    if keys is not None:
        out = replace(out, keys=keys)
    if zipf is not None:
        out = replace(out, zipf=zipf)
    if key_bytes is not None:
        out = replace(out, key_bytes=sizes(key_bytes, 250))
    if value_bytes is not None:
        out = replace(out, value_bytes=sizes(value_bytes))
    if get is not None:
        out = replace(out, mix={"get": get, "set": 1 - get})
    return out

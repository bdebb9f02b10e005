"""What a runtime writes down of its requests, as options: of `libos.Runtime`, and of the configuration's [trace].

A limit of latency is a text: "1ms", which no request may take longer than; "p99=50us", which of each service 1 % may.
"udp:9000:1ms" and "tcp:80:p99.9=2ms" are of one service alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .options import Group, option

TRACE_MODES = ("off", "sampled", "full")
LIMIT_FORMS = '"1ms", "p99=50us", or with a service in front "udp:9000:p99=50us"'

_MAX_U32 = 2**32 - 1
_LIMIT = re.compile(
    r"(?:(udp|tcp|raft|resp|blocking|log):(\d{1,5}):)?(?:p(\d{1,2}(?:\.\d{1,3})?)=)?(\d{1,9}(?:\.\d{1,9})?)(ns|us|ms|s)",
    re.IGNORECASE,
)
_SERVICES = {  # as Segment has them
    "udp": "UDP",
    "tcp": "TCP",
    "raft": "Raft",
    "resp": "RESP",
    "blocking": "blocking",
    "log": "log",
}
_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


@dataclass(frozen=True)
class Limit:
    """text: as it was given. service: its name ("UDP 9000"), "": each, but for logs. quantile: 0.99 of p99; None: every
    request."""

    text: str
    service: str
    quantile: float | None
    us: float


def limit_of(text: str) -> Limit:
    """A limit from its text. ValueError: it is none."""
    found = _LIMIT.fullmatch(text.strip())
    us = float(found[4]) * _US[found[5].lower()] if found else 0.0
    quantile = float(found[3]) / 100 if found and found[3] else None
    if not found or us <= 0 or quantile == 0 or (found[2] and not 1 <= int(found[2]) <= 65535):
        raise ValueError(f"limits of latency as in {LIMIT_FORMS}")
    service = f"{_SERVICES[found[1].lower()]} {int(found[2])}" if found[1] else ""
    return Limit(text.strip(), service, quantile, us)


def _limits(texts: Sequence[str]) -> None:
    for text in texts:
        limit_of(text)


def _power_of_two(value: int) -> None:
    if value & (value - 1):
        raise ValueError("a power of two")


def _folder(value: str) -> None:
    if value and not os.path.isabs(value):
        raise ValueError("an absolute path")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Group):
    """What is written down of requests, for `corelane trace` to read (docs/tracing.md).

    mode: "sampled", 1 of one_in and about the slowest so many of each millisecond; "full", all; "off", for as long as
    the runtime lives. records: that each kthread keeps, of 64 bytes; a power of two. slo: limits of latency; where one
    is broken, the trace around that is kept in folder ("": the user's own, docs/tracing.md), in which there are at most
    folder_mib MiB in folder_files files, of all applications that have the same one.
    """

    mode: str = option("sampled", "which requests are written down", choices=TRACE_MODES)
    one_in: int = option(1024, "sampled: of how many requests one is drawn", low=1, high=_MAX_U32)
    slowest: int = option(4, "sampled: slowest requests of each millisecond", low=1, high=16)
    records: int = option(4096, "records that a kthread keeps", low=256, high=1 << 20, check=_power_of_two)
    slo: tuple[str, ...] = option(
        (), 'limits of latency, as in "1ms" or "p99=50us"; where one is broken, the trace is kept', check=_limits
    )
    folder: str = option(
        "", 'where it is kept; "": corelane/traces in $XDG_STATE_HOME, or ~/.local/state', check=_folder
    )
    folder_mib: int = option(64, "what is kept there at most; the oldest goes first", low=1, high=1 << 20)
    folder_files: int = option(32, "in so many files at most", low=1, high=10_000)

    def check(self) -> None:
        """ValueError if options do not go together."""
        if self.slo and self.mode == "off":
            raise ValueError('limits (slo) need a trace: mode "sampled" or "full"')

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Of slo."""
        return tuple(limit_of(text) for text in self.slo)

"""Whether requests break a limit of latency (runtime/tracing.py), as they come.

A limit of every request is broken by one that took longer. One of a percentile is looked at each time that there are
enough requests which were drawn: so many that FEWEST of them may be above it. Slow ones that are kept besides would
make each percentile bad. An append to a log is no request: a limit is of it if it names its service.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...runtime._native import lib
from ...runtime.trace import KINDS
from ...runtime.tracing import Limit
from .blame import FEWEST

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


APPENDS = f"{KINDS[lib.CL_TRACE_LOG]} "
"""With what the names of their services begin."""


@dataclass(frozen=True)
class Broken:
    """A limit that was broken. us: what was measured in its place; n: requests that this is of, over: the limit, of
    them; id, begin: of the slowest one that came last."""

    limit: str
    service: str
    us: float
    n: int
    over: int
    id: int
    begin: int

    def __str__(self) -> str:
        quantile = self.limit.rpartition("=")[0].rpartition(":")[2]
        if not quantile:
            return f"{self.service}: a request took {self.us:,.1f} us (limit {self.limit})"
        return f"{self.service}: {quantile} was {self.us:,.1f} us of {self.n:,} requests (limit {self.limit})"


@dataclass
class Watch:
    """Judges by one limit. What it knows: of each service, times of drawn requests, fewer than it needs."""

    limit: Limit
    _times: dict[int, list[Array]] = field(default_factory=dict)

    @property
    def needs(self) -> int:
        """Drawn requests that a percentile is taken of, at least."""
        return 0 if self.limit.quantile is None else math.ceil(round(FEWEST / (1 - self.limit.quantile), 6))

    def judge(self, messages: Array, names: Sequence[str], hz: int) -> Broken | None:
        """By the next messages, stamped in hz. The worst of several services."""
        import numpy

        found = []
        for number in numpy.unique(messages["service"]):
            name = names[number] if number < len(names) else f"service {number}"
            if self.limit.service == name or not (self.limit.service or name.startswith(APPENDS)):
                mine = messages[messages["service"] == number]
                judge = self._judge_each if self.limit.quantile is None else self._judge_percentile
                found += [broken for broken in (judge(mine, name, mine["sent"] * (1e6 / hz)),) if broken is not None]
        return max(found, key=lambda broken: broken.us, default=None)

    def _judge_each(self, messages: Array, name: str, us: Array) -> Broken | None:
        over = int((us > self.limit.us).sum())
        return self._broken(messages, name, us, float(us.max()), len(us), over) if over else None

    def _judge_percentile(self, messages: Array, name: str, us: Array) -> Broken | None:
        import numpy

        assert self.limit.quantile is not None
        # Of requests: what a connection stood still for is told of each by itself.
        drawn = (messages["flags"] & (lib.CL_TRACE_DRAWN | lib.CL_TRACE_STALLED)) == lib.CL_TRACE_DRAWN
        parts = self._times.setdefault(int(messages["service"][0]), [])
        parts.append(us[drawn])
        n = sum(map(len, parts))
        if n < self.needs:
            return None
        times = numpy.concatenate(parts)
        parts.clear()
        measured = float(numpy.quantile(times, self.limit.quantile))
        over = int((times > self.limit.us).sum())
        return self._broken(messages, name, us, measured, n, over) if measured > self.limit.us else None

    def _broken(self, messages: Array, name: str, us: Array, measured: float, n: int, over: int) -> Broken:
        slowest = messages[us.argmax()]
        return Broken(self.limit.text, name, measured, n, over, int(slowest["id"]), int(slowest["begin"]))

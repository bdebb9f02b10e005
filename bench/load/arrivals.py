"""When requests are due: drawn (Poisson, uniform, bursty), or replayed from a file that somebody recorded.

A file of arrivals has a line a request, which begins with the seconds after the start; the rest of the line, behind a
comma or a blank, is left alone, and so are lines that begin with "#". `corelane load --record FILE` writes such files.
"""

from __future__ import annotations

import array
import bisect
import re
from dataclasses import dataclass
from pathlib import Path

from ...runtime.errors import CorelaneError


@dataclass(frozen=True)
class Arrivals:
    """kind: poisson, uniform, bursty, replay. burst: mean requests of a burst. duty: part of the time that bursts take.
    due_ns: of replayed ones, `unsigned long long`s."""

    kind: str = "poisson"
    burst: int = 16
    duty: float = 0.0
    due_ns: bytes = b""
    source: str = ""

    @property
    def replayed(self) -> int:
        """How many were given."""
        return len(self.due_ns) // 8

    @property
    def seconds(self) -> float:
        """Until the last given one."""
        return array.array("Q", self.due_ns[-8:])[0] / 1e9 if self.due_ns else 0.0

    def rate(self, begin_s: float, seconds: float) -> float:
        """Mean rate of the given ones that are due in so many seconds from `begin_s` on."""
        due = array.array("Q", self.due_ns)
        begin, end = (bisect.bisect_left(due, round(1e9 * at)) for at in (begin_s, begin_s + seconds))
        return (end - begin) / seconds

    @property
    def described(self) -> str:
        if self.kind == "bursty":
            return f"bursts of {self.burst} on average, which take {100 * self.duty:g} % of the time"
        if self.kind == "replay":
            return f"{self.replayed:,} arrivals from {self.source}"
        return {"poisson": "Poisson arrivals", "uniform": "uniform arrivals"}[self.kind]


def parse(text: str) -> Arrivals:
    """From "poisson", "uniform", "bursty", "bursty:BURST", "bursty:BURST:DUTY", "replay:FILE". CorelaneError if it is
    none of these."""
    if text in ("poisson", "uniform"):
        return Arrivals(text)
    if text.startswith("replay:"):
        return replay(Path(text.removeprefix("replay:")))
    found = re.fullmatch(r"bursty(?::(\d{1,9})(?::(0|1|0?\.\d+))?)?", text, re.ASCII)
    if not found or (found[1] and not 1 <= int(found[1]) <= 1 << 20):
        raise CorelaneError(
            f"{text!r} is no kind of arrivals", "", "choose poisson, uniform, bursty:BURST[:DUTY] or replay:FILE"
        )
    return Arrivals("bursty", int(found[1] or 16), float(found[2] or 0))


def replay(path: Path) -> Arrivals:
    """The arrivals that a file has. CorelaneError if it has none, or they are not in order."""
    due, last = array.array("Q"), 0
    try:
        with path.open() as lines:
            for number, line in enumerate(lines, 1):
                if not (text := line.strip()) or text.startswith("#"):
                    continue
                word = re.split(r"[,;\s]", text, maxsplit=1)[0]
                try:
                    at = round(float(word) * 1e9)
                except (ValueError, OverflowError):
                    at = -1
                if not last <= at < 1 << 62:
                    why = f"line {number} begins with {word!r}"
                    raise CorelaneError(f"replay {path}", why, "each line begins with its seconds, in ascending order")
                due.append(at)
                last = at
    except (OSError, UnicodeDecodeError) as error:
        raise CorelaneError(f"replay {path}", getattr(error, "strerror", None) or "it is no text") from error
    if not due or not last:
        raise CorelaneError(
            f"replay {path}", "it has no arrivals after its start", "a line a request, with its seconds"
        )
    return Arrivals("replay", due_ns=due.tobytes(), source=path.name)

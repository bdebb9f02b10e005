"""How requests wait for each other: the rules that are compared, as options of `libos.udp`.

A fixed rule is a greatest batch, a time for which a request waits for it to fill, and a bound of the requests that
wait; all three are swept. It drops what finds the queue full, and nothing else: so a short queue is its way
to keep a limit under overload, and a long one its way to keep requests for a quieter moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...libos.handlers.batching import QUEUE
from .model import MOST

SIZES = (1, 2, 4, 8, 16, 32)
WAITS = (0.0, 0.5)  # parts of the limit; beyond the half a batch cannot be in time
ROOMS = (1, 2)  # batches that may wait; and QUEUE
ROOMS_ALONE = (1, 2, 3, 4)  # of one at a time: as many as fit into the limit are its best
PATH_US = 30  # of the limit: left for the way there and back, which the service does not see


@dataclass(frozen=True)
class Rule:
    """name: for people. how: options."""

    name: str
    how: dict[str, Any]

    @property
    def fixed(self) -> bool:
        return "limit_us" not in self.how

    @property
    def alone(self) -> bool:
        return bool(self.how["batch"] == 1)


def fixed_rules(limit_us: float) -> list[Rule]:
    """One at a time, and fixed batches: every size with every waiting time and every bound."""
    made = []
    for size in SIZES:
        for wait in WAITS if size > 1 else (0.0,):
            for room in (*(size * times for times in (ROOMS if size > 1 else ROOMS_ALONE)), QUEUE):
                wait_us = round(wait * limit_us)
                name = f"{size} at a time" if size > 1 else "one at a time"
                name += f", waits {wait:g} of the limit" if wait else ""
                made.append(Rule(f"{name}, {room} may wait", {"batch": size, "wait_us": wait_us, "queue": room}))
    return made


POLICY = "within the limit"
NO_DROP = "within the limit, nothing dropped early"
WAITS_TOO = "within the limit, waits for a full batch"


def policies(limit_us: float) -> list[Rule]:
    """The policy, and it without its parts."""
    of = {"batch": MOST, "limit_us": max(round(limit_us) - PATH_US, 1)}
    return [
        Rule(POLICY, of),
        Rule(NO_DROP, of | {"early_drop": False}),
        Rule(WAITS_TOO, of | {"wait_us": round(limit_us)}),
    ]

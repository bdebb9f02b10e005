"""Memory that batch applications can give back, and must when the latency class needs it (after AntMan, Xiao et al.,
OSDI 2020: jobs of lower class shrink their memory in place, and grow again when there is room).

Such an application says what it holds of it, what it can do with at least and at most (corelane/libos/elastic.h). How
much all of them may hold together follows from two limits of the configuration: arenas and elastic memory together, and
what the machine is to keep free. That is divided by weight, and each is told its limit by a word in its arena. One that
holds more than its limit after `shrink_ms` is stubborn: that is counted, shown and told. If the configuration says so,
it is denied cores until it has shrunk (iokernel/cores/denied.c), and its process is ended if that does not help.

What an application says is not believed where it can be seen: one that says that it has given memory back, which its
process still has, has not.

Here decides only what is allowed. All that it needs to know comes as `Holder`s and by functions. Called by the control
thread.

Does not deal with: memory that an application does not call elastic; swap; memory of processes that are not attached;
an application that takes memory again without saying so, after it was seen to have given it back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .resident import PENDING

_LOOK_S = 0.25
_SLACK = 1 << 20  # a limit that changes by less is left as it is


@dataclass(frozen=True, slots=True)
class Holder:
    """A batch application with elastic memory, as it says."""

    id: int
    name: str
    weight: int
    held: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Room:
    """What there is. limit: of arenas and elastic memory together, None: none. arenas: bytes of all arenas. spare:
    bytes that the machine has beyond those that it is to keep free, negative: it lacks some; None: it keeps none."""

    limit: int | None
    arenas: int
    spare: int | None

    def total(self, held: int) -> int | None:
        """Elastic memory that may be held, where `held` is; None: as much as is asked for."""
        parts = []
        if self.limit is not None:
            parts.append(self.limit - self.arenas)
        if self.spare is not None:
            parts.append(held + self.spare)
        return max(0, min(parts)) if parts else None


def divide(total: int, holders: Sequence[Holder]) -> list[int]:
    """What each may hold: its least, its most at most, and of what is over by weight, as far as each can use it."""
    shares = [holder.least for holder in holders]
    left, open_ = total - sum(shares), [i for i, h in enumerate(holders) if h.most > h.least]
    while left > 0 and open_:
        weights = sum(holders[i].weight for i in open_)
        part = {i: min(holders[i].most - shares[i], left * holders[i].weight // weights) for i in open_}
        if not any(part.values()):
            break
        for i, more in part.items():
            shares[i] += more
        left -= sum(part.values())
        open_ = [i for i in open_ if shares[i] < holders[i].most]
    return shares


@dataclass(slots=True)
class _Told:
    """What one was told last. since: when it was first found to hold more than that; 0: it does not."""

    limit: int
    since: float = 0.0
    stubborn: bool = False
    denied: bool = False
    asked: int = 0  # times that it was told to hold less than it did
    ended: int = 0  # signals that it was sent
    text: str = ""
    holder: Holder | None = None


@dataclass
class BatchMemory:
    """read: the holders as of now. room: what there is. resident: bytes of its elastic memory that one really has,
    None: that cannot be seen, PENDING: not yet. allow: tells one how many bytes it may hold. deny: has one go last for
    cores, or no longer; None: the stubborn are only shown. end: ends the process of one, the second time without mercy;
    None: nobody is ended. tell: gets an event and a line."""

    read: Callable[[], Sequence[Holder]]
    room: Callable[[], Room]
    resident: Callable[[Holder], int | None]
    allow: Callable[[int, int], None]
    deny: Callable[[int, bool], None] | None
    end: Callable[[int, int], None] | None
    tell: Callable[[str, str], None]
    clock: Callable[[], float]
    shrink_s: float
    counts: Counter[str] = field(
        default_factory=lambda: Counter(asked=0, shrunk=0, stubborn=0, lied=0, denied=0, ended=0)
    )
    _told: dict[int, _Told] = field(default_factory=dict)

    def look(self) -> float:
        """Tell each what it may hold. Returns when to be called next; inf: nobody has such memory."""
        holders, now = self.read(), self.clock()
        self._told = {h.id: self._told[h.id] for h in holders if h.id in self._told}
        total = self.room().total(sum(h.held for h in holders))
        limits = [h.most for h in holders] if total is None else divide(total, holders)
        for holder, limit in zip(holders, limits, strict=True):
            self._one(holder, limit, now)
        return now + _LOOK_S if holders else math.inf

    def _one(self, holder: Holder, limit: int, now: float) -> None:
        told = self._told.get(holder.id)
        if told is None:
            told = self._told[holder.id] = _Told(-1)
        told.holder = holder
        small = abs(limit - told.limit) < _SLACK and limit not in (holder.least, holder.most)
        if told.limit < 0 or (limit != told.limit and not small):
            if holder.held > limit and told.since == 0:
                told.since = now
                told.asked += 1
                self.counts["asked"] += 1
            told.limit = limit
            self.allow(holder.id, limit)
        self._check(holder, told, now)

    def _check(self, holder: Holder, told: _Told, now: float) -> None:
        if told.since == 0:
            if holder.held <= told.limit:
                return
            told.since = now  # it has taken more than it may
        has = self.resident(holder) if holder.held <= told.limit else None
        if has == PENDING:
            return
        lies = has is not None and has > told.limit + _SLACK
        if holder.held <= told.limit and not lies:
            self.counts["shrunk"] += 1
            self._set_denied(holder, told, False)
            told.since, told.stubborn, told.ended, told.text = 0.0, False, 0, ""
            return
        late_s = now - told.since
        if late_s > self.shrink_s and not told.stubborn:
            self._blame(holder, told, has if lies else None)
        if told.stubborn and self.end is not None and late_s > (2 + told.ended) * self.shrink_s and told.ended < 2:
            told.ended += 1
            self.counts["ended"] += told.ended == 1
            self.end(holder.id, told.ended)

    def _set_denied(self, holder: Holder, told: _Told, denied: bool) -> None:
        if self.deny is not None and told.denied != denied:
            told.denied = denied
            self.counts["denied"] += denied
            self.deny(holder.id, denied)

    def _blame(self, holder: Holder, told: _Told, has: int | None) -> None:
        told.stubborn = True
        self.counts["stubborn"] += 1
        self.counts["lied"] += has is not None
        if has is not None:
            text = f"says that it holds {_mib(holder.held)} MiB, and has {_mib(has)}"
        else:
            text = f"holds {_mib(holder.held)} MiB and may hold {_mib(told.limit)}"
        told.text = f"{text}, {self.shrink_s:g} s after it was told"
        self._set_denied(holder, told, True)
        follows = "; it is denied cores until it has shrunk" if told.denied else ""
        follows += f", and ended in {self.shrink_s:g} s" if self.end is not None else ""
        self.tell("stubborn", f"{holder.name} {told.text}{follows}")

    def stats_of(self, app: int) -> dict[str, Any] | None:
        """Of one application, for people; None: it has no such memory."""
        told = self._told.get(app)
        if told is None or told.holder is None:
            return None
        h = told.holder
        return {
            "held_bytes": h.held,
            "limit_bytes": told.limit,
            "least_bytes": h.least,
            "most_bytes": h.most,
            "asked": told.asked,
            "stubborn": told.stubborn,
            "denied": told.denied,
            "text": told.text,
        }

    def stats(self) -> dict[str, int]:
        """{"asked": times that one was told to hold less than it did, "shrunk": that it did so, "stubborn": that it did
        not in time, "lied", "denied" (cores), "ended": of those}."""
        return dict(self.counts)


def _mib(n_bytes: int) -> int:
    return -(-n_bytes >> 20)

"""Deadlines of batch work: who is admitted, which share of the cores each is promised, what became of it.

An application asks for so many units of work by a time (`ask`). First its rate is measured, with a small share; then it
is admitted if the shares by which it and all admitted before can be done exist (filling.py), or refused with what would
be possible. The shares are worked out anew each time that is looked at, from what is left and from how fast it lately
went. So what it gets beyond its share, from what others leave, makes its share smaller. The loops keep the shares
(iokernel/cores/promise.c).

Here decides only what is promised. What it needs to know comes as `Reading`s, the time as a function: all of it runs in
tests without an iokernel. Called by the control thread.

Does not deal with: an application that counts what it has not done. Its deadline is then met in its own eyes, and it
keeps no other from anything that was not promised to it.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .filling import Need, Share, fill, fits, soonest
from .progress import Progress

MARGIN = 0.1  # of its time: work is planned to be done by so much before its deadline
MEASURE_CORES = 0.1  # promised while a rate is measured
MOST = 32  # with deadlines at a time, of all users
_MEASURED_CORE_S, _MEASURED_UNITS, _MEASURED_SAMPLES = 0.2, 8, 3  # by then it is known well enough
_PATIENCE, _PATIENCE_LEAST_S, _PATIENCE_MOST_S = 0.2, 2.0, 10.0  # for that: of its time, but at least and at most
_LOOK_S, _MEASURE_LOOK_S = 0.1, 0.05
_CATCH_UP_S = 0.2  # in which what is late by the plan is to be done
_GRACE_S = 0.3  # after a deadline, for what was published before it to be seen
_LEAST_CORES = 0.01  # less than that is no share
_MOST_WORK, _MOST_S = 1 << 62, 30 * 86400.0
_TOLD = 16  # deadlines that were missed, of which is told
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}\Z")
REASONS = ("neighbour", "machine", "slower", "idle")


@dataclass(frozen=True, slots=True)
class Ask:
    """Units of work, after those `done`, within a time; counter: the one that counts them. work 0: only look."""

    work: int
    done: int
    within_s: float
    counter: str


@dataclass(frozen=True, slots=True)
class Client:
    """An application, as far as it matters here. most: cores that it can use. limit: cores that may be promised to all
    of its group together; where: the options that say so."""

    id: int
    name: str
    loop: int
    most: float
    group: str
    limit: float
    where: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of an application at a moment. units: None, it publishes no such counter. core_s: core time that it
    had; promised_s: that it was promised while it had work."""

    published_s: float
    units: int | None
    core_s: float
    promised_s: float


@dataclass(frozen=True, slots=True)
class Machine:
    """What a loop has: cores that are guaranteed to nobody, and who is guaranteed others. gap_s: core time of its cores
    that the host took, and time in which it could not decide, so far."""

    cores: float
    guaranteed: Mapping[str, int]
    gap_s: float


@dataclass(slots=True)
class Promise:
    """One application's deadline. All times in seconds; `deadline` on the monotonic clock."""

    client: Client
    counter: str
    target: int  # the count at which it is done
    work: int
    asked: float
    deadline: float
    state: str = "measuring"  # or admitted, refused, met, missed
    text: str = ""
    progress: Progress = field(default_factory=Progress)
    share: float = 0.0
    kept: bool = True  # it will be done in time by its share
    rate: float = 0.0  # with which it was admitted
    done: int = 0
    ended: float = 0.0
    reason: str = ""
    lost: dict[str, float] = field(default_factory=dict)
    # Since it was admitted: core time, promised and had then; what its shares came to, and were short of.
    core_s: float = 0.0
    promised_s: float = 0.0
    gap_s: float = 0.0
    given_s: float = 0.0
    denied_s: float = 0.0
    units: int = 0
    looked: float = 0.0

    @property
    def left(self) -> int:
        return max(0, self.target - self.done)

    @property
    def open(self) -> bool:
        return self.state in ("measuring", "admitted")

    def need(self, now: float) -> Need:
        """What is left to do by the planned end, at the rate with which it goes."""
        planned_s = self.deadline - MARGIN * (self.deadline - self.asked) - now
        left_s = min(max(planned_s, _CATCH_UP_S), self.deadline - now)
        return Need(self.left / (self.progress.rate or self.rate), left_s, self.client.most, self.client.group)

    def ends_in_s(self) -> float | None:
        """When it will be done at the pace of the last seconds; None: not known."""
        return self.left / self.progress.pace if self.progress.pace > 0 else None


class Promises:
    """read: what is known of an application. machine: of a loop. give: promises an application cores from now on. tell:
    gets an event and a line for people. clock: the monotonic one's seconds."""

    def __init__(
        self,
        read: Callable[[int, str], Reading],
        machine: Callable[[int], Machine],
        give: Callable[[int, float], None],
        tell: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._read, self._machine, self._give, self._tell, self._clock = read, machine, give, tell, clock
        self._by_app: dict[int, Promise] = {}
        self.counts = Counter(dict.fromkeys(("asked", "admitted", "refused", "met", "missed", "withdrawn"), 0))
        self.reasons = Counter(dict.fromkeys(REASONS, 0))
        self.missed: deque[dict[str, Any]] = deque(maxlen=_TOLD)

    def ask(self, client: Client, ask: Ask) -> Promise:
        """An application asks; one whose deadline is not over keeps that. What cannot be is refused at once."""
        old, now = self._by_app.get(client.id), self._clock()
        if old is not None and old.open:
            return old
        refusal = self._refusal(client, ask)
        within_s = min(max(ask.within_s, 0.0), _MOST_S)
        promise = Promise(client, ask.counter, ask.done + ask.work, ask.work, now, now + within_s, done=ask.done)
        promise.looked = now
        self._by_app[client.id] = promise
        self.counts["asked"] += 1
        if refusal:
            self._end(promise, "refused", now, refusal)
        return promise

    def _refusal(self, client: Client, ask: Ask) -> str:
        """Why it cannot be, whatever its rate is; "": it may be possible."""
        if not 0 < ask.work <= _MOST_WORK or not 0 <= ask.done <= _MOST_WORK or not 0.001 <= ask.within_s <= _MOST_S:
            return f"{ask.work} units within {ask.within_s:g} s cannot be (1 to 2^62 units, 1 ms to 30 days)"
        if not _NAME.match(ask.counter):
            return f"{ask.counter!r} names no counter (use one that it publishes: small letters, digits and _)"
        if client.limit <= 0:
            why = "no cores may be promised to it"
            return f"{why} (to allow it, the iokernel's configuration has {client.where}, say 0.5)"
        if sum(promise.open for promise in self._by_app.values()) >= MOST:
            return f"{MOST} deadlines are kept here already (wait for one of them to be over)"
        return ""

    def of(self, app: int, done: int = 0) -> Promise | None:
        """What became of it; None: it has not asked. done: units that it says it has done by now."""
        promise = self._by_app.get(app)
        if promise is not None and promise.open:
            promise.done = max(promise.done, done)
            self._settle(promise, self._clock())
        return promise

    def forget(self, app: int) -> None:
        """An application has gone, or will be."""
        promise = self._by_app.pop(app, None)
        if promise is not None and promise.open:
            self.counts["withdrawn"] += 1
            self._give(app, 0.0)

    def look(self) -> float:
        """See how it goes, and share out anew. Returns when to be called next; inf: nobody has a deadline."""
        now = self._clock()
        readings = {}
        for app, promise in self._by_app.items():
            if promise.open:
                readings[app] = reading = self._read(app, promise.counter)
                promise.progress.note(now, reading.core_s, reading.published_s, reading.units)
                promise.done = max(promise.done, promise.progress.units)
                self._settle(promise, now, reading)
        opened = [promise for promise in self._by_app.values() if promise.open]
        for loop in sorted({promise.client.loop for promise in opened}):
            self._share(now, [p for p in opened if p.client.loop == loop], self._machine(loop), readings)
        opened = [promise for promise in opened if promise.open]
        if not opened:
            return math.inf
        return now + (_MEASURE_LOOK_S if any(p.state == "measuring" for p in opened) else _LOOK_S)

    def _share(self, now: float, opened: list[Promise], machine: Machine, readings: Mapping[int, Reading]) -> None:
        """The shares of the applications of a loop. Those whose rate is known are admitted or refused, by deadline."""
        limits: dict[str, float] = {promise.client.group: promise.client.limit for promise in opened}
        admitted = [promise for promise in opened if promise.state == "admitted"]
        measured = [promise for promise in opened if promise.state == "measuring" and self._known(promise, now)]
        for promise in sorted(measured, key=lambda promise: promise.deadline):
            self._decide(promise, now, admitted, machine, limits, readings[promise.client.id])
        for promise, share in zip(admitted, self._filled(now, admitted, machine, limits), strict=True):
            self._account(promise, share, now)
        left = machine.cores - sum(promise.share for promise in admitted)
        for promise in opened:
            if promise.state == "measuring":
                theirs = sum(p.share for p in opened if p.client.group == promise.client.group and p is not promise)
                most = min(MEASURE_CORES, promise.client.most, promise.client.limit - theirs, left)
                self._set(promise, most if most >= _LEAST_CORES else 0.0)
                left -= promise.share

    def _filled(
        self, now: float, admitted: list[Promise], machine: Machine, limits: Mapping[str, float]
    ) -> list[Share]:
        return fill([promise.need(now) for promise in admitted], machine.cores, limits)

    def _known(self, promise: Promise, now: float) -> bool:
        """Whether its rate is known as well as it gets; one of which nothing is known by then is refused here."""
        p, within_s = promise.progress, promise.deadline - promise.asked
        if (
            p.seen_core_s >= _MEASURED_CORE_S
            and p.seen_units >= _MEASURED_UNITS
            and len(p.samples) >= _MEASURED_SAMPLES
        ):
            return True
        patience_s = min(max(_PATIENCE * within_s, min(_PATIENCE_LEAST_S, within_s / 2)), _PATIENCE_MOST_S)
        if now - promise.asked < patience_s:
            return False
        if p.seen_units >= 2 and p.seen_core_s > 0:
            return True
        if not p.samples:
            why, hint = f"it publishes no counter {promise.counter}", "publish one: docs/deadlines.md"
        else:
            why = f"{p.seen_units} units in {p.seen_core_s:.3f} core seconds do not say how fast it is"
            hint = "count smaller units, or give it longer"
        self._end(promise, "refused", now, f"{why} ({hint})")
        return False

    def _decide(
        self,
        promise: Promise,
        now: float,
        admitted: list[Promise],
        machine: Machine,
        limits: Mapping[str, float],
        reading: Reading,
    ) -> None:
        need, others = promise.need(now), [other.need(now) for other in admitted]
        if not fits(need, others, machine.cores, limits):
            self._end(promise, "refused", now, self._why(promise, need, others, admitted, machine, limits, now))
            return
        share = need.core_s / need.left_s
        promise.state, promise.rate, promise.gap_s = "admitted", promise.progress.rate, machine.gap_s
        promise.core_s, promise.promised_s, promise.units = reading.core_s, reading.promised_s, promise.done
        promise.text = (
            f"{promise.left:,} units in {need.left_s:.1f} s take about {share:.2f} cores, at "
            f"{promise.rate:,.0f} a core second"
        )
        self.counts["admitted"] += 1
        admitted.append(promise)

    def _why(
        self,
        promise: Promise,
        need: Need,
        others: list[Need],
        admitted: list[Promise],
        machine: Machine,
        limits: Mapping[str, float],
        now: float,
    ) -> str:
        """Why it cannot be kept, and what can."""
        room = min(machine.cores, promise.client.limit)
        after_s, within_s = soonest(need, others, machine.cores, limits), promise.deadline - promise.asked
        beside = ", ".join(f"{p.client.name} {p.share:.2f} for {p.deadline - now:.0f} s" for p in admitted[:3])
        beside += f" and {len(admitted) - 3} more" if len(admitted) > 3 else ""
        text = (
            f"{promise.left:,} units at {promise.progress.rate:,.0f} a core second take {need.core_s:.1f} core seconds"
        )
        text += f"; of {room:g} cores that may be promised, too few are left" + (f" beside {beside}" if beside else "")
        if after_s is None:
            return f"{text} (it could be done by no deadline)"
        if_s = max((after_s + now - promise.asked) / (1 - MARGIN), within_s)
        return f"{text} (it could be done within {_rounded_up(if_s)} s)"

    def _account(self, promise: Promise, share: Share, now: float) -> None:
        """Note what it gets, and what more it would need."""
        passed, wanted = now - promise.looked, promise.need(now)
        promise.given_s += passed * promise.share
        if not share.kept:
            alone = min(wanted.core_s / wanted.left_s, wanted.most) if wanted.left_s > 0 else wanted.most
            promise.denied_s += passed * max(0.0, alone - share.cores)
        seconds = promise.deadline - now
        promise.kept, promise.looked = share.kept or share.cores * seconds >= wanted.core_s, now
        self._set(promise, share.cores)

    def _set(self, promise: Promise, cores: float) -> None:
        promise.share = cores
        self._give(promise.client.id, cores)

    def _settle(self, promise: Promise, now: float, reading: Reading | None = None) -> None:
        """It is over, if it is."""
        if promise.left == 0:
            newest = promise.progress.samples[-1] if promise.progress.samples else None
            at = newest.at_s if newest is not None and newest.units >= promise.target else now
            if at <= promise.deadline:
                self._end(promise, "met", at, f"done {promise.deadline - at:.1f} s before its deadline")
            else:
                self._miss(promise, now, reading)
        elif now > promise.deadline + _GRACE_S:
            self._miss(promise, now, reading)

    def _miss(self, promise: Promise, now: float, reading: Reading | None) -> None:
        if promise.state != "admitted":
            text = "its deadline came before it was known how fast it is (give it longer)"
            self._end(promise, "refused", now, text)
            return
        reading = reading or self._read(promise.client.id, promise.counter)
        machine = self._machine(promise.client.loop)
        had, promised = reading.core_s - promise.core_s, reading.promised_s - promise.promised_s
        slow = max(0.0, had - (promise.done - promise.units) / promise.rate)
        gap = min(slow, max(0.0, machine.gap_s - promise.gap_s))
        promise.lost = {
            "neighbour": promise.denied_s + max(0.0, promised - had),
            "machine": gap,
            "slower": slow - gap,
            "idle": max(0.0, promise.given_s - promised),
        }
        promise.reason = max(REASONS, key=lambda reason: promise.lost[reason])
        others = ", ".join(f"{name} {n}" for name, n in machine.guaranteed.items())
        said = {
            "neighbour": f"cores went to guarantees of others{': ' + others if others else ''}",
            "machine": "the machine took its cores, or the iokernel's",
            "slower": "a core second did less than when it was measured",
            "idle": "it had nothing to do with cores that it was promised",
        }[promise.reason]
        lost_s = promise.lost[promise.reason]
        what = f"{promise.left:,} of {promise.work:,} units were left" if promise.left else "it was done too late"
        text = f"{what}: {said}, {lost_s:.2f} core seconds"
        self.reasons[promise.reason] += 1
        self.missed.append(
            {"name": promise.client.name, "text": text, "reason": promise.reason, "lost_s": promise.lost}
        )
        self._end(promise, "missed", now, text)
        self._tell("missed", f"{promise.client.name} missed its deadline: {text}")

    def _end(self, promise: Promise, state: str, now: float, text: str) -> None:
        promise.state, promise.text, promise.ended = state, text, now
        self.counts[state] += 1
        self._set(promise, 0.0)

    def stats_of(self, app: int) -> dict[str, Any] | None:
        """Of one application, for people; None: it has asked for no deadline."""
        promise = self._by_app.get(app)
        if promise is None:
            return None
        now = promise.ended or self._clock()
        return {
            "state": promise.state,
            "text": promise.text,
            "counter": promise.counter,
            "work": promise.work,
            "done": promise.work - min(promise.left, promise.work),
            "within_s": promise.deadline - promise.asked,
            "passed_s": now - promise.asked,
            "ends_in_s": promise.ends_in_s() if promise.open else None,
            "promised_cores": promise.share,
            "units_per_core_s": promise.progress.rate or promise.rate,
            "units_per_s": promise.progress.pace,
            "in_time": promise.kept,
            "reason": promise.reason or None,
            "lost_core_s": promise.lost or None,
        }

    def stats(self) -> dict[str, Any]:
        """{"asked", "admitted", "refused", "met", "missed", "withdrawn": since the iokernel began, "reasons": of those
        missed, "last_missed"}."""
        return {**self.counts, "reasons": dict(self.reasons), "last_missed": list(self.missed)}


def _rounded_up(seconds: float) -> str:
    """With two figures or three, never less than it is."""
    step = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return f"{math.ceil(seconds / step - 1e-9) * step:g}"

"""By which shares of the cores deadlines can be kept: progressive filling, after ElasticFlow (Gu et al., ASPLOS 2023).

Each work with a deadline gets the least share with which it is done in time, the one with the first deadline first; it
is cut where those before it have the cores. A share is core time (core-microseconds in a microsecond), so that it need
not be a whole core, nor a power of two of them as the paper's. Time is cut at the deadlines: between two of them
everybody's share is the same.

Where each may use all cores at a time this is exact: what it cannot keep, nothing can. Where some may use fewer, one
that is refused may be possible by shares that change (tests/iokernel/control/test_filling.py has how often).

Does not deal with: work that waits for other work; cores of unequal speed; work that does not get faster with cores.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LEAST = 1e-9  # core seconds, and cores: what is less is nothing
_LONGER, _STEPS = 1e6, 40  # how much longer `soonest` looks; and how often it halves


@dataclass(frozen=True, slots=True)
class Need:
    """Work with a deadline. core_s: core time that it takes. left_s: until then. most: cores that it can use at a time.
    group: those of one share a limit."""

    core_s: float
    left_s: float
    most: float
    group: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """Cores that it gets from now until the first deadline of all, and whether it is done in time if all goes on so."""

    cores: float
    kept: bool


def fill(needs: Sequence[Need], cores: float, limits: Mapping[str, float]) -> list[Share]:
    """A share for each, in their order. cores: that there are. limits: cores that a group may have, together."""
    ends = sorted({need.left_s for need in needs if need.left_s > 0})
    lengths = [end - begin for begin, end in itertools.pairwise([0.0, *ends])]
    free = [cores] * len(ends)
    of_group = {group: [min(limit, cores)] * len(ends) for group, limit in limits.items()}
    shares = [Share(0.0, False)] * len(needs)
    for i in sorted(range(len(needs)), key=lambda i: needs[i].left_s):
        need = needs[i]
        spans = range(sum(end <= need.left_s for end in ends))
        room = [max(0.0, min(free[s], of_group[need.group][s], need.most)) for s in spans]
        level, kept = _level(need.core_s, room, lengths)
        for s in spans:
            free[s] -= min(level, room[s])
            of_group[need.group][s] -= min(level, room[s])
        shares[i] = Share(min(level, room[0]) if room else 0.0, kept)
    return shares


def _level(core_s: float, room: Sequence[float], lengths: Sequence[float]) -> tuple[float, bool]:
    """The least share, cut to `room` in each span, that comes to core_s; the largest one, and False: none does."""
    done, below, left = 0.0, 0.0, sum(lengths[: len(room)])
    for most, length in sorted(zip(room, lengths, strict=False)):
        more = (most - below) * left
        if done + more >= core_s - _LEAST and left > 0:
            return below + max(0.0, core_s - done) / left, True
        done, below, left = done + more, most, left - length
    return below, core_s <= done + _LEAST


def fits(new: Need, needs: Sequence[Need], cores: float, limits: Mapping[str, float]) -> bool:
    """Whether it is done in time beside the others, of which none is late for it that would not be without it."""
    before = fill(needs, cores, limits)
    *after, own = fill([*needs, new], cores, limits)
    return own.kept and all(a.kept or not b.kept for a, b in zip(after, before, strict=True))


def soonest(new: Need, needs: Sequence[Need], cores: float, limits: Mapping[str, float]) -> float | None:
    """The least deadline by which it fits, to a thousandth, if it does not by its own; None: by none, as far as that
    was looked."""

    def by(left_s: float) -> bool:
        return fits(Need(new.core_s, left_s, new.most, new.group), needs, cores, limits)

    late, soon = max(new.left_s, 1e-3), max(new.left_s, 1e-3)
    while not by(late):
        soon, late = late, 2 * late
        if late > _LONGER * max(new.left_s, new.core_s):
            return None
    for _ in range(_STEPS):
        if late - soon < late / 1000:
            break
        middle = (soon + late) / 2
        soon, late = (soon, middle) if by(middle) else (middle, late)
    return late

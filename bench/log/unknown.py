"""What it costs a rule that it does not know the disk: in a whole load, and once it has found out. Modelled disks only.

*From the first append on.* A fixed setting that is the best one at a load is chosen by who knows the disk. BLIND are
rules that do not, as the log does not: each fixed setting, used on whatever disk it is (greedy with so many in flight,
or greedy with a wait), and the log's own rule with a guess of how many writes a disk does at once. A rule's value at a
load is the least, of all disks and of mean time, p50 and p99, of what it has of the setting that is best there in that.
The best value of all of them says what can be had without knowing the disk; the log's own stands beside it.

Why none has much more of p99: until two flushes have been in flight side by side and one of them is done, all disks
look alike, and what is right for one lane doubles the wait on many, and the other way round. That takes two writes. A
load here lasts for 40 to 100 of them, so its slowest hundredth is of that time.

*Once learnt.* The same loads for longer, of which the second half is judged: the log has found out by then what the
disk does. It goes on to try, and one flush in a while goes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .modelled import ADAPTIVE, Disk, Outcome, Setting, open_loop

MEASURES: Mapping[str, Callable[[Outcome], float]] = {
    "mean": lambda got: got.mean_us,
    "p50": lambda got: got.percentile_us(0.5),
    "p99": lambda got: got.percentile_us(0.99),
}
GUESSES = (1, 2, 4, 8, 16)  # of how many writes a disk does at once
LAST_WRITES = 400  # a load of which one half is judged lasts as long as so many lone writes, ..
LEAST_ARRIVALS, MOST_ARRIVALS = 4000, 16000  # .. of appends no fewer and no more than these


@dataclass(frozen=True)
class Part:
    """What a rule has of the best one: by measure, the best one's time over its own."""

    of: Mapping[str, float]

    @property
    def least(self) -> float:
        return min(self.of.values())


def parts(fixed: Mapping[Setting, Outcome], rules: Mapping[Setting, Outcome]) -> dict[Setting, Part]:
    """Of each rule, against the fixed setting that is best in each measure."""
    best = {name: min(measure(got) for got in fixed.values()) for name, measure in MEASURES.items()}
    return {
        rule: Part({name: best[name] / measure(got) for name, measure in MEASURES.items()})
        for rule, got in rules.items()
    }


def blind(settings: Sequence[Setting]) -> list[Setting]:
    """Rules that do not know the disk, but for the log's own."""
    return [*settings, *(Setting(0, 0, guess) for guess in GUESSES)]


def whole_load(
    disk: Disk, per_s: float, number: int, settings: Sequence[Setting], known: Mapping[Setting, Outcome]
) -> dict[Setting, Part]:
    """Of the log's own rule and of all others that do not know the disk, from the first append on. known: what became
    of some of them."""
    rules = (ADAPTIVE, *blind(settings))
    got = {rule: known[rule] if rule in known else open_loop(disk, rule, per_s, number) for rule in rules}
    return parts({setting: got[setting] for setting in settings}, got)


def best_of_all(by_disk: Sequence[Mapping[Setting, Part]]) -> tuple[float, Setting, float]:
    """On all disks together, at one load: the log's own value; the other rule whose value is best, and that value."""
    value = {rule: min(found[rule].least for found in by_disk) for rule in by_disk[0]}
    ours = value.pop(ADAPTIVE)
    best = max(value, key=lambda rule: value[rule])
    return ours, best, value[best]


def once_learnt(disk: Disk, per_s: float, settings: Sequence[Setting]) -> tuple[Part, Part, Setting]:
    """In the second half of a load: of the log's own rule; of the one fixed setting that is best in all measures
    together, which is the one whose least part is largest; and that setting."""
    number = int(min(max(per_s * LAST_WRITES * disk.write_us / 1e6, LEAST_ARRIVALS), MOST_ARRIVALS))
    got = {rule: open_loop(disk, rule, per_s, number, from_append=number // 2) for rule in (ADAPTIVE, *settings)}
    found = parts({setting: got[setting] for setting in settings}, got)
    ours = found.pop(ADAPTIVE)
    single = max(found, key=lambda setting: found[setting].least)
    return ours, found[single], single

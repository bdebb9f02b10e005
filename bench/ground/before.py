"""What the ground costs what was there before: figures of echo, kv and AF_XDP, this tree's over an older one's.

    corelane bench ground --seconds 10 --before ../old/.venv/bin/corelane

Both trees run their own benchmarks, as they are, by turns: old, new, old again. Of each figure that both have the ratio
is taken round by round, the new over the mean of the two old ones, so that more than 1 is better than before. The
machine's part is the old tree over itself. A figure in which that is more than STEADY from 1 is shown, not judged;
of the others the worst median is the result. A loss that is no larger than the old tree's own difference is not judged.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...runtime.errors import CorelaneError
from ..harness import document as doc
from ..harness.goals import GOALS
from ..harness.session import Session

FIGURE = "ground.udp_before"
BENCHES = ("echo", "kv", "afxdp")
ROUNDS = 3
STEADY = 0.05  # how far a figure of one tree may be from itself, as a share, to be judged

Figures = dict[str, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The option that this part needs."""
    parser.add_argument("--before", metavar="COMMAND", help="an older tree's corelane command, to compare with")


def measure(session: Session) -> None:
    """FIGURE, if an older tree was given. Minutes: each benchmark takes --seconds, of both trees, ROUNDS times."""
    before = getattr(session.options, "before", None)
    if before is None:
        session.skip("before and after", "give the command of an older tree with --before")
        return
    old, new = [before], [sys.executable, "-m", "corelane.cli.main"]
    trees: Mapping[str, Sequence[str]] = {"before": old, "after": new, "again": old}
    pairs: dict[str, list[float]] = {}
    own: dict[str, float] = {}
    for bench in BENCHES:
        arms = {name: _run(command, bench, session) for name, command in trees.items()}
        taken = session.interleave(arms, ROUNDS, back_and_forth=True)
        found = ratios(list(map(mean, taken["before"], taken["again"])), taken["after"])
        itself = ratios(taken["before"], taken["again"])
        for name in sorted(set(taken["before"][0]) & found.keys() & itself.keys()):
            pairs[name], own[name] = found[name], statistics.median(itself[name])
            values = {f"{tree}_median": statistics.median(one[name] for one in taken[tree]) for tree in trees}
            over = statistics.median(pairs[name])
            session.arm(name, **values, over_before=over, before_over_itself=own[name], n=ROUNDS)
    judge(session, pairs, own)


def judge(session: Session, pairs: Mapping[str, list[float]], own: Mapping[str, float]) -> None:
    """Set FIGURE from the ratios of each figure, round by round, and from the old tree's over itself."""
    if not pairs:
        session.figure(FIGURE, None, reason="the two trees have no figure in common that both have taken")
        return
    middle = {name: statistics.median(runs) for name, runs in pairs.items()}
    steady = [name for name in pairs if abs(own[name] - 1) <= STEADY]
    worst_of_all = min(middle, key=lambda name: middle[name])
    if not steady:
        session.figure(FIGURE, None, reason=f"in no figure the older tree is within {STEADY:.0%} of itself")
        return
    worst = min(steady, key=lambda name: middle[name])
    bound = min(min(own[name], 1 / own[name]) for name in steady)
    session.note(
        f"{FIGURE} is that of {worst}, the worst of {len(steady)} figures in which the older tree agrees with "
        f"itself, of {len(pairs)}; the worst of all is {worst_of_all}: {middle[worst_of_all]:.3g}"
    )
    lost = middle[worst] < (GOALS[FIGURE].goal or 0)
    undecided = f"the older tree is to itself as 1 to {bound:.3g}" if lost and middle[worst] >= bound else ""
    beside = {"the older tree over itself, worst": bound, "of all figures, worst": middle[worst_of_all]}
    session.figure(FIGURE, middle[worst], runs=pairs[worst], undecided=undecided, beside=beside)


def mean(one: Figures, other: Figures) -> Figures:
    """The means of figures that both have."""
    return {name: (one[name] + other[name]) / 2 for name in one.keys() & other.keys()}


def _run(command: Sequence[str], bench: str, session: Session) -> Callable[[], Figures]:
    """Function: run a benchmark by that command; its figures that have a value."""

    def body() -> Figures:
        with tempfile.TemporaryDirectory(prefix="cl-before-") as folder:
            path = Path(folder) / "x.json"
            cores = ",".join(map(str, session.cores))
            args = ["bench", bench, "--seconds", str(session.seconds), "--cores", cores, "--json", str(path)]
            done = subprocess.run([*command, *args], capture_output=True, text=True, cwd=folder, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
                raise CorelaneError(f"run {' '.join([*command, *args[:2]])}", last)
            figures = doc.read(path)["figures"]
        return {name: float(f["value"]) for name, f in figures.items() if f["value"] is not None}

    return body


def ratios(before: Sequence[Figures], after: Sequence[Figures]) -> dict[str, list[float]]:
    """Round by round, how much better each figure is after than before; those with a value in each round of both."""
    found = {}
    for name in set.intersection(*map(set, [*before, *after])) & GOALS.keys():
        old, new = [one[name] for one in before], [one[name] for one in after]
        if GOALS[name].sense == "at most":
            old, new = new, old
        if min(old) > 0:
            found[name] = [a / b for a, b in zip(new, old, strict=True)]
    return found

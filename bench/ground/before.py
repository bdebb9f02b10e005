"""What the ground costs what was there before: figures of echo, kv and AF_XDP, this tree's over an older one's.

    corelane bench ground --seconds 10 --before ../old/.venv/bin/corelane

Both trees run their own benchmarks, as they are, by turns. Of each figure that both have the ratio is taken round by
round, so that more than 1 is better than before; the worst median of all figures is the result.
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
    trees: Mapping[str, Sequence[str]] = {"before": [before], "after": [sys.executable, "-m", "corelane.cli.main"]}
    pairs: dict[str, list[float]] = {}
    for bench in BENCHES:
        arms = {name: _run(command, bench, session) for name, command in trees.items()}
        taken = session.interleave(arms, ROUNDS, back_and_forth=True)
        pairs |= ratios(taken["before"], taken["after"])
        for name in sorted(set(taken["before"][0]) & pairs.keys()):
            values = {f"{tree}_median": statistics.median(one[name] for one in taken[tree]) for tree in trees}
            session.arm(name, **values, over_before=statistics.median(pairs[name]), n=ROUNDS)
    if not pairs:
        session.figure(FIGURE, None, reason="the two trees have no figure in common that both have taken")
        return
    worst = min(pairs, key=lambda name: statistics.median(pairs[name]))
    session.note(f"{FIGURE} is that of {worst}, the worst of {len(pairs)} figures")
    session.figure(FIGURE, statistics.median(pairs[worst]), runs=pairs[worst])


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

"""Soaks: tests that go on for as long as there is time, and long forms of tests. `make soak` runs them.

`@pytest.mark.soak` marks a test that only `make soak` runs; takes_s says about how long it takes where CORELANE_SOAK_S
does not decide that. `@pytest.mark.soak(short=True)` marks one that has a short form, which `make test` runs.

CORELANE_SOAK_S is the time of each soak, and says that this is a run of soaks: no other test runs. With
CORELANE_SOAK_TOTAL_S the soaks are drawn: they come in a random order, and one that does not fit into what is left of
that time is skipped. Every other one is of code that changed lately. CORELANE_SOAK_SEED, which is printed, repeats a
draw. CI has 30 s: a soak whose takes_s is more than that is never drawn there.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Collection, Sequence
from itertools import chain, zip_longest
from pathlib import Path, PurePath

import pytest

from .mutants import Model

ROOT = Path(__file__).resolve().parents[3]
SOAK_S = float(os.environ.get("CORELANE_SOAK_S") or 0)
TOTAL_S = float(os.environ.get("CORELANE_SOAK_TOTAL_S") or 0)
SOAKS = "CORELANE_SOAK_S" in os.environ
SEED = int(os.environ.get("CORELANE_SOAK_SEED") or random.SystemRandom().randrange(10**6))
LATELY = 50  # commits
_BEGUN = time.monotonic()


def examples(short: int, long: int) -> int:
    """How many a property test tries: `short` in make test, `long` in make soak."""
    return long if SOAKS else short


def pairs(
    first: Sequence[object], second: Sequence[object], of: int = 2, takes_s: float = 1, longer: bool = False
) -> list[object]:
    """For parametrize: one of so many combinations of two arguments, among them each value; make soak has the others.

    longer: and these too, as the test has a long form.
    """
    chosen, others = pytest.mark.soak(short=True, takes_s=takes_s), pytest.mark.soak(takes_s=takes_s)
    return [
        pytest.param(a, b, marks=others if (i + j) % of else chosen if longer else ())
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]


def chosen(items: list[pytest.Item]) -> list[pytest.Item]:
    """What this run is to run, in its order."""
    if not SOAKS:
        return [item for item in items if not (mark := _mark(item)) or mark.kwargs.get("short")]
    soaks = [item for item in items if _mark(item)]
    return drawn(soaks, changed_lately(), SEED) if TOTAL_S else soaks


def header() -> list[str]:
    """Lines for the head of pytest's report."""
    return [f"soaks drawn with CORELANE_SOAK_SEED={SEED}"] if SOAKS and TOTAL_S else []


def drawn(soaks: list[pytest.Item], changed: Collection[str], seed: int) -> list[pytest.Item]:
    """All of them in a random order, in which every other one is of a file that changed, as long as there are such."""
    order = list(soaks)
    random.Random(seed).shuffle(order)
    folders = {str(PurePath(path).parent) for path in changed} - {"."}
    first = [item for item in order if folders & _folders(item)]
    rest = [item for item in order if item not in first]
    return [item for item in chain(*zip_longest(first, rest)) if item]


def changed_lately() -> list[str]:
    """Files that the newest commits changed; none where there is no history."""
    git = ["git", "-C", str(ROOT), "log", f"-{LATELY}", "--name-only", "--format="]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def _folders(item: pytest.Item) -> set[str]:
    """Of what a test is about: its own, of which it is the mirror, and those of the sources that a model compiles."""
    own = item.path.parent.relative_to(ROOT)
    model = getattr(getattr(item, "module", None), "MODEL", None)
    sources = model.own.values() if isinstance(model, Model) else ()
    return {str(own), str(own / "c"), str(own.relative_to("tests")), *(str(PurePath(s).parent) for s in sources)}


def skip_without_time(item: pytest.Item) -> None:
    """Skip a soak that does not fit into what is left."""
    mark = _mark(item)
    if mark is None or not TOTAL_S or not SOAKS:
        return
    takes_s = mark.kwargs.get("takes_s", SOAK_S)
    if time.monotonic() - _BEGUN + takes_s > TOTAL_S:
        pytest.skip(f"takes about {takes_s:g} s, and less is left of CORELANE_SOAK_TOTAL_S={TOTAL_S:g}")


def _mark(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker("soak")

"""Whether blame names the cause of a slow tail: the eight of examples/slow.py, run for real, each as a process of its
own whose records are read from outside. Its rate, its bursts and its seed are drawn: no rule was written for that load.

A trial in which the machine stood still for longer than the cause took, in which the cause hardly came, or in which
the service had more to do than the machine let it, says nothing: it is done again with another load that is drawn. That
a neighbour takes the machine is a cause, and no such reason.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...libos.trace import blame, faults
from ...libos.trace.pieces import joined
from ...libos.trace.slo import APPENDS
from ...libos.trace.stages import table
from ...runtime.errors import CorelaneError
from ...runtime.trace import Records, Segment
from ..harness.session import Session

CAUSES = {
    "lock": "lock",
    "long": "long request",
    "neighbour": "noisy neighbour",
    "log": "log flush",
    "gc": "garbage collection",
    "faults": "page faults",
    "core": "core taken away",
    "loss": "lost packets",
}
"""Words of the example, and the cause that is to be named."""
WORDS = tuple(CAUSES)
SECONDS = 2.0
TRIES = 4
RATES, BURSTS = (1500.0, 4500.0), (1, 16)
SEED = 20261129
FEWEST = 5  # times that the cause came
FLOODED = 0.5  # of what the cause takes: where ordinary requests take as long, the service has too much to do
DISTURBED = 0.2  # of the time that the cause took: more, and the machine was one, too
LOOK_S = 0.5  # the rings have room for more than a trial; whoever reads them takes a CPU from the service or its load
_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "slow.py"


@dataclass(frozen=True)
class Load:
    """rate: requests/s, in bursts of `burst` on average; of "loss" the seed alone counts."""

    rate: float
    burst: int
    seed: int


@dataclass(frozen=True)
class Trial:
    """told: what the example says of itself. found: blame for the percentiles of its service, the lower first.
    machine_us: that the machine took while requests
    were under way, to be held against what the cause took."""

    word: str
    load: Load
    told: dict[str, Any]
    found: list[blame.Blame]
    machine_us: float

    @property
    def named(self) -> str:
        """The cause that is named for p99; of a percentile above it, if that has none."""
        return next((one.cause.word for one in self.found if one.cause is not None), "")

    @property
    def stage(self) -> str:
        """The stage that is blamed for p99."""
        return blame.name_of(self.found[0].first) if self.found else ""

    @property
    def right(self) -> bool | None:
        """None: what was there was something else, or too little."""
        each_us = float(self.told["us_each"])
        caused_us = self.told["struck"] * each_us
        if self.told["struck"] < FEWEST or not self.found:
            return None
        if each_us and self.found[0].median_us > FLOODED * each_us:
            return None
        if self.word not in ("neighbour", "loss") and self.machine_us > DISTURBED * caused_us:
            return None
        return self.named == CAUSES[self.word]


def drawn(draw: random.Random) -> Load:
    """Any load."""
    return Load(round(draw.uniform(*RATES)), draw.randint(*BURSTS), draw.randint(1, 10**6))


def trial(word: str, load: Load, cpu: int | None = None, seconds: float | None = None) -> Trial:
    """One run of the example. Raises CorelaneError: it failed."""
    command = [sys.executable, str(_EXAMPLE), word, "--seconds", str(SECONDS if seconds is None else seconds)]
    command += ["--rate", str(load.rate), "--burst", str(load.burst), "--seed", str(load.seed)]
    command += [] if cpu is None else ["--cpu", str(cpu)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            said: list[str] = []
            while not said or (said[-1] and f"process {child.pid} is slow" not in said[-1]):  # behind what it warns of
                said.append(child.stderr.readline())
            if not said[-1]:
                raise CorelaneError(f"run {_EXAMPLE.name} {word}", "".join(said).strip())
            with Segment.of_process(child.pid) as segment:
                records, names, hz = _read(segment, child), segment.services(), segment.hz
            told = child.stdout.read()
            if child.returncode:
                raise CorelaneError(f"run {_EXAMPLE.name} {word}", child.stderr.read().strip())
        finally:
            child.kill()
    seen = table(records, names, hz, faults.cost_us())
    gone = seen.stood.during(seen.messages).without_cpu["gone"]
    found = [one for one in blame.of_table(seen) if not one.service.startswith(APPENDS)]
    return Trial(word, load, json.loads(told), found, float(gone.sum()) * 1e6 / hz)


def _read(segment: Segment, child: subprocess.Popen[str]) -> Records:
    """All that it writes down until it ends."""
    parts = [segment.read()]
    while child.poll() is None:
        try:
            child.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            parts.append(segment.read())
    parts.append(segment.read())
    return joined(parts)


def judged(word: str, draw: random.Random, cpu: int | None = None) -> Trial:
    """The first of TRIES trials that says something, else the last one."""
    for _ in range(TRIES):
        one = trial(word, drawn(draw), cpu)
        if one.right is not None:
            break
    return one


def measure(session: Session) -> None:
    """The figure, and what was named for what."""
    draw = random.Random(SEED)
    found = []
    for word in WORDS:
        session.say(f"a service that is slow for a reason: {word}")
        found.append(judged(word, draw, session.two_cores[1]))
    session.table(
        "Causes of examples/slow.py, each under a load that is drawn",
        ["cause", "named", "stage that is blamed for p99", "requests/s", "burst", "seed"],
        [[one.word, one.named or "nothing", one.stage, one.load.rate, one.load.burst, one.load.seed] for one in found],
    )
    session.settings["causes seed"] = SEED
    unclear = [one.word for one in found if one.right is None]
    if unclear:
        why = f"{', '.join(unclear)}: the machine stood still for longer than the cause took, {TRIES} times"
        session.figure("trace.causes_right", None, reason=why)
        return
    session.figure("trace.causes_right", sum(one.right is True for one in found) / len(found))

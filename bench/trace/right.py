"""Whether blame is right: a delay at one stage of 1 % of the requests, in virtual time; stage and load are drawn."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from ...libos.trace import blame
from ...libos.trace.commands import APPLY, OTHERS, OWN_LOG
from ...libos.trace.stages import Stage, table
from ...runtime.errors import check
from ...runtime.trace import records_of
from .._native import ffi, lib
from ..harness.session import Session

TRIALS = 140
SEED = 20251101
REQUESTS = 4000
ONE_IN = 100
DELAY_US = 20.0
SERVICE_US = 1.0
LOADS = (0.05, 0.5)  # of the server's time, without the delays
ROOM = 1 << 16  # records of a trial
HZ = 10**9  # of the stamps

CAUSES: dict[str, tuple[int, Stage]] = {
    "handler computes": (lib.CL_BENCH_DELAY_RUNS, ("handler", "runs")),
    "behind a long request": (lib.CL_BENCH_DELAY_INBOX, ("inbox", "waits")),
    "another uthread runs": (lib.CL_BENCH_DELAY_QUEUED, ("handler", "run queue")),
    "sleep": (lib.CL_BENCH_DELAY_SLEEP, ("handler", "wait: sleep")),
    "mutex": (lib.CL_BENCH_DELAY_MUTEX, ("handler", "wait: mutex")),
    "condition": (lib.CL_BENCH_DELAY_COND, ("handler", "wait: condition")),
    "semaphore": (lib.CL_BENCH_DELAY_SEM, ("handler", "wait: semaphore")),
    "join": (lib.CL_BENCH_DELAY_JOIN, ("handler", "wait: join")),
    "channel": (lib.CL_BENCH_DELAY_CHANNEL, ("handler", "wait: channel")),
    "another server": (lib.CL_BENCH_DELAY_READ, ("handler", "wait: read")),
    "log": (lib.CL_BENCH_DELAY_LOG, ("handler", "wait: log")),
    "core": (lib.CL_BENCH_DELAY_CORE, ("", "core away")),
    "ring": (lib.CL_BENCH_DELAY_RING, ("ring", "waits")),
    "reply": (lib.CL_BENCH_DELAY_REPLY, ("reply", "until sent")),
    "log of a group's leader": (lib.CL_BENCH_DELAY_OWN_LOG, OWN_LOG),
    "other node of a group": (lib.CL_BENCH_DELAY_OTHERS, OTHERS),
    "state machine of a group": (lib.CL_BENCH_DELAY_APPLY, APPLY),
}
"""What delays a request: its number, and the stage that is to be named; "": whichever, for that of a core takes it from
those that wait, too."""


@dataclass(frozen=True)
class Trial:
    """One run: what was the cause, and the stage that was named first; () if none was."""

    cause: str
    load: float
    named: Stage

    @property
    def right(self) -> bool:
        """The stage that was delayed was named, or a part of it."""
        expected = CAUSES[self.cause][1]
        parts = zip(self.named, expected, strict=False)
        return len(self.named) >= len(expected) and all(name == part for name, part in parts if part)


def trial(cause: str, load: float, seed: int) -> Trial:
    """Requests at a load, 1 of ONE_IN delayed; and what is blamed for p99."""
    config = ffi.new("struct cl_bench_delays *")
    config.where, config.requests, config.one_in, config.seed = CAUSES[cause][0], REQUESTS, ONE_IN, seed
    config.service_ns, config.delay_ns = round(SERVICE_US * 1e3), round(DELAY_US * 1e3)
    config.interval_ns = round(SERVICE_US * 1e3 / load)
    out, err = ffi.new("uint8_t[]", ROOM * lib.CL_TRACE_RECORD), ffi.new("char[256]")
    n = check(lib.cl_bench_delays(config, out, ROOM, err), f"delay requests: {cause}", err)
    seen = table(records_of(bytes(ffi.buffer(out, n * lib.CL_TRACE_RECORD))), ["others", "UDP 9000", "UDP 9001"], HZ)
    found = blame.of_service(seen.of_service(1), "UDP 9000", 1 - 1 / ONE_IN)
    return Trial(cause, load, found.first if found else ())


def drawn(trials: int, seed: int) -> list[Trial]:
    """As many, each cause as often as the others, at loads and with seeds that are drawn."""
    draw = random.Random(seed)
    causes = [list(CAUSES)[i % len(CAUSES)] for i in range(trials)]
    draw.shuffle(causes)
    return [trial(cause, draw.uniform(*LOADS), draw.getrandbits(63) or 1) for cause in causes]


def measure(session: Session) -> None:
    """The figure, and who was taken for whom."""
    session.say("delays at stages, in virtual time")
    found = drawn(TRIALS, SEED)
    confusion = Counter((one.cause, blame.name_of(one.named) or "nothing", one.right) for one in found)
    session.table(
        "Blame by what delays a request: the stage that is named first, and how often",
        ["cause", "named", "trials", "right"],
        [[cause, named, n, right] for (cause, named, right), n in sorted(confusion.items())],
    )
    session.settings["delay"] = f"{DELAY_US:g} us, 1 of {ONE_IN} requests, {REQUESTS} a trial, virtual time"
    session.figure("trace.blame_right", sum(one.right for one in found) / len(found))
    session.settings["delay seed"] = SEED
    session.note(f"blame: {len(found)} trials of {len(CAUSES)} causes, drawn by seed {SEED}")

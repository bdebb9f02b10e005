"""A server is replaced by its next version, again and again, under an even load: which requests are lost?

The server is `corelane run echo`, a process of its own with one kthread. The arms change it while the load goes on:

    REPLACE   `corelane run echo --replace` beside it: the new one takes over, the old one drains and ends
    RESTART   it is ended, then another one is started: what there is without groups

The load lasts all through a turn of an arm, and is started anew for each. A change is over when the old process has
left and the new one serves. It counts if the load still lasted. A request is lost if it was due and no right answer to
it came: refused by the link, dropped, unanswered, or answered wrongly.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...drivers.nic.loadgen.runs import Result
from ...runtime.errors import CorelaneError
from ..harness import rig
from ..harness.numbers import plain
from ..harness.plot import Canvas
from ..harness.session import Session
from ..tenant import shared

SUMMARY = "requests lost while a server under load is replaced by its next version, and while it is restarted"
FIGURES = ("embed.replace_lost",)

RATE_RPS = 100_000.0
ENOUGH = 20  # replacements
ROUNDS = 2
REPLACE_SHARE = 0.75  # of the time
WINDOW_S = 0.1
PATIENCE_S = 60.0
NAME = "echo"
# A process that starts takes CPU time from the loop and from the server: what comes meanwhile waits, 0.16 s of it.
WAITING = 16384
REPLACE, RESTART = "corelane run --replace", "ended, then started"


@dataclass
class Turn:
    """What a turn of an arm came to. over_s, took_s: of each change that counts, when it was over, and how long it
    took. dropped: frames that are known to be lost, by reason (`all_dropped`)."""

    result: Result
    over_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """Requests that were due, and got no right answer."""
        return self.result.offered - self.result.answered


def run(session: Session) -> None:
    """Both arms in turns."""
    session.settings |= {
        "message": "one request of 22 bytes over UDP, and its reply",
        "rate_rps": RATE_RPS,
        "window_s": WINDOW_S,
        "checksums": rig.CHECKSUMS,
    }
    shares = {REPLACE: REPLACE_SHARE, RESTART: 1 - REPLACE_SHARE}
    arms = {name: partial(turn, session, name, session.seconds / ROUNDS * share) for name, share in shares.items()}
    got = session.interleave(arms, ROUNDS)
    for name, turns in got.items():
        add_row(session, name, turns)
    judge(session, got[REPLACE])


def turn(session: Session, arm: str, seconds: float) -> Turn:
    """A load of so many seconds, and as many changes as there is time for; one at least, which may not count."""
    change = replaced if arm == REPLACE else restarted
    room = {"rx_slots": WAITING, "tx_slots": WAITING, "rx_buffers": WAITING, "tx_buffers": WAITING}
    apps = {NAME: shared.latency(members=2, **room)}
    with shared.shared(session.two_cores, apps=apps) as made:
        servers = [made.run([NAME], NAME)]
        made.generator.begin(RATE_RPS, seconds, 0.0, max(1, round(seconds / WINDOW_S)))
        shared.await_begin(made.generator)
        began = time.monotonic()
        over_s, took_s, longest_s = [], [], 0.0
        while longest_s == 0 or time.monotonic() - began + longest_s < seconds:
            before = time.monotonic()
            servers.append(change(made, servers[-1]))
            over = time.monotonic()
            longest_s = max(longest_s, over - before)
            if over - began < seconds:
                over_s.append(over - began)
                took_s.append(over - before)
        made.generator.wait()
        servers[-1].close()
        found = Turn(made.generator.result(), over_s, took_s, all_dropped(made, servers))
    session.say(f"{len(found.over_s)} changes, {found.lost} of {found.result.offered} requests lost")
    return found


def all_dropped(made: shared.Shared, servers: Sequence[rig.App]) -> Counter[str]:
    """What is known of frames that were lost, once all servers have ended: what they say that they dropped themselves,
    and what the iokernel did, since a server's ring was full ("ring_full") or none was attached ("not_attached")."""
    told: Counter[str] = Counter()
    for server in servers:
        told.update(server.ended.get("dropped", {}))
    deadline = time.monotonic() + PATIENCE_S
    while (stats := made.kernel.stats())["apps"] and time.monotonic() < deadline:
        time.sleep(0.01)
    told["ring_full"] = stats["departed"]["rx_dropped"]
    told["not_attached"] = sum(loop["up_dropped_not_ours"] for loop in stats["loops"])
    return Counter({why: n for why, n in told.items() if n and not why.startswith("arp_")})


def replaced(made: shared.Shared, server: rig.App) -> rig.App:
    """The next server, when the one before has left."""
    new = made.run([NAME, "--replace"], NAME)
    told = new.await_event("replaced", PATIENCE_S)
    if (told["members"], told.get("left")) != (1, 0):
        raise CorelaneError("replace the server", str(told["text"]))
    server.close()
    return new


def restarted(made: shared.Shared, server: rig.App) -> rig.App:
    """Another server, after the end of the one before."""
    server.close()
    return made.run([NAME], NAME)


def add_row(session: Session, name: str, turns: Sequence[Turn]) -> None:
    """An arm: its turns together; the windows of one turn after those of the other."""
    results = [one.result for one in turns]
    took_s = [s for one in turns for s in one.took_s]
    windows = [window for result in results for window in result.windows]
    begins = [sum(result.seconds for result in results[:i]) for i in range(len(results))]
    session.arm(
        name,
        changes=len(took_s),
        offered_rps=RATE_RPS,
        lost=sum(one.lost for one in turns),
        **{
            key: sum(int(getattr(result, key)) for result in results)
            for key in ("offered", "sent", "answered", "late", "dropped", "wrong", "errors")
        },
        because=", ".join(f"{n:,} {why}" for why, n in sorted(sum((one.dropped for one in turns), Counter()).items())),
        change_p50_s=statistics.median(took_s) if took_s else None,
        over_s=[begin + over for begin, one in zip(begins, turns, strict=True) for over in one.over_s],
        window_lost=[window.offered - window.answered for window in windows],
        window_p99_us=[plain(window.percentile_us(99)) for window in windows],
    )


def judge(session: Session, turns: Sequence[Turn]) -> None:
    """Of few replacements that none lost a request says little."""
    changes, lost = sum(len(one.over_s) for one in turns), sum(one.lost for one in turns)
    enough = changes >= ENOUGH
    reason = f"{changes} replacements, with {lost} requests lost: it needs {ENOUGH}, so give more --seconds"
    runs = [float(one.lost) for one in turns]
    session.figure(FIGURES[0], float(lost) if enough else None, runs=runs, reason=None if enough else reason)


def plot(document: dict[str, Any]) -> Canvas:
    """Requests lost, and the p99, by window."""
    arms: Sequence[Mapping[str, Any]] = document["arms"]
    window_s = float(document["settings"]["window_s"])
    canvas = Canvas(
        f"embed: a server under {RATE_RPS:,.0f} requests/s is changed again and again",
        message=document["settings"]["message"],
        n=sum(int(arm["sent"]) for arm in arms),
        panels=2,
        size=(13, 6),
    )
    panels = (
        ("window_lost", "requests lost in a window (count)"),
        ("window_p99_us", "p99 of a window (us)"),
    )
    for panel, (key, label) in enumerate(panels):
        for colour, arm in enumerate(arms):
            values = [math.nan if value is None else float(value) for value in arm[key]]
            if not any(map(math.isfinite, values)):
                canvas.caption(f"{arm['name']}: every {label.partition(' (')[0]} is infinite.")
                continue
            at = [(i + 0.5) * window_s for i in range(len(values))]
            canvas.curve(at, values, label=str(arm["name"]), colour=colour, panel=panel)
        axis = canvas.axes[panel]
        axis.set_yscale("symlog" if key == "window_lost" else "log")
        axis.set_xlabel(f"time under load, turn after turn, windows of {window_s:g} s (s)")
        axis.set_ylabel(label)
    told = ", ".join(f"{arm['name']}: {arm['changes']} changes, {arm['lost']:,} lost" for arm in arms)
    canvas.caption(f"{told}. The curves end with the load. A window in which requests were lost may have no p99.")
    return canvas

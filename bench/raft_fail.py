"""How long a group of three is without a leader after kill -9 of the one that it had, and what a client sees of it.

Nodes are processes of their own, with logs on tmpfs or on a disk (one without a log may not come back under its
number). The three share one core, by the kernel's scheduler, and in one arm as the iokernel moves it; in another one 64
clients ask beside, each again as soon as it is answered, also with a refusal. Each kill is of whoever leads at that
moment; the dead one is started again from its log and has caught up before the next.

Two things are measured of each kill. Without a leader: from just before the signal is sent until another node has won
its election, by that node's own clock. The client's gap: the longest time between two acknowledged puts of a client
that goes on sending at an even rate, whatever is answered, to a node that lives on; so it has the spacing of the puts
in it, and what the new leader needs until its first entry is committed. One whose own node died has to turn to another
first, after a time that it chooses itself.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..drivers.nic.loadgen.loadgen import Arrivals, Closed, Loadgen, Phase, Source
from ..drivers.nic.loadgen.loadgen import Memcached as Traffic
from .harness import diskcanary
from .harness.numbers import percentile
from .harness.plot import Canvas
from .harness.session import Session
from .raft.nodes import KV_PORT, Group, address

SUMMARY = "without a leader after kill -9 of it, and the gap that a client sees"
FIGURES = ("raft-fail.no_leader_ms",)

ELECTION_MS, WATCH_US = 10, 10_000
KEY_BYTES, VALUE_BYTES, KEYS = 16, 84, 1000
ENOUGH_KILLS = 100
PUT_MS, PUTS = 0.5, 600  # a put each half millisecond, around each kill
# A phase a put, so that the generator keeps when each was acknowledged. It is due at two thirds of its phase.
PUT_EACH = [Phase(PUT_MS / 1e3, 1.5e3 / PUT_MS, measured=False)]
KILL_AFTER_S = (0.03, 0.06)
ENDLESS_MS = 100.0  # no acknowledgement for so long up to the end of the sending: the gap did not end
STEADY_S = 0.05
ROUNDS, WHOLE_S, LEAST_KILLS = 6, 6.0, 2
CONTACTS = (1, 2)  # nodes that a client asks: at least one of them does not lead
TMPFS, DISK, MOVED, LOADED = "tmpfs", "disk", "disk, cores moved", "disk, 64 clients"
SHARES = {DISK: 3}  # of the time, else one: the figure needs many kills of this arm
CLIENTS = 64  # of LOADED, beside the one that is looked at
SHOWN = {"no_leader_ms": "without a leader (ms)", "client_gap_ms": "longest time between acknowledged puts (ms)"}


@dataclass(frozen=True)
class Kill:
    """What one kill did. unanswered: puts that were lost or refused. terms: that began until somebody led."""

    no_leader_ms: float
    client_gap_ms: float
    unanswered: int
    terms: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the disk is, and the draw."""
    parser.add_argument(
        "--folder", type=Path, default=Path("."), help="on the disk to measure; a folder is made in it and removed"
    )
    parser.add_argument("--seed", type=int, help="of the moments of the kills (default: drawn, and said)")


def run(session: Session) -> None:
    """All arms in turns."""
    seed = getattr(session.options, "seed", None) or random.SystemRandom().randrange(1 << 31)
    session.settings |= {
        "message": f"one put of a {KEY_BYTES}-byte key and a {VALUE_BYTES}-byte value, acknowledged by a majority of 3",
        "election_ms": ELECTION_MS,
        "puts_per_s": 1e3 / PUT_MS,
        "seed": seed,
    }
    with contextlib.ExitStack() as stack:
        places = dict(folders(session, stack))
        diskcanary.note_disk(session, places[DISK])
        rounds = ROUNDS if session.seconds >= WHOLE_S else 1
        share_s = session.seconds / rounds / sum(SHARES.get(name, 1) for name in places)
        draw = random.Random(seed)
        arms = {
            name: partial(slot, session, places[name], name, share_s * SHARES.get(name, 1), draw) for name in places
        }
        got = session.interleave(arms, rounds)
    tried = {name: list(itertools.chain(*slots)) for name, slots in got.items()}
    kills = {name: [kill for kill in these if kill is not None] for name, these in tried.items()}
    for name, these in kills.items():
        add_row(session, name, these, len(tried[name]) - len(these))
    judge(session, kills)


def folders(session: Session, stack: contextlib.ExitStack) -> Iterator[tuple[str, Path]]:
    """Of the nodes' logs, by arm."""
    base = getattr(session.options, "folder", Path("."))
    if Path("/dev/shm").is_dir():
        yield TMPFS, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-raft-", dir="/dev/shm")))
    else:
        session.skip(TMPFS, "there is no /dev/shm")
    for name in (DISK, MOVED, LOADED):
        yield name, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-raft-", dir=base)))


def slot(session: Session, folder: Path, arm: str, seconds: float, draw: random.Random) -> list[Kill | None]:
    """Kills of one group for so long, at least LEAST_KILLS that count; None for each that does not (`one_kill`).

    Its logs begin empty: a node that is started again reads all that its log holds, which would come to most of the
    time.
    """
    kills: list[Kill | None] = []
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slot-", dir=folder)))
        clients = {node: stack.enter_context(contextlib.closing(client_of(node))) for node in CONTACTS}
        crowds = {}
        if arm == LOADED:
            crowds = {node: stack.enter_context(contextlib.closing(client_of(node, CLIENTS))) for node in CONTACTS}
        uplinks = [load.nic() for load in (*clients.values(), *crowds.values())]
        group = stack.enter_context(Group(session.two_cores, uplinks=uplinks, logs=logs, managed=arm == MOVED))
        group.start_all(election_ms=ELECTION_MS, watch_us=WATCH_US)
        began = time.monotonic()
        while len(kills) - kills.count(None) < LEAST_KILLS or time.monotonic() - began < seconds:
            kill = one_kill(group, clients, draw.uniform(*KILL_AFTER_S), crowds)
            kills.append(kill)
            what = (
                f"{kill.no_leader_ms:.1f} ms, client {kill.client_gap_ms:.1f} ms" if kill else "did not lead any more"
            )
            session.say(f"kill {len(kills)}: {what}")
    return kills


def client_of(node: int, window: int = 0) -> Loadgen:
    """Of that node, at an address of its own: at an even rate, or `window` that ask again when they are answered."""
    arrivals: Arrivals = Closed(window) if window else "uniform"
    number = node + (len(CONTACTS) if window else 0)
    return Loadgen(
        Traffic(keys=KEYS, key_bytes=KEY_BYTES, value_bytes=VALUE_BYTES, get_fraction=0.0, preload=False),
        arrivals=arrivals,
        source=Source(ip=f"10.77.0.{number}", mac=f"02:00:00:00:00:{number:02x}"),
        server_ip=address(node),
        server_port=KV_PORT,
        checksum=True,
    )


def one_kill(
    group: Group, clients: Mapping[int, Loadgen], after_s: float, crowds: Mapping[int, Loadgen]
) -> Kill | None:
    """Kill whoever leads, so long after a client began to send; then start it again. crowds: that load the group too.

    None if it had lost the lead to another before the signal came: then nothing was measured.
    """
    victim = settle(group)
    before = len(group.roles)
    term = max(role.term for role in group.roles)
    alive = next(node for node in clients if node != victim)
    client = clients[alive]
    client.start(PUT_EACH * PUTS)
    if crowds:
        crowds[alive].start([Phase(PUTS * PUT_MS / 1e3, 1.0, measured=False)])
    time.sleep(after_s)
    at_ns = group.kill(victim)
    group.await_leader()
    client.wait()
    if crowds:
        crowds[alive].wait()
    group.listen(0)
    group.start(victim, election_ms=ELECTION_MS, watch_us=WATCH_US)
    leads = [role for role in group.roles[before:] if role.role == "leader"]
    if any(role.at_ns < at_ns for role in leads):
        return None
    first = min(leads, key=lambda role: role.at_ns)
    times = client.last_answers()
    return Kill((first.at_ns - at_ns) / 1e6, longest_gap_ms(times), times.count(math.inf), first.term - term)


def settle(group: Group) -> int:
    """Wait until the one that came again has caught up and nobody's role has changed for a while; who leads."""
    while True:
        leader = group.await_whole()
        said = len(group.roles)
        until = time.monotonic() + STEADY_S
        while (left := until - time.monotonic()) > 0:
            group.listen(left)
        if len(group.roles) == said:
            return leader


def longest_gap_ms(acknowledged_s: Sequence[float]) -> float:
    """Between two acknowledgements of puts, one each PUT_MS, or from the first put to the first one; inf for a put that
    got none. inf: none came any more."""
    times = [0.0, *sorted(time_s * 1e3 for time_s in acknowledged_s if math.isfinite(time_s))]
    if len(times) == 1 or len(acknowledged_s) * PUT_MS - times[-1] > ENDLESS_MS:
        return math.inf
    return max(b - a for a, b in itertools.pairwise(times))


def add_row(session: Session, name: str, kills: Sequence[Kill], discarded: int) -> None:
    """An arm: percentiles over its kills, and all of them. discarded: kills besides, of one that led no more."""
    values: dict[str, Any] = {}
    for key in SHOWN:
        all_of_them = sorted(getattr(kill, key) for kill in kills)
        for percent in (50, 99):
            values[key.replace("_ms", f"_p{percent}_ms")] = percentile(all_of_them, percent / 100)
        values[key] = all_of_them
    unanswered = sorted(kill.unanswered for kill in kills)
    session.arm(
        name,
        n=len(kills),
        **values,
        unanswered_p50=percentile(unanswered, 0.5),
        several_terms=sum(kill.terms > 1 for kill in kills),
        discarded=discarded,
    )


def judge(session: Session, kills: Mapping[str, Sequence[Kill]]) -> None:
    """On the disk. Of few kills the p99 is the worst one, in which a tail of 1 % rarely is."""
    times = sorted(kill.no_leader_ms for kill in kills[DISK])
    reason = f"{len(times)} kills, the worst {max(times):.1f} ms: a p99 needs {ENOUGH_KILLS}, so give --seconds 200"
    value = percentile(times, 0.99) if len(times) >= ENOUGH_KILLS else None
    session.figure("raft-fail.no_leader_ms", value, runs=times, reason=None if value else reason)


def plot(document: dict[str, Any]) -> Canvas:
    """Both distributions over the kills, an arm a line."""
    rows = document["arms"]
    canvas = Canvas(
        "raft-fail: kill -9 of the leader, 3 nodes on one machine",
        message=document["settings"]["message"],
        n=sum(row["n"] for row in rows),
        panels=2,
        size=(13, 5.5),
    )
    for panel, (key, label) in enumerate(SHOWN.items()):
        for colour, row in enumerate(rows):
            values = [float(value) for value in row[key]]
            shares = [(i + 1) / len(values) for i in range(len(values))]
            if any(map(math.isfinite, values)):
                canvas.curve(values, shares, label=row["name"], colour=colour, marker=".", panel=panel)
            else:
                canvas.caption(f"{row['name']}: none that ended, {label.partition(' (')[0]}.")
        canvas.axes[panel].set_xlabel(label)
        canvas.axes[panel].set_ylabel("kills with so much or less (fraction)")
        canvas.axes[panel].set_ylim(0, 1.02)
    endless = sum(not math.isfinite(float(value)) for row in rows for value in row["client_gap_ms"])
    tail = f"; {endless} gaps never ended." if endless else "."
    canvas.caption(f"n counts kills. Each curve ends at its worst kill{tail}")
    canvas.caption(f"Election timeout {document['settings']['election_ms']} ms, drawn up to twice that.")
    return canvas

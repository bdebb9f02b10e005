"""What the slots of `corelane bench raft` come to: rows, figures, notes, the plot."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from ..harness.numbers import Ratio, number, pairwise
from ..harness.plot import Canvas
from ..harness.session import Session
from .arms import (
    BOUND,
    CLIENTS,
    DISK,
    ETCD,
    FLOOR,
    LIBRAFT,
    MAJORITY_BOUND,
    MEMORY,
    MOVED,
    MUX,
    NEVER,
    OFTEN,
    ONE_CORE,
    RAW,
    RELAYS,
    SWITCHED,
    TMPFS,
    TO_ALL,
    UDP,
    WRITERS,
    Slot,
    arm_name,
)
from .turns import Turns

SWITCHED_NOTE = "put in memory p50 / that of three raw relays on the switch: "
RELAYS_NOTE = "three raw relays that share a core, closed: put of one client in memory p50 / theirs"
OURS = "ours"
BOUND_NOTES = {
    BOUND: "three raw writers that share a core",
    MAJORITY_BOUND: "two raw writers that share a core",
    WRITERS: "two raw writers on the switch",
}
SNAPSHOT_NOTE = "64 clients, each node making a snapshot every 16 384 puts, over none: "
CLIENTS_NOTE = (
    "over_etcd: 64 clients in one process, ours by memcached's UDP over one socket of the kernel and a tap, etcd's "
    "by its gRPC over one connection of loopback TCP; ours are kept on the core of the iokernel, etcd's have both. "
    "Clients in the iokernel's loop, and 64 sockets of the kernel, are beside it"
)
RAW_NOTE = (
    "the same clients, put to a raw server on loopback that answers after one write for all puts that are there: its "
    "puts a second / ours"
)
ONE_CORE_NOTE = "libraft on the core of our nodes alone: its put p50 / ours, durable"
SNAPSHOT_RATIOS = {
    "p50": attrgetter("p50_us"),
    "p99": attrgetter("p99_us"),
    "longest put": attrgetter("longest_us"),
    "puts a second": attrgetter("per_s"),
}


def add_row(session: Session, name: str, slots: Sequence[Slot]) -> None:
    """An arm: medians of its rounds."""
    extra: dict[str, Any] = {}
    for key in slots[0].extra or {}:
        extra[key] = [slot.extra[key] for slot in slots if slot.extra]
    session.arm(
        name,
        put_p50_us=statistics.median(s.p50_us for s in slots),
        put_p99_us=statistics.median(s.p99_us for s in slots),
        puts_per_s=statistics.median(s.per_s for s in slots),
        n=sum(s.n for s in slots),
        runs=[s.p50_us for s in slots],
        **extra,
    )


def judge(session: Session, got: Mapping[str, Sequence[Slot]], turns: Turns[Slot] | None) -> None:
    """The four figures, round by round; those without their baseline are excused by Session.finish."""

    def p50s(name: str) -> list[float]:
        return [slot.p50_us for slot in got[name]]

    def rates(name: str) -> list[float]:
        return [slot.per_s for slot in got[name]]

    memory = p50s(f"{MEMORY}, open loop")
    beside = {}
    if arm_name(MEMORY, 1) in got:
        closed = p50s(arm_name(MEMORY, 1))
        beside = {"one client, closed": statistics.median(closed)}
        session.note(f"{RELAYS_NOTE} {pairwise(closed, p50s(RELAYS))}")
        alone = pairwise(closed, p50s(arm_name(SWITCHED, 1)))
        session.note(f"{SWITCHED_NOTE}open loop {pairwise(memory, p50s(f'{SWITCHED}, open loop'))}, one client {alone}")
    session.figure("raft.memory_put_us", statistics.median(memory), runs=memory, beside=beside)
    if turns:
        judge_turns(session, turns)
    if arm_name(OFTEN, CLIENTS[-1]) in got:
        often, never = (got[arm_name(system, CLIENTS[-1])] for system in (OFTEN, NEVER))
        ratios = [
            f"{name} {pairwise([of(slot) for slot in often], [of(slot) for slot in never])}"
            for name, of in SNAPSHOT_RATIOS.items()
        ]
        session.note(SNAPSHOT_NOTE + ", ".join(ratios))
    if arm_name(MUX, 64) in got and arm_name(ETCD, 64) in got:
        etcd = rates(arm_name(ETCD, 64))
        others = {"clients in the iokernel's loop": DISK, "64 sockets of the kernel": UDP}
        over = {name: pairwise(rates(arm_name(system, 64)), etcd).median for name, system in others.items()}
        session.ratio_figure("raft.over_etcd", rates(arm_name(MUX, 64)), etcd, beside=over)
        session.note(CLIENTS_NOTE)
        session.note(f"{RAW_NOTE} {pairwise(rates(arm_name(RAW, 64)), rates(arm_name(MUX, 64)))}")


def judge_turns(session: Session, turns: Turns[Slot]) -> None:
    """The durable put of one client, turn by turn."""

    sent_to = [(turn.extra or {}).get("sent_to") for turn in turns.ours]
    chosen = MAJORITY_BOUND if 2 * sent_to.count("majority") > len(sent_to) else BOUND
    to_all = arm_name(TO_ALL, 1)
    for_ours = {chosen: f"{chosen}, for ours", WRITERS: f"{WRITERS}, for ours", to_all: "sent to all"}

    def figure(name: str, ratio: Ratio, over: str, under: str) -> None:
        """Beside it: what it would be if a put of ours took what raw writers on our nodes' core take; and what it is
        if each is sent to all at once."""
        others = {said: raw(*(of if arm == OURS else arm for arm in (over, under))) for of, said in for_ours.items()}
        beside = {said: other.median for said, other in others.items() if other}
        session.figure(name, ratio.median, runs=ratio.pairs, beside=beside)
        session.note(f"{name.removeprefix('raft.')}: {ratio.spread}")

    def raw(over: str, under: str) -> Ratio | None:
        if not {over, under} <= set(turns.others):
            return None
        return pairwise(*([turn.p50_us for turn in turns.others[name]] for name in (over, under)))

    libraft = arm_name(LIBRAFT, 1)
    figure("raft.durable_over_floor", turns.ours_over(FLOOR), OURS, FLOOR)
    for name, what in BOUND_NOTES.items():
        if above := raw(name, FLOOR):
            parts = [f"durable put p50 / theirs {turns.ours_over(name).spread}"]
            if name == BOUND and (sent := raw(to_all, name)):
                parts.append(f"sent to all / theirs {sent.spread}")
            if under := raw(libraft, name):
                parts.append(f"libraft / theirs {under.spread}")
            parts.append(f"theirs / second of three raw writes {above.spread}")
            session.note(f"{what}: {', '.join(parts)}")
    if arm_name(ONE_CORE, 1) in turns.others:
        session.note(f"{ONE_CORE_NOTE} {turns.over_ours(arm_name(ONE_CORE, 1)).spread}")
    if libraft in turns.others:
        figure("raft.libraft_over_ours", turns.over_ours(libraft), libraft, OURS)


def _colour(name: str) -> int:
    """Ours, a floor, or another system."""
    if name.startswith((LIBRAFT, ETCD)):
        return 1
    floors = (FLOOR, RELAYS, SWITCHED, RAW, *BOUND_NOTES)
    return 6 if name.startswith(floors) else 0


def plot(document: dict[str, Any]) -> Canvas:
    """Latency of a lone put, and the rate of 64 clients."""
    rows = {row["name"]: row for row in document["arms"]}
    systems = [s for s in (MEMORY, TMPFS, DISK, LIBRAFT, ETCD) if arm_name(s, 1) in rows]
    canvas = Canvas(
        "raft: a replicated put, 3 replicas on one machine",
        message=document["settings"]["message"],
        n=sum(row["n"] for row in rows.values() if not row.get("modelled")),
        panels=2,
        size=(14, 8),
    )
    lone = {f"{MEMORY}, open loop": rows[f"{MEMORY}, open loop"]}
    for system in systems:
        lone[system] = rows[arm_name(system, 1)]
        if system == MEMORY:
            lone[RELAYS] = rows[RELAYS]
            lone[f"{SWITCHED}, open loop"] = rows[f"{SWITCHED}, open loop"]
        for beside in (TO_ALL, MOVED, ONE_CORE):
            if beside.startswith(f"{system},") and arm_name(beside, 1) in rows:
                lone[beside] = rows[arm_name(beside, 1)]
        if FLOOR in rows and (system == TMPFS or (system == MEMORY and TMPFS not in systems)):
            lone[FLOOR] = rows[FLOOR]
            lone |= {name: rows[name] for name in BOUND_NOTES if name in rows}
    shown = {name: number(row["put_p50_us"]) for name, row in lone.items()}
    for name in [name for name, value in shown.items() if not math.isfinite(value)]:
        canvas.caption(f"No bar: {name}: half of the puts or more stayed unanswered.")
        del shown[name]
    colours = [_colour(name) for name in shown]
    canvas.bars(list(shown), list(shown.values()), ylabel="put, 1 client: p50 (us)", colours=colours)
    asked = [s for s in (MEMORY, TMPFS, DISK, TO_ALL, MUX, UDP, RAW, LIBRAFT, ETCD) if arm_name(s, 64) in rows]
    many = [rows[arm_name(system, 64)]["puts_per_s"] for system in asked]
    canvas.bars(asked, many, ylabel="puts, 64 clients (1/s)", panel=1, colours=[_colour(name) for name in asked])
    canvas.caption("Blue: ours. Teal: floors, which replicate nothing or keep nothing. Red: other systems.")
    for name in BOUND_NOTES:
        if name in lone:
            canvas.caption(f"{name[0].upper()}{name[1:]}: {document['settings'][name]}.")
    canvas.caption("Medians of the interleaved rounds; disk, libraft, etcd and the raw writes on the same disk.")
    canvas.caption(document["settings"]["links"][0].upper() + document["settings"]["links"][1:] + ".")
    return canvas

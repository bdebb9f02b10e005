"""One client's durable puts, and what they are compared with in short turns: raw writes, and libraft."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...drivers.blk.blk import Blk
from ...drivers.blk.file import FileBlk, create
from ...drivers.nic.loadgen.loadgen import Loadgen
from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..baseline.peers import Libraft
from ..harness.numbers import percentile
from ..harness.session import Session
from .arms import (
    BOUND,
    FLOOR,
    KEY_BYTES,
    LIBRAFT,
    MAJORITY_BOUND,
    ONE_CORE,
    TO_ALL,
    VALUE_BYTES,
    WHOLE_S,
    WRITERS,
    Arm,
    Slot,
    arm_name,
    group_up,
    libraft_turn,
    put_for,
)
from .nodes import Group
from .turns import Turns, joined, take_turns

TURN_ROUNDS, TURN_PART, LEAST_TURN_S, MOST_TURN_S, TURN_WARM_S = 16, 0.02, 0.05, 0.2, 0.03
TURNS_ELECTION_MS = 2000  # so that our idle nodes have a heartbeat each 0.4 s, and take little while others have a turn
# As our third node: when what it missed fills a message (16 KiB of entries of 147 bytes), or a tick later.
TRAIL = (111, TURNS_ELECTION_MS * 100_000)
FLOOR_FILE_BYTES = 48 << 20
FLOOR_MOST = 20_000
WAYS = ("looking", "calling")  # how a raw writer waits for its write
FLOORS = {f"{FLOOR}, polling": (0, 0), f"{FLOOR}, sleeping": (1, 1)}  # which of the two cores, whether it sleeps


def lone_puts(session: Session, disk: Path, libraft: Libraft | None) -> Turns[Slot]:
    """In turns; FLOOR has the better one of its two ways, chosen by the other rounds."""
    cores, folder = session.two_cores, disk / "ours"
    folder.mkdir(exist_ok=True)
    turn_s = min(max(session.seconds * TURN_PART, LEAST_TURN_S), MOST_TURN_S)
    rounds = TURN_ROUNDS if session.seconds >= WHOLE_S else 1
    session.settings |= {"turn_s": turn_s, "turn_rounds": rounds, "turns_election_ms": TURNS_ELECTION_MS}

    def before(number: int) -> None:
        session.say(f"durable puts of one client, round {number + 1} of {rounds}")
        if number % 4 == 0 and not session.patience:
            session.take_canary()

    with contextlib.ExitStack() as stack:
        others = {**floor(session, stack, disk), **bound(session, stack, disk)}
        if libraft:
            for name, cpus in {LIBRAFT: cores, ONE_CORE: cores[1:]}.items():
                put = stack.enter_context(libraft.running(1, KEY_BYTES + VALUE_BYTES, cpus))
                others[arm_name(name, 1)] = partial(libraft_turn, put, TURN_WARM_S)
        beside = disk / "writers"
        beside.mkdir()
        up = group_up(cores, beside, 1, managed=False, relays=True)
        others[WRITERS] = partial(put_turn, *stack.enter_context(up))
        beside = disk / "to-all"
        beside.mkdir()
        up = group_up(cores, beside, 1, managed=False, election_ms=TURNS_ELECTION_MS, replicate="all")
        others[arm_name(TO_ALL, 1)] = partial(put_turn, *stack.enter_context(up))
        up = group_up(cores, folder, 1, managed=False, election_ms=TURNS_ELECTION_MS)
        group, generator = stack.enter_context(up)
        ours = partial(put_turn, group, generator, turn_s)
        arms = {name: partial(arm, turn_s) for name, arm in others.items()}
        if session.patience:
            turns = joined(session.rounds(rounds, lambda number: take_turns(ours, arms, [number], before)))
        else:
            turns = take_turns(ours, arms, range(rounds), before)
    turns = turns.better(FLOOR, tuple(FLOORS))
    for name in (BOUND, MAJORITY_BOUND):
        turns = turns.better(name, tuple(f"{name}, {way}" for way in WAYS))
    return turns


def put_turn(group: Group, generator: Loadgen, seconds: float) -> Slot:
    """Of a group of ours that is up."""
    slot = put_for(generator, seconds, TURN_WARM_S)
    return replace(slot, extra={**(slot.extra or {}), "sent_to": group.sent_to()})


def floor(session: Session, stack: contextlib.ExitStack, disk: Path) -> dict[str, Arm]:
    """Three raw writes at once, in two ways."""
    path = disk / "floor"
    create(path, FLOOR_FILE_BYTES)
    blk = stack.enter_context(contextlib.closing(FileBlk(path)))
    session.settings["floor_engine"] = blk.info().engine
    return {name: partial(floor_slot, blk, session.two_cores[i], block) for name, (i, block) in FLOORS.items()}


def floor_slot(blk: FileBlk, cpu: int, block: int, seconds: float) -> Slot:
    """As many as take that long."""
    first = floor_times(blk, cpu, block, 50)
    count = int(min(max(seconds / (statistics.mean(first) / 1e9), 50), FLOOR_MOST))
    times = floor_times(blk, cpu, block, count)
    extra = {"waits": "sleeping" if block else "polling"}
    return Slot(percentile(times, 0.5) / 1e3, percentile(times, 0.99) / 1e3, count / (sum(times) / 1e9), count, extra)


def floor_times(blk: FileBlk, cpu: int, block: int, count: int) -> list[int]:
    """Sorted, in ns."""
    out, err = ffi.new("uint64_t[]", count), ffi.new("char[256]")
    rc = lib.cl_bench_raft_floor(blk.ptr, cpu, block, count, out, err)
    if rc < 0:
        raise CorelaneError("write to the disk", ffi.string(err).decode(), errno=-rc)
    return sorted(out)


def bound(session: Session, stack: contextlib.ExitStack, disk: Path) -> dict[str, Arm]:
    """Three raw writers that share the nodes' core: sent to all, and to a majority first, each in two ways."""
    files: list[FileBlk] = []
    calls: list[int] = []
    for replica in range(3):
        path = disk / f"bound-{replica}"
        create(path, FLOOR_FILE_BYTES // 3)
        files.append(stack.enter_context(contextlib.closing(FileBlk(path))))
        flags = os.O_RDWR | (os.O_DIRECT if files[-1].info().direct else 0)
        calls.append(os.open(path, flags))
        stack.callback(os.close, calls[-1])
    return {
        f"{name}, {way}": partial(bound_slot, files, session.two_cores, trail, fds)
        for name, trail in ((BOUND, None), (MAJORITY_BOUND, TRAIL))
        for way, fds in zip(WAYS, (None, calls), strict=True)
    }


def bound_slot(
    blks: Sequence[Blk],
    cores: tuple[int, int],
    trail: tuple[int, int] | None,
    fds: Sequence[int] | None,
    seconds: float,
) -> Slot:
    """As many puts as take that long: see bound_times."""
    first = bound_times(blks, cores, 50, trail, fds)
    count = int(min(max(seconds / (statistics.mean(first) / 1e9), 50), FLOOR_MOST))
    times = bound_times(blks, cores, count, trail, fds)
    extra = {"waits": "in the call" if fds else "looking"}
    return Slot(percentile(times, 0.5) / 1e3, percentile(times, 0.99) / 1e3, count / (sum(times) / 1e9), count, extra)


def bound_times(
    blks: Sequence[Blk],
    cores: tuple[int, int],
    count: int,
    trail: tuple[int, int] | None = None,
    fds: Sequence[int] | None = None,
) -> list[int]:
    """Sorted, in ns. cores: the client's, the writers'.

    trail: puts and ns after which the third writer is sent what it missed; None: sent to all. fds: of the same files,
    for writers that wait in the call; None: they look.
    """
    how, held = ffi.new("struct cl_bench_raft_bound *"), ffi.new("int[]", fds) if fds else ffi.NULL
    how.client_cpu, how.writers_cpu, how.fds = *cores, held
    how.trail_puts, how.trail_ns = trail or (0, 0)
    out, err = ffi.new("uint64_t[]", count), ffi.new("char[256]")
    rc = lib.cl_bench_raft_bound([blk.ptr for blk in blks], how, count, out, err)
    if rc < 0:
        raise CorelaneError("write to the disk", ffi.string(err).decode(), errno=-rc)
    return sorted(out)

"""A replicated put: three replicas in memory, on tmpfs and on one disk; libraft and etcd on that disk beside them.

A put is a memcached SET of a 16-byte key and an 84-byte value; the leader answers when a majority has it, in memory or
on the disk, and it is applied. Clients are the generator, a NIC in the iokernel's poll loop: closed, each with one put
outstanding, as libraft's and etcd's clients are, and for the put in memory open loop besides. The iokernel's loop is on
one core, the three nodes share the other one. The iokernel moves it between them, but for the arms on disk, where the
kernel's scheduler shares it, since its own workers for the disk need that core as well; "disk, cores moved" is beside
them. libraft's and etcd's processes use both cores; "libraft, one core" has that of our nodes alone.

What is compared with etcd is put to by clients like etcd's own (udp.py): an ordinary process, whose 64 clients
share a socket as etcd's share a connection. "Raw server" is what these get from one that does little but write.

The durable put of one client and what it is compared with (the raw writes, libraft) have short turns next to each
other, all of them up the whole time (turns.py); all other arms have slots in turns, each with nodes started anew.

The floor of the durable put is what the disk takes for three writes of 4 KiB at once until the second is done, sent by
one thread that does nothing else. "Three raw writers, one core" is the floor of three replicas that share a core and
are all sent a put at once, without protocol, packets and logs (bound.h), and "two raw writers, one core" that of
three of which the last one trails, as ours does: what they take more than the three raw writes is the price of that
structure. "Three raw relays" is the same with writes to memory: what the hand-overs of one core
take. "Relays on the switch" are three applications in the nodes' place, on the same runtime, switch and core, which
pass a put on, keep it in memory and answer (relay.h): what the put takes more than theirs is Raft, its transport
and the store. "Two writers on the switch" are such applications that write, as a majority of nodes does: what a durable
put takes more than theirs is Raft, its log and the store.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from ...apps.raft.service.settings import ELECTION_MS
from ...drivers.blk.blk import memory_blk
from ..baseline.peers import Etcd, Libraft
from ..harness import diskcanary
from ..harness.session import Session
from ..log.log import where
from . import batches
from .arms import (
    BOUND,
    CLIENTS,
    DISK,
    ETCD,
    FLOOR,
    KEY_BYTES,
    LIBRAFT,
    MAJORITY_BOUND,
    MEMORY,
    MOVED,
    MUX,
    OPEN_RPS,
    RAW,
    RELAYS,
    SHORT,
    SHORT_ELECTION_MS,
    SLOTS,
    SNAPSHOTS,
    SWITCHED,
    TMPFS,
    TO_ALL,
    UDP,
    VALUE_BYTES,
    WHOLE_S,
    WRITERS,
    Arm,
    arm_name,
    baseline,
    etcd_slot,
    explained,
    libraft_slot,
    ours_slot,
    raw_slot,
    slot_length,
    udp_slot,
)
from .judge import add_row, judge, plot
from .lone import bound_slot, lone_puts
from .udp import UdpClients

__all__ = ["FIGURES", "SUMMARY", "add_arguments", "plot", "run"]

SUMMARY = "a replicated put, 3 replicas: in memory, on tmpfs, on disk; raw writes, libraft and etcd beside it"
FIGURES = (
    "raft.memory_put_us",
    "raft.durable_over_floor",
    "raft.libraft_over_ours",
    "raft.over_etcd",
    "raft.batching_modelled",
)

ROUNDS = 3
RELAY_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the disk is."""
    parser.add_argument(
        "--folder", type=Path, default=Path("."), help="on the disk to measure; a folder is made in it and removed"
    )


def run(session: Session) -> None:
    """What is modelled, and then all arms in turns."""
    batches.run(session, session.seconds >= WHOLE_S)
    session.settings |= {
        "message": f"one put of a {KEY_BYTES}-byte key and a {VALUE_BYTES}-byte value, answered by a majority of 3",
        "clients": CLIENTS,
        "open_loop_rps": OPEN_RPS,
        "election_ms": ELECTION_MS,
        BOUND: "a client asks by a word in shared memory; three threads on the nodes' core hand on and answer by "
        "words, yield while they wait, and each writes 4 KiB to its own file; answered when two are done; looking for "
        "completions or waiting in the call, whatever is better",
        MAJORITY_BOUND: "the same, sent to one follower at once; the third writer has what it missed in one write "
        "of each 111 puts, and each tick",
        RELAYS: f"as {BOUND}, into memory",
        SWITCHED: "three applications that pass a put on to two, copy it into memory and answer after the first of "
        "them: no protocol, log, store and transport; as many datagrams and hand-overs of the core as a put in memory",
        WRITERS: "two applications on the virtual switch, one of which is asked, passes the put on to the other and "
        "answers when both have written 4 KiB in the call; no protocol, log and store; the third has nothing to do",
        "links": "ours: the virtual switch, the generator or (kernel's sockets) a tap is its uplink; libraft, etcd: "
        "TCP on loopback; raw server: UDP on loopback",
    }
    with contextlib.ExitStack() as stack:
        disk = disk_folder(session, stack)
        arms = dict(ours(session, stack, disk))
        relays = [stack.enter_context(contextlib.closing(memory_blk(RELAY_BYTES))) for _ in range(3)]
        arms[RELAYS] = partial(bound_slot, relays, session.two_cores, None, None)
        turns = None
        if disk:
            diskcanary.note_disk(session, disk)
            libraft = baseline(session, LIBRAFT, partial(Libraft, disk))
            turns = lone_puts(session, disk, libraft)
            if libraft:
                arms[arm_name(LIBRAFT, CLIENTS[-1])] = partial(libraft_slot, libraft, session.two_cores, CLIENTS[-1])
            arms |= like_etcd(session, disk)
        rounds = ROUNDS if session.seconds >= WHOLE_S else 1
        slot_s = slot_length(session.seconds, rounds, len(arms))
        session.settings |= {"slot_s": slot_s, "slot_rounds": rounds}
        session.note(f"slots of {slot_s:.3g} s each, {rounds} rounds; each member of etcd is asked for a whole one")
        got = session.interleave({name: partial(arm, slot_s) for name, arm in arms.items()}, rounds)
        why_they_end(session, arms, disk, slot_s)
    lone = {arm_name(DISK, 1): turns.ours, **turns.others} if turns else {}
    for name, slots in {**lone, **got}.items():
        add_row(session, name, slots)
    judge(session, got, turns)


def why_they_end(session: Session, arms: Mapping[str, Arm], disk: Path | None, seconds: float) -> None:
    """What the most clients of ours use up, in memory and on the disk, by counters that are read in a slot more."""
    for system, folder in ((MEMORY, None), (DISK, disk / "ours" if disk else None)):
        name = arm_name(system, CLIENTS[-1])
        if name in arms:
            session.say(f"what is used up: {name}")
            because = explained(session.two_cores, folder, system == MEMORY, seconds)
            session.stop(name, f"{CLIENTS[-1]} clients, the most that were asked for", because)


def like_etcd(session: Session, disk: Path) -> dict[str, Arm]:
    """Etcd, and what is put to by clients like its own; the two whose ratio is the figure next to each other."""
    etcd = baseline(session, ETCD, partial(Etcd, disk, session.two_cores))
    udp = baseline(session, UDP, partial(UdpClients, disk))
    arms: dict[str, Arm] = {}
    if udp:
        for system in (UDP, MUX):
            (disk / system).mkdir()
            put = partial(udp_slot, udp, session.two_cores, disk / system, system == MUX)
            arms[arm_name(system, CLIENTS[-1])] = put
    if etcd:
        arms |= {arm_name(ETCD, clients): partial(etcd_slot, etcd, clients) for clients in reversed(CLIENTS)}
    if udp:
        arms[arm_name(RAW, CLIENTS[-1])] = partial(raw_slot, udp, session.two_cores)
    return arms


def disk_folder(session: Session, stack: contextlib.ExitStack) -> Path | None:
    """A folder on the disk to measure. None: it is none, and why each arm that needs one is skipped is said."""
    base = getattr(session.options, "folder", Path("."))
    kind, device = where(str(base))
    session.settings |= {"file_system": kind, "device": device}
    if kind in ("tmpfs", "ramfs"):
        for arm in (DISK, FLOOR, LIBRAFT, ETCD):
            session.skip(arm, f"{base} is {kind}, where nothing is durable: choose a disk with --folder")
        return None
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-raft-", dir=base)))


# Ours.


def ours(session: Session, stack: contextlib.ExitStack, disk: Path | None) -> Iterator[tuple[str, Arm]]:
    """The arms of this package."""
    cores = session.two_cores
    places: dict[str, Path | None] = {MEMORY: None}
    if Path("/dev/shm").is_dir():
        places[TMPFS] = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-raft-", dir="/dev/shm")))
    else:
        session.skip(TMPFS, "there is no /dev/shm")
    if disk:
        places[DISK] = disk / "ours"
    for system in (MEMORY, SWITCHED):
        yield f"{system}, open loop", partial(ours_slot, cores, None, 0, relays=system == SWITCHED)
    yield arm_name(SWITCHED, 1), partial(ours_slot, cores, None, 1, relays=True)
    for system, folder in places.items():
        if folder:
            folder.mkdir(exist_ok=True)
        for clients in CLIENTS if system != DISK else CLIENTS[1:]:  # one client on disk: lone_puts
            yield arm_name(system, clients), partial(ours_slot, cores, folder, clients, managed=system != DISK)
    if disk:
        yield arm_name(MOVED, 1), partial(ours_slot, cores, disk / "ours", 1)
        put = partial(ours_slot, cores, disk / "ours", CLIENTS[-1], managed=False, replicate="all")
        yield arm_name(TO_ALL, CLIENTS[-1]), put
        yield arm_name(SLOTS, 1), partial(ours_slot, cores, disk / "ours", 1, managed=False)
        for clients in CLIENTS:
            put = partial(ours_slot, cores, disk / "ours", clients, managed=False, election_ms=SHORT_ELECTION_MS)
            yield arm_name(SHORT, clients), put
        for system, (entries, keys) in SNAPSHOTS.items():
            # Of their own: a node that keeps fewer entries cannot start on more.
            folder = disk / f"snapshots-{entries}-{keys}"
            folder.mkdir(exist_ok=True)
            put = partial(ours_slot, cores, folder, CLIENTS[-1], managed=False, snapshot_entries=entries, keys=keys)
            yield arm_name(system, CLIENTS[-1]), put

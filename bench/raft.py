"""A replicated put: three replicas in memory, on tmpfs and on one disk; libraft and etcd on that disk beside them.

A put is a memcached SET of a 16-byte key and an 84-byte value; the leader answers when a majority has it, in memory or
on the disk, and it is applied. Clients are the generator, a NIC in the iokernel's poll loop: closed, each with one put
outstanding, as libraft's and etcd's clients are, and for the put in memory open loop besides. The iokernel's loop is on
one core, the three nodes share the other one. The iokernel moves it between them, but for the arms on disk, where the
kernel's scheduler shares it, since its own workers for the disk need that core as well; "disk, cores moved" is beside
them. libraft's and etcd's processes use both cores; "libraft, one core" has that of our nodes alone.

The durable put of one client and what it is compared with (the bare writes, libraft) have short turns next to each
other, all of them up the whole time (raft_turns.py); all other arms have slots in turns, each with nodes started anew.

The floor of the durable put is what the disk takes for three writes of 4 KiB at once until the second is done, sent by
one thread that does nothing else. "Three bare writers, one core" is the floor of three replicas
that share a core, without protocol, packets and logs (raft_bound.h): what it takes more than the three bare writes is
the price of that structure. "Three bare relays" is the same with writes to memory: what the hand-overs of one core
take. "Relays on the switch" are three applications in the nodes' place, on the same runtime, switch and core, which
pass a put on, keep it in memory and answer (raft_relay.h): what the put takes more than theirs is Raft, its transport
and the store.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from ..drivers.blk import Blk, memory_blk
from ..drivers.blk_file import FileBlk, create
from ..drivers.loadgen import Closed, Loadgen
from ..drivers.loadgen import Memcached as Traffic
from ..runtime.errors import CorelaneError, SystemLimit
from ._native import ffi, lib
from .baseline.peers import Etcd, Libraft, Puts
from .harness.load import point_of
from .harness.numbers import Ratio, number, pairwise, percentile
from .harness.plot import Canvas
from .harness.session import Session
from .log import where
from .raft_nodes import KV_PORT, Group, address
from .raft_turns import Turns, take_turns
from .raft_udp import UdpClients

SUMMARY = "a replicated put, 3 replicas: in memory, on tmpfs, on disk; bare writes, libraft and etcd beside it"
FIGURES = ("raft.memory_put_us", "raft.durable_over_floor", "raft.libraft_over_ours", "raft.over_etcd")

KEY_BYTES, VALUE_BYTES, KEYS = 16, 84, 1000
CLIENTS = (1, 64)
OPEN_RPS = 5000.0
ROUNDS, LEAST_SLOT_S = 3, 0.1
WHOLE_S = 3.0  # each slot starts its nodes anew, so a shorter run has one round
TURN_ROUNDS, TURN_PART, LEAST_TURN_S, MOST_TURN_S, TURN_WARM_S = 16, 0.02, 0.05, 0.2, 0.03
ELECTION_MS, PATIENCE_S = 500, 3.0
TURNS_ELECTION_MS = 2000  # so that our idle nodes have a heartbeat each 0.4 s, and take little while others have a turn
WATCH_US = 100_000  # nodes look at their role as seldom as that: it takes the core that they share
FLOOR_FILE_BYTES = 48 << 20
RELAY_BYTES = 1 << 20
FLOOR_MOST = 20_000
MEMORY, TMPFS, DISK, FLOOR, LIBRAFT, ETCD = "memory", "tmpfs", "disk", "three bare writes", "libraft", "etcd"
FLOORS = {f"{FLOOR}, polling": (0, 0), f"{FLOOR}, sleeping": (1, 1)}  # which of the two cores, whether it sleeps
BOUND = "three bare writers, one core"
RELAYS = "three bare relays, one core"
SWITCHED = "three relays on the switch"
SWITCHED_NOTE = "put in memory p50 / that of three bare relays on the switch: "
RELAYS_NOTE = "three bare relays that share a core, closed: put of one client in memory p50 / theirs"
BOUND_NOTE = "three bare writers that share a core: durable put p50 / theirs"
MOVED, ONE_CORE, UDP = "disk, cores moved", "libraft, one core", "disk, kernel's sockets"
# While 64 clients put: a snapshot each 16 384 entries, some seven a second, and none.
OFTEN, NEVER = "disk, snapshots often", "disk, no snapshots"
SNAPSHOT_ENTRIES = {OFTEN: 1 << 14, NEVER: 1 << 20}
SNAPSHOT_NOTE = "64 clients, each node making a snapshot every 16 384 puts, over none: "
CLIENTS_NOTE = (
    "over_etcd: the clients differ. Ours send memcached's UDP over the virtual switch, from the iokernel's loop on its "
    "core; etcd's speak its gRPC over loopback TCP, from a process that shares both cores with its members"
)
UDP_NOTE = (
    "64 clients alike: ours put by memcached's UDP over sockets of the kernel and a tap, from a process that shares "
    "both cores with the iokernel and the nodes. Puts a second over etcd's"
)
ONE_CORE_NOTE = "libraft on the core of our nodes alone: its put p50 / ours, durable"


@dataclass(frozen=True)
class Slot:
    """What one slot of an arm gave. n: answered puts."""

    p50_us: float
    p99_us: float
    per_s: float
    n: int
    extra: Mapping[str, Any] | None = None

    @property
    def longest_us(self) -> float:
        """The longest put, of ours."""
        return float((self.extra or {})["longest_us"])


SNAPSHOT_RATIOS = {
    "p50": attrgetter("p50_us"),
    "p99": attrgetter("p99_us"),
    "longest put": attrgetter("longest_us"),
    "puts a second": attrgetter("per_s"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the disk is."""
    parser.add_argument(
        "--folder", type=Path, default=Path("."), help="on the disk to measure; a folder is made in it and removed"
    )


def run(session: Session) -> None:
    """All arms in turns."""
    session.settings |= {
        "message": f"one put of a {KEY_BYTES}-byte key and a {VALUE_BYTES}-byte value, answered by a majority of 3",
        "clients": CLIENTS,
        "open_loop_rps": OPEN_RPS,
        "election_ms": ELECTION_MS,
        BOUND: "a client asks by a word in shared memory; three threads on the nodes' core hand on and answer by "
        "words, yield while they wait, and each writes 4 KiB to its own file; answered when two are done",
        RELAYS: f"as {BOUND}, into memory",
        SWITCHED: "three applications that pass a put on to two, copy it into memory and answer after the first of "
        "them: no protocol, log, store and transport; as many datagrams and hand-overs of the core as a put in memory",
        "links": "ours: the virtual switch, the generator is its uplink; libraft, etcd: TCP on loopback",
    }
    with contextlib.ExitStack() as stack:
        disk = disk_folder(session, stack)
        arms = dict(ours(session, stack, disk))
        relays = [stack.enter_context(contextlib.closing(memory_blk(RELAY_BYTES))) for _ in range(3)]
        arms[RELAYS] = partial(bound_slot, relays, session.two_cores)
        turns = None
        if disk:
            libraft = baseline(session, LIBRAFT, partial(Libraft, disk))
            turns = lone_puts(session, disk, libraft)
            if libraft:
                arms[arm_name(LIBRAFT, CLIENTS[-1])] = partial(libraft_slot, libraft, CLIENTS[-1])
            if udp := baseline(session, UDP, partial(UdpClients, disk)):
                folder = disk / "udp"
                folder.mkdir()
                arms[arm_name(UDP, CLIENTS[-1])] = partial(udp_slot, udp, session.two_cores, folder, CLIENTS[-1])
            if etcd := baseline(session, ETCD, partial(Etcd, disk)):
                arms |= {arm_name(ETCD, clients): partial(etcd_slot, etcd, clients) for clients in CLIENTS}
        rounds = ROUNDS if session.seconds >= WHOLE_S else 1
        slot_s = max(session.seconds / rounds / len(arms), LEAST_SLOT_S)
        got = session.interleave({name: partial(arm, slot_s) for name, arm in arms.items()}, rounds)
    lone = {arm_name(DISK, 1): turns.ours, **turns.others} if turns else {}
    for name, slots in {**lone, **got}.items():
        add_row(session, name, slots)
    judge(session, got, turns)


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


def arm_name(system: str, clients: int) -> str:
    """As in the document."""
    return f"{system}, {clients} client{'s' if clients > 1 else ''}"


Arm = Callable[[float], Slot]


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
        for system, entries in SNAPSHOT_ENTRIES.items():
            folder = disk / f"snapshots-{entries}"  # of their own: a node that keeps fewer entries cannot start on more
            folder.mkdir(exist_ok=True)
            put = partial(ours_slot, cores, folder, CLIENTS[-1], managed=False, snapshot_entries=entries)
            yield arm_name(system, CLIENTS[-1]), put


@contextlib.contextmanager
def group_up(
    cores: tuple[int, int],
    folder: Path | None,
    clients: int,
    *,
    managed: bool,
    snapshot_entries: int = 0,
    relays: bool = False,
    election_ms: int = ELECTION_MS,
) -> Iterator[tuple[Group, Loadgen]]:
    """Nodes started anew, on the logs that they have left if there are any, that answer puts. clients 0: open loop.

    managed, snapshot_entries, relays: see Group.
    """
    generator = Loadgen(
        Traffic(keys=KEYS, key_bytes=KEY_BYTES, value_bytes=VALUE_BYTES, get_fraction=0.0, preload=False),
        arrivals=Closed(clients) if clients else "poisson",
        server_ip=address(1),
        server_port=KV_PORT,
        checksum=True,
        drain_s=0.2,
    )
    uplinks = [generator.nic()]
    with (
        contextlib.closing(generator),
        Group(
            cores, uplinks=uplinks, logs=folder, managed=managed, snapshot_entries=snapshot_entries, relays=relays
        ) as group,
    ):
        group.start_all(election_ms=election_ms, prefer=1, watch_us=WATCH_US)
        await_answers(generator)
        yield group, generator


def put_for(generator: Loadgen, seconds: float, warmup_s: float) -> Slot:
    """What its clients saw."""
    result = generator.run(OPEN_RPS, seconds, warmup_s=warmup_s)
    point = point_of(result)
    extra = {"sent": point.sent, "longest_us": result.latency.max_us}
    if not point.answered:
        return Slot(math.inf, math.inf, 0.0, 0, extra)
    return Slot(point.p50_us, point.p99_us, point.answered / seconds, point.answered, extra)


def ours_slot(
    cores: tuple[int, int],
    folder: Path | None,
    clients: int,
    seconds: float,
    *,
    managed: bool = True,
    snapshot_entries: int = 0,
    relays: bool = False,
) -> Slot:
    """Of a group of its own: `group_up`."""
    up = group_up(cores, folder, clients, managed=managed, snapshot_entries=snapshot_entries, relays=relays)
    with up as (group, generator):
        slot = put_for(generator, seconds, 0.1 + 0.1 * seconds)
        extra = {**(slot.extra or {}), "leader_at_end": group.leader()}
        if snapshot_entries:
            time.sleep(1.5 * WATCH_US / 1e6)  # the nodes tell of their last ones
            group.listen(0)
            extra["snapshots"] = max(group.snapshots.values(), default=0)
        return replace(slot, extra=extra)


def await_answers(generator: Loadgen) -> None:
    """Until puts are answered, with pauses in which nodes may elect a leader; or for so long that it is a result."""
    deadline = time.monotonic() + PATIENCE_S
    while not generator.run(OPEN_RPS, 0.05, warmup_s=0).answered and time.monotonic() < deadline:
        time.sleep(ELECTION_MS / 1e3)


# One client's durable puts, and what they are compared with.


def lone_puts(session: Session, disk: Path, libraft: Libraft | None) -> Turns[Slot]:
    """In turns; FLOOR has the better one of its two ways, chosen by the other rounds."""
    cores, folder = session.two_cores, disk / "ours"
    folder.mkdir(exist_ok=True)
    turn_s = min(max(session.seconds * TURN_PART, LEAST_TURN_S), MOST_TURN_S)
    rounds = TURN_ROUNDS if session.seconds >= WHOLE_S else 1
    session.settings |= {"turn_s": turn_s, "turn_rounds": rounds, "turns_election_ms": TURNS_ELECTION_MS}

    def before(number: int) -> None:
        session.say(f"durable puts of one client, round {number + 1} of {rounds}")
        if number % 4 == 0:
            session.take_canary()

    with contextlib.ExitStack() as stack:
        others = {**floor(session, stack, disk), **bound(session, stack, disk)}
        if libraft:
            for name, cpus in {LIBRAFT: cores, ONE_CORE: cores[1:]}.items():
                put = stack.enter_context(libraft.running(1, KEY_BYTES + VALUE_BYTES, cpus))
                others[arm_name(name, 1)] = partial(libraft_turn, put, TURN_WARM_S)
        up = group_up(cores, folder, 1, managed=False, election_ms=TURNS_ELECTION_MS)
        _, generator = stack.enter_context(up)
        ours = partial(put_for, generator, turn_s, TURN_WARM_S)
        turns = take_turns(ours, {name: partial(arm, turn_s) for name, arm in others.items()}, rounds, before)
    return turns.better(FLOOR, tuple(FLOORS))


def floor(session: Session, stack: contextlib.ExitStack, disk: Path) -> dict[str, Arm]:
    """Three bare writes at once, in two ways."""
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
    """Three bare writers that share the nodes' core."""
    blks = []
    for replica in range(3):
        path = disk / f"bound-{replica}"
        create(path, FLOOR_FILE_BYTES // 3)
        blks.append(stack.enter_context(contextlib.closing(FileBlk(path))))
    return {BOUND: partial(bound_slot, blks, session.two_cores)}


def bound_slot(blks: Sequence[Blk], cores: tuple[int, int], seconds: float) -> Slot:
    """As many puts as take that long."""
    first = bound_times(blks, cores, 50)
    count = int(min(max(seconds / (statistics.mean(first) / 1e9), 50), FLOOR_MOST))
    times = bound_times(blks, cores, count)
    return Slot(percentile(times, 0.5) / 1e3, percentile(times, 0.99) / 1e3, count / (sum(times) / 1e9), count)


def bound_times(blks: Sequence[Blk], cores: tuple[int, int], count: int) -> list[int]:
    """Sorted, in ns. cores: the client's, the writers'."""
    out, err = ffi.new("uint64_t[]", count), ffi.new("char[256]")
    rc = lib.cl_bench_raft_bound([blk.ptr for blk in blks], *cores, count, out, err)
    if rc < 0:
        raise CorelaneError("write to the disk", ffi.string(err).decode(), errno=-rc)
    return sorted(out)


System = TypeVar("System")


def baseline(session: Session, system: str, make: Callable[[], System]) -> System | None:
    """libraft or etcd. None: why it is not measured is said."""
    try:
        if not session.baseline:
            raise SystemLimit(f"measure {system}", "--no-baseline was given")
        return make()
    except SystemLimit as why:
        session.skip(system, str(why))
        return None


def puts_slot(puts: Puts) -> Slot:
    """What a baseline's clients saw."""
    latencies = puts.latencies_ns
    p50, p99 = (puts.percentile_us(percent) if latencies else math.inf for percent in (50, 99))
    return Slot(p50, p99, puts.per_s, len(latencies), puts.counts)


def libraft_turn(put: Callable[[float], Puts], warmup_s: float, seconds: float) -> Slot:
    """Of servers that are up."""
    put(warmup_s)
    return puts_slot(put(seconds))


def libraft_slot(libraft: Libraft, clients: int, seconds: float) -> Slot:
    """Of servers started anew."""
    with libraft.running(clients, KEY_BYTES + VALUE_BYTES) as put:
        return libraft_turn(put, 0.1 + 0.1 * seconds, seconds)


def udp_slot(udp: UdpClients, cores: tuple[int, int], folder: Path, clients: int, seconds: float) -> Slot:
    """Of ours, put to by ordinary clients of the kernel."""
    with udp.group(cores, folder, election_ms=ELECTION_MS, watch_us=WATCH_US) as (_, space):
        return puts_slot(udp.put(space, clients, max(seconds, LEAST_SLOT_S), KEY_BYTES, VALUE_BYTES))


def etcd_slot(etcd: Etcd, clients: int, seconds: float) -> Slot:
    """The best of its members, started anew."""
    with etcd.running():
        return puts_slot(etcd.best(clients, max(seconds, 0.3), VALUE_BYTES))


# Judging.


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
    if arm_name(ETCD, 64) in got:
        session.note(CLIENTS_NOTE)
        if arm_name(UDP, 64) in got:
            session.note(f"{UDP_NOTE} {pairwise(rates(arm_name(UDP, 64)), rates(arm_name(ETCD, 64)))}")
        session.ratio_figure("raft.over_etcd", rates(arm_name(DISK, 64)), rates(arm_name(ETCD, 64)))


def judge_turns(session: Session, turns: Turns[Slot]) -> None:
    """The durable put of one client, turn by turn."""

    def figure(name: str, ratio: Ratio) -> None:
        session.figure(name, ratio.median, runs=ratio.pairs)
        session.note(f"{name.removeprefix('raft.')}: {ratio.spread}")

    figure("raft.durable_over_floor", turns.ours_over(FLOOR))
    if BOUND in turns.others:
        above = pairwise(*([turn.p50_us for turn in turns.others[name]] for name in (BOUND, FLOOR)))
        over = turns.ours_over(BOUND)
        session.note(f"{BOUND_NOTE} {over.spread}, theirs / second of three bare writes {above.spread}")
    if arm_name(ONE_CORE, 1) in turns.others:
        session.note(f"{ONE_CORE_NOTE} {turns.over_ours(arm_name(ONE_CORE, 1)).spread}")
    if arm_name(LIBRAFT, 1) in turns.others:
        figure("raft.libraft_over_ours", turns.over_ours(arm_name(LIBRAFT, 1)))


def plot(document: dict[str, Any]) -> Canvas:
    """Latency of a lone put, and the rate of 64 clients."""
    rows = {row["name"]: row for row in document["arms"]}
    systems = [s for s in (MEMORY, TMPFS, DISK, LIBRAFT, ETCD) if arm_name(s, 1) in rows]
    canvas = Canvas(
        "raft: a replicated put, 3 replicas on one machine",
        message=document["settings"]["message"],
        n=sum(row["n"] for row in rows.values()),
        panels=2,
        size=(13, 5.5),
    )
    lone = {f"{MEMORY}, open loop": rows[f"{MEMORY}, open loop"]}
    for system in systems:
        lone[system] = rows[arm_name(system, 1)]
        if system == MEMORY:
            lone[RELAYS] = rows[RELAYS]
            lone[f"{SWITCHED}, open loop"] = rows[f"{SWITCHED}, open loop"]
        for beside in (MOVED, ONE_CORE):
            if beside.startswith(f"{system},") and arm_name(beside, 1) in rows:
                lone[beside] = rows[arm_name(beside, 1)]
        if FLOOR in rows and (system == TMPFS or (system == MEMORY and TMPFS not in systems)):
            lone[FLOOR] = rows[FLOOR]
            if BOUND in rows:
                lone[BOUND] = rows[BOUND]
    shown = {name: number(row["put_p50_us"]) for name, row in lone.items()}
    for name in [name for name, value in shown.items() if not math.isfinite(value)]:
        canvas.caption(f"No bar: {name}: half of the puts or more stayed unanswered.")
        del shown[name]
    canvas.bars(list(shown), list(shown.values()), ylabel="put, 1 client: p50 (us)")
    asked = [s for s in (MEMORY, TMPFS, DISK, UDP, LIBRAFT, ETCD) if arm_name(s, 64) in rows]
    many = [rows[arm_name(system, 64)]["puts_per_s"] for system in asked]
    canvas.bars(asked, many, ylabel="puts, 64 clients (1/s)", panel=1)
    if BOUND in lone:
        canvas.caption(f"{BOUND[0].upper()}{BOUND[1:]}: {document['settings'][BOUND]}.")
    canvas.caption("Medians of the interleaved rounds; disk, libraft, etcd and the bare writes on the same disk.")
    canvas.caption(document["settings"]["links"][0].upper() + document["settings"]["links"][1:] + ".")
    return canvas

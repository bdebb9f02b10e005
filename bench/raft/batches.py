"""Raft's batches in virtual time: when a leader's AppendEntries go, by its own rule and by fixed settings (batches.h).

64 clients in a closed loop. Nothing is measured: it is the same on every machine. What the rule reaches is its
commands a second over those of the best fixed setting in the same world, which no single setting is in all of them.
The rule finds out what suits a world, so it has LEARN_ROUNDS before what counts; what it reaches from the start, with
all of its trials, stands beside that. DRAWN worlds, which the rule was not made by, are drawn from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.numbers import percentile
from ..harness.session import Session
from ..log.modelled import Disk

CLIENTS = 64
COMMAND_BYTES = 128
DISKS: Mapping[str, Disk] = {"flash": Disk(16, 12, 0.05), "disk": Disk(4, 60, 0.1), "one lane": Disk(1, 60, 0.1)}
LINKS_US: Mapping[str, float] = {"switch": 5, "network": 50, "region": 500}
CORES = ("three cores", "one core")
WORLDS = tuple((disk, link, cores) for cores in CORES for disk in DISKS for link in LINKS_US)
SHORT_WORLDS = (("flash", "network", "three cores"),)
WARM_ROUNDS, ROUNDS = 40, 120  # of a command that comes alone, in time
LEARN_ROUNDS, LEARNED_ROUNDS = 3000, 400  # of the same, for the rule
DRAWN, SEED = 14, 11
ROOM = 1 << 18


@dataclass(frozen=True)
class Costs:
    """Of a processor, ns: of a frame, sent or taken; of a command, taken in or answered; of one core's hand-over."""

    frame_ns: int = 500
    command_ns: int = 300
    hand_over_ns: int = 2000


COSTS = Costs()


@dataclass(frozen=True)
class World:
    """What batches meet."""

    disk: Disk
    link_us: float
    one_core: bool = False
    clients: int = CLIENTS
    costs: Costs = COSTS


@dataclass(frozen=True)
class Setting:
    """When a batch goes. commands 0: by the node's own rule. Else with so many commands or after wait_us, while at most
    `batches` are on their way (0: the node's default)."""

    commands: int = 0
    wait_us: int = 0
    batches: int = 0

    def __str__(self) -> str:
        if not self.commands:
            return "adaptive"
        gather = f"{self.commands} or {self.wait_us} us" if self.wait_us else "no wait"
        return f"{gather}, {self.batches} on their way"


ADAPTIVE = Setting()
FIXED = tuple(Setting(n, 50 if n > 1 else 0, batches) for n in (1, 4, 16, 32, 64) for batches in (1, 2, 4, 16))


@dataclass(frozen=True)
class Outcome:
    """us: ascending, of each command until its client had the answer. worker, disk: of the leader, busy, 0 to 1."""

    us: list[float]
    seconds: float
    commands_per_batch: float
    frames_per_command: float
    worker: float
    disk: float
    refused: int

    @property
    def per_s(self) -> float:
        return len(self.us) / self.seconds


def measure(
    disk: Disk,
    link_us: float,
    setting: Setting,
    clients: int = CLIENTS,
    one_core: bool = False,
    costs: Costs = COSTS,
    due_ns: Sequence[int] = (),
    warm: int = WARM_ROUNDS,
    rounds: int = ROUNDS,
) -> Outcome:
    """One world under one setting; with due_ns its commands arrive then, and there are no clients."""
    alone_ns = int((4 * link_us + disk.write_us) * 1000)
    due = ffi.new("uint64_t[]", due_ns)
    config = ffi.new(
        "struct cl_bench_raft_batches *",
        {
            "disk": disk.config(),
            "link_ns": int(link_us * 1000),
            "one_core": one_core,
            "frame_ns": costs.frame_ns,
            "command_ns": costs.command_ns,
            "hand_over_ns": costs.hand_over_ns,
            "clients": 0 if due_ns else clients,
            "command_bytes": COMMAND_BYTES,
            "due_ns": due,
            "arrivals": len(due_ns),
            "batches": setting.batches,
            "fixed_commands": setting.commands,
            "fixed_wait_ns": setting.wait_us * 1000,
            "warm_ns": warm * alone_ns,
            "for_ns": rounds * alone_ns,
        },
    )
    each, err = ffi.new("uint32_t[]", ROOM), ffi.new("char[256]")
    out = ffi.new("struct cl_bench_raft_batched *", {"each_ns": each, "room": ROOM})
    if lib.cl_bench_raft_batches(config, out, err):
        raise CorelaneError("model a Raft group", ffi.string(err).decode(errors="replace"))
    n = out.all_commands
    return Outcome(
        sorted(ns / 1e3 for ns in ffi.unpack(each, out.commands)),
        config.for_ns / 1e9,
        n / max(out.batches, 1),
        out.appends / max(n, 1),
        min(out.worker_ns / out.ns, 1.0),
        min(out.disk_ns / out.ns / disk.lanes, 1.0),
        out.refused,
    )


def drawn_worlds(number: int = DRAWN, seed: int = SEED) -> dict[str, World]:
    """Worlds that have nothing to do with those that the figure is of: other disks, links, clients and costs."""
    rng = random.Random(seed)
    worlds = {}
    for _ in range(number):
        lanes, write_us = rng.choice([1, 2, 3, 8, 32]), rng.choice([8, 25, 40, 100, 200, 400])
        disk = Disk(lanes, write_us, rng.choice([0.02, 0.1, 0.3]), rng.choice([0, 0, 2]))
        link_us, one_core = rng.choice([2, 10, 20, 100, 200, 1000]), rng.random() < 0.6
        clients = rng.choice([2, 5, 12, 24, 100, 250])
        frame_ns, command_ns = rng.choice([200, 500, 1500, 4000]), rng.choice([200, 500, 1500])
        costs = Costs(frame_ns, command_ns, rng.choice([1000, 3000, 10000, 20000]))
        where = "one core" if one_core else "three cores"
        name = (
            f"{lanes} x {write_us} us, link {link_us} us, {where}, {clients} clients, frame {frame_ns} ns, "
            f"command {command_ns} ns, hand-over {costs.hand_over_ns / 1000:g} us"
        )
        worlds[name] = World(disk, link_us, one_core, clients, costs)
    return worlds


def of_world(world: World, setting: Setting, *, rounds: int = ROUNDS, warm: int = WARM_ROUNDS) -> Outcome:
    return measure(
        world.disk, world.link_us, setting, world.clients, world.one_core, world.costs, rounds=rounds, warm=warm
    )


@dataclass(frozen=True)
class Compared:
    """The rule in one world, once it has had time to learn and from the start, and all fixed settings."""

    ours: Outcome
    from_start: Outcome
    fixed: Mapping[Setting, Outcome]

    @property
    def best(self) -> Setting:
        return max(self.fixed, key=lambda s: self.fixed[s].per_s)

    @property
    def part(self) -> float:
        return self.ours.per_s / self.fixed[self.best].per_s

    @property
    def start_part(self) -> float:
        return self.from_start.per_s / self.fixed[self.best].per_s


def compare(world: World) -> Compared:
    return Compared(
        of_world(world, ADAPTIVE, warm=LEARN_ROUNDS, rounds=LEARNED_ROUNDS),
        of_world(world, ADAPTIVE, warm=0, rounds=LEARNED_ROUNDS),
        {setting: of_world(world, setting) for setting in FIXED},
    )


def run(session: Session, whole: bool) -> None:
    """All worlds, or those of a short run; the figure is that of the worst of WORLDS."""
    got: dict[str, Compared] = {}
    for disk, link, cores in WORLDS if whole else SHORT_WORLDS:
        name = f"{disk}, {link}, {cores}"
        session.say(f"batches in virtual time: {name}")
        got[name] = compare(World(DISKS[disk], LINKS_US[link], cores == CORES[1]))
        add_rows(session, name, got[name])
    drawn: dict[str, Compared] = {}
    for name, world in drawn_worlds(DRAWN if whole else 1).items():
        session.say(f"batches in virtual time: {name}")
        drawn[name] = compare(world)
        add_rows(session, name, drawn[name])
    session.settings["modelled_commands_per_s"] = {
        name: {str(ADAPTIVE): c.ours.per_s} | {str(s): o.per_s for s, o in c.fixed.items()}
        for name, c in (got | drawn).items()
    }
    worst = min(c.part for c in got.values())
    session.figure(
        "raft.batching_modelled",
        worst,
        runs=[c.part for c in got.values()],
        beside={
            "worst of drawn worlds": min(c.part for c in drawn.values()),
            "from the first command on": min(c.start_part for c in got.values()),
            "drawn worlds, from the first command on": min(c.start_part for c in drawn.values()),
        },
    )
    session.note(
        f"Raft's batches in virtual time, {CLIENTS} clients, commands a second over the best of {len(FIXED)} fixed "
        f"settings: {'; '.join(f'{name}: {c.part:.3g}' for name, c in got.items())}"
    )
    if not whole:
        session.note("a short run: Raft's batches in one modelled world, and in one that is drawn")


def add_rows(session: Session, name: str, compared: Compared) -> None:
    parts = {"part_of_best": compared.part, "part_from_start": compared.start_part}
    add_row(session, f"modelled {name}: adaptive", compared.ours, **parts)
    add_row(session, f"modelled {name}: best fixed", compared.fixed[compared.best], setting=str(compared.best))


def add_row(session: Session, name: str, got: Outcome, **values: float | str) -> None:
    """One setting in one world, as a row of the document."""
    session.arm(
        name,
        modelled=True,
        n=len(got.us),
        clients=CLIENTS,
        per_s=got.per_s,
        p50_us=percentile(got.us, 0.5),
        p99_us=percentile(got.us, 0.99),
        commands_per_batch=got.commands_per_batch,
        frames_per_command=got.frames_per_command,
        worker_busy=got.worker,
        disk_busy=got.disk,
        **values,
    )

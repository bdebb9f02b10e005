"""Raft's batches in virtual time: when a leader's AppendEntries go, by its own rule and by fixed settings (batches.h).

64 clients in a closed loop. Nothing is measured: it is the same on every machine. What the rule reaches is its
commands a second over those of the best fixed setting in the same world, which no single setting is in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
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
ROOM = 1 << 18


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

    @property
    def per_s(self) -> float:
        return len(self.us) / self.seconds


def measure(disk: Disk, link_us: float, setting: Setting, clients: int = CLIENTS, one_core: bool = False) -> Outcome:
    """One world under one setting."""
    alone_ns = int((4 * link_us + disk.write_us) * 1000)
    config = ffi.new(
        "struct cl_bench_raft_batches *",
        {
            "disk": disk.config(),
            "link_ns": int(link_us * 1000),
            "one_core": one_core,
            "clients": clients,
            "command_bytes": COMMAND_BYTES,
            "batches": setting.batches,
            "fixed_commands": setting.commands,
            "fixed_wait_ns": setting.wait_us * 1000,
            "warm_ns": WARM_ROUNDS * alone_ns,
            "for_ns": ROUNDS * alone_ns,
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
    )


def run(session: Session, whole: bool) -> None:
    """All worlds, or those of a short run; the figure is that of the worst."""
    parts: dict[str, float] = {}
    swept: dict[str, dict[str, float]] = {}
    for disk, link, cores in WORLDS if whole else SHORT_WORLDS:
        world = f"{disk}, {link}, {cores}"
        session.say(f"batches in virtual time: {world}")
        got = {s: measure(DISKS[disk], LINKS_US[link], s, one_core=cores == CORES[1]) for s in (ADAPTIVE, *FIXED)}
        best = max(FIXED, key=lambda s: got[s].per_s)
        parts[world] = got[ADAPTIVE].per_s / got[best].per_s
        swept[world] = {str(s): outcome.per_s for s, outcome in got.items()}
        add_row(session, f"modelled {world}: adaptive", got[ADAPTIVE], part_of_best=parts[world])
        add_row(session, f"modelled {world}: best fixed", got[best], setting=str(best))
    worst = min(parts, key=lambda world: parts[world])
    session.settings["modelled_commands_per_s"] = swept
    session.figure("raft.batching_modelled", parts[worst], runs=list(parts.values()))
    session.note(
        f"Raft's batches in virtual time, {CLIENTS} clients, commands a second over the best of {len(FIXED)} fixed "
        f"settings: {'; '.join(f'{world}: {part:.3g}' for world, part in parts.items())}"
    )
    if not whole:
        session.note("a short run: Raft's batches in one modelled world")


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

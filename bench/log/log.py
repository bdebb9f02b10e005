"""The persistent log on a disk: appends one at a time and many at once, batching, recovery; and every cut of a run.

Raw loops, our log and the other stores take turns within a round, on the same file system. A record is 256 bytes; each
durable write of ours and of the raw loops is one block of 4096 bytes. All of ours runs on one core: the one of the two
on which a raw write is faster, which is as a rule the one that takes the disk's interrupts.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ...drivers.blk import file as blk_file
from ...drivers.blk.blk import Blk
from ...libos.storage.log.log import format_area
from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..baseline import durable
from ..harness import diskcanary, usage
from ..harness.numbers import PERCENTILES, pairwise, percentile
from ..harness.session import Session
from ..harness.stops import Counts, Evidence, stop_of_closed, watched
from . import arrivals as poisson
from . import batching
from .arrivals import Arrivals, Arrived, Place
from .heldout import worst_held_out
from .names import FIXED, RAW
from .plots import plot

__all__ = ["FIGURES", "FIXED", "RAW", "SUMMARY", "add_arguments", "plot", "run"]

SUMMARY = "durable appends beside raw writes, SQLite, LMDB and Redis; batching, recovery, every cut"
FIGURES = (
    "log.append_over_bare",
    "log.group_gain",
    "log.batching_worst",
    "log.batching_modelled",
    "log.poisson_p50",
    "log.poisson_p99",
    "log.recovery_gbps",
    "log.cut_points",
)

ROUNDS = 30  # short ones: a disk differs by the second more than the loops on it
CORE_ROUNDS = 4
RECORD_BYTES = 256
MANY = 64
LOADS = (1, 2, 4, 8, 16, 32, 64)  # writers
MOST_WRITERS, MORE, MORE_S = 1024, 1.05, 0.25  # a curve goes on to so many while twice as many append so much more
SWEEP_ROUNDS = 8  # a multiple of 4: see worst_held_out
RECOVERIES = 12
WHOLE_S = 3.0  # a shorter run has two, and fewer modelled loads
READS_IN_FLIGHT = (4, 16)  # of 256 KiB each: which of them a disk answers faster differs
Arm = TypeVar("Arm", str, int)
CUT_APPENDS = 1000
MIB = 1 << 20
ROOM = 1 << 20  # latencies kept of a slice
SHM = "/dev/shm"
MEMORY_S = 1.0  # files on tmpfs are as large as those of a run of so long


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the files go."""
    parser.add_argument(
        "--directory", default=tempfile.gettempdir(), metavar="DIR", help="on the disk to measure (default %(default)s)"
    )


@dataclass
class Slice:
    """One slice of one arm."""

    ns: list[int]
    operations: int
    seconds: float
    flushes: int = 0
    idle_turns: int = 0  # of the log's kthread: it looked, and had nothing to do

    @property
    def rate(self) -> float:
        return self.operations / self.seconds

    def us(self, q: float) -> float:
        return percentile(sorted(self.ns), q) / 1e3


def where(folder: str) -> tuple[str, str]:
    """File system and device of a folder, by the longest mount point above it."""
    path, best = str(Path(folder).resolve()), ("", "unknown", "unknown")
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        point, (kind, device) = left.split()[4], right.split()[:2]
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
            best = (point, kind, device)
    return best[1], best[2]


class Files:
    """The files of a run and the loops over them."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.raw_path, log_path = folder / "raw", folder / "log"
        self.recovery_bytes = min(192, max(8, int(20 * seconds))) * MIB
        for path in (self.raw_path, log_path):  # alike: where in a file one writes may matter
            blk_file.create(path, self.recovery_bytes * 5 // 4)
        self.blk: Blk = blk_file.FileBlk(log_path)
        format_area(self.blk)
        self._each, self._err = ffi.new("uint32_t[]", ROOM), ffi.new("char[256]")
        self._out = ffi.new("struct cl_bench_log_result *", {"each_ns": self._each, "room": ROOM})
        self.cpu = 0  # of the log

    def _taken(self, rc: int, what: str) -> Slice:
        if rc:
            raise CorelaneError(what, ffi.string(self._err).decode(errors="replace"))
        o = self._out
        return Slice(ffi.unpack(self._each, o.kept), o.operations, o.ns / 1e9, o.flushes, o.idle_turns)

    def raw(self, what: int, seconds: float, cpu: int) -> Slice:
        """One raw loop."""
        self._out.flushes = self._out.idle_turns = 0
        rc = lib.cl_bench_log_raw(what, str(self.raw_path).encode(), cpu, int(seconds * 1e9), self._out, self._err)
        return self._taken(rc, "a raw loop")

    def append(
        self, writers: int, seconds: float, fixed: tuple[int, int, int] = (0, 0, 0), cpu: int | None = None
    ) -> Slice:
        """Our log with so many writers."""
        records, wait_us, in_flight = fixed
        config = ffi.new(
            "struct cl_bench_log_config *",
            {
                "blk": self.blk.ptr,
                "cpu": self.cpu if cpu is None else cpu,
                "writers": writers,
                "record_bytes": RECORD_BYTES,
                "in_flight": in_flight,
                "fixed_records": records,
                "fixed_wait_ns": wait_us * 1000,
                "for_ns": int(seconds * 1e9),
            },
        )
        return self._taken(lib.cl_bench_log_append(config, self._out, self._err), "append to the log")

    def arrive(self, arrivals: Arrivals, fixed: tuple[int, int, int]) -> Arrived:
        """Our log with appends that come when they are due."""
        records, wait_us, in_flight = fixed
        due = arrivals.pointer()
        config = ffi.new(
            "struct cl_bench_log_config *",
            {
                "blk": self.blk.ptr,
                "cpu": self.cpu,
                "record_bytes": RECORD_BYTES,
                "in_flight": in_flight,
                "fixed_records": records,
                "fixed_wait_ns": wait_us * 1000,
                "due_ns": due,
                "arrivals": arrivals.n,
            },
        )
        got = self._taken(lib.cl_bench_log_append(config, self._out, self._err), "append to the log as appends come")
        o = self._out
        return Arrived(got.ns, got.seconds, o.late)

    def _one(self, call: Callable[..., int], *args: Any) -> list[int]:
        """A call whose last arguments are numbers that it sets."""
        numbers = [ffi.new("uint64_t *") for _ in range(args[-1])]
        if call(*args[:-1], *numbers, self._err):
            raise CorelaneError("measure recovery", ffi.string(self._err).decode(errors="replace"))
        return [int(n[0]) for n in numbers]

    def recovery(self, times: int) -> Iterator[tuple[float, dict[int, float], int]]:
        """GiB/s of recovery; by reads in flight, of reading as much right before and right after it; records.

        The reads between two recoveries belong to both. They go forwards and backwards, so that each kind is as near.
        """
        format_area(self.blk)
        self._one(lib.cl_bench_log_fill, self.blk.ptr, self.recovery_bytes, RECORD_BYTES, 1)
        size = self.blk.size_bytes // 262144 * 262144  # as recovery does, which looks behind the end, too

        def read(number: int) -> dict[int, int]:
            depths = READS_IN_FLIGHT if number % 2 == 0 else READS_IN_FLIGHT[::-1]
            return {n: self._one(lib.cl_bench_log_read, self.blk.ptr, size, n, 1)[0] for n in depths}

        before = read(0)
        for number in range(1, times + 1):
            ns, got, records = self._one(lib.cl_bench_log_recover, self.blk.ptr, 3)
            after = read(number)
            raw = {n: 2 * size / (before[n] + after[n]) * 1e9 / 2**30 for n in READS_IN_FLIGHT}
            yield got / ns * 1e9 / 2**30, raw, records
            before = after


def run(session: Session) -> None:
    """First what needs no disk; then all that does."""
    cuts(session, 0.05 * session.seconds)
    batching.run(session, session.seconds >= WHOLE_S)
    folder = getattr(session.options, "directory", tempfile.gettempdir())
    kind, device = where(folder)
    session.settings |= {
        "message": f"one durable append of {RECORD_BYTES} bytes",
        "directory": folder,
        "file_system": kind,
        "device": device,
        "loads_writers": list(LOADS),
    }
    with contextlib.ExitStack() as stack:
        places = {"tmpfs": files_in_memory(session, stack)}
        if kind in ("tmpfs", "ramfs"):
            session.skip("disk", f"{folder} is {kind}, where nothing is durable: choose a disk with --directory")
            places["disk"] = None
        else:
            places["disk"] = on_disk(session, stack, folder)
        found = {
            place: Place(files.arrive, files.folder, files.append(poisson.WRITERS, poisson.GUESS_S).rate)
            for place, files in places.items()
            if files
        }
        poisson.run(session, found, 0.25 * session.seconds, 0.3 * session.seconds)


def files_in_memory(session: Session, stack: contextlib.ExitStack) -> Files | None:
    """Files on tmpfs, where a flush costs what the kernel does for it. None: there is no tmpfs, which is said."""
    if where(SHM)[0] != "tmpfs":
        session.skip("tmpfs, Poisson", f"{SHM} is no tmpfs here: mount one there")
        return None
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=SHM, prefix="corelane-log-")))
    files = Files(home, min(session.seconds, MEMORY_S))
    stack.callback(files.blk.close)
    files.cpu = session.cores[-1]
    return files


def on_disk(session: Session, stack: contextlib.ExitStack, folder: str) -> Files:
    """All that is measured on a disk, but for arrivals; its files."""
    kind, device = where(folder)
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix="corelane-log-")))
    session.say(f"writing files on {device} ({kind})")
    files = Files(home, session.seconds)
    stack.callback(files.blk.close)
    cores = choose_cores(session, files)
    files.cpu = cores["log"]
    diskcanary.note_disk(session, home)
    single(session, files, cores, others(session, home, stack))
    sweep(session, files)
    recovery(session, files)
    return files


def choose_cores(session: Session, files: Files) -> dict[str, int]:
    """The core on which each raw loop, and the log, is faster: the one that takes the disk's interrupts may suit those
    that sleep for it, and others those that look. By turns of its own, which have no part in the figures."""
    seconds = min(0.05, session.seconds / 200)
    arms: dict[str, Callable[[], Slice]] = {}
    for cpu in session.cores[:2]:
        for name, what in RAW.items():
            arms[f"{name}, {cpu}"] = lambda what=what, cpu=cpu: files.raw(what, seconds, cpu)  # type: ignore[misc]
        arms[f"log, {cpu}"] = lambda cpu=cpu: files.append(1, seconds, cpu=cpu)  # type: ignore[misc]
    session.say("which core suits whom")
    got = session.interleave(arms, CORE_ROUNDS, back_and_forth=True)
    p50 = {
        name: {cpu: statistics.median(s.us(0.5) for s in got[f"{name}, {cpu}"]) for cpu in session.cores[:2]}
        for name in (*RAW, "log")
    }
    found = {name: min(of, key=lambda cpu: of[cpu]) for name, of in p50.items()}
    session.settings |= {
        "core": found,
        "p50_us_by_core": {name: {str(cpu): us for cpu, us in of.items()} for name, of in p50.items()},
    }
    return found


def others(session: Session, home: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """The stores compared with, by name."""
    if not session.baseline:
        return {}
    found: dict[str, Any] = {"SQLite WAL, FULL": durable.Sqlite(home)}
    for name, missing, make in (
        ("LMDB", durable.lmdb_missing(), durable.Lmdb),
        ("Redis AOF, always", durable.redis_missing(), durable.Redis),
    ):
        if missing:
            session.skip(name, missing)
        else:
            found[name] = make(home)
    for store in found.values():
        stack.callback(store.close)
    return found


def single(session: Session, files: Files, cores: Mapping[str, int], stores: dict[str, Any]) -> None:
    """One at a time, each on the core that suits it, and many at once, in turns."""
    slice_s = 0.9 * session.seconds / ROUNDS / (len(RAW) + 2 + len(stores))
    arms: dict[str, Callable[[], Slice]] = {}
    for name, what in RAW.items():
        arms[name] = lambda what=what, cpu=cores[name]: files.raw(what, slice_s, cpu)  # type: ignore[misc]
    arms["log"] = lambda: files.append(1, slice_s)
    arms[f"log, {MANY} writers"] = lambda: files.append(MANY, slice_s)
    for name, store in stores.items():

        def other(store: Any = store) -> Slice:
            ns = durable.timed(store.append, slice_s)
            return Slice(ns, len(ns), sum(ns) / 1e9)

        arms[name] = other
    got = session.interleave(arms, ROUNDS)
    for name, slices in got.items():
        row(session, name, slices, 1 if "writers" not in name else MANY)
    p50 = [s.us(0.5) for s in got["log"]]
    best = best_by_others({name: [s.us(0.5) for s in got[name]] for name in RAW})
    session.ratio_figure("log.append_over_bare", p50, best)
    session.ratio_figure("log.group_gain", [s.rate for s in got[f"log, {MANY} writers"]], [s.rate for s in got["log"]])
    for name in stores:
        session.note(f"{name}, p50 over ours: {pairwise([s.us(0.5) for s in got[name]], p50)}")


def best_names(values: Mapping[Arm, Sequence[float]], best: Callable[..., Arm] = min) -> list[Arm]:
    """For each round the arm that is lowest (best=max: highest) in the median of all other rounds.

    The lowest one of the round itself would be its luckiest arm, not the best one.
    """

    def without(name: Arm, i: int) -> float:
        rest = [*values[name][:i], *values[name][i + 1 :]]
        return statistics.median(rest or values[name])

    rounds = range(min(len(arm) for arm in values.values()))
    return [best(values, key=lambda name: without(name, i)) for i in rounds]


def best_by_others(values: Mapping[Arm, Sequence[float]], best: Callable[..., Arm] = min) -> list[float]:
    """The values of `best_names`, round by round."""
    return [values[name][i] for i, name in enumerate(best_names(values, best))]


def row(session: Session, name: str, slices: Sequence[Slice], writers: int) -> None:
    """All rounds of an arm together."""
    ns = sorted(value for s in slices for value in s.ns)
    values: dict[str, Any] = {f"{key}_us": percentile(ns, q) / 1e3 for key, q in PERCENTILES}
    operations, flushes = sum(s.operations for s in slices), sum(s.flushes for s in slices)
    if flushes:
        values["appends_per_flush"] = operations / flushes
    rate = statistics.median(s.rate for s in slices)
    session.arm(name, n=operations, writers=writers, per_s=rate, **values)


def sweep(session: Session, files: Files) -> None:
    """Adaptive batching and fixed settings at each load; the worst of the loads counts."""
    settings = {"adaptive": (0, 0, 0), **FIXED}
    slice_s = 0.35 * session.seconds / SWEEP_ROUNDS / (len(LOADS) * len(settings))
    arms: dict[str, Callable[[], Slice]] = {}
    for load in LOADS:
        for name, fixed in settings.items():
            arms[f"{name}, {load}"] = lambda load=load, fixed=fixed: files.append(load, slice_s, fixed)  # type: ignore[misc]
    got = session.interleave(arms, SWEEP_ROUNDS, back_and_forth=True)
    rates = {load: {name: [s.rate for s in got[f"{name}, {load}"]] for name in settings} for load in LOADS}
    for load in LOADS:
        for name in settings:
            session.arm(
                f"batching: {name}",
                n=sum(s.operations for s in got[f"{name}, {load}"]),
                writers=load,
                per_s=statistics.median(rates[load][name]),
            )
    look_s = idle_turn_s([one for slices in got.values() for one in slices])
    _why_it_ends(session, files, settings, slice_s, look_s)
    adaptive = {f"{load} writers": rates[load].pop("adaptive") for load in LOADS}
    others = {f"{load} writers": rates[load] for load in LOADS}
    halves = worst_held_out(adaptive, others)
    session.figure("log.batching_worst", statistics.mean(h.ratio for h in halves), runs=[h.ratio for h in halves])
    session.note("batching_worst: " + "; ".join(str(h) for h in halves))
    each = {load: worst_held_out({load: adaptive[load]}, {load: others[load]}) for load in adaptive}
    by_load = (f"{load} {statistics.mean(h.ratio for h in halves):.3g}" for load, halves in each.items())
    session.note(f"adaptive batching over the setting that was best in the other half, by load: {', '.join(by_load)}")


def idle_turn_s(slices: Sequence[Slice]) -> float:
    """What a turn of the kthread's loop takes that finds nothing, at most: the least time that a slice had for each of
    its own. inf: no slice had any."""
    return min((one.seconds / one.idle_turns for one in slices if one.idle_turns), default=math.inf)


def _why_it_ends(
    session: Session, files: Files, settings: Mapping[str, tuple[int, int, int]], slice_s: float, look_s: float
) -> None:
    """Twice as many writers, again and again, until they carry hardly more; and what is used up then, of each setting:
    by the disk's own account, and by the time of the log's kthread less its idle turns of `look_s` each."""

    def counts() -> Counts:
        return Counts(disk_s=usage.disk_busy_s(files.raw_path))

    seconds = max(slice_s, MORE_S) if session.seconds >= WHOLE_S else slice_s
    for name, fixed in settings.items():

        def carried(writers: int, fixed: tuple[int, int, int] = fixed) -> tuple[Slice, Evidence]:
            got, evidence = watched(lambda s: files.append(writers, s, fixed), counts, seconds)
            worker = max(1 - got.idle_turns * look_s / got.seconds, 0.0) if math.isfinite(look_s) else None
            return got, replace(evidence, worker=worker)

        writers, (got, evidence) = LOADS[-1], carried(LOADS[-1])
        why = f"{MOST_WRITERS:,} writers, the most that are asked for"
        while 2 * writers <= MOST_WRITERS:
            more, of_more = carried(2 * writers)
            session.arm(f"batching: {name}", n=more.operations, writers=2 * writers, per_s=more.rate)
            if more.rate < MORE * got.rate:
                why = f"{writers} writers: twice as many append {more.rate / got.rate:.2f} times as much"
                break
            writers, got, evidence = 2 * writers, more, of_more
        session.stop(f"batching: {name}", why, stop_of_closed(evidence))


def recovery(session: Session, files: Files) -> None:
    """Opening a log that nobody closed, beside reading as much."""
    session.say("recovery")
    session.take_canary()
    turns = list(files.recovery(RECOVERIES if session.seconds >= WHOLE_S else 2))
    ours = [t[0] for t in turns]
    raw = {n: [t[1][n] for t in turns] for n in READS_IN_FLIGHT}
    device = best_by_others(raw, max)
    session.arm(
        "recovery",
        n=turns[0][2],
        gib_per_s=statistics.median(ours),
        device_gib_per_s=statistics.median(device),
        **{f"device_{n}_in_flight_gib_per_s": statistics.median(rates) for n, rates in raw.items()},
        read_mib=files.recovery_bytes // MIB,
    )
    # The goal is 1 GiB/s, or the device's own rate if that is lower: then the figure is the part of it that is reached.
    per_goal = pairwise(ours, [min(1.0, read) for read in device])
    session.figure("log.recovery_gbps", per_goal.median, runs=per_goal.pairs)
    session.note(f"recovery_gbps: {per_goal.spread}; over the device's rate: {pairwise(ours, device).spread}")
    if min(device) < 1:
        session.note("the device reads less than 1 GiB/s: recovery_gbps is the part of its rate that recovery reached")


def cuts(session: Session, seconds: float) -> None:
    """Every sector-wise cut of a run, subsets of what was in flight, rotten superblocks."""
    session.say(f"every cut of {CUT_APPENDS} appends")
    parts = []
    for in_flight in (1, 4):
        out, err = ffi.new("struct cl_bench_log_cuts *"), ffi.new("char[256]")
        appends = CUT_APPENDS if seconds >= 0.2 else CUT_APPENDS // 10
        rc = lib.cl_bench_log_cuts(in_flight, appends, in_flight, out, err)
        if rc:
            session.note(f"a cut was not recovered: {ffi.string(err).decode(errors='replace')}")
        session.arm(
            f"cuts, {in_flight} in flight",
            n=out.appends,
            cuts=out.sectors,
            recovered=out.recovered,
            torn=out.torn,
            subsets=out.subsets,
            subsets_recovered=out.subsets_recovered,
            subsets_torn=out.subsets_torn,
            rotten_superblocks=out.rotten,
            rotten_superblocks_recovered=out.rotten_recovered,
            laps=out.laps,
            **{name: getattr(out, name) for name in ("truncates", "restarts", "metas", "trims", "snapshots")},
        )
        tried = out.sectors + out.subsets + out.rotten
        recovered = out.recovered + out.subsets_recovered + out.rotten_recovered
        parts.append(recovered / tried if tried and not rc else 0.0)
    session.figure("log.cut_points", min(parts), runs=parts)
    if appends < CUT_APPENDS:
        session.note(f"a short run: cuts of {appends} appends instead of {CUT_APPENDS}")

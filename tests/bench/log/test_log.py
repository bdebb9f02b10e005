"""bench log: every cut of the promised run, the loops on a file of the test's own, and what is refused."""

from __future__ import annotations

import io
import os
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from corelane.bench._native import ffi, lib
from corelane.bench.baseline import durable
from corelane.bench.harness.session import Session
from corelane.bench.log import arrivals, log
from corelane.bench.log.log import FIXED, Files, Slice, where
from corelane.cli.main import main


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path, 0.1)
    made.cpu = min(os.sched_getaffinity(0))
    yield made
    made.blk.close()


@pytest.mark.parametrize("in_flight", [pytest.param(1, marks=pytest.mark.soak(takes_s=1)), 4])
def test_every_cut_of_a_thousand_appends_recovers(in_flight: int, seed: int) -> None:
    out, err = ffi.new("struct cl_bench_log_cuts *"), ffi.new("char[256]")
    assert lib.cl_bench_log_cuts(seed, 1000, in_flight, out, err) == 0, ffi.string(err)
    assert out.appends == 1000
    assert out.recovered == out.cuts == out.sectors > 1000
    assert out.torn > 0
    assert out.subsets_recovered == out.subsets > 2 * out.appends
    assert out.subsets_torn > 0


@pytest.mark.parametrize("what", log.RAW.values())
def test_raw_loops_write(files: Files, what: int) -> None:
    got = files.raw(what, 0.02, files.cpu)
    assert got.operations == len(got.ns) > 0
    assert all(ns > 0 for ns in got.ns)


def test_each_arm_has_the_core_that_suits_it() -> None:
    fast = {name: at % 2 for at, name in enumerate((*log.RAW, "log"))}
    names = {what: name for name, what in log.RAW.items()}

    class Made:
        def raw(self, what: int, seconds: float, cpu: int) -> Slice:
            return Slice([90 if fast[names[what]] == cpu else 100] * 3, 3, seconds)

        def append(self, writers: int, seconds: float, *, cpu: int) -> Slice:
            assert writers == 1
            return Slice([90 if fast["log"] == cpu else 100] * 3, 3, seconds)

    session = Session("log", seconds=1.0, progress=io.StringIO())
    session.cores = [0, 1]
    assert log.choose_cores(session, cast("Files", Made())) == fast
    assert session.settings["core"] == fast
    ours = session.settings["p50_us_by_core"]["log"]
    assert ours == {str(cpu): 0.09 if cpu == fast["log"] else 0.1 for cpu in (0, 1)}


def test_appends_share_flushes_and_wrap_around(files: Files) -> None:
    one = files.append(1, 0.02)
    assert one.flushes >= one.operations > 0
    for fixed in FIXED.values():
        # A disk that stalls at once for all of the time leaves one writer with one append.
        many = next(s for s in (files.append(16, 0.02, fixed) for _ in range(20)) if s.operations >= 16)
        assert many.flushes <= many.operations


def test_recovery_reads_what_was_filled(files: Files) -> None:
    for ours, raw, records in files.recovery(2):
        assert ours > 0
        assert set(raw) == set(log.READS_IN_FLIGHT)
        assert min(raw.values()) > 0
        assert records > 1000


@pytest.mark.parametrize("store", [durable.Sqlite, durable.Lmdb, durable.Redis])
def test_other_stores_append(store: type, tmp_path: Path) -> None:
    missing = {durable.Lmdb: durable.lmdb_missing, durable.Redis: durable.redis_missing}.get(store, lambda: "")()
    if missing:
        pytest.skip(missing)
    made = store(tmp_path)
    try:
        assert durable.timed(made.append, 0.02)
    finally:
        made.close()


def test_memory_is_no_disk(capsys: pytest.CaptureFixture[str]) -> None:
    if where("/dev/shm")[0] != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    assert main(["bench", "log", "--seconds", "0.1", "--directory", "/dev/shm"]) == 0
    assert "nothing is durable: choose a disk with --directory" in capsys.readouterr().out


def noisy(rng: random.Random, level: float) -> list[float]:
    return [level * rng.gauss(1, 0.1) for _ in range(log.SWEEP_ROUNDS)]


def test_the_best_raw_loop_is_not_the_luckiest_of_a_round(seed: int) -> None:
    rng = random.Random(seed)
    assert log.best_by_others({"a": [1, 9, 1], "b": [2, 2, 2]}) == [2, 9, 2]
    assert log.best_by_others({4: [3, 0, 3], 16: [2, 2, 2]}, max) == [2, 0, 2]
    equal = [log.best_by_others({name: noisy(rng, 1.0) for name in log.RAW}) for _ in range(400)]
    assert statistics.mean(value for values in equal for value in values) == pytest.approx(1, abs=0.02)


def test_a_sweep_survives_slices_in_which_the_disk_stood_still(seed: int) -> None:
    class Stalling:
        """A disk on which one in three slices ends before its first append does."""

        rng = random.Random(seed)
        raw_path = Path("/proc")  # on no disk that the kernel keeps an account of

        def append(self, load: int, slice_s: float, fixed: tuple[int, int, int]) -> log.Slice:
            done = self.rng.choice([0, load, load])
            return log.Slice([1000] * done, done, slice_s)

    session = Session("log", seconds=0.1, progress=io.StringIO())
    log.sweep(session, cast("Files", Stalling()))
    assert any("batching_worst" in note for note in session.notes)


def test_arrivals_are_charged_from_when_they_were_due(files: Files) -> None:
    spread = files.arrive(arrivals.Arrivals(20_000, 100, 1), (0, 0, 0))
    assert len(spread.us) == 100
    assert spread.seconds >= arrivals.Arrivals(20_000, 100, 1).seconds
    assert spread.us_at(1.0) <= 1e6 * spread.seconds, "none was durable before it was due"
    at_once = files.arrive(arrivals.Arrivals(1e9, 200, 1), (1, 0, 1))
    assert len(at_once.us) == 200
    assert at_once.us_at(1.0) <= 1e6 * at_once.seconds
    assert at_once.us_at(0.5) <= at_once.us_at(0.99)


class Server:
    """Makes 1000 a second durable, one after the other, and is busy when it cannot keep up. Under a setting in `slow`
    an append takes so many times as long to be told of, but no longer of the server."""

    slow: dict[tuple[int, int, int], float]

    def __init__(self, slow: dict[tuple[int, int, int], float] | None = None) -> None:
        self.slow = slow or {}

    def arrive(self, due: arrivals.Arrivals, setting: tuple[int, int, int]) -> arrivals.Arrived:
        free, ns, late = 0.0, [], 0
        for at in due.due_ns:
            late += free > float(at)
            free = max(free, float(at)) + 1e6
            ns.append(int((free - float(at)) * self.slow.get(setting, 1.0)))
        return arrivals.Arrived(ns, free / 1e9, late)


def test_curves_over_arrivals_say_why_they_stop() -> None:
    session = Session("log", seconds=0.1, progress=io.StringIO())
    arrivals.run(session, {"disk": arrivals.Place(Server().arrive, Path("/proc"), 1000)}, 20.0, 1.0)
    assert {because["resource"] for because in session.stops_because.values()} == {"worker busy"}
    assert set(session.stops) == {f"disk, Poisson: {name}" for name in arrivals.RULES}
    capacity = session.settings["capacity_per_s, disk"]
    assert 800 < capacity < 1000
    told = f"Poisson arrivals, disk, adaptive beside the best of 4 fixed settings: {0.05 * capacity:.0f}/s"
    assert any(told in note for note in session.notes)
    assert session.figures["log.poisson_p50"]["value"] == 1
    assert session.figures["log.poisson_p99"]["value"] == 1


def test_the_figures_of_arrivals_are_against_the_best_setting_where_it_is_best() -> None:
    best = FIXED["16 or 50 us"]
    slow = {setting: 2.0 for setting in arrivals.RULES.values() if setting != best}
    session = Session("log", seconds=0.1, progress=io.StringIO())
    place = arrivals.Place(Server(slow).arrive, Path("/proc"), 1000)
    arrivals.judge(session, {"disk": place}, {"disk": 1000}, 1.0)
    for figure in arrivals.FIGURES.values():
        found = session.figures[figure]
        assert found["value"] == 0.5
        assert found["beside"]["of 16 or 50 us alone"] == 0.5
        assert found["beside"]["of 64 or 100 us alone"] == 1


def test_writers_are_doubled_until_they_append_hardly_more() -> None:
    class Full:
        """Appends as much as 200 writers can, whoever asks; under one setting as much as was asked for."""

        raw_path = Path("/proc")

        def append(self, writers: int, slice_s: float, fixed: tuple[int, int, int]) -> log.Slice:
            done = writers if fixed == FIXED["64 or 400 us"] else min(writers, 200)
            return log.Slice([1000] * done, done, slice_s, idle_turns=max(1000 - 5 * done, 0))

    session = Session("log", seconds=0.1, progress=io.StringIO())
    log.sweep(session, cast("Files", Full()))
    assert session.stops["batching: adaptive"] == (
        "256 writers: twice as many append 1.00 times as much: worker busy (worker 100 % busy)"
    )
    assert session.stops["batching: 64 or 400 us"].startswith("1,024 writers, the most that are asked for")
    assert (
        log.idle_turn_s([log.Slice([], 1, seconds, idle_turns=n) for seconds, n in ((1, 0), (1, 8), (2, 32))]) == 1 / 16
    )
    asked = {a["writers"] for a in session.arms if a["name"] == "batching: adaptive"}
    assert asked == {*log.LOADS, 128, 256, 512}

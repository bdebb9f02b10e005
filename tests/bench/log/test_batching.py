"""Batching on modelled disks: what the log's own rule reaches of the best fixed setting, and what the study says of it.

Nothing is measured: the same load gives the same numbers. On fewer settings and loads than `corelane bench log` has.
"""

from __future__ import annotations

import io
import math

import pytest
from cltest import soak

from corelane.bench.harness.session import Session
from corelane.bench.log import batching, unknown
from corelane.bench.log.modelled import ADAPTIVE, DISKS, FIXED, Disk, Outcome, Setting, closed_loop, open_loop

LEAST = 0.9  # of the best fixed setting
SOME = FIXED if soak.SOAKS else tuple(s for s in FIXED if s.records in (1, 4, 16, 64) and s.in_flight in (1, 2, 4, 16))
LANES = [name for name in DISKS if not DISKS[name].beside_us]


@pytest.mark.parametrize(("name", "writers"), soak.pairs(list(DISKS), (2, 8, 64), longer=True))
def test_writers_in_a_closed_loop(name: str, writers: int) -> None:
    fixed = {s: closed_loop(DISKS[name], s, writers) for s in SOME}
    part, best = batching.part_of_best(closed_loop(DISKS[name], ADAPTIVE, writers), fixed, lambda o: o.per_s)
    assert part >= LEAST, f"{part:.3f} of {best}"


@pytest.mark.parametrize(("name", "in_a_write"), soak.pairs(LANES, (0.1, 0.5, 2, 4, 16), longer=True))
def test_arrivals_at_random(name: str, in_a_write: float) -> None:
    disk = DISKS[name]
    per_s = in_a_write / disk.write_us * 1e6
    fixed = {s: open_loop(disk, s, per_s) for s in SOME}
    part, best = batching.part_of_best(open_loop(disk, ADAPTIVE, per_s), fixed, lambda o: 1 / o.mean_us)
    assert part >= LEAST, f"{part:.3f} of {best}"


@pytest.mark.parametrize(("name", "in_a_write"), [("four lanes", 60), ("four lanes", 180), ("many lanes", 130)])
def test_p50_and_p99_are_near_the_best_setting_s_once_the_disk_is_found_out(name: str, in_a_write: float) -> None:
    disk, settings = DISKS[name], [Setting(16, 50, 16), Setting(64, 50, 4)]
    ours, single, setting = unknown.once_learnt(disk, in_a_write / disk.write_us * 1e6, settings)
    assert ours.least >= LEAST, f"{ours.of}; {setting} has {single.of}"


@pytest.mark.soak(takes_s=20)
@pytest.mark.parametrize("name", DISKS)
def test_the_same_on_each_disk_at_each_load(name: str) -> None:
    capacity = batching.capacities(DISKS[name])
    for fraction in (0.05, 0.2, 0.4, 0.6, 0.8):
        per_s = fraction * max(capacity.values())
        ours, _, _ = unknown.once_learnt(DISKS[name], per_s, batching.carrying(capacity, per_s))
        assert ours.least >= LEAST, f"{fraction:g} of capacity: {ours.of}"


@pytest.mark.parametrize(("name", "width"), [("one lane", 1), ("two lanes", 2), ("four lanes", 4), ("many lanes", 8)])
def test_the_disk_is_found_out(name: str, width: int) -> None:
    got = open_loop(DISKS[name], ADAPTIVE, 4 / DISKS[name].write_us * 1e6)
    assert width <= got.width <= 2 * width, "twice as many are tried now and then"
    assert closed_loop(DISKS[name], Setting(1, 0, 3), 8).width == 3, "where it is given it is given"


def test_the_same_load_gives_the_same_numbers() -> None:
    assert open_loop(DISKS["flash"], ADAPTIVE, 2e5, 500) == open_loop(DISKS["flash"], ADAPTIVE, 2e5, 500)


def test_times_are_the_disk_s() -> None:
    alone = closed_loop(Disk(1, 100, 0), Setting(1, 0, 1), 1)
    assert alone.us[0] == pytest.approx(100, abs=3)
    assert alone.flushes >= len(alone.us)
    together = closed_loop(Disk(1, 100, 0), Setting(1, 0, 16), 4)
    assert together.us[-1] > 350, "they stand in line"
    beside = closed_loop(Disk(4, 100, 0, beside_us=10), Setting(1, 0, 4), 4)
    assert beside.us[-1] == pytest.approx(130, abs=10)


def test_a_late_append_is_charged_from_when_it_was_due() -> None:
    got = open_loop(Disk(1, 100, 0), Setting(1, 0, 1), 1e12, 100)
    assert len(got.us) == 100
    assert got.us[-1] >= got.us[0] > 100


def test_the_study_leaves_curves_that_stop_and_a_figure() -> None:
    session = Session("log", seconds=0.1, progress=io.StringIO())
    batching.run(session, whole=False)
    part = session.figures["log.batching_modelled"]
    below = [f"{name}{where}" for name in ("p50", "p99") for where in ("", ", below the capacity")]
    learnt = {f"once learnt, {what}" for what in ("mean", "p50", "p99", "of the best single setting")}
    assert part["beside"].keys() == {batching.KNOWN, *below, *learnt, batching.WITHOUT}
    assert all(part["beside"][name] >= LEAST for name in learnt)
    rows = [a for a in session.arms if a["name"] == "modelled flash: adaptive"]
    assert [a["fraction"] for a in rows] == list(batching.SHORT_FRACTIONS)
    assert all(math.isfinite(a[key]) for a in rows for key in ("p50_us", "p99_us", "best_p50_us", "best_p99_us"))
    assert rows[0]["learnt_p99_part"] >= LEAST
    assert "learnt_p99_part" not in rows[1], "above the capacity nothing is steady"
    assert session.stops_because["modelled flash: adaptive"]["resource"] == "worker busy"
    (table,) = session.tables
    assert [row[0] for row in table["rows"]] == ["0.05"]


def test_the_worst_load_is_named() -> None:
    found = batching.Reached({"a": 0.95, "b": 0.7, "c": 1.1})
    assert str(found) == "0.7 (b)"


def outcome(*us: float) -> Outcome:
    return Outcome(sorted(us), len(us), 1.0, 0.9, 0.5, 0.5, 1, 1)


def test_the_best_setting_is_chosen_by_what_is_compared() -> None:
    fixed = {Setting(1, 0, 1): outcome(10, 100), Setting(2, 50, 1): outcome(20, 30)}
    ours = outcome(20, 40)
    part, best = batching.part_of_best(ours, fixed, lambda o: 1 / o.percentile_us(0.5))
    assert (part, best) == (0.5, Setting(1, 0, 1))
    part, best = batching.part_of_best(ours, fixed, lambda o: 1 / o.percentile_us(0.99))
    assert (part, best) == (0.75, Setting(2, 50, 1))


def test_a_rule_is_held_against_the_best_one_of_each_measure() -> None:
    quick, even = Setting(1, 0, 1), Setting(2, 50, 1)
    fixed = {quick: outcome(10, 10, 100), even: outcome(20, 20, 30)}
    found = unknown.parts(fixed, {**fixed, ADAPTIVE: outcome(20, 20, 60)})
    assert found[ADAPTIVE].of == {"mean": pytest.approx(0.7), "p50": 0.5, "p99": 0.5}
    assert found[quick].least == pytest.approx(0.3)
    assert found[even].of["p50"] == 0.5, "no one setting has the best of both"


def test_a_rule_that_does_not_know_the_disk_is_worth_what_it_has_on_the_worst_one() -> None:
    greedy, waits = Setting(1, 0, 1), Setting(2, 50, 1)
    one = {greedy: unknown.Part({"p99": 1.0}), waits: unknown.Part({"p99": 0.6}), ADAPTIVE: unknown.Part({"p99": 0.9})}
    many = {greedy: unknown.Part({"p99": 0.5}), waits: unknown.Part({"p99": 1.0}), ADAPTIVE: unknown.Part({"p99": 0.7})}
    assert unknown.best_of_all([one, many]) == (0.7, waits, 0.6)
    assert len(unknown.blind([greedy])) == 1 + len(unknown.GUESSES)

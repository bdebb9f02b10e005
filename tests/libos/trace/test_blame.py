"""Which stage is blamed (blame.py), on records with a known cause, and how stages are found (stages.py)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maderequests import HZ, NAMES, Made, ticks

from corelane.libos.trace.behind import by_cause
from corelane.libos.trace.blame import Blame, document_of, lines_of, of_service, of_table
from corelane.libos.trace.stages import STOPPED, TOGETHER, Stage, Table, table
from corelane.libos.trace.stopped import AWAY
from corelane.runtime._native import lib
from corelane.runtime.trace import Records

DELAY_US = 20.0


def delayed(stage: str, seed: int, share: float = 0.02) -> Made:
    """Of which some take DELAY_US longer in a stage."""
    made = Made(5000, seed)
    some = made.some(share)
    if stage in made.us:
        made.us[stage][some] += DELAY_US
        made.what[some] = lib.CL_TRACE_WAITS_SLEEP if stage == "blocked" else 0
    elif stage == "core":
        records = made.records()
        for m in records.messages[some]:
            begin = int(m["begin"]) + int(m["start"]) + 10
            made.gone.append((int(m["kthread"]), begin, begin + int(ticks(DELAY_US))))
        made.us["runs"][some] += DELAY_US
    else:
        made.us["blocked"][some] += DELAY_US
        made.what[some] = {"mutex": lib.CL_TRACE_WAITS_MUTEX, "log": lib.CL_TRACE_WAITS_LOG}[stage]
    return made


CAUSES: dict[str, Stage] = {
    "ring": ("ring", "waits"),
    "inbox": ("inbox", "waits"),
    "runs": ("handler", "runs"),
    "ready": ("handler", "run queue"),
    "blocked": ("handler", "wait: sleep"),
    "mutex": ("handler", "wait: mutex"),
    "log": ("handler", "wait: log"),
    "core": (STOPPED, AWAY),
    "reply": ("reply", "until sent"),
    "TX ring": ("TX ring", "waits"),
    "to the NIC": ("to the NIC", "until given"),
}


def blamed(made: Made, quantile: float = 0.99) -> Blame:
    found = of_service(table(made.records(), NAMES, HZ), "UDP 9000", quantile)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("cause", CAUSES)
def test_the_stage_that_was_made_slow_is_blamed(cause: str, seed: int) -> None:
    found = blamed(delayed(cause, seed))
    assert (found.first, found.alone) == (CAUSES[cause], True)
    assert found.drawn
    assert (found.n, found.n_slow) == (5000, pytest.approx(50, abs=1))
    assert found.value_us > DELAY_US
    assert found.slow_us - found.ordinary_us == pytest.approx(DELAY_US, rel=0.1)
    assert found.what_if_us < 10, "without that it would be as the others are"
    assert sum(share for _, share in found.shares) <= 1 + 1e-9


def test_two_causes_that_are_alike_are_both_told() -> None:
    made = Made(5000, 7)
    for stage in ("inbox", "runs"):
        made.us[stage][made.some(0.01)] += DELAY_US
    found = blamed(made)
    assert not found.alone
    assert found.first in (("inbox", "waits"), ("handler", "runs"))
    assert {path[0] for path, share in found.shares[:2] if share > 0.2} == {"inbox", "handler"}
    assert "no stage makes it alone" in "\n".join(lines_of(found))


def test_a_stage_that_makes_more_than_the_excess_is_told_so() -> None:
    """Requests that wait for long in the ring and are handled faster than others."""
    found = blamed(delayed("ring", 1))
    most, more = (lines_of(replace(found, shares=((found.first, share),)))[1] for share in (0.99, 1.71))
    assert "makes 99% of the excess: " in most
    assert "makes the excess and more (171%, as other stages are shorter in slow ones): " in more


def test_within_a_stage_blame_stops_where_its_parts_share_it() -> None:
    made = Made(5000, 8)
    some = made.some(0.02)
    made.us["runs"][some] += DELAY_US
    made.us["blocked"][some] += DELAY_US
    made.what[some] = lib.CL_TRACE_WAITS_DISK
    found = blamed(made)
    assert (found.first, found.alone) == (("handler",), True)
    assert [path for path, share in found.shares if share > 0.4] == [
        ("handler", "wait: disk"),
        ("handler", "runs"),
    ] or [path for path, share in found.shares if share > 0.4] == [("handler", "runs"), ("handler", "wait: disk")]


def test_too_few_or_equal_requests_are_not_blamed() -> None:
    assert of_service(table(Made(100, 1).records(), NAMES, HZ), "UDP 9000", 0.99) is None
    alike = Made(2000, 1)
    for stage in alike.us:
        alike.us[stage][:] = 1.0
    alike.us["blocked"][:] = alike.us["ready"][:] = 0.0
    assert of_service(table(alike.records(), NAMES, HZ), "UDP 9000", 0.99) is None
    assert of_table(table(Made(0, 1).records(), NAMES, HZ)) == []


def test_percentiles_are_of_those_that_were_drawn() -> None:
    """The slow ones that are kept besides are evidence, and no part of the population."""
    made = delayed("mutex", 5)
    slow = made.us["blocked"] > 0
    extra = Made(3000, 6)
    extra.us["blocked"][:] = DELAY_US
    extra.what[:] = lib.CL_TRACE_WAITS_MUTEX
    for stage in made.us:
        made.us[stage] = numpy.concatenate([made.us[stage], extra.us[stage]])
    made.flags = numpy.concatenate([made.flags, extra.flags & ~lib.CL_TRACE_DRAWN])
    made.what = numpy.concatenate([made.what, extra.what])
    made.kthread = numpy.concatenate([made.kthread, extra.kthread])
    made.n += extra.n
    found = blamed(made)
    assert (found.n, found.first) == (5000, ("handler", "wait: mutex"))
    assert found.n_slow > slow.sum()
    assert "3,0" in lines_of(found)[1] or found.n_slow > 1000
    made.flags &= ~lib.CL_TRACE_DRAWN
    kept = blamed(made)
    assert not kept.drawn
    assert "no percentile of all" in lines_of(kept)[0]


def test_those_whose_stages_are_known_apart_are_looked_at() -> None:
    """Of a burst that was answered by one doorbell only its whole time is known."""
    made = delayed("inbox", 9)
    whole = blamed(made)
    slow = numpy.nonzero(made.us["inbox"] > DELAY_US)[0]
    made.flags[slow[:-40]] |= lib.CL_TRACE_SHARED | lib.CL_TRACE_GUESSED
    few = blamed(made)
    assert few.first == whole.first == ("inbox", "waits")
    assert few.n_slow <= 40 < whole.n_slow
    made.flags[slow] |= lib.CL_TRACE_SHARED | lib.CL_TRACE_GUESSED
    assert blamed(made).first == TOGETHER


def test_a_mutex_is_named_with_who_had_it() -> None:
    lines = lines_of(blamed(delayed("mutex", 3)))
    assert any("waits are for the mutex at 0x1000" in line for line in lines)
    assert any("held by the uthread at 0x2000" in line for line in lines)
    assert lines[0].startswith("UDP 9000: p99 ")
    assert lines[-1].startswith("  without that: p99 would be ")


def test_evidence_tells_what_the_slow_ones_have_in_common() -> None:
    made = delayed("runs", 4)
    slow = made.us["runs"] > DELAY_US
    made.kthread[slow] = 1
    made.flags[slow] |= lib.CL_TRACE_STOLEN
    records = made.records()
    records.messages["faults"][slow] = 3
    found = of_service(table(records, NAMES, HZ), "UDP 9000", 0.99)
    assert found is not None
    n = found.n_slow
    assert found.evidence[0] == f"{n} of {n} ended on kthread 1"
    assert f"a sibling had picked up {n} of {n}" in found.evidence
    assert f"page faults since the slow one before: in {n} of {n}, {3 * n} in all" in found.evidence


def test_each_service_by_itself() -> None:
    one, other = delayed("ring", 1).records(), Made(5000, 2, service=2)
    other.us["reply"][other.some(0.02)] += DELAY_US
    both = other.records()
    joined = type(one)(numpy.concatenate([one.messages, both.messages]), one.waits, one.cores, 0, 0)
    found = of_table(table(joined, NAMES, HZ), quantiles=(0.99,))
    assert [(b.service, b.first[0]) for b in found] == [("UDP 9000", "ring"), ("TCP 80", "reply")]
    assert json.loads(json.dumps([document_of(b) for b in found]))[1]["stage"] == ["reply", "until sent"]


@given(st.integers(0, 10**6), st.floats(0, 0.5))
@settings(max_examples=20)
def test_stages_add_up_whatever_the_records_say(seed: int, share: float) -> None:
    made = Made(300, seed)
    some = made.some(share)
    made.us["blocked"][some] = made.random.exponential(5, some.sum())
    made.us["ready"][some] = made.random.exponential(5, some.sum())
    made.what = made.random.integers(0, lib.CL_TRACE_WAITS, 300)
    at = 10**9
    for _ in range(20):
        begin = at + int(made.random.integers(0, ticks(300)))
        at = begin + int(made.random.integers(1, ticks(30)))
        made.gone.append((int(made.random.integers(0, 3)), begin, at))
    records = made.records()
    lost = made.some(0.2)
    records = type(records)(records.messages, records.waits[: len(records.waits) // 2], records.cores, 0, 0)
    assert lost.any()
    seen = table(records, NAMES, HZ)
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)
    assert min(float(times.min()) for times in seen.stages.values()) > -1e-6


def in_a_row(runs_us: list[float], services: list[int]) -> Table:
    """Requests that came together, and are handled one after the other by one kthread, each at its boundaries."""
    made = Made(len(runs_us), 1)
    records = made.records()
    at = 0.0
    for m, runs, service in zip(records.messages, runs_us, services, strict=True):
        m["kthread"], m["service"], m["begin"], m["pickup"] = 0, service, 10**9, 0
        m["start"], m["end"] = ticks(at), ticks(at + runs)
        m["sent"] = m["end"]
        at += runs
    return table(records, NAMES, HZ)


def test_who_waits_behind_a_long_one_of_its_service_is_delayed_by_its_handler() -> None:
    seen = by_cause(in_a_row([1, 1, 40, 1, 1, 1, 1, 1], [1] * 8))
    assert list(seen.stages["inbox", "waits"].round(3)) == [0, 1, 2, 2, 3, 4, 5, 6]
    assert list(seen.stages["handler", "runs"].round(3)) == [1, 1, 40, 41, 41, 41, 41, 41]
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)


def test_ordinary_requests_and_other_services_in_front_are_no_ones_fault() -> None:
    alike = in_a_row([1.0] * 20, [1] * 20)
    assert (by_cause(alike).stages["inbox", "waits"] == alike.stages["inbox", "waits"]).all()
    other = in_a_row([40, *[1.0] * 9], [2, *[1] * 9]).of_service(1)
    assert by_cause(other).stages["inbox", "waits"].min().round(3) == 40


def test_answers_that_wait_for_a_doorbell_behind_a_long_one_are_its_too() -> None:
    seen = in_a_row([1, 40, 1, 1, 1, 1, 1, 1], [1] * 8)
    seen.messages["sent"][0] = seen.messages["end"][1]
    found = by_cause(table(records_with(seen), NAMES, HZ))
    assert found.stages["reply", "until sent"][0].round(3) == 0
    assert found.stages["handler", "runs"][0].round(3) == 41


def records_with(seen: Table) -> Records:
    """The records of a table, again."""
    none = Made(0, 1).records()
    return Records(seen.messages, none.waits, none.cores, 0, 0)

"""What commands of a group waited for (commands.py), on records with known stages."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maderequests import HZ, ticks

from corelane.libos.trace.blame import Blame, lines_of, of_service
from corelane.libos.trace.commands import APPLY, BATCH, COMMIT, LEADER, NEVER, OTHERS, OWN_LOG, parts_of
from corelane.libos.trace.stages import table
from corelane.runtime._native import ffi, lib
from corelane.runtime.layout import dtype
from corelane.runtime.trace import Records

N = 3000
NAMES = ["others", "Raft 7400"]
FIELDS = ("gone", "sent", "flush", "written", "durable", "others", "agreed")


def commands(n: int, **us: Any) -> numpy.ndarray[Any, Any]:
    """Records of commands; us: what their stages end at."""
    made = numpy.zeros(n, dtype(ffi, "struct cl_trace_command"))
    made["kind"], made["id"], made["index"] = lib.CL_TRACE_COMMAND, 1 + numpy.arange(n), numpy.arange(n)
    for field, value in us.items():
        made[field] = ticks(value)
    return made


def usual(n: int = N) -> dict[str, Any]:
    """Of a group of two: when each stage ends, in us."""
    draw = numpy.random.default_rng(1)
    gone = draw.exponential(5, n)
    flush, sent = gone + 2, gone + 1
    written = flush + 80 + draw.exponential(5, n)
    others = sent + 100 + draw.exponential(10, n)
    return {"gone": gone, "sent": sent, "flush": flush, "written": written, "durable": written + 1, "others": others}


def blamed(us: dict[str, Any], **fields: Any) -> Blame:
    """Of commands with these stages, applied in 3 us."""
    us = us | {"agreed": numpy.maximum(us["durable"], us["others"])}
    made = commands(N, **us)
    for field, value in fields.items():
        made[field] = value
    end = ticks(us["agreed"] + 3).astype(numpy.uint32)
    messages = numpy.zeros(N, dtype(ffi, "struct cl_trace_message"))
    messages["kind"], messages["service"], messages["shared"], messages["id"] = 1, 1, 1, made["id"]
    messages["flags"] = lib.CL_TRACE_DRAWN | lib.CL_TRACE_ANSWERED
    messages["end"], messages["blocked"], messages["sent"] = end, end, end + 100
    none = numpy.zeros(0, dtype(ffi, "struct cl_trace_wait"))
    cores = numpy.zeros(0, dtype(ffi, "struct cl_trace_core"))
    seen = table(Records(messages, none, cores, 0, 0, commands=made), NAMES, HZ)
    assert sum(seen.stages.values()) == pytest.approx(seen.total)
    found = of_service(seen, "Raft 7400", 0.99)
    assert found is not None
    return found


def some() -> numpy.ndarray[Any, Any]:
    rows: numpy.ndarray[Any, Any] = numpy.random.default_rng(2).random(N) < 0.02
    return rows


def test_a_slow_disk_of_the_leader_is_blamed_on_its_own_log() -> None:
    us = usual()
    us["written"] += 5000 * some()
    us["durable"] = us["written"] + 1
    found = blamed(us)
    assert found.first == (*OWN_LOG, "written")
    assert found.cause is not None
    assert found.cause.word == "own log"


def test_slow_followers_are_blamed_on_the_others_and_named() -> None:
    us = usual()
    us["others"] += 5000 * some()
    found = blamed(us, node=numpy.where(some(), 3, 2))
    assert found.first == (*OTHERS, "acknowledged")
    assert found.cause is not None
    assert found.cause.word == "others"
    assert any("waited for node 3 last" in line for line in lines_of(found))


def test_what_another_node_leads_is_blamed_on_it() -> None:
    us = usual()
    us["others"] += 5000 * some()
    found = blamed(us, flags=lib.CL_TRACE_COMMAND_FORWARDED)
    assert found.first == LEADER
    assert found.cause is not None
    assert found.cause.word == "leader"


def test_a_batch_that_waits_is_blamed_on_neither() -> None:
    us = {field: times + 5000 * some() for field, times in usual().items()}
    assert blamed(us).first == BATCH


def test_an_own_log_that_is_not_durable_when_the_others_agree_has_the_rest() -> None:
    made = commands(1, gone=10, sent=12, flush=12, others=60, agreed=75)
    made["written"] = made["durable"] = NEVER
    parts = {path: float(times[0]) for path, times in parts_of(made, ticks(numpy.array([80]))).items()}
    assert parts == {
        BATCH: ticks(10),
        (*OTHERS, "sent"): ticks(2),
        (*OTHERS, "acknowledged"): ticks(48),
        (*OWN_LOG, "not durable yet"): ticks(15),
        APPLY: ticks(5),
    }


@pytest.mark.parametrize(
    ("fields", "stage"),
    [
        ({"gone": 5, "flags": lib.CL_TRACE_COMMAND_FORWARDED}, LEADER),
        ({"gone": NEVER}, (*COMMIT, "refused")),
    ],
)
def test_what_another_node_did_or_was_refused_is_one_stage(fields: dict[str, int], stage: tuple[str, ...]) -> None:
    made = commands(1)
    for field in FIELDS[1:]:
        made[field] = NEVER
    for field, value in fields.items():
        made[field] = value
    assert list(parts_of(made, numpy.array([1000]))) == [stage]


def test_a_read_waits_for_the_others_alone() -> None:
    made = commands(1, gone=1, others=50, agreed=50)
    made["flags"] = lib.CL_TRACE_COMMAND_READ
    for field in ("sent", "flush", "written", "durable"):
        made[field] = NEVER
    parts = parts_of(made, ticks(numpy.array([60])))
    assert {path: float(times[0]) for path, times in parts.items()} == {
        BATCH: ticks(1),
        (*OTHERS, "acknowledged"): ticks(49),
        APPLY: ticks(10),
    }


STAMPS = st.lists(st.sampled_from([0, 1, 5, 10, 20, 40, NEVER]), min_size=7, max_size=7)


@given(STAMPS, st.integers(0, 50), st.integers(0, 3))
def test_parts_add_up_whatever_the_record_says(stamps: list[int], whole: int, flags: int) -> None:
    made = commands(1)
    made["flags"] = flags
    for field, value in zip(FIELDS, stamps, strict=True):
        made[field] = value
    parts = parts_of(made, numpy.array([whole]))
    assert all(float(times[0]) >= 0 for times in parts.values())
    assert sum(float(times[0]) for times in parts.values()) == pytest.approx(whole)

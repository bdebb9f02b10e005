"""Which cause is named (causes.py), on records with a known one, and what a kthread stood still for (stopped.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pytest
from maderequests import HZ, NAMES, Made, ticks

from corelane.libos.trace.blame import Blame, document_of, lines_of, of_service
from corelane.libos.trace.causes import RULES
from corelane.libos.trace.stages import RUNS, STOPPED, WIRE, table
from corelane.libos.trace.stopped import AWAY, NO_CPU, Stops, taken
from corelane.runtime._native import ffi, lib
from corelane.runtime.layout import dtype
from corelane.runtime.trace import Records

SLOW_US = 200.0

# What the records of this build have, by the names of runtime/trace.h.
HAS = {name: getattr(lib, f"CL_TRACE_{name}", 0) for name in ("GAP", "STALLED", "GAP_STAMPS", "GAP_COUNTERS")}
HAS |= {"GAP_COLLECTS": getattr(lib, "CL_TRACE_GAP_COLLECTS", 0)}
HAS |= {name: getattr(lib, f"CL_TRACE_{name}", 0) for name in ("WAITS_RESEND", "WAITS_WINDOW")}
HAS |= {"WAITS_HOLE": getattr(lib, "CL_TRACE_WAITS_HOLE", 0)}


def needs(*names: str) -> None:
    """Skip where records of a kind are not written."""
    if missing := [name for name in names if not HAS[name]]:
        pytest.skip(f"the records of this build have no {', '.join(missing)}")


def gaps(records: Records, rows: Any, how: str, us: float = SLOW_US, of: bool = False) -> Records:
    """With a gap in the handlers of some messages; of: found by a look that was taken for each of them."""
    needs("GAP", how)
    made = numpy.zeros(int(rows.sum()), dtype(ffi, "struct cl_trace_gap"))
    mine = records.messages[rows]
    made["kind"], made["n"], made["how"] = HAS["GAP"], 1, HAS[how]
    made["kthread"], made["begin"] = mine["kthread"], mine["begin"] + mine["start"]
    made["end"], made["gone"] = mine["begin"] + mine["end"], int(ticks(us))
    if of:
        made["id"] = mine["id"]
        made["begin"] -= numpy.uint64(ticks(500))  # since the look before
    more: dict[str, Any] = {"gaps": made}
    return replace(records, **more)


def waits(what: int) -> Callable[[Made, Any], Records]:
    def make(made: Made, some: Any) -> Records:
        made.us["blocked"][some] += SLOW_US
        made.what[some] = what
        return made.records()

    return make


def runs(made: Made, some: Any) -> Records:
    made.us["runs"][some] += SLOW_US
    return made.records()


def faulting(made: Made, some: Any) -> Records:
    records = runs(made, some)
    records.messages["faults"][some] = 150
    records.messages["faults"][~some] = 1
    return records


def core_away(made: Made, some: Any) -> Records:
    records = runs(made, some)
    made.gone = [
        (int(m["kthread"]), int(m["begin"]) + int(m["start"]), int(m["begin"]) + int(m["end"]))
        for m in records.messages[some]
    ]
    return made.records()


def stopped(how: str, switches: int) -> Callable[[Made, Any], Records]:
    def make(made: Made, some: Any) -> Records:
        records = gaps(runs(made, some), some, how)
        records.messages["switches"][some] = switches
        return records

    return make


def behind(made: Made, some: Any) -> Records:
    """Nine come at once behind each one that is long."""
    records = runs(made, some)
    m = records.messages
    m["kthread"] = 0
    for row in numpy.nonzero(some)[0]:
        end = int(m["begin"][row]) + int(m["end"][row])
        for i, other in enumerate(range(row + 1, min(row + 10, len(m)))):
            m["begin"][other] = m["begin"][row]
            m["pickup"][other] = m["pickup"][row]
            m["start"][other] = end - int(m["begin"][row]) + int(ticks(i))
            m["end"][other] = m["start"][other] + int(ticks(1))
            m["sent"][other] = m["end"][other]
    return records


def stalled(what: str) -> Callable[[Made, Any], Records]:
    def make(made: Made, some: Any) -> Records:
        needs("STALLED", what)
        records = waits(HAS[what])(made, some)
        m = records.messages
        for field in ("pickup", "start", "end", "blocked", "ready"):
            m[field][some] = 0
        m["sent"][some], m["flags"][some] = ticks(SLOW_US), HAS["STALLED"]
        return records

    return make


CAUSES: dict[str, tuple[float, Callable[[Made, Any], Records]]] = {
    "lock": (0.02, waits(lib.CL_TRACE_WAITS_MUTEX)),
    "log flush": (0.02, waits(lib.CL_TRACE_WAITS_LOG)),
    "core taken away": (0.02, core_away),
    "garbage collection": (0.02, stopped("GAP_COLLECTS", 0)),
    "noisy neighbour": (0.02, stopped("GAP_COUNTERS", 1)),
    "machine": (0.02, stopped("GAP_STAMPS", 0)),
    "lost packets": (0.02, stalled("WAITS_RESEND")),
    "slow peer": (0.02, stalled("WAITS_WINDOW")),
    "page faults": (0.02, faulting),
    "long request": (0.005, behind),
    "handler": (0.02, runs),
}
OF_COMMANDS = ("own log", "others", "leader")  # of a group: test_commands.py
OF_CALLS = ("system call",)  # which are not among the records: test_systemcalls.py


def blamed(records: Records) -> Blame:
    found = of_service(table(records, NAMES, HZ), "UDP 9000", 0.99)
    assert found is not None
    return found


def test_each_rule_is_tried() -> None:
    assert list(CAUSES) == [cause.word for cause, _ in RULES if cause.word not in OF_COMMANDS + OF_CALLS]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("word", CAUSES)
def test_the_cause_is_named(word: str, seed: int) -> None:
    share, make = CAUSES[word]
    made = Made(5000, seed)
    made.kthread[:] = 0
    found = blamed(make(made, made.some(share)))
    assert found.cause is not None
    assert found.cause.word == word == document_of(found)["cause"]
    assert any(line.startswith(f"  cause: {word}: ") for line in lines_of(found))


def test_where_no_rule_holds_the_stage_is_all_that_is_said() -> None:
    made = Made(5000, 4)
    made.us["reply"][made.some(0.02)] += SLOW_US
    found = blamed(made.records())
    assert found.cause is None
    assert document_of(found)["cause"] is None
    assert not any("cause:" in line for line in lines_of(found))


@pytest.mark.parametrize(("blocked_us", "word"), [(300, "log flush"), (200, "")])
def test_where_parts_share_a_stage_the_cause_is_that_of_most_of_it(blocked_us: float, word: str) -> None:
    made = Made(3000, 1)
    some = made.some(0.02)
    made.us["blocked"][some] += blocked_us
    made.us["ready"][some] += 500 - blocked_us
    made.what[some] = lib.CL_TRACE_WAITS_LOG
    found = blamed(made.records())
    assert found.first == ("handler",)
    assert (found.cause.word if found.cause else "") == word


# What a kthread stood still for


def test_who_waits_in_front_of_the_handler_stands_still_too() -> None:
    made = Made(40, 1)
    made.kthread[:] = 0
    made.us["inbox"][20] += SLOW_US
    records = made.records()
    m = records.messages[20]
    begin = int(m["begin"]) + int(m["pickup"])
    made.gone = [(0, begin, begin + int(ticks(SLOW_US / 2))), (0, begin + int(ticks(50)), begin + int(ticks(120)))]
    seen = table(made.records(), NAMES, HZ)
    assert seen.stages[STOPPED, AWAY][20] == pytest.approx(120, abs=0.1), "what two have in common counts once"
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)


@pytest.mark.parametrize("of", [False, True])
def test_a_gap_that_was_found_for_a_message_is_in_its_handler(of: bool) -> None:
    """A look at counters says how much, and only between which looks."""
    made = Made(40, 1)
    made.kthread[:] = 0
    some = numpy.zeros(40, bool)
    some[20] = True
    seen = table(gaps(runs(made, some), some, "GAP_COUNTERS", us=150.0, of=of), NAMES, HZ)
    assert seen.stages[STOPPED, NO_CPU][20] == pytest.approx(150, abs=1)
    assert seen.stages[RUNS][20] == pytest.approx(SLOW_US - 150, abs=5)
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)


def test_a_gap_that_is_longer_than_its_handler_is_where_it_waited() -> None:
    """The kthread polled when it lost its CPU: the message came meanwhile, and the look at its end found it."""
    made = Made(40, 1)
    made.kthread[:] = 0
    made.us["ring"][20] += SLOW_US
    some = numpy.zeros(40, bool)
    some[20] = True
    seen = table(gaps(made.records(), some, "GAP_COUNTERS", us=150.0, of=True), NAMES, HZ)
    assert seen.stages[STOPPED, NO_CPU][20] == pytest.approx(150, abs=5)
    assert seen.stages["ring", "waits"][20] == pytest.approx(SLOW_US - 150, abs=10)
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)


def test_a_gap_in_the_look_for_a_message_is_of_who_is_handled_then() -> None:
    """The kernel gives the CPU to others where it is asked: the look comes back late, and the next message has run
    meanwhile as far as it knows."""
    made = Made(40, 1)
    made.kthread[:] = 0
    made.us["runs"][21] += 300
    records = made.records()
    before = records.messages[20]
    gap = numpy.zeros(1, dtype(ffi, "struct cl_trace_gap"))
    gap["kind"], gap["n"], gap["how"], gap["id"] = HAS["GAP"], 1, HAS["GAP_COUNTERS"], before["id"]
    gap["begin"] = before["begin"] + before["start"]
    gap["end"] = before["begin"] + before["end"] + numpy.uint64(ticks(302))
    gap["gone"] = int(ticks(300))
    seen = table(replace(records, gaps=gap), NAMES, HZ)
    assert seen.stages[STOPPED, NO_CPU][20] < 1
    assert seen.stages[STOPPED, NO_CPU][21] > 250
    assert seen.stages[RUNS][21] < 50
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)


def test_reasons_never_take_more_than_there_is() -> None:
    made = Made(40, 1)
    made.kthread[:] = 0
    some = made.some(0.3)
    records = core_away(made, some)
    both = gaps(records, some, "GAP_COUNTERS")
    seen = table(both, NAMES, HZ)
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)
    assert (STOPPED, AWAY) in seen.stages
    assert min(float(times.min()) for times in seen.stages.values()) > -1e-6
    assert float(seen.stages.get((STOPPED, NO_CPU), numpy.zeros(1)).max()) < 1


def test_what_a_connection_stood_still_for_is_no_stage_of_requests() -> None:
    made = Made(3000, 1)
    seen = table(stalled("WAITS_HOLE")(made, made.some(0.1)), NAMES, HZ)
    rows = (seen.messages["flags"] & HAS["STALLED"]) != 0
    assert seen.stages[WIRE, "missing segment"][rows] == pytest.approx(SLOW_US)
    assert not seen.stages[WIRE, "missing segment"][~rows].any()
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)


def test_what_had_come_meanwhile_waits_for_each_other() -> None:
    """Of a NIC of its own a kthread knows nothing before it polls: then ten are there at once."""
    made = Made(400, 1)
    made.kthread[:] = 0
    records = made.records()
    m = records.messages
    for i in range(200, 210):
        m["begin"][i], m["pickup"][i] = m["begin"][200], 0
        m["start"][i] = int(ticks(20 * (i - 200)))
        m["end"][i] = m["sent"][i] = m["start"][i] + int(ticks(20))
    gap = numpy.zeros(1, dtype(ffi, "struct cl_trace_gap"))
    gap["kind"], gap["n"], gap["how"], gap["end"] = HAS["GAP"], 1, HAS["GAP_STAMPS"], m["begin"][200]
    gap["begin"], gap["gone"] = gap["end"] - numpy.uint64(ticks(100)), int(ticks(100))
    seen = table(replace(records, gaps=gap), NAMES, HZ)
    stood = seen.stages[STOPPED, NO_CPU]
    assert stood[200:210] == pytest.approx([min(20 * i, 100) for i in range(10)], abs=0.1)
    assert stood[210:].max() < 1, "of what came later nothing is known"
    assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)


def test_what_piled_up_and_is_worked_off_waits_for_the_stop() -> None:
    """Requests of 100 us come each 150 us, and the kthread is away for a millisecond: those that come for two
    milliseconds after that wait for it, too."""
    records = replace(Made(60, 1).records(), cores=numpy.zeros(1, dtype(ffi, "struct cl_trace_core")))
    away_us, m, waited, free = (1460, 2460), records.messages, list[int](), 0
    m["kthread"] = 0
    for i in range(60):
        came = 150 * i
        start = max(came, free)
        start = away_us[1] if away_us[0] <= start < away_us[1] else start
        free = start + 100
        waited.append(start - came)
        m["begin"][i] = 10**9 + int(ticks(came))
        m["pickup"][i] = m["start"][i] = int(ticks(start - came))
        m["end"][i] = m["sent"][i] = int(ticks(free - came))
    (core,) = records.cores
    core["kind"], core["n"] = lib.CL_TRACE_CORE, 1
    core["begin"], core["end"] = (10**9 + int(ticks(us)) for us in away_us)
    assert sum(us > 0 for us in waited) > 15
    for extra in (0, 40):  # what else they wait for is no stop's
        if extra:
            m["start"][50] += numpy.uint32(ticks(extra))
            m["end"][50] += numpy.uint32(ticks(extra))
            m["sent"][50] += numpy.uint32(ticks(extra))
        seen = table(records, NAMES, HZ)
        assert seen.stages[STOPPED, AWAY] == pytest.approx(waited, abs=0.1)
        assert numpy.allclose(numpy.sum(list(seen.stages.values()), axis=0), seen.total)
    assert seen.stages["inbox", "waits"][50] == pytest.approx(40, abs=0.1)


def test_time_on_another_kthread_is_not_taken() -> None:
    messages = Made(10, 1).records().messages
    messages["kthread"] = 1
    one = numpy.ones(1)
    of = Stops(0 * one, messages["begin"][:1], messages["begin"][-1:], one * 1e9)
    assert not taken(messages, numpy.zeros(10), messages["sent"].astype(float), of).any()

"""Who had the core, or the CPU, of a kthread that stood still (others.py): what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
from maderequests import HZ, NAMES, Made, ticks

from corelane.libos.trace.blame import lines_of, of_service
from corelane.libos.trace.others import Others, Slice, _ran
from corelane.libos.trace.stages import STOPPED, table
from corelane.libos.trace.stopped import AWAY, COLLECTS, NO_CPU
from corelane.runtime._native import ffi, lib
from corelane.runtime.layout import dtype
from corelane.runtime.trace import Records

LONG_US = 300.0


def made() -> tuple[Records, Any]:
    """Requests on kthread 0 of which one of 100 takes LONG_US longer, by no doing of its own."""
    of = Made(5000, 1)
    of.kthread[:] = 0
    some = numpy.zeros(5000, bool)
    some[::100] = True
    of.us["runs"][some] += LONG_US
    return of.records(), some


def gaps(records: Records, rows: Any, how: int, **fields: float) -> Records:
    """A gap in each of these messages, which takes all of what is too long."""
    out, mine = numpy.zeros(int(rows.sum()), dtype(ffi, "struct cl_trace_gap")), records.messages[rows]
    out["kind"], out["n"], out["how"], out["cpu"] = lib.CL_TRACE_GAP, 1, how, 2
    out["begin"] = mine["begin"] + mine["start"]
    out["end"], out["gone"] = out["begin"] + numpy.uint64(ticks(LONG_US)), int(ticks(LONG_US))
    for field, value in fields.items():
        out[field] = int(value)
    return replace(records, gaps=out)


def blamed(records: Records, others: Others) -> tuple[Any, str]:
    found = of_service(table(records, NAMES, HZ).of_service(1), NAMES[1], 0.99, others)
    assert found is not None
    return found, "\n".join(lines_of(found))


def test_a_collection_of_garbage_is_told_with_what_was_collected() -> None:
    records, some = made()
    found, text = blamed(gaps(records, some, lib.CL_TRACE_GAP_COLLECTS, n=3), Others())
    assert found.first == (STOPPED, COLLECTS)
    assert found.cause.word == "garbage collection"
    assert f"garbage was collected {some.sum()} times then ({some.sum()} of all objects), for 300 us" in text


def test_time_in_line_tells_a_neighbour_from_the_machine() -> None:
    records, some = made()
    for waited, word in ((0.9, "noisy neighbour"), (0.1, "machine")):
        given = gaps(records, some, lib.CL_TRACE_GAP_COUNTERS, waited=waited * ticks(LONG_US), switches=1)
        found, text = blamed(given, Others())
        assert found.first == (STOPPED, NO_CPU)
        assert found.cause.word == word
        assert f"stood in line for {waited * 0.3 * some.sum():.1f}: others ran on CPU 1 then" in text


def test_who_ran_on_the_cpu_then_is_named() -> None:
    records, some = made()
    given = gaps(records, some, lib.CL_TRACE_GAP_COUNTERS, waited=ticks(LONG_US), switches=1)
    at = [(int(gap["begin"]), int(gap["end"])) for gap in given.gaps]
    ran = [Slice(1, begin + 10, end - 10, "hog (process 7)") for begin, end in at]
    ran += [Slice(1, begin - 10**6, begin, "before (process 8)") for begin, _ in at]
    ran += [Slice(0, begin, end, "elsewhere (process 9)") for begin, end in at]
    _, text = blamed(given, Others(ran=ran))
    assert f"who ran there then: hog (process 7) {0.3 * some.sum():.1f} ms" in text
    assert "before" not in text
    assert "elsewhere" not in text
    _, text = blamed(given, Others(ran=[]))
    assert "who ran there then: nobody else" in text
    _, text = blamed(given, Others(busy={0: [("idle", 9.0)], 1: [("hog (process 7)", 0.25)]}))
    assert "who used CPU 1 most, of others, while this was recorded: hog (process 7) 250.0 ms" in text


def test_gaps_that_lie_over_each_other_are_told_once() -> None:
    """One who writes them as it likes keeps nobody busy: each of the slices meets one span."""
    n = 4000
    given = numpy.zeros(n, dtype(ffi, "struct cl_trace_gap"))
    given["cpu"], given["end"] = 2, 100 * n
    given["begin"] = numpy.arange(n)
    apart = given[:2].copy()
    apart["begin"], apart["end"] = (200 * n, 300 * n), (201 * n, 301 * n)
    ran = [Slice(1, 100 * k, 100 * k + 50, f"t{k % 2}") for k in range(2 * n)] + [Slice(3, 0, 9, "elsewhere")]
    ran.append(Slice(1, 200 * n - 5, 301 * n + 5, "long"))
    assert _ran(numpy.concatenate([apart, given]), ran) == {"t0": 25 * n, "t1": 25 * n, "long": 2 * n}


def test_who_had_the_core_is_named() -> None:
    records, some = made()
    mine = records.messages[some]
    cores = numpy.zeros(len(mine), dtype(ffi, "struct cl_trace_core"))
    cores["kind"], cores["n"], cores["by"], cores["cpu"] = lib.CL_TRACE_CORE, 1, 4, 2
    cores["begin"] = mine["begin"] + mine["start"]
    cores["end"] = cores["begin"] + numpy.uint64(ticks(LONG_US))
    given, n = replace(records, cores=cores), int(some.sum())
    found, text = blamed(given, Others(slot={4: "greedy.0"}.__getitem__))
    assert found.first == (STOPPED, AWAY)
    assert found.cause.word == "core taken away"
    assert f"its core was another's {n} times then, for 300 us on average, 300 at most" in text
    assert f"who had it: greedy.0 (CPU 1) {n} of {n}" in text
    assert f"who had it: slot 3 (CPU 1) {n} of {n}" in blamed(given, Others())[1]


def test_what_lies_over_no_slow_request_is_no_evidence() -> None:
    records, some = made()
    given = gaps(records, some, lib.CL_TRACE_GAP_COLLECTS, n=1)
    elsewhere = given.gaps.copy()
    elsewhere["begin"] += numpy.uint64(10**12)
    elsewhere["end"] += numpy.uint64(10**12)
    on_another = given.gaps.copy()
    on_another["kthread"] = 1
    more = replace(given, gaps=numpy.concatenate([given.gaps, elsewhere, on_another]))
    _, text = blamed(more, Others())
    assert f"garbage was collected {some.sum()} times then" in text

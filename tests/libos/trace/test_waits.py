"""What requests and connections wait for on a log and on the network (tests/libos/trace/c/waits.c), in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from corelane.libos._native import lib
from corelane.runtime.trace import Records, records_of

Program = Callable[..., Callable[..., str]]
WRITE_NS, PATH_NS, THINKS_NS, STAYS_AWAY_NS = 50_000, 10_000, 30_000, 5_000_000  # as in the program


@pytest.fixture
def run(c_program: Program, tmp_path: Path) -> Callable[[str], tuple[Records, list[int]]]:
    """The server's records, and the numbers that were printed."""

    def run_it(what: str) -> tuple[Records, list[int]]:
        out = tmp_path / "records"
        printed = c_program("tests/libos/trace/c/waits.c")(what, out).split()
        return records_of(out.read_bytes()), [int(number) for number in printed]

    return run_it


def of(waits: Any, what: int) -> Any:
    """Those of one kind."""
    return waits[waits["what"] == what]


def test_an_append_says_how_long_it_was_queued_and_written(run: Any) -> None:
    """The third request's flush waits for the second one's, which is in flight."""
    records, _ = run("log")
    waits = of(records.waits, lib.CL_TRACE_WAITS_LOG)
    mine = waits[numpy.isin(waits["id"], records.messages["id"])]
    assert len(mine) == len(records.messages) == 4
    assert list(mine["second"]) == [WRITE_NS] * 4
    queued = sorted(int(first) for first in mine["first"])
    assert queued[:3] == [0, 0, 0]
    assert 0.5 * WRITE_NS < queued[3] < WRITE_NS
    assert (mine["blocked"] == mine["first"] + mine["second"]).all()
    assert (records.messages["blocked"] == mine["blocked"]).all()


def test_a_handler_that_asks_over_a_stream_says_what_it_waits_for(run: Any) -> None:
    records, _ = run("streams")
    served = records.messages[records.messages["blocked"] > 0]
    assert len(served) == 2
    for message in served:
        mine = records.waits[records.waits["id"] == message["id"]]
        assert set(mine["what"]) == {lib.CL_TRACE_WAITS_CONNECT, lib.CL_TRACE_WAITS_READ}
        assert of(mine, lib.CL_TRACE_WAITS_CONNECT)["blocked"].sum() >= 2 * PATH_NS
        assert of(mine, lib.CL_TRACE_WAITS_READ)["blocked"].sum() >= 2 * PATH_NS + THINKS_NS
        assert len(numpy.unique(mine["object"])) == 1, "the stream"
        assert mine["blocked"].sum() == message["blocked"]


def test_what_a_connection_stands_still_for_is_a_message_of_its_own(run: Any) -> None:
    records, (lost_ns, missing_ns, resent) = run("stalls")
    stalled = records.messages[(records.messages["flags"] & lib.CL_TRACE_STALLED) != 0]
    waits = records.waits[numpy.isin(records.waits["id"], stalled["id"])]
    assert len(waits) == len(stalled)
    assert (waits["blocked"] == stalled["sent"]).all()
    assert (waits["begin"] == stalled["begin"]).all()
    assert len(numpy.unique(stalled["flow"])) == 1
    assert set(stalled["flow"]) == set(waits["object"]) == set(records.messages["flow"])
    assert (stalled["flags"] & lib.CL_TRACE_DRAWN).all(), "blame's percentiles are of them, too"

    (again,) = of(waits, lib.CL_TRACE_WAITS_RESEND)
    assert again["n"] == resent == 1
    assert lost_ns - 2 * PATH_NS <= again["blocked"] <= lost_ns + 2 * PATH_NS

    (hole,) = of(waits, lib.CL_TRACE_WAITS_HOLE)
    assert missing_ns - 4 * PATH_NS <= hole["blocked"] <= missing_ns

    shut = of(waits, lib.CL_TRACE_WAITS_WINDOW)
    assert len(shut) >= 1
    assert 0.5 * STAYS_AWAY_NS < shut["blocked"].max() <= STAYS_AWAY_NS + 2 * PATH_NS
    assert shut["n"].max() > 100, "segments that waited"

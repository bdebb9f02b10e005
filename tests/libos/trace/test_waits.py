"""What requests and connections wait for on a log and on the network (tests/libos/trace/c/waits.c), in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from corelane.libos._native import lib
from corelane.libos.trace import blame
from corelane.libos.trace.stages import table
from corelane.runtime.trace import Records, records_of

Program = Callable[..., Callable[..., str]]
WRITE_NS, PATH_NS, THINKS_NS, STAYS_AWAY_NS = 50_000, 10_000, 30_000, 5_000_000  # as in the program
APPENDS, SLOW_ONE_IN, SLOWER = 300, 15, 10
LOG, REQUESTS = 1, 2  # services, as they come there


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
    messages = records.messages[records.messages["service"] == REQUESTS]
    waits = of(records.waits, lib.CL_TRACE_WAITS_LOG)
    mine = waits[numpy.isin(waits["id"], messages["id"])]
    assert len(mine) == len(messages) == 4
    assert list(mine["second"]) == [WRITE_NS] * 4
    queued = sorted(int(first) for first in mine["first"])
    assert queued[:3] == [0, 0, 0]
    assert 0.5 * WRITE_NS < queued[3] < WRITE_NS
    assert (mine["blocked"] == mine["first"] + mine["second"]).all()
    assert (messages["blocked"] == mine["blocked"]).all()
    for wait in waits:  # the message of its own says the same
        (twin,) = waits[(waits["begin"] == wait["begin"]) & (waits["id"] != wait["id"])]
        assert all(twin[field] == wait[field] for field in ("first", "second", "blocked"))


def test_an_append_is_a_message_of_its_own_until_it_is_told(run: Any) -> None:
    """Those that nobody waits for end when they are durable. Of a runtime that is switched off there is none."""
    records, _ = run("log")
    messages = records.messages[records.messages["service"] == LOG]
    assert len(messages) == 4, "of five"
    assert len(records.messages) == 8
    records, _ = run("appends")
    messages = records.messages
    assert set(messages["service"]) == {LOG}
    assert len(messages) == 3 + APPENDS
    assert len(numpy.unique(messages["id"])) == 3 + APPENDS
    assert (messages["start"] == 0).all()
    assert (messages["end"] == messages["sent"]).all()
    assert ((messages["blocked"] + messages["ready"]) == messages["end"]).all()
    assert ((messages["flags"] & lib.CL_TRACE_DRAWN) != 0).all()
    mine = records.waits[numpy.isin(records.waits["id"], messages["id"])]
    assert (mine["id"] == messages["id"]).all(), "one of each, in their order"
    assert (mine["begin"] == messages["begin"]).all()
    assert (mine["blocked"] == messages["blocked"]).all()
    assert set(mine["what"]) == {lib.CL_TRACE_WAITS_LOG}
    burst = messages[:3]
    assert (numpy.diff(burst["begin"]) >= 1000).all()
    assert len(numpy.unique(burst["begin"] + burst["end"])) == 1, "they share a flush"
    slow = mine["second"] == SLOWER * WRITE_NS
    assert slow.sum() == APPENDS // SLOW_ONE_IN
    assert (mine["second"][~slow] == WRITE_NS).all()


def test_blame_names_the_part_of_an_append_that_was_slow(run: Any) -> None:
    records, _ = run("appends")
    seen = table(records, ["others", "log 1", "UDP 9001"], 10**9)
    found = blame.of_service(seen.of_service(LOG), "log 1", 0.95)
    assert found is not None
    assert found.first == ("handler", "wait: log", "written")
    assert found.alone
    assert found.value_us == SLOWER * WRITE_NS / 1e3
    assert found.median_us == found.ordinary_us == WRITE_NS / 1e3
    assert found.cause is not None
    assert found.cause.word == "log flush"
    whole = numpy.sum(list(seen.stages.values()), axis=0)
    assert numpy.allclose(whole, seen.total)


def test_sampled_the_slowest_appends_are_kept(run: Any) -> None:
    """On a kthread that gets no messages, whose milliseconds begin with appends."""
    records, _ = run("sampled")
    messages = records.messages
    assert set(messages["service"]) == {LOG}
    assert ((messages["flags"] & lib.CL_TRACE_DRAWN) == 0).all()
    assert (messages["sent"] >= SLOWER * WRITE_NS).sum() == APPENDS // SLOW_ONE_IN
    assert len(messages) < APPENDS
    mine = records.waits[numpy.isin(records.waits["id"], messages["id"])]
    assert len(mine) == len(messages)


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


def test_a_handler_says_what_it_waits_for_and_how_long(c_program: Program, tmp_path: Path) -> None:
    """For a disk, for one of a poll set, for a connection of others; and for others as its quantum is over."""
    out = tmp_path / "records"
    c_program("tests/libos/trace/c/kinds.c")(out)
    records = records_of(out.read_bytes())
    messages = records.messages[records.messages["service"] == records.messages["service"][0]]  # not of the connection
    assert len(messages) == 4
    waits = records.waits[numpy.isin(records.waits["id"], messages["id"])]
    assert (waits["id"] == messages["id"]).all(), "one of each"
    disk, poll, accept, quantum = waits
    assert disk["what"] == lib.CL_TRACE_WAITS_DISK
    assert (disk["blocked"], disk["ready"]) == (WRITE_NS, 0)
    assert poll["what"] == lib.CL_TRACE_WAITS_POLL
    assert 2 * PATH_NS + THINKS_NS <= poll["blocked"] <= 4 * PATH_NS + THINKS_NS, "once to find it"
    assert accept["what"] == lib.CL_TRACE_WAITS_ACCEPT
    assert THINKS_NS <= accept["blocked"] <= THINKS_NS + 3 * PATH_NS
    assert quantum["what"] == lib.CL_TRACE_WAITS_QUANTUM
    assert (quantum["blocked"], quantum["ready"]) == (0, THINKS_NS)
    assert (messages["blocked"] == waits["blocked"]).all()
    assert (messages["ready"] == waits["ready"]).all()
    assert (waits["object"][:3] != 0).all()


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

    wrote = of(records.waits, lib.CL_TRACE_WAITS_WRITE)
    assert not any(wrote["id"]), "of the uthread that serves it: they are of no message"
    assert wrote["blocked"].max() > 0.5 * STAYS_AWAY_NS
    assert set(wrote["object"]) == set(of(records.waits, lib.CL_TRACE_WAITS_READ)["object"]), "the stream"

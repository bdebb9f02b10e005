"""Which move belongs to which request, and what is made of their stamps."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from corelane.bench.colocate import pieces
from corelane.bench.harness.session import Session
from corelane.iokernel._native import lib
from corelane.iokernel.control.moves import Move
from corelane.runtime.clock import default_clock

US = default_clock().hz / 1e6
BASE = 7 << 32  # stamps whose low words begin at 0


def us(value: float) -> int:
    return round(value * US)


def move(at: float, steps: tuple[float, float, float, float]) -> list[Move]:
    """The decision of a move to kv, and its end; us after BASE."""
    decided, lost, left, back = (us(step) for step in steps)
    return [
        Move(BASE + us(at), 1, 2, lib.CL_IO_LOG_WANTED, lib.CL_IO_STEP_REQUEST),
        Move(
            BASE + us(at) + us(9), 1, 2, lib.CL_IO_LOG_DONE, lib.CL_IO_STEP_REQUEST, decided, decided, lost, left, back
        ),
    ]


def requests(*rows: tuple[float, float, float, float, float]) -> Any:
    """Stamps of each, us after BASE: begin, picked up, start, end, doorbell."""
    names = ("begin", "pickup", "start", "end", "sent")
    out = np.zeros(len(rows), [("begin", np.uint64), *((name, np.uint32) for name in names[1:])])
    for row, stamps in zip(out, rows, strict=True):
        row["begin"] = BASE + us(stamps[0])
        for name, stamp in zip(names[1:], stamps[1:], strict=True):
            row[name] = us(stamp) - us(stamps[0])
    return out


def test_a_move_belongs_to_the_request_that_it_was_made_for() -> None:
    first, second = (100.0, 103.0, 103.5, 104.5, 105.0), (101.0, 103.2, 104.6, 105.6, 106.0)
    found = pieces.joined(move(100.1, (100.2, 100.5, 100.7, 102.0)), requests(second, first))
    assert tuple(found) == pieces.ORDER
    expected = [0.2, 0.3, 0.2, 1.3, 1.0, 0.5, 1.0, 0.5]
    assert [values[0] for values in found.values()] == pytest.approx(expected, abs=0.01)
    assert [len(values) for values in found.values()] == [1] * len(pieces.ORDER)


def test_a_request_that_came_after_the_decision_is_none_of_its_own() -> None:
    late = (100.4, 103.0, 103.5, 104.5, 105.0)
    found = pieces.joined(move(100.1, (100.2, 100.5, 100.7, 102.0)), requests(late))
    assert [len(values) for values in found.values()] == [0] * len(pieces.ORDER)


def test_a_move_without_stamps_or_back_to_the_job_is_left_out() -> None:
    wanted, done = move(100.1, (100.2, 100.5, 100.7, 102.0))
    assert not list(pieces.asked([wanted, done._replace(back=0)]))
    assert not list(pieces.asked([wanted._replace(step=lib.CL_IO_STEP_PARKED), done]))
    assert not list(pieces.asked([wanted, done._replace(what=lib.CL_IO_LOG_STALLED)]))
    assert list(pieces.asked([wanted, done])) == [(wanted, done)]


def test_the_way_back_begins_with_the_last_doorbell() -> None:
    wanted, done = move(105.5, (105.9, 0.0, 0.0, 107.4))
    back = [wanted._replace(step=lib.CL_IO_STEP_PARKED), done]
    served = requests((100.0, 103.0, 103.5, 104.5, 105.0), (99.0, 102.0, 102.5, 103.5, 104.0))
    found = pieces.way_back(back, served)
    assert tuple(found) == pieces.BACK
    assert [values[0] for values in found.values()] == pytest.approx([0.9, 1.5], abs=0.01)
    assert [len(values) for values in pieces.way_back([wanted, done], served).values()] == [0, 0]
    assert [len(values) for values in pieces.way_back(back, requests()).values()] == [0, 0]


def test_rows_have_percentiles_of_each_piece() -> None:
    session = Session("colocate", cores=[0], progress=io.StringIO())
    slots = [{"a": [1.0] * 50, "b": [3.0] * 50}, {"a": [1.0] * 40 + [9.0] * 10, "b": [4.0] * 50}]
    pieces.add_rows(session, "ours", slots)
    assert [row["name"] for row in session.arms] == ["ours, median", "ours, p90", "ours, p99"]
    assert session.arms[0] == {"name": "ours, median", "requests": 100, "a, us": 1.0, "b, us": 4.0}
    assert session.arms[1]["a, us"] == 9.0
    pieces.add_rows(session, "none", [{"a": [1.0], "b": [1.0]}])
    assert "1 requests are too few" in session.skipped["none"]
    assert pieces.medians(slots) == {"a": 1.0, "b": 3.5}

"""What the demo says: its table and its last line."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from corelane.bench import demo
from corelane.bench.harness.openloop import Curve, Point
from corelane.bench.harness.session import Session
from corelane.bench.harness.stops import Stop


def document(gap_us: float, answered: int = 1000) -> dict[str, Any]:
    row = {"name": demo.OURS, "offered_rps": 2e6, "achieved_rps": 2e6, "seconds": 5e-4, "p50_us": 3.0}
    row |= {"sent": 1000, "answered": answered, "dropped": 0}
    return {"arms": [row], "canary": {"max_us": gap_us}, "settings": {"skipped": {demo.LINUX_KV: "this needs root"}}}


def test_a_curve_of_which_nothing_was_carried_is_said_so() -> None:
    assert demo.closing(document(100.0, answered=500)).startswith("no load was carried")
    assert demo.closing(document(100.0) | {"arms": []}).startswith("no load was carried")


@pytest.mark.parametrize("gap_us", [100.0, 4000.0])
def test_a_machine_that_stood_still_is_told_with_the_rate(gap_us: float) -> None:
    said = demo.closing(document(gap_us))
    assert said.startswith("corelane kv: 2.00 million requests/s through one core, p50 3 us when unloaded")
    assert ("stood still for up to 4 ms" in said) is (gap_us == 4000.0)


def test_a_ratio_over_another_link_has_that_over_one_link_beside_it() -> None:
    made = document(100.0)
    made["arms"] += [made["arms"][0] | {"name": demo.MEMCACHED, "achieved_rps": 1e5, "seconds": 1e-2}]
    assert "; 20 times memcached UDP, no ratio to" in demo.closing(made)
    made["arms"] += [made["arms"][0] | {"name": demo.OVER_AF_XDP, "achieved_rps": 2.5e5, "seconds": 4e-3}]
    assert "; 20 times memcached UDP (2.5 times with both on a veth pair), no ratio to" in demo.closing(made)


def test_what_has_no_ratio_is_named_with_the_reason() -> None:
    made = document(100.0)
    said = "; no ratio to memcached UDP: it carried no load, no ratio to kv on a Linux socket: this needs root"
    assert demo.closing(made).endswith(said)
    made["settings"]["skipped"][demo.MEMCACHED] = "memcached is not installed: apt-get install memcached"
    assert "; no ratio to memcached UDP: memcached is not installed, no ratio to" in demo.closing(made)


def test_a_load_that_came_back_too_slowly_was_not_carried() -> None:
    made = document(100.0)
    made["arms"] += [made["arms"][0] | {"name": demo.MEMCACHED, "achieved_rps": 1e5, "seconds": 5e-3}]
    assert "no ratio to memcached UDP: it carried no load" in demo.closing(made)


def test_the_table_has_a_row_of_what_was_skipped() -> None:
    with Session("demo", seconds=0.05, progress=io.StringIO()) as session:
        session.settings |= {"message": "a GET", "links": {}}
        stop = Stop("not in the counters", "worker 3 % busy")
        session.curve(demo.OURS, Curve([Point(1e4, 1e4, 1000, 1000, p50_us=1.0)], "the last load was carried", stop))
        session.skip(demo.MEMCACHED, f"{demo.UNCARRIED}: is the machine busy with something else?")
    said = demo.report(session.document())
    assert re.search(r"^  memcached UDP +-( +-){5}$", said, re.M)
    assert "skipped memcached UDP: it carried no load" in said


def test_a_loud_run_tells_no_rate_without_saying_that_it_is_not_judged() -> None:
    made = document(100.0)
    made["canary"] |= {"loud": True, "worst_lost_fraction": 0.5, "bound_lost_fraction": 0.05, "worst_cpu": 1}
    assert demo.closing(made).endswith(
        "; none of it is judged: the canary lost 50 % of core 1, and 5 % is the most that is judged"
    )

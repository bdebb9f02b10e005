"""Whether requests break a limit of latency (slo.py), and records of several readings (pieces.py)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maderequests import HZ, NAMES, Made

from corelane.libos.trace.pieces import arrays, joined, nearest, number, raw
from corelane.libos.trace.slo import Broken, Watch
from corelane.runtime._native import lib
from corelane.runtime.trace import Records, records_of
from corelane.runtime.tracing import limit_of


def judged(watch: Watch, records: Records) -> Broken | None:
    return watch.judge(records.messages, NAMES, HZ)


def slow(n: int, seed: int, share: float, us: float = 500.0) -> Made:
    made = Made(n, seed)
    made.us["runs"][made.some(share)] += us
    return made


def test_one_request_that_takes_too_long_breaks_a_limit_of_all() -> None:
    watch = Watch(limit_of("100us"))
    made = Made(50, 1)
    assert judged(watch, made.records()) is None
    made.us["runs"][7] += 200
    made.flags[7] &= ~lib.CL_TRACE_DRAWN
    records = made.records()
    broken = judged(watch, records)
    assert broken is not None
    assert (broken.service, broken.n, broken.over, broken.id) == ("UDP 9000", 50, 1, int(records.messages["id"][7]))
    assert broken.begin == int(records.messages["begin"][7])
    assert broken.us == pytest.approx(int(records.messages["sent"][7]) * 1e6 / HZ)
    assert str(broken).startswith("UDP 9000: a request took 20")


@pytest.mark.parametrize(("share", "breaks"), [(0.001, False), (0.005, False), (0.05, True), (0.5, True)])
def test_a_percentile_is_of_enough_drawn_requests(share: float, breaks: bool) -> None:
    watch = Watch(limit_of("p99=100us"))
    assert watch.needs == 1000
    assert judged(watch, slow(999, 1, 0.5).records()) is None, "too few"
    watch = Watch(limit_of("p99=100us"))
    found = [judged(watch, slow(500, seed, share).records()) for seed in range(2, 10)]
    assert found[::2] == [None] * 4, "each second time there are enough"
    assert [broken is not None for broken in found[1::2]] == [breaks] * 4
    if breaks:
        assert found[1] is not None
        assert (found[1].n, found[1].over > 10) == (1000, True)
        assert "UDP 9000: p99 was 5" in str(found[1])
        assert str(found[1]).endswith("us of 1,000 requests (limit p99=100us)")


def test_slow_ones_that_are_kept_besides_are_no_percentile() -> None:
    made = slow(4000, 3, 0.5)
    made.flags[made.us["runs"] > 400] &= ~lib.CL_TRACE_DRAWN
    assert judged(Watch(limit_of("p99=100us")), made.records()) is None


def test_a_limit_is_of_the_service_that_it_names_or_of_each() -> None:
    one, other = slow(3000, 4, 0.0), slow(3000, 5, 0.1)
    other.service = 2
    both = joined([one.records(), other.records()])
    for text, service in (("p99=100us", "TCP 80"), ("tcp:80:p99=100us", "TCP 80"), ("udp:9000:p99=100us", None)):
        broken = judged(Watch(limit_of(text)), both)
        assert (broken and broken.service) == service
    of_two = Watch(limit_of("p99=100us"))
    fewer = slow(600, 7, 0.1)
    fewer.service = 2
    half = joined([slow(600, 6, 0.1).records(), fewer.records()])
    assert judged(of_two, half) is None, "600 of each are not 1200 of one"


@pytest.mark.parametrize(("text", "breaks"), [("1us", False), ("p99=1us", False), ("log:1:p99=100us", True)])
def test_appends_are_held_to_a_limit_of_their_own_alone(text: str, breaks: bool) -> None:
    broken = Watch(limit_of(text)).judge(slow(3000, 5, 0.1).records().messages, ["others", "log 1"], HZ)
    assert (broken is not None) == breaks


def test_a_message_of_a_service_without_a_name() -> None:
    made = Made(3, 1, service=9)
    broken = judged(Watch(limit_of("1ns")), made.records())
    assert broken is not None
    assert broken.service == "service 9"


# Pieces


def test_readings_are_joined_and_written_as_they_were() -> None:
    parts = [slow(20, seed, 0.3).records() for seed in (1, 2)]
    parts[0] = dataclasses.replace(parts[0], lost=3, garbage=1)
    parts[1].messages["id"] += 1000
    whole = joined(parts)
    assert (number(whole), whole.lost, whole.garbage) == (sum(map(number, parts)), 3, 1)
    again = records_of(raw(whole))
    assert all((arrays(again)[name] == of).all() for name, of in arrays(whole).items())
    assert number(joined([])) == 0


@given(st.integers(0, 60), st.integers(0, 70), st.integers(0, 2**64 - 1))
@settings(max_examples=40)
def test_the_nearest_to_a_moment_are_kept(n: int, most: int, at: int) -> None:
    made = Made(n, 1)
    made.us["blocked"][::3] = 5
    records = made.records()
    kept = nearest(records, most, at)
    assert number(kept) <= most
    far = [abs(int(b) - at) for of in arrays(records).values() for b in of["begin"]]
    near = [abs(int(b) - at) for of in arrays(kept).values() for b in of["begin"]]
    assert sorted(far)[: len(near)] == sorted(near)
    if number(records) > most:
        assert len(near) >= most - far.count(sorted(far)[most]), "only those as far as the first that is left out go"

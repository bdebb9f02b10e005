"""The benchmark of the load tool: what it injects, and how it judges what was reported. Its run is a smoke test."""

from __future__ import annotations

import io
import math
import os
import statistics
from functools import partial

import pytest
from cltest import answered
from cltest.netns import skip_without_af_xdp

from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.bench.load import load
from corelane.bench.load.dataplane import reflecting, reflecting_on_af_xdp, veth
from corelane.drivers.linux import netns
from corelane.runtime.hist import Hist


def test_the_injected_times_are_those_that_the_page_gives():
    holds = sorted(load.holds())
    assert load.holds() == load.holds()
    assert min(holds) >= 500_000
    assert statistics.median(holds) == pytest.approx(0.985e6, rel=0.02)
    assert holds[round(0.99 * len(holds))] == pytest.approx(3.72e6, rel=0.05)
    assert holds[round(0.999 * len(holds))] == pytest.approx(5.34e6, rel=0.1)


def test_the_error_is_the_worst_of_the_percentiles():
    assert seen(reported=[100_000] * 2000, answered=[100_000] * 2000).error == 0
    late = [100_000] * 1960 + [110_000] * 35 + [125_000] * 5
    assert seen(late, [100_000] * 1960 + [100_000] * 35 + [100_000] * 5).error == pytest.approx(0.25, rel=0.01)
    assert seen(late, [100_000] * 1960 + [100_000] * 35 + [125_000] * 5).error == pytest.approx(0.1, rel=0.02)
    unanswered = seen([100_000] * 10, [100_000] * 10)
    unanswered.reported.record_infinite(5)
    assert math.isinf(unanswered.error)


def seen(reported: list[int], answered: list[int], injected: list[int] | None = None) -> load.Seen:
    hists = Hist(), Hist(), Hist()
    for hist, values in zip(hists, (reported, answered, injected or answered), strict=True):
        hist.record_all(values)
    return load.Seen(Point(1.0, 1.0, len(reported), len(reported), hist=hists[0]), *hists)


def test_what_the_tool_sent_late_is_no_error_and_is_beside_it():
    session = Session("load", seconds=1.0, progress=io.StringIO())
    paused = seen([150_000] * 1000, [148_500] * 1000, [100_000] * 1000)
    load.conclude_errors(session, {"a": [seen([1000] * 9, [1000] * 9)] * 3, "b": [paused] * 3})
    figure = session.figures["load.error"]
    assert figure["value"] == pytest.approx(0.01, rel=0.05)
    assert figure["beside"]["b, over what was injected"] == pytest.approx(0.5, rel=0.01)
    row = next(arm for arm in session.document()["arms"] if arm["name"] == "b")
    assert (row["injected_p50_us"], row["answered_p50_us"]) == (
        pytest.approx(100, rel=0.001),
        pytest.approx(148.5, rel=0.001),
    )


@pytest.mark.parametrize("transport", ["UDP", "TCP"])
def test_what_is_reported_is_never_less_than_what_the_server_knows(transport: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(load.CONNECTIONS, transport, 50)
    cores = (-1, -1)
    with load.Injected(transport, cores, load.holds(), "poisson") as injected:
        seen = injected.measure(2000, 0.1)
        for _ in range(20):  # a machine that has other things to do leaves requests unanswered
            if seen.measured.answered == seen.measured.sent > 0:
                break
            seen = injected.measure(2000, 0.1)
    assert seen.measured.answered == seen.measured.sent > 0
    # A bucket of the histograms is a thousandth wide.
    for percent in load.PERCENTS:
        reported, answered, injected = (h.percentile(percent) for h in (seen.reported, seen.answered, seen.injected))
        assert reported >= 0.999 * answered >= 0.998 * injected


def test_the_rate_over_memory_is_that_of_the_tool():
    point = answered(lambda: load.over_own_stack(reflecting, (-1, -1), 2000, 0.1))
    assert point.sent + point.dropped == pytest.approx(200, abs=2)


@pytest.mark.root
def test_the_rate_over_af_xdp_is_that_of_the_tool():
    if why := netns.missing():
        pytest.skip(why)
    skip_without_af_xdp()
    cpus = sorted(os.sched_getaffinity(0))
    with veth() as pair:
        reflector = partial(reflecting_on_af_xdp, pair)
        point = answered(lambda: load.over_own_stack(reflector, (cpus[0], cpus[-1]), 2000, 0.1))
    assert point.sent + point.dropped == pytest.approx(200, abs=2)


def test_the_rate_error_is_the_worst_of_the_ways_that_are_judged():
    session = Session("load", seconds=0.1)
    found = {
        "rate, UDP, kernel sockets, 200,000/s": [Point(1.0, 200_000.0 * part, 1, 1) for part in (1.0, 0.998, 1.001)],
        "rate, UDP, memory NIC, 1,000,000/s": [Point(1.0, 1e6 * part, 1, 1) for part in (0.996, 0.995, 0.999)],
        "rate, UDP, AF_XDP, 1,000,000/s": [Point(1.0, 1e6 * part, 1, 1) for part in (0.5, 0.6, 0.4)],
    }
    load.conclude_rates(session, found, list(found)[:2])
    figure = session.figures["load.rate_error"]
    assert figure["value"] == pytest.approx(0.004)
    assert figure["runs"] == pytest.approx([0.004, 0.005, 0.001])
    assert list(figure["beside"].values()) == pytest.approx([0.001, 0.004, 0.5])

"""The kv benchmark in a fraction of its time: whole documents, both ways of loading memcached. No speed is asserted."""

from __future__ import annotations

import argparse
import contextlib
import io

import pytest
from cltest import answered

from corelane.bench.baseline import memcached
from corelane.bench.harness import rig
from corelane.bench.harness.session import Session
from corelane.bench.kv import kv
from corelane.drivers.linux import netns
from corelane.drivers.nic.loadgen.loadgen import Memcached as Traffic


def session(baseline: bool) -> Session:
    options = argparse.Namespace(keys=2000, value_bytes=64)
    return Session("kv", seconds=1.0, baseline=baseline, options=options, progress=io.StringIO())


def test_memcached_over_loopback() -> None:
    why = memcached.missing()
    if why:
        pytest.skip(why)
    with session(baseline=True) as made, kv.on_loopback(made.two_cores, Traffic(keys=500)) as load:
        point = answered(lambda: load.measure(2000, 0.3))
    assert point.answered <= point.sent
    assert point.extra["hits"] == point.answered


@pytest.mark.root
@pytest.mark.parametrize("serve", [kv.on_af_xdp, pytest.param(kv.on_kernel_udp, marks=pytest.mark.soak(takes_s=2))])
def test_both_sides_of_the_value_sizes(serve: kv.Serve) -> None:
    why = netns.missing()
    if why:
        pytest.skip(why)
    with session(baseline=True) as made, contextlib.ExitStack() as stack:
        link = rig.LinuxLink(stack, made.two_cores, traffic=Traffic(keys=100, value_bytes=1300), port=kv.PORT)
        stack.enter_context(serve(link.far, made.two_cores[1]))
        point = answered(lambda: link.load.measure(1000, 0.3))
    assert point.extra["hits"] == point.answered


def test_ratio_leaves_out_rounds_without_a_load() -> None:
    made = session(baseline=True)
    kv.compare_with_memcached(made, [100.0, 0.0, 300.0], [10.0, 10.0, 10.0])
    assert made.figures["kv.over_memcached_udp"]["runs"] == [10.0, 30.0]
    assert "1 of 3 rounds" in made.notes[0]
    made = session(baseline=True)
    kv.compare_with_memcached(made, [100.0], [0.0])
    assert made.figures["kv.over_memcached_udp"]["value"] is None


def test_the_ratio_over_one_link_stands_beside_the_figure() -> None:
    made = session(baseline=True)
    beside = kv.compare_on_one_link(made, [30.0, 0.0, 20.0], [10.0, 10.0, 10.0])
    assert beside == {kv.ONE_LINK: 2.5}
    kv.compare_with_memcached(made, [100.0], [10.0], beside)
    assert made.figures["kv.over_memcached_udp"]["beside"] == beside
    assert kv.compare_on_one_link(made, [0.0], [10.0]) == {}
    assert "in no round" in made.notes[-1]

"""What the posix benchmark makes of its rounds, and that its servers answer. No speed is asserted."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from cltest import answered, netns_missing
from cltest.netns import skip_without_af_xdp

from corelane.bench.baseline import memcached
from corelane.bench.harness.load import Load
from corelane.bench.harness.session import Session
from corelane.bench.kv_tcp.scripts import Space
from corelane.bench.posix import foreign, posix, servers

SPACE = Space(200)


def cores() -> tuple[int, int]:
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[0], cpus[-1]


def test_figures_pair_the_rounds() -> None:
    with Session("posix", seconds=0.02) as session:
        posix._gain(session, "memcached", {servers.LINUX: [10.0, 20.0, 10.0], servers.OURS: [20.0, 60.0, 25.0]})
        posix._gain(session, "nginx", {servers.LINUX: [10.0, 0.0], servers.OURS: [20.0, 60.0]})
    session.finish(posix.FIGURES)
    figures = session.document()["figures"]
    assert figures["posix.memcached_gain"]["value"] == 2.5
    assert figures["posix.nginx_gain"]["value"] is None
    assert set(figures) == set(posix.FIGURES)


def test_what_a_wrapped_call_costs(tmp_path: Path) -> None:
    cost = foreign.measure(foreign.compile_into(tmp_path), cores()[0], 0.01)
    assert cost.through_ns > 0
    assert cost.direct_ns > 0
    assert cost.empty_ns > 0


@pytest.mark.root
def test_memcached_answers_in_both_worlds() -> None:
    if missing := netns_missing() or memcached.missing():
        pytest.skip(missing)
    skip_without_af_xdp()
    with contextlib.ExitStack() as stack:
        pair = servers.Pair(stack, cores(), "memcached", SPACE, 5)
        for world in posix.WORLDS:
            with pair.client(world, "closed") as load:
                point = answered(lambda load=load: Load(load).measure(0.0, 0.1))
            assert "wrong" not in point.extra

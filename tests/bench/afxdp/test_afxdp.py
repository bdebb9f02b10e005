"""The servers that `corelane bench afxdp` compares: each answers the same kernel client at the same address."""

from __future__ import annotations

import json
import math
import os

import pytest

from corelane.bench.afxdp import afxdp, pair
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.drivers.bpf import loader
from corelane.runtime.errors import CorelaneError

pytestmark = pytest.mark.root


@pytest.mark.parametrize("name", [*afxdp.OURS, *afxdp.LINUX])
def test_each_arm_answers_at_the_address_and_leaves_the_interface_as_it_was(netns, name):
    near, far = netns.link(addresses=pair.ADDRESSES)
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    place = pair.Place(near, cpus[-1], cpus[:2], "generic")
    for _ in range(2):
        with (afxdp.OURS | afxdp.LINUX)[name](place), far.namespace.udp_socket() as sock:
            program = near.namespace.call(lambda: loader.attached(near.index))
            assert (program != 0) == (name in afxdp.OURS)
            for i in range(20):
                sock.sendto(bytes([i]) * 22, (near.address, pair.PORT))
                assert sock.recvfrom(100) == (bytes([i]) * 22, (near.address, pair.PORT))
        assert near.namespace.call(lambda: loader.attached(near.index)) == 0


def test_a_wrong_mode_is_refused(netns):
    near, _ = netns.link(addresses=pair.ADDRESSES)
    with pytest.raises(CorelaneError, match="choose native, generic or auto"):
        pair.Place(near, 0, (0, 1), "sideways").nic()


def point(p50_us: float) -> Point:
    answered = 100 if math.isfinite(p50_us) else 40
    return Point(1e4, 1e4, 100, answered, p50_us=p50_us, p90_us=math.inf, p99_us=math.inf, p999_us=math.inf)


def figures(**p50: list[float]) -> dict[str, float | None]:
    """Figures from medians by arm, made up: one a round."""
    names = {"linux_spin": "linux spin", "linux_block": "linux block"}
    with Session("afxdp", seconds=0.02) as session:
        afxdp._report(session, {names.get(k, k): [point(v) for v in values] for k, values in p50.items()})
    session.finish(afxdp.FIGURES)
    document = session.document()
    json.dumps(document, allow_nan=False)
    return {name: figure["value"] for name, figure in document["figures"].items()}


def test_figures_pair_the_rounds_and_leave_out_those_that_were_lost():
    rest = {"iokernel": [9.0] * 3, "linux_spin": [6.0] * 3, "linux_block": [8.0] * 3}
    assert figures(reflector=[2.0, 4.0, 2.0], embedded=[2.2, 4.4, 2.0], **rest) == {
        "afxdp.p50_over_reflector": pytest.approx(1.1),
        "afxdp.linux_spin_over_ours": pytest.approx(6 / 2.2),
        "afxdp.linux_block_over_ours": pytest.approx(8 / 2.2),
    }
    lost = figures(reflector=[2.0, math.inf, 2.0], embedded=[3.0, 3.0, 3.0], **rest)
    assert lost["afxdp.p50_over_reflector"] == pytest.approx(1.5)
    mostly = figures(reflector=[2.0, math.inf, 2.0], embedded=[math.inf, 3.0, 3.0], **rest)
    assert mostly["afxdp.p50_over_reflector"] is None

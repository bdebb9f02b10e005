"""The floor of a TCP server answers our client as a server would, with the right bytes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from corelane.bench.tcp import links
from corelane.bench.tcp.reflector import Reflector
from corelane.drivers.nic.loadgen.loadgen import Limits
from corelane.runtime.errors import CorelaneError

CPUS = sorted(os.sched_getaffinity(0))
CORES = (CPUS[0], CPUS[-1])
PATIENT = Limits(drain_s=20.0, give_up_s=20.0)


@pytest.mark.parametrize("connects", [False, True], ids=["reflector", "minimal"])
@pytest.mark.parametrize("plain", [False, True], ids=["timestamps", "plain"])
@pytest.mark.parametrize("traffic", ["ask", "churn"])
def test_each_request_is_answered(traffic: str, plain: bool, connects: bool) -> None:
    how: dict[str, Any] = {"connections": 20, "verify": True, "plain": plain, "limits": PATIENT}
    with (
        links.floor(CORES, traffic, **how) as floor,
        Reflector(floor.server_end, cpu=floor.cpu, connects=connects),
    ):
        result = floor.load.run(5000, 0.05, 0.0)
        assert 100 < result.offered == result.answered
        assert result.wrong == 0
        other = floor.load.other()
        assert (other["gaps"], other["foreign"], other["bad_checksums"]) == (0, 0, 0)


@pytest.mark.parametrize("connects", [False, True], ids=["reflector", "minimal"])
def test_it_measures_again_and_again(connects: bool) -> None:
    with links.floor(CORES, "ask", connects=connects, connections=3, limits=PATIENT) as floor:
        for _ in range(3):
            point = floor.measure(5000, 0.03)
            assert point.answered == point.sent > 0


@pytest.mark.parametrize("keeps", [False, True])
def test_it_takes_what_never_ends(keeps: bool) -> None:
    with links.floor(CORES, "send", limits=PATIENT) as floor:
        with Reflector(floor.server_end, cpu=floor.cpu, takes=True, keeps=keeps):
            floor.load.run(0.0, 0.05, 0.0)
        came, went = floor.load.bytes()
    assert came == 0
    assert went > 0


def test_a_core_that_is_not_there_is_refused() -> None:
    with links.floor(CORES, "ask") as floor, pytest.raises(CorelaneError, match="cpu 100000 is out of range"):
        Reflector(floor.server_end, cpu=100_000)

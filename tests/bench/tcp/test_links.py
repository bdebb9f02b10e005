"""Servers of `corelane bench tcp` over AF_XDP on a veth pair that its smoke test leaves out."""

from __future__ import annotations

import contextlib
import os

import pytest

from corelane.bench.tcp import links
from corelane.drivers.linux import netns
from corelane.drivers.nic.loadgen.loadgen import Limits

PATIENT = Limits(drain_s=20.0, give_up_s=20.0)
CPUS = sorted(os.sched_getaffinity(0))


@pytest.mark.skipif(bool(netns.missing()), reason=netns.missing() or "")
@pytest.mark.parametrize("server", ["attached", "floor"])
def test_a_server_on_a_veth_answers(server: str) -> None:
    with contextlib.ExitStack() as stack:
        pair = links.Veth(stack, (CPUS[0], CPUS[-1]))
        stack.enter_context(getattr(pair, server)())
        load = stack.enter_context(pair.client("ask", connections=5, verify=True, limits=PATIENT))
        result = load.run(1000, 0.05, 0.0)
        assert (result.wrong, result.offered) == (0, result.answered)
        assert result.offered > 20

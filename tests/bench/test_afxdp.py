"""The servers that `corelane bench afxdp` compares: each answers the same kernel client at the same address."""

from __future__ import annotations

import os

import pytest

from corelane.bench import afxdp
from corelane.drivers.bpf import loader
from corelane.runtime.errors import CorelaneError

pytestmark = pytest.mark.root


@pytest.mark.parametrize("name", [*afxdp.OURS, *afxdp.LINUX])
def test_each_arm_answers_at_the_address_and_leaves_the_interface_as_it_was(netns, name):
    near, far = netns.link(addresses=afxdp.ADDRESSES)
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    place = afxdp._Place(near, cpus[-1], cpus[:2], "generic")
    for _ in range(2):
        with (afxdp.OURS | afxdp.LINUX)[name](place), far.namespace.udp_socket() as sock:
            program = near.namespace.call(lambda: loader.attached(near.index))
            assert (program != 0) == (name in afxdp.OURS)
            for i in range(20):
                sock.sendto(bytes([i]) * 22, (near.address, afxdp.PORT))
                assert sock.recvfrom(100) == (bytes([i]) * 22, (near.address, afxdp.PORT))
        assert near.namespace.call(lambda: loader.attached(near.index)) == 0


def test_a_wrong_mode_is_refused(netns):
    near, _ = netns.link(addresses=afxdp.ADDRESSES)
    with pytest.raises(CorelaneError, match="choose native, generic or auto"):
        afxdp._Place(near, 0, (0, 1), "sideways").nic()

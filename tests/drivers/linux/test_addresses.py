"""The addresses that Linux has, as an iokernel is told of them."""

from __future__ import annotations

import pytest
from cltest import NetnsFactory

from corelane.drivers.linux.addresses import local_ipv4
from corelane.drivers.nic.nic import ipv4_to_int


def test_loopback_is_one():
    assert ipv4_to_int("127.0.0.1") in local_ipv4()


@pytest.mark.root
def test_all_of_a_namespace_are_there_and_none_of_another(netns: NetnsFactory):
    near, far = netns.link()
    near.namespace.ip("address", "add", "10.79.0.9/24", "dev", near.name)
    with near.namespace.entered():
        got = local_ipv4()
    assert {ipv4_to_int(near.address), ipv4_to_int("10.79.0.9")} <= got
    assert ipv4_to_int(far.address) not in got

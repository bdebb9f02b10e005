"""The addresses that Linux has, as an iokernel is told of them."""

from __future__ import annotations

import errno
import os
import socket

import pytest
from cltest import NetnsFactory

from corelane.drivers.linux.addresses import local_ipv4
from corelane.drivers.nic.nic import ipv4_to_int
from corelane.runtime.errors import SystemLimit


def test_loopback_is_one():
    assert ipv4_to_int("127.0.0.1") in local_ipv4()


def test_without_a_descriptor_it_says_which_limit(monkeypatch: pytest.MonkeyPatch):
    """With its number: the iokernel's control thread makes room and tries again."""

    def none_left(*_: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socket", none_left)
    with pytest.raises(SystemLimit, match="ulimit -n") as refused:
        local_ipv4()
    assert refused.value.errno == errno.EMFILE


@pytest.mark.root
def test_all_of_a_namespace_are_there_and_none_of_another(netns: NetnsFactory):
    near, far = netns.link()
    near.namespace.ip("address", "add", "10.79.0.9/24", "dev", near.name)
    with near.namespace.entered():
        got = local_ipv4()
    assert {ipv4_to_int(near.address), ipv4_to_int("10.79.0.9")} <= got
    assert ipv4_to_int(far.address) not in got

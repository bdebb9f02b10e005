"""Namespaces for tests and benchmarks: what they promise about names, removal, threads and offloads."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from corelane.drivers.linux import ethtool
from corelane.drivers.linux import netns as spaces
from corelane.runtime.errors import CorelaneError

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True)
def _able():
    if missing := spaces.missing():
        pytest.skip(missing)


def here() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


def test_what_a_killed_process_with_our_id_left_behind_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spaces, "_counter", iter([10**9, 10**9]))
    with spaces.namespace("left") as left:
        inode = left.path.stat().st_ino
        with spaces.namespace("left") as again:  # the same name
            assert again == left
            assert again.path.stat().st_ino != inode
        spaces._ip("netns", "add", left.name)  # for the outer block to remove


def test_names_are_unique_and_everything_is_removed_even_after_an_error():
    names = []

    def fail() -> None:
        with spaces.link() as (near, far):
            names.extend((near.namespace.name, far.namespace.name))
            assert near.namespace.path.exists()
            raise KeyError("inside")

    with pytest.raises(KeyError):
        fail()
    with spaces.namespace() as third:
        names.append(third.name)
    assert len(set(names)) == 3
    assert not any((spaces.Namespace(n)).path.exists() for n in names)


def test_only_the_calling_thread_moves_and_it_comes_back():
    home = here()
    with spaces.namespace() as space:
        inside: list[int] = []
        with space.entered():
            moved = here()
            assert [name for _, name in socket.if_nameindex()] == ["lo"]
        assert here() == home != moved
        outside = threading.Thread(target=lambda: inside.append(here()))
        outside.start()
        outside.join()
        thread = space.thread(lambda: inside.append(here()))
        thread.join()
        assert inside == [home, moved]
        assert space.call(here) == moved
        with pytest.raises(KeyError), space.entered():
            raise KeyError
        assert here() == home


def test_a_link_carries_datagrams_and_has_no_offloads():
    with spaces.link(queues=3, mtu=1400) as (near, far):
        for end in (near, far):
            with end.namespace.entered():
                assert not ethtool.tx_checksum(end.name)
                assert ethtool.receive_queues(end.name) == 3
                assert socket.if_nametoindex(end.name) == end.index
            assert "mtu 1400" in end.namespace.ip("link", "show", end.name)
        with near.namespace.udp_socket((near.address, 0)) as a, far.namespace.udp_socket((far.address, 9000)) as b:
            a.sendto(b"hello", (far.address, 9000))
            assert b.recv(10) == b"hello"
        listed = far.namespace.run(["ip", "neigh"]).stdout
        assert f"{near.address} dev {far.name} lladdr {near.mac.hex(':')} PERMANENT" in listed


def test_errors_carry_the_words_of_ip():
    with spaces.namespace() as space, pytest.raises(CorelaneError, match="Cannot find device"):
        space.ip("link", "set", "nowhere", "up")
    outside = spaces.link(addresses=("192.0.2.1", "192.0.2.2"))
    with pytest.raises(CorelaneError, match="only range that test links may use"):
        outside.__enter__()


def test_a_device_without_ethtool_says_nothing():
    assert ethtool.receive_queues("lo") is None
    with pytest.raises(CorelaneError, match="transmit checksum offload stays on"):
        ethtool.offloads_off("nowhere")

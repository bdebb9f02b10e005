"""The raw AF_XDP reflector: it answers every datagram, drops the rest, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest
from cltest import wait_until
from cltest.packets import Host, ethernet, ipv4, udp

from corelane.bench.afxdp.reflector import Reflector
from corelane.drivers.bpf import loader
from corelane.runtime.errors import CorelaneError

pytestmark = pytest.mark.root


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("mode", ["native", "generic"])
def test_it_reflects_datagrams_of_a_kernel_socket(netns, mode, checks):
    near, far = netns.link()
    cpu = min(os.sched_getaffinity(0))
    with near.namespace.entered():
        reflector = Reflector(near.name, cpu=cpu, mode=mode, chunks=64, ring_slots=64, checks=checks)
    with reflector, far.namespace.udp_socket() as sock:
        assert reflector.mode == mode
        for i in range(200):  # three laps of its rings
            payload = bytes([i]) * (i * 7)
            sock.sendto(payload, (near.address, 9000))
            assert sock.recvfrom(2048) == (payload, (near.address, 9000))
        wait_until(lambda: reflector.counts[0] == 200, what="the count, which follows the answer")
        far.namespace.ip("neigh", "del", near.address, "dev", far.name)
        sock.sendto(b"asks by ARP", (near.address, 9000))
        wait_until(lambda: reflector.counts[1] > 0, what="the ARP request to be dropped")
    assert near.namespace.call(lambda: loader.attached(near.index)) == 0


def test_it_takes_the_time_of_its_doorbells_when_asked_to(netns):
    near, far = netns.link()
    with near.namespace.entered():
        reflector = Reflector(near.name, cpu=min(os.sched_getaffinity(0)), chunks=64, ring_slots=64)
    with reflector, far.namespace.udp_socket() as sock:
        for asked in (False, True):
            if asked:
                assert reflector.doorbells_ns == []
                reflector.time_doorbells()
            for _ in range(20):
                sock.sendto(b"there", (near.address, 9000))
                assert sock.recvfrom(100)[0] == b"there"
        wait_until(lambda: len(reflector.doorbells_ns) == 20, what="the last time, which follows the answer")
        assert min(reflector.doorbells_ns) > 0


def test_one_that_checks_drops_what_is_wrong_and_makes_checksums_anew(netns):
    """A datagram without a checksum (RFC 768 permits 0) is answered with one."""
    near, far = netns.link()
    with near.namespace.entered():
        reflector = Reflector(near.name, cpu=min(os.sched_getaffinity(0)), chunks=64, ring_slots=64, checks=True)
    here, there = Host(far.mac.hex(":"), far.address), Host(near.mac.hex(":"), near.address)

    def frame(*, ip_check: int | None = None, **of_udp: int) -> bytes:
        body = udp(b"x" * 33, here.ip, there.ip, 5555, 9000, **of_udp)
        return ethernet(ipv4(body, here.ip, there.ip, check=ip_check), here.mac, there.mac)

    wrong = [frame(ip_check=1), frame(check=1), frame(length=42)]
    with reflector, contextlib.ExitStack() as stack:
        with far.namespace.entered():
            sock = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)))
        sock.bind((far.name, 0x0800))
        sock.settimeout(60)
        for sent in [*wrong, frame(check=0)]:
            sock.send(sent)
        answer = sock.recv(2048)
        wait_until(lambda: reflector.counts[0] == 1, what="the count, which follows the answer")
        wait_until(lambda: reflector.counts[1] >= 3, what="the wrong ones to be dropped")
    assert answer == there.datagram(here, b"x" * 33, sport=9000, dport=5555)


def test_refusals(netns):
    near, _ = netns.link()
    with near.namespace.entered():
        with pytest.raises(CorelaneError, match="2000 chunks for rings of 1024"):
            Reflector(near.name, cpu=0, chunks=2000)
        with pytest.raises(CorelaneError, match="cpu -1 is out of range"):
            Reflector(near.name, cpu=-1)
        with pytest.raises(CorelaneError, match="no interface eth9"):
            Reflector("eth9", cpu=0)
    assert near.namespace.call(lambda: loader.attached(near.index)) == 0

"""A runtime and a Linux network stack that meet over a wire in user space."""

from __future__ import annotations

import socket

import pytest

from corelane import libos
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.link.link import Link
from corelane.drivers.nic.link.wire import Wire
from corelane.drivers.nic.memory import memory_link


@pytest.mark.root
def test_linux_asks_a_runtime_over_a_wire_that_loses(netns):
    host, end = netns.link(static_arp=False)
    host.namespace.ip("address", "flush", "dev", host.name)
    host.namespace.ip("address", "add", "10.99.0.1/24", "dev", host.name)
    with end.namespace.entered():
        linux = AfXdp(end.name, steer="all")
    near, nic = memory_link(ipv4=(None, "10.99.0.2"), ipv4_prefix=24, mac=(None, "02:00:00:00:99:02"))

    def answer(request: memoryview) -> bytes:
        return bytes(request)[::-1]

    with (
        nic,
        Wire(linux, near, there=Link(delay_us=500, loss=0.2), back=Link(delay_us=500)).start() as wire,
        libos.Runtime(nic=nic) as runtime,
    ):
        runtime.bind(libos.udp(port=9000, compiled=False)(answer))
        runtime.start()
        with host.namespace.entered():
            client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with client:
            client.settimeout(0.05)
            answers = 0
            for i in range(200):
                client.sendto(b"%03d" % i, ("10.99.0.2", 9000))
                try:
                    answers += client.recv(10) == (b"%03d" % i)[::-1]
                except TimeoutError:
                    continue
                if answers >= 20 and wire.counts("there").dropped_lost:
                    break
        assert answers >= 20
        assert wire.counts("there").dropped_lost > 0
        assert runtime.stop() == 0
        assert runtime.stats().balanced

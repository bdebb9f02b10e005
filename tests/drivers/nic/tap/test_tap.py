"""TAP NICs with Linux's own stack at the other end of the wire as the oracle."""

from __future__ import annotations

import gc
import os
import random
import resource
import socket
import struct
from typing import Any

import pytest
from cltest import open_descriptors, wait_until

from corelane.drivers._native import ffi, lib
from corelane.drivers.linux import netns as spaces
from corelane.drivers.linux.ethtool import tx_checksum
from corelane.drivers.nic.nic import ipv4_to_int, mac_to_bytes
from corelane.drivers.nic.tap.tap import Tap
from corelane.runtime.errors import CorelaneError

pytestmark = pytest.mark.root
LINUX, APP = "10.79.5.1", "10.79.5.2"
UDP_SEGMENT, UDP_GRO = 103, 104  # linux/udp.h


@pytest.fixture
def space(netns):
    return netns.add("tap")


def open_tap(space: spaces.Namespace, name: str = "cltap", *args, **options) -> Tap:
    options.setdefault("address", f"{LINUX}/24")
    with space.entered():
        return Tap(name, *args, **options)


def interface_mac(space: spaces.Namespace, name: str) -> bytes:
    return bytes.fromhex(space.ip("-br", "link", "show", name).split()[2].replace(":", ""))


def know_app(space: spaces.Namespace, nic: Tap) -> None:
    space.ip("neigh", "replace", APP, "lladdr", nic.mac, "dev", nic.ifname, "nud", "permanent")


def arrives(nic: Tap, port: int = 9000) -> bytes:
    """The next datagram for a port; Linux also sends frames of its own."""
    found: list[bytes] = []

    def look() -> bool:
        for queue in range(nic.queues):
            frames = nic.recv(queue=queue)
            found.extend(f for f in frames if f[12:14] == b"\x08\0" and f[36:38] == struct.pack(">H", port))
        return bool(found)

    wait_until(look, what="a datagram")
    return found[0]


def test_datagrams_to_and_from_a_kernel_socket(space):
    with open_tap(space) as nic, space.udp_socket((LINUX, 0)) as sock:
        know_app(space, nic)
        port = sock.getsockname()[1]
        for size in (0, 1, 100, 1472):
            payload = os.urandom(size)
            sock.sendto(payload, (APP, 9000))
            frame = arrives(nic)
            assert frame[42:] == payload
            buf = ffi.new("uint8_t[]", lib.CL_UDP_HEADERS + size)
            ffi.buffer(buf)[lib.CL_UDP_HEADERS :] = payload[::-1]
            addresses = (ipv4_to_int(APP), ipv4_to_int(LINUX))
            macs = (mac_to_bytes(nic.mac), interface_mac(space, nic.ifname))
            lib.cl_net_udp_headers(buf, *macs, *addresses, 9000, port, size, True)
            assert nic.send(bytes(ffi.buffer(buf))) == 1
            assert sock.recvfrom(2048) == (payload[::-1], (APP, 9000))
        assert nic.buffers_free == nic.buffers


def test_it_takes_a_free_name_and_vanishes_with_the_nic(space):
    with open_tap(space, "many%d") as nic:
        assert nic.ifname == "many0"
        assert f"{LINUX}/24" in space.ip("-br", "address", "show", "many0")
        with open_tap(space, "many%d", address="10.79.6.1/30", mtu=1400) as other:
            assert other.ifname == "many1"
            assert other.mtu == 1400
            assert "10.79.6.1/30" in space.ip("-br", "address", "show", "many1")
    assert "many" not in space.ip("link")


def test_flows_spread_over_the_queues(space):
    with open_tap(space, queues=4) as nic, space.udp_socket((LINUX, 0)) as sock:
        know_app(space, nic)
        for port in range(9000, 9100):
            sock.sendto(b"flow", (APP, port))
        per_queue = [0] * 4

        def all_there() -> bool:
            for queue in range(4):
                per_queue[queue] += sum(f[42:46] == b"flow" for f in nic.recv(queue=queue))
            return sum(per_queue) == 100

        wait_until(all_there)
        assert min(per_queue) > 0


def test_what_linux_had_no_room_for_is_counted(space):
    with open_tap(space) as nic, space.udp_socket((LINUX, 0)) as sock:
        know_app(space, nic)
        space.ip("link", "set", nic.ifname, "txqueuelen", "50")
        sent = 0
        for _ in range(400):
            try:
                sent += sock.sendto(b"flood", (APP, 9000)) == 5
            except OSError:  # ENOBUFS: Linux says so itself
                continue
        got = 0

        def settled() -> bool:
            nonlocal got
            got += sum(f[36:38] == struct.pack(">H", 9000) for f in nic.recv())
            return got + nic.stats().rx_dropped_ring_full >= sent

        wait_until(settled, what=lambda: f"{sent} accounted for: {got} + {nic.stats()}")
        dropped = nic.stats().rx_dropped_ring_full
        assert dropped > 0
        space.ip("link", "delete", nic.ifname)
        assert nic.stats().rx_dropped_ring_full >= dropped, "a counter does not go back when its interface has gone"


def test_too_many_open_files_are_no_missing_driver(space):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # else what an earlier test left gives a descriptor back meanwhile
    for spare in range(3):  # for neither, one and both of the queue's two descriptors
        with space.entered():
            lowest = os.open("/dev/null", os.O_RDONLY)
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))
            try:
                with pytest.raises(CorelaneError, match="Too many open files") as caught:
                    Tap("cltap", set_up=spare == 2)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert "modprobe" not in str(caught.value)


def test_a_frame_costs_a_system_call(space):
    with open_tap(space) as nic:
        nic.recv()
        before = nic.stats().syscalls
        assert nic.send([b"\x02" * 60] * 20) == 20
        assert nic.stats().syscalls == before + 20


def joining(nic: Tap, space: spaces.Namespace) -> bool:
    """Whether Linux hands over what a socket sent at once as it is: since 6.2."""
    with space.entered():
        return tx_checksum(nic.ifname)  # set together with it


def test_what_a_socket_sent_at_once_comes_by_one_call_and_whole(space, seed):
    drawn = random.Random(seed)
    with open_tap(space, buffers=64) as nic, space.udp_socket((LINUX, 0)) as sock:
        know_app(space, nic)
        for size, count, last in ((100, 64, 100), (1, 2, 1), (1472, 40, 7), (124, 33, 123)):
            payload = drawn.randbytes(size * (count - 1) + last)
            sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
            nic.recv()
            before = nic.stats().syscalls
            assert sock.sendto(payload, (APP, 9000)) == len(payload)
            got: list[bytes] = []

            def all_there() -> bool:
                got.extend(f for f in nic.recv(10) if f[36:38] == struct.pack(">H", 9000))  # noqa: B023
                return len(got) == count  # noqa: B023

            wait_until(all_there, what="the datagrams")
            assert b"".join(f[42:] for f in got) == payload
            assert [len(f) - 42 for f in got] == [size] * (count - 1) + [last]
            for f in got:
                assert lib.cl_net_checksum(f[14:34], 20) == 0
                assert struct.unpack_from(">H", f, 16) == (len(f) - 14,)
                words = (ipv4_to_int(LINUX), ipv4_to_int(APP), f[34:], len(f) - 34)
                assert f[40:42] != b"\0\0"
                assert lib.cl_net_udp_checksum_ok(*words)
            if count > 30 and joining(nic, space):  # a look at an empty tap is a call, too
                assert nic.stats().syscalls - before < count
        assert nic.buffers_free == nic.buffers
        assert nic.stats().rx_dropped_malformed == 0


def test_equal_datagrams_leave_by_one_call_and_arrive_each(space, seed):
    drawn = random.Random(seed)
    with open_tap(space) as nic, space.udp_socket((LINUX, 0)) as sock, space.udp_socket((LINUX, 0)) as whole:
        know_app(space, nic)
        whole.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        macs = (mac_to_bytes(nic.mac), interface_mac(space, nic.ifname))

        def frame(to: socket.socket, payload: bytes, checksum: bool = True) -> bytes:
            buf = ffi.new("uint8_t[]", lib.CL_UDP_HEADERS + len(payload))
            ffi.buffer(buf)[lib.CL_UDP_HEADERS :] = payload
            addresses = (ipv4_to_int(APP), ipv4_to_int(LINUX))
            lib.cl_net_udp_headers(buf, *macs, *addresses, 9000, to.getsockname()[1], len(payload), checksum)
            return bytes(ffi.buffer(buf))

        payloads = [drawn.randbytes(16) for _ in range(63)] + [b"last"]
        for to in (sock, whole):
            before = nic.stats()
            assert nic.send([frame(to, p) for p in payloads]) == 64
            after = nic.stats()
            assert after.tx_frames - before.tx_frames == 64
            if joining(nic, space):
                assert after.syscalls - before.syscalls == 1
        assert [sock.recvfrom(2048)[0] for _ in payloads] == payloads
        if joining(nic, space):
            assert whole.recvfrom(65536)[0] == b"".join(payloads)
        # One without a checksum, one whose checksum is wrong, and one to somebody else go by themselves.
        bad = bytearray(frame(sock, b"bad bad bad bad "))
        bad[-1] ^= 1
        burst = [frame(sock, p) for p in payloads[:4]]
        burst[2:2] = [frame(sock, b"no sum of itself", checksum=False), bytes(bad), frame(whole, payloads[0])]
        assert nic.send(burst) == 7
        expected = [*payloads[:2], b"no sum of itself", *payloads[2:4]]
        assert [sock.recvfrom(2048)[0] for _ in expected] == expected
        if joining(nic, space):
            assert whole.recvfrom(2048)[0] == payloads[0]
        assert nic.stats().tx_dropped_error == 0


def test_joined_and_taken_apart_are_the_same_frames(c_program, seed):
    c_program("tests/drivers/nic/tap/c/segments.c", one_thread=True)(3000, seed)


def test_a_deleted_interface_is_noticed(space):
    with open_tap(space) as nic:
        space.ip("link", "delete", nic.ifname)
        wait_until(lambda: not nic.recv() and nic.gone, what="the NIC to see that its tap is gone")


def test_a_prepared_tap_is_opened_as_it_is(space):
    space.ip("tuntap", "add", "dev", "ready", "mode", "tap", "multi_queue")
    with open_tap(space, "ready", 2, set_up=False) as nic:
        assert nic.ifname == "ready"
        assert LINUX not in space.ip("address", "show", "ready")
    assert "ready" in space.ip("link"), "a persistent tap stays"
    with pytest.raises(CorelaneError, match="another number of queues"):
        open_tap(space, "ready", 1)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"queues": 0}, "0 queues: from 1 to 64"),
    ({"queues": 65}, "65 queues: from 1 to 64"),
    ({"mtu": 20}, "MTU 20: from 68"),
    ({"buffers": 3}, "3 buffers: at least 64"),
    ({"address": "10.79.5.1/40"}, "no IPv4 address with its prefix"),
    ({"mac": "02:00"}, "not a MAC address"),
]


def test_refusals_say_why_and_leave_nothing_behind(space):
    descriptors = open_descriptors()
    for options, reason in REFUSED:
        with pytest.raises(CorelaneError, match=reason):
            open_tap(space, **options)
        assert open_descriptors() == descriptors, options
        assert "cltap" not in space.ip("link"), options


def test_an_address_without_a_prefix_is_a_hosts(space):
    with open_tap(space, address=LINUX) as nic:
        assert f"{LINUX}/32" in space.ip("-br", "address", "show", nic.ifname)


def test_a_long_name_and_a_busy_tap_are_refused(space):
    with pytest.raises(CorelaneError, match="at most 15 characters"):
        open_tap(space, "x" * 16)
    with open_tap(space), pytest.raises(CorelaneError, match="Device or resource busy: somebody holds it"):
        open_tap(space)


def test_linux_asks_for_the_address_by_arp(space):
    with open_tap(space) as nic, space.udp_socket((LINUX, 0)) as sock:
        sock.sendto(b"x", (APP, 9000))
        seen: list[bytes] = []
        wait_until(lambda: seen.extend(nic.recv()) or any(f[12:14] == b"\x08\x06" for f in seen))
        request = next(f for f in seen if f[12:14] == b"\x08\x06")
        assert request[38:42] == socket.inet_aton(APP)

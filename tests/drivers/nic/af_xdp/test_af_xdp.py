"""AF_XDP on a veth pair with Linux's own stack on the far side as the oracle."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from cltest import open_descriptors, wait_until

from corelane.drivers._native import ffi, lib
from corelane.drivers.bpf import loader, steer
from corelane.drivers.bpf.object import read_object
from corelane.drivers.linux import netns as spaces
from corelane.drivers.nic.af_xdp import af_xdp
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp, SocketOptions, Umem
from corelane.drivers.nic.nic import ipv4_to_int, mac_to_bytes
from corelane.runtime.errors import CorelaneError

pytestmark = pytest.mark.root
APP = "10.79.0.77"


@pytest.fixture
def link(netns):
    """(near, far): our NIC sits on near, Linux's stack is on far and knows the application's MAC."""
    near, far = netns.link()
    spaces.neighbour(far, APP, near.mac)
    return near, far


def open_nic(end: spaces.Interface, *args, **options) -> AfXdp:
    with end.namespace.entered():
        return AfXdp(end.name, *args, **options)


def datagram(nic: AfXdp, far: spaces.Interface, payload: bytes, source: int, target: int) -> bytes:
    buf = ffi.new("uint8_t[]", lib.CL_UDP_HEADERS + len(payload))
    ffi.buffer(buf)[lib.CL_UDP_HEADERS :] = payload
    peer = (far.mac, ipv4_to_int(APP), ipv4_to_int(far.address))
    lib.cl_net_udp_headers(buf, mac_to_bytes(nic.mac), *peer, source, target, len(payload), True)
    return bytes(ffi.buffer(buf))


def checksum_holds(frame: bytes) -> bool:
    """Whether the UDP checksum of an IPv4 frame without options is right (RFC 768)."""
    ip = frame[14:]
    udp = ip[20 : struct.unpack(">H", ip[2:4])[0]]
    words = ip[12:20] + struct.pack(">HH", 17, len(udp)) + udp + b"\0" * (len(udp) % 2)
    total = sum(struct.unpack(f">{len(words) // 2}H", words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


def test_auto_is_generic_on_a_veth_of_one_queue_and_left_to_the_kernel_elsewhere(netns):
    several, _ = netns.link(queues=2)
    with open_nic(several, addresses=[APP]) as nic:
        assert nic.mode == "native"
    near, _ = netns.link()
    with open_nic(near, addresses=[APP]) as nic:
        assert nic.mode == "generic"
    with open_nic(near, addresses=[APP], mode="native") as nic:
        assert nic.mode == "native"
    assert near.namespace.call(lambda: af_xdp.xdp_mode("lo")) == "auto"


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_datagrams_to_and_from_a_kernel_socket(link, mode):
    near, far = link
    with open_nic(near, addresses=[APP], mode=mode) as nic, far.namespace.udp_socket() as sock:
        assert nic.mode == mode
        assert not nic.zero_copy
        assert nic.ipv4 == APP
        port = sock.getsockname()[1]
        for size in (0, 1, 17, 18, 100, 1472):
            payload = os.urandom(size)
            sock.sendto(payload, (APP, 9000))
            frame = nic.recv(timeout_s=30)[0]
            assert frame[42 : 42 + size] == payload
            assert checksum_holds(frame), "the kernel left the checksum to an offload"
            assert nic.send(datagram(nic, far, payload[::-1], 9000, port)) == 1
            assert sock.recvfrom(2048) == (payload[::-1], (APP, 9000))
        assert nic.counters()["redirected_ipv4"] == 6
        wait_until(lambda: nic.buffers_free == nic.buffers, what="every buffer back")


def echo_request(nic: AfXdp, far: spaces.Interface) -> bytes:
    """A frame with an ICMP echo request from APP, which Linux answers."""
    frame = bytearray(datagram(nic, far, bytes(8), 0, 0))
    frame[23] = socket.IPPROTO_ICMP
    frame[24:26] = bytes(2)
    frame[24:26] = checksum(bytes(frame[14:34]))
    frame[34:] = echo = bytearray(struct.pack(">BBHHH8x", 8, 0, 0, 77, 1))
    frame[36:38] = checksum(bytes(echo))
    return bytes(frame)


def take_all(nic: AfXdp, queue: int) -> list[int]:
    """The numbers of all buffers that a queue's owner can get. They stay out."""
    frames, numbers = ffi.new("struct cl_frame[64]"), []
    while n := lib.cl_nic_alloc(nic.ptr, queue, frames, 64):
        numbers += [frames[i].buf for i in range(n)]
    return numbers


def checksum(data: bytes) -> bytes:
    """RFC 1071, of an even number of bytes."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", ~total & 0xFFFF)


def ping(space: spaces.Namespace, target: str) -> bool:
    """One ICMP echo request from a raw socket of the namespace; whether the reply came."""
    request = struct.pack(">BBHHH", 8, 0, 0, 77, 1) + b"ping"
    words = struct.unpack(">6H", request)
    total = sum(words)
    request = request[:2] + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + request[4:]
    with space.entered():
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with sock:
        sock.settimeout(60)
        sock.sendto(request, (target, 0))
        while True:
            reply = sock.recv(2048)
            if reply[20] == 0 and reply[24:26] == struct.pack(">H", 77):
                return reply[28:32] == b"ping"


def test_what_is_not_the_applications_stays_with_linux(netns):
    near, far = netns.link(static_arp=False)
    with open_nic(near, addresses=[APP]) as nic:
        # Linux's own address on the same interface: ARP is answered, ICMP and UDP work as ever.
        assert ping(far.namespace, near.address)
        with near.namespace.udp_socket((near.address, 9000)) as server, far.namespace.udp_socket() as client:
            client.sendto(b"for Linux", (near.address, 9000))
            assert server.recv(100) == b"for Linux"
        assert nic.recv() == []
        counters = nic.counters()
        assert counters["passed_not_ours"] >= 3
        assert counters["redirected_ipv4"] == counters["redirected_arp"] == 0


def test_arp_for_the_application_reaches_it_and_its_answer_reaches_linux(netns):
    near, far = netns.link(static_arp=False)
    with open_nic(near, addresses=[APP]) as nic, far.namespace.udp_socket() as sock:
        sock.sendto(b"who is there", (APP, 9000))
        request = nic.recv(timeout_s=30)[0]
        assert request[12:22] == b"\x08\x06\0\1\x08\0\6\4\0\1"
        assert request[38:42] == socket.inet_aton(APP)
        mac = mac_to_bytes(nic.mac)
        reply = request[6:12] + mac + request[12:20] + b"\0\2" + mac + request[38:42] + request[22:32]
        assert nic.send(reply) == 1
        frame = nic.recv(timeout_s=30)[0]
        assert frame[:6] == mac
        assert frame[42:] == b"who is there"
        assert nic.counters()["redirected_arp"] == 1


def test_addresses_come_and_go_while_it_runs(link):
    near, far = link
    with open_nic(near) as nic, far.namespace.udp_socket() as sock:
        sock.sendto(b"one", (APP, 9000))
        assert nic.recv() == []
        nic.add_address(APP)
        sock.sendto(b"two", (APP, 9000))
        assert [f[42:45] for f in nic.recv(timeout_s=30)] == [b"two"]
        assert nic.remove_address(APP)
        assert not nic.remove_address(APP)
        sock.sendto(b"three", (APP, 9000))
        nic.add_subnet("10.79.0.64/27")
        sock.sendto(b"four", (APP, 9000))
        assert [f[42:46] for f in nic.recv(timeout_s=30)] == [b"four"]
        assert nic.remove_subnet("10.79.0.64/27")
        with pytest.raises(CorelaneError, match="no IPv4 address"):
            nic.add_address("localhost")


def test_frames_of_several_queues_leave_by_any_other(netns):
    near, far = netns.link(queues=3)
    with open_nic(near, steer="all") as nic, open_nic(far, steer="all") as peer:
        assert nic.queues == peer.queues == 3
        burst = ffi.new("struct cl_frame[64]")
        for come, leave in ((0, 1), (1, 2), (2, 0), (2, 1)):
            assert peer.send(b"\x02" * 60, queue=come) == 1
            wait_until(lambda q=come: lib.cl_nic_rx(nic.ptr, q, burst, 64), what=f"the frame on queue {come}")
            assert lib.cl_nic_tx(nic.ptr, leave, burst, 1) == 1
            assert peer.recv(queue=leave, timeout_s=30) == [b"\x02" * 60]
        wait_until(lambda: nic.buffers_free == nic.buffers)


def test_overload_is_counted_by_reason_and_the_sums_balance(link):
    near, far = link
    with (
        open_nic(near, steer="all", umem=Umem(ring_slots=128, fill=64, buffers=256)) as nic,
        open_nic(far, steer="all") as peer,
    ):
        assert peer.send([b"\x02" * 60] * 300) == 300
        stats = nic.stats()
        assert stats.rx_dropped_no_buffer == 300 - 64
        got = len(nic.recv(n=300))
        assert got == 64
        stats = nic.stats()
        assert stats.rx_frames + stats.dropped == 300 == peer.stats().tx_frames
        assert nic.counters()["redirected_all"] == 300
        assert nic.kernel_stats()["rx_fill_ring_empty_descs"] == 300 - 64
        assert peer.send(b"\x02" * 60) == 1
        assert len(nic.recv(timeout_s=30)) == 1, "it works again"


def test_the_rx_ring_never_overflows_since_no_more_chunks_are_on_offer(link):
    near, far = link
    small = Umem(ring_slots=64, fill=64, buffers=256)
    with open_nic(near, steer="all", umem=small) as nic, open_nic(far, steer="all") as peer:
        assert peer.send([b"\x02" * 60] * 32) == 32
        assert len(nic.recv(n=20)) == 20
        assert peer.send([b"\x02" * 60] * 200) == 200
        stats = nic.stats()
        assert stats.rx_dropped_ring_full == 0
        assert stats.rx_dropped_no_buffer == 200 - 64 + 12
        assert len(nic.recv(n=300)) == 64


def test_an_oversized_frame_is_malformed(netns):
    near, far = netns.link(mtu=1700)
    with open_nic(near, addresses=[APP]) as nic:
        spaces.neighbour(far, APP, near.mac)
        far.namespace.ip("link", "set", far.name, "mtu", "3000")
        with far.namespace.udp_socket() as sock:
            sock.sendto(bytes(2500), (APP, 9000))
            sock.sendto(b"fits", (APP, 9000))
        frames = nic.recv(timeout_s=30)
        assert [f[42:46] for f in frames] == [b"fits"]
        # The veth refuses it, or the socket counts it: in no case does half a frame come through.
        assert nic.stats().rx_frames == 1


def test_closing_detaches_and_the_queue_is_free_at_once(link):
    near, far = link
    descriptors = open_descriptors()
    for _ in range(4):
        nic = open_nic(near, addresses=[APP])
        assert near.namespace.call(lambda: loader.attached(near.index)) == nic.program_id
        nic.close()
        nic.close()
        assert near.namespace.call(lambda: loader.attached(near.index)) == 0
    assert open_descriptors() == descriptors
    with near.namespace.udp_socket((near.address, 9000)) as server, far.namespace.udp_socket() as client:
        client.sendto(b"Linux has it all again", (near.address, 9000))
        assert server.recv(100).startswith(b"Linux")


def test_a_nic_given_to_a_wrapper_detaches_when_it_is_forgotten(link):
    near, _ = link
    nic = open_nic(near)
    ptr = nic.release()
    assert near.namespace.call(lambda: loader.attached(near.index)) != 0
    lib.cl_nic_close(ptr)
    del nic
    gc.collect()
    assert near.namespace.call(lambda: loader.attached(near.index)) == 0


def test_a_removed_interface_is_noticed(netns):
    near, far = netns.link()
    with open_nic(near, steer="all") as nic:
        assert not nic.gone
        far.namespace.ip("link", "delete", far.name)
        wait_until(lambda: nic.stats() and not nic.recv() and nic.gone, what="the NIC to see that its device is gone")
        assert nic.recv() == []
        far.namespace.ip(
            "link", "add", far.name, "type", "veth", "peer", "name", near.name, "netns", near.namespace.name
        )


def test_statistics_notice_a_removed_interface_by_themselves(netns):
    """A loop that sleeps receives nothing and is woken by nothing."""
    near, far = netns.link()
    with open_nic(near, steer="all") as nic:
        nic.stats()
        assert not nic.gone
        far.namespace.ip("link", "delete", far.name)
        nic.stats()
        assert nic.gone
        far.namespace.ip(
            "link", "add", far.name, "type", "veth", "peer", "name", near.name, "netns", near.namespace.name
        )


def test_an_interface_that_goes_down_and_up_works_again(link):
    near, far = link
    with open_nic(near, steer="all") as nic, open_nic(far, steer="all") as peer:
        near.namespace.ip("link", "set", near.name, "down")
        peer.send(b"\x02" * 60)
        nic.send(b"\x02" * 60)
        near.namespace.ip("link", "set", near.name, "up")
        wait_until(lambda: peer.send(b"\x02" * 60) and nic.recv(timeout_s=0.1), what="frames again")
        assert not nic.gone


def test_a_doorbell_that_was_refused_is_wanted_again_at_a_known_time(link):
    """For who sleeps by the descriptor, as an adopted kthread and an iokernel do: no frame would wake it."""
    near, _ = link
    never = 2**64 - 1

    def wanted() -> int:
        return int(nic.ptr.ops.next_tsc(nic.ptr, 0))

    with open_nic(near, steer="all") as nic:
        assert wanted() == never
        near.namespace.ip("link", "set", near.name, "down")
        nic.send(b"\x02" * 60)
        assert 0 < wanted() < never
        near.namespace.ip("link", "set", near.name, "up")
        wait_until(lambda: nic.recv() is not None and wanted() == never, what="a doorbell that is taken")


def test_a_queue_that_somebody_holds_is_refused_after_the_deadline(link, monkeypatch):
    near, _ = link
    monkeypatch.setattr(af_xdp, "BIND_DEADLINE_MS", 1)
    with open_nic(near, addresses=[APP]), pytest.raises(CorelaneError, match="queue 0: Device or resource busy"):
        open_nic(near)


def test_a_foreign_xdp_program_is_not_pushed_aside(link):
    near, _ = link
    with (
        loader.load(read_object(steer.steer_object("raw"))) as other,
        near.namespace.call(lambda: loader.attach(other.program_fd, near.index)),
    ):
        with pytest.raises(CorelaneError, match="another XDP program is attached"):
            open_nic(near)
        assert near.namespace.call(lambda: loader.attached(near.index)) == other.program_id


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"queues": 5}, "has 1 receive queues, not 5"),
    ({"queues": 0}, "give a number, or a range"),
    ({"queues": range(0, 4, 2)}, "give a number, or a range"),
    ({"sockets": SocketOptions(zero_copy="yes")}, "no zero-copy AF_XDP"),
    ({"mode": "fast"}, "choose native, generic or auto"),
    ({"steer": "some"}, "'addresses', 'all' or 'raw'"),
    ({"umem": Umem(ring_slots=100)}, "a power of two is needed"),
    ({"umem": Umem(buffers=100)}, "at least 576 buffers are needed"),
    ({"addresses": ["10.0.0.300"]}, "not an IPv4 address"),
    ({"addresses": ["10.0.0.3/33"]}, "not an IPv4 address"),
    ({"steer": "all", "addresses": [APP]}, "has no map 'addresses'"),
    ({"program": "/nowhere/x.o"}, "cannot read eBPF object /nowhere/x.o"),
]


def test_refusals_say_why_and_leave_nothing_behind(link):
    near, _ = link
    descriptors = open_descriptors()
    for options, reason in REFUSED:
        with pytest.raises(CorelaneError, match=reason):
            open_nic(near, **options)
        assert near.namespace.call(lambda: loader.attached(near.index)) == 0, options
        assert open_descriptors() == descriptors, options


def test_an_unknown_interface_is_refused_with_those_that_exist(link):
    near, _ = link
    with near.namespace.entered(), pytest.raises(CorelaneError, match=r"no interface 'eth9'.*there are: lo, cla"):
        AfXdp("eth9")


def test_unread_queues_are_refused_unless_wanted(netns):
    near, _ = netns.link(queues=2)
    with pytest.raises(CorelaneError, match="spreads frames over 2 queues and only 1 would be read"):
        open_nic(near, 1)
    with open_nic(near, range(1, 2)) as nic:
        assert nic.queues == 1


def test_a_thief_receives_beside_the_owner_who_sends_and_every_buffer_comes_back(netns, c_library):
    near, far = netns.link(queues=2)
    spaces.neighbour(far, APP, near.mac)
    run = ctypes.CDLL(str(c_library("tests/drivers/nic/af_xdp/c/thief.c"))).thief_run
    run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32]
    run.restype = ctypes.c_int64
    # Few buffers, so that both sides go to the pool all the while.
    with open_nic(near, addresses=[APP], umem=Umem(buffers=1024, ring_slots=128, fill=64)) as nic:
        frame = echo_request(nic, far)
        assert run(int(ffi.cast("uintptr_t", nic.ptr)), frame, len(frame), 30000) > 0
        assert nic.stats().tx_frames == 30000

        def all_are_back() -> bool:
            for queue in range(nic.queues):
                nic.recv(queue=queue)
            return nic.buffers_free == nic.buffers

        wait_until(all_are_back, what="every buffer back")
        held = [take_all(nic, queue) for queue in range(nic.queues)]
        buffers = [buffer for of_queue in held for buffer in of_queue]
        assert len(set(buffers)) == len(buffers), "a buffer was given out twice"


def test_an_mtu_that_no_buffer_holds_is_refused_with_the_remedy(netns):
    near, _ = netns.link(mtu=1900)
    with pytest.raises(CorelaneError, match=r"MTU 1900.*mtu 1778.*frames of 4096"):
        open_nic(near)
    with open_nic(near, umem=Umem(buffer_bytes=4096)) as nic:
        assert nic.mtu == 1900


def test_a_program_of_the_user_takes_the_place_of_ours(link, tmp_path):
    near, far = link
    path = tmp_path / "mine.o"
    path.write_bytes(steer.steer_object("raw"))
    with open_nic(near, program=path) as nic, open_nic(far, steer="all") as peer:
        assert peer.send(b"\x02" * 60) == 1
        assert nic.recv(timeout_s=30) == [b"\x02" * 60]
        assert nic.counters() == {}
        with pytest.raises(CorelaneError, match="has no map 'addresses'"):
            nic.add_address(APP)


def test_promiscuous_ends_with_the_nic(link):
    near, _ = link

    def promiscuity() -> str:
        details = near.namespace.ip("-d", "link", "show", near.name)
        return details.split("promiscuity ")[1].split()[0]

    with open_nic(near, promiscuous=True):
        assert promiscuity() == "1"
    assert promiscuity() == "0"


def test_an_idle_poll_makes_no_system_call_and_a_burst_makes_one(link):
    near, far = link
    with open_nic(near, steer="all") as nic, open_nic(far, steer="all") as peer:
        burst = ffi.new("struct cl_frame[64]")
        for _ in range(100):
            assert lib.cl_nic_rx(nic.ptr, 0, burst, 64) == 0
        assert nic.stats().syscalls == 0
        for _ in range(10):
            assert peer.send([b"\x02" * 60] * 64) == 64
        assert peer.stats().syscalls == 10


def test_without_capability_the_error_names_it(link):
    """In a child that gave its capabilities up, so that this process keeps its own."""
    near, _ = link
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with near.namespace.entered():
                os.setgid(65534)
                os.setuid(65534)
                try:
                    AfXdp(near.name)
                except CorelaneError as error:
                    code = 0 if "needs root, or CAP_BPF" in str(error) else 2
                os._exit(code)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_namespace_of_the_process_is_left_alone():
    assert not [p for p in Path("/sys/class/net").iterdir() if p.name in ("cla", "clb")]

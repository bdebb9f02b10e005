"""The XDP program on crafted frames, by BPF_PROG_TEST_RUN: which go to the socket, which stay with Linux.

A test run of a redirect into an empty XSKMAP gives the fallback verdict, so "to the socket" shows in the counters:
a frame of ours counts as passed_no_socket there, any other under its own reason.
"""

from __future__ import annotations

import os
import random
import struct

import pytest

from corelane.drivers.bpf import loader, steer
from corelane.drivers.bpf.object import read_object
from corelane.runtime.errors import CorelaneError

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loading eBPF takes CAP_BPF and CAP_NET_ADMIN"),
]

MAC_A, MAC_B = b"\x02\0\0\0\0\x0a", b"\x02\0\0\0\0\x0b"
OURS, OTHER, IN_SUBNET = "10.77.0.5", "10.77.0.6", "10.88.3.4"


def ip(text: str) -> bytes:
    return bytes(int(p) for p in text.split("."))


def ether(ethertype: int, payload: bytes) -> bytes:
    return MAC_A + MAC_B + struct.pack(">H", ethertype) + payload


def ipv4(dst: str, payload: bytes = b"hello", *, first: int = 0x45, fragment: int = 0, options: bytes = b"") -> bytes:
    total = 20 + len(options) + len(payload)
    header = struct.pack(">BBHHHBBH4s4s", first, 0, total, 7, fragment, 64, 17, 0, ip("10.77.0.9"), ip(dst))
    return ether(0x0800, header + options + payload)


def arp(target: str, *, hardware: int = 1, protocol: int = 0x0800, sizes: int = 0x0604, operation: int = 1) -> bytes:
    body = struct.pack(">HHHH", hardware, protocol, sizes, operation) + MAC_B + ip("10.77.0.9") + bytes(6) + ip(target)
    return ether(0x0806, body)


@pytest.fixture(scope="module")
def program():
    with loader.load(read_object(steer.steer_object("addresses"))) as loaded:
        loaded.maps["addresses"].update(steer.address_key(OURS), 1)
        loaded.maps["subnets"].update(steer.subnet_key("10.88.0.0/16"), 1)
        yield loaded


def counters(loaded: loader.Loaded) -> dict[str, int]:
    return {name: loaded.maps["counters"].sum(i) for i, name in enumerate(steer.COUNTERS)}


def verdict(loaded: loader.Loaded, frame: bytes) -> str:
    """The one counter that the frame incremented; checks that Linux gets the frame unchanged."""
    before = counters(loaded)
    run = loaded.test_run(frame)
    assert run.verdict == steer.XDP_PASS
    assert run.frame == frame
    changed = {k: v - before[k] for k, v in counters(loaded).items() if v != before[k]}
    assert list(changed.values()) == [1], f"counted once: {changed}"
    return next(iter(changed))


TO_SOCKET = {
    "ipv4": ipv4(OURS),
    "ipv4 without payload": ipv4(OURS, b""),
    "ipv4 with options": ipv4(OURS, first=0x4F, options=bytes(40)),
    "first fragment": ipv4(OURS, fragment=0x2000),
    "later fragment": ipv4(OURS, fragment=0x2010),
    "longest frame": ipv4(OURS, bytes(1480)),
    "subnet": ipv4(IN_SUBNET),
    "arp request": arp(OURS),
    "arp reply": arp(OURS, operation=2),
    "arp in subnet": arp(IN_SUBNET),
    "arp padded": arp(OURS) + bytes(18),
}
TO_LINUX = {
    "another address": (ipv4(OTHER), "passed_not_ours"),
    "address byte-swapped": (ipv4("5.0.77.10"), "passed_not_ours"),
    "broadcast": (ipv4("255.255.255.255"), "passed_not_ours"),
    "multicast": (ipv4("224.0.0.251"), "passed_not_ours"),
    "beside the subnet": (ipv4("10.89.0.1"), "passed_not_ours"),
    "arp for another": (arp(OTHER), "passed_not_ours"),
    "arp of another hardware": (arp(OURS, hardware=6), "passed_other_protocol"),
    "arp of another protocol": (arp(OURS, protocol=0x86DD), "passed_other_protocol"),
    "arp of other sizes": (arp(OURS, sizes=0x0804), "passed_other_protocol"),
    "vlan": (ether(0x8100, struct.pack(">HH", 5, 0x0800) + ipv4(OURS)[14:]), "passed_other_protocol"),
    "qinq": (ether(0x88A8, struct.pack(">HH", 5, 0x8100) + ipv4(OURS)[14:]), "passed_other_protocol"),
    "ipv6": (ether(0x86DD, b"\x60" + bytes(39)), "passed_other_protocol"),
    "802.3 length": (ether(46, ipv4(OURS)[14:60]), "passed_other_protocol"),
    "ethertype alone": (ether(0x0800, b""), "passed_malformed"),
    "ipv4 cut in the address": (ipv4(OURS)[:33], "passed_malformed"),
    "arp cut in the address": (arp(OURS)[:41], "passed_malformed"),
    "ipv4 of version 6": (ipv4(OURS, first=0x65), "passed_malformed"),
    "ipv4 header too short": (ipv4(OURS, first=0x44), "passed_malformed"),
    "ipv4 of version 0": (ipv4(OURS, first=0x05), "passed_malformed"),
}


@pytest.mark.parametrize("name", TO_SOCKET)
def test_frames_of_the_application_go_to_its_socket(program, name):
    assert verdict(program, TO_SOCKET[name]) == "passed_no_socket"


@pytest.mark.parametrize("name", TO_LINUX)
def test_everything_else_stays_with_linux(program, name):
    frame, reason = TO_LINUX[name]
    assert verdict(program, frame) == reason


@pytest.mark.parametrize("make", [ipv4, arp])
def test_every_truncation_is_safe_and_never_ours(program, make):
    whole = make(OURS)
    needed = 34 if make is ipv4 else 42
    for size in range(14, needed):
        assert verdict(program, whole[:size]) == "passed_malformed"
    assert verdict(program, whole[:needed]) == "passed_no_socket"


def model(frame: bytes, ours: set[bytes]) -> str:
    """What the program shall do, in a few lines of Python."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        if len(frame) < 34 or not 0x45 <= frame[14] <= 0x4F:
            return "passed_malformed"
        target = frame[30:34]
    elif kind == b"\x08\x06":
        if len(frame) < 42:
            return "passed_malformed"
        if frame[14:20] != b"\0\1\x08\0\6\4":
            return "passed_other_protocol"
        target = frame[38:42]
    else:
        return "passed_other_protocol"
    return "passed_no_socket" if target in ours or target[:2] == ip(IN_SUBNET)[:2] else "passed_not_ours"


def test_random_frames_agree_with_the_model(program, seed):
    rng = random.Random(seed)
    seeds = [*TO_SOCKET.values(), *(f for f, _ in TO_LINUX.values())]
    for _ in range(1500):
        frame = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(4)):
            frame[rng.randrange(min(len(frame), 44))] = rng.choice((0, 4, 6, 8, 0x45, 10, 77, rng.randrange(256)))
        cut = bytes(frame[: rng.randint(14, len(frame))]) if rng.random() < 0.3 else bytes(frame)
        assert verdict(program, cut) == model(cut, {ip(OURS)}), cut.hex()


def test_addresses_come_and_go(program):
    assert verdict(program, ipv4("10.99.0.1")) == "passed_not_ours"
    program.maps["addresses"].update(steer.address_key("10.99.0.1"), 1)
    assert verdict(program, ipv4("10.99.0.1")) == "passed_no_socket"
    assert program.maps["addresses"].delete(steer.address_key("10.99.0.1"))
    assert verdict(program, ipv4("10.99.0.1")) == "passed_not_ours"


def test_steering_all_takes_everything():
    with loader.load(read_object(steer.steer_object("all"))) as loaded:
        for frame in [*TO_SOCKET.values(), *(f for f, _ in TO_LINUX.values())]:
            assert verdict(loaded, frame) == "passed_no_socket"


@pytest.mark.parametrize("text", ["10.77.0", "10.77.0.256", "::1", "host", ""])
def test_an_address_must_be_one(text):
    with pytest.raises(CorelaneError, match="no IPv4 address"):
        steer.address_key(text)


@pytest.mark.parametrize("text", ["10.77.0.0", "10.77.0.0/33", "10.77.0.0/x", "10.77/16"])
def test_a_subnet_must_be_one(text):
    with pytest.raises(CorelaneError, match="no IPv4"):
        steer.subnet_key(text)


def test_an_unknown_way_to_steer_is_refused():
    with pytest.raises(CorelaneError, match="'addresses', 'all' or 'raw'"):
        steer.steer_object("some")

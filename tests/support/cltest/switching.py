"""Frames, and what must hold of an iokernel's counters, for the tests of ports, iokernel and benchmarks."""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

from corelane.drivers._native import ffi, lib
from corelane.drivers.nic.nic import Nic
from corelane.iokernel import Iokernel

from .waiting import wait_until


def mac_bytes(nic: Nic) -> bytes:
    return bytes(ffi.buffer(nic.ptr.mac))


def ip_int(nic: Nic) -> int:
    return int(nic.ptr.ipv4)


def udp_frame(
    src: tuple[bytes, int], dst: tuple[bytes, int], payload: bytes, ports: tuple[int, int] = (20000, 9000)
) -> bytes:
    """A UDP datagram; src and dst are (MAC, IPv4 in host order)."""
    buf = ffi.new("uint8_t[]", lib.CL_UDP_HEADERS + len(payload))
    ffi.buffer(buf)[lib.CL_UDP_HEADERS :] = payload
    lib.cl_net_udp_headers(buf, src[0], dst[0], src[1], dst[1], *ports, len(payload), True)
    return bytes(ffi.buffer(buf))


def between(a: Nic, b: Nic, payload: bytes, flow: int = 0) -> bytes:
    """A datagram from one NIC to another."""
    return udp_frame((mac_bytes(a), ip_int(a)), (mac_bytes(b), ip_int(b)), payload, (20000 + flow, 9000))


def arp_frame(
    op: int, sender: tuple[bytes, int], target: tuple[bytes, int], eth_dst: bytes, eth_src: bytes | None = None
) -> bytes:
    """An ARP packet (RFC 826)."""
    head = eth_dst + (eth_src or sender[0]) + b"\x08\x06"
    body = struct.pack("!HHBBH6sI6sI", 1, 0x0800, 6, 4, op, sender[0], sender[1], target[0], target[1])
    return head + body


BROADCAST = b"\xff" * 6
STRANGER = (bytes.fromhex("020000000099"), int(ipaddress.IPv4Address("10.77.200.200")))


def stats_of(iokernel: Iokernel, name: str) -> dict[str, Any]:
    return next(a for a in iokernel.stats()["apps"] if a["name"] == name)


def assert_balanced(iokernel: Iokernel) -> None:
    """Every frame is in exactly one counter, and every buffer is free or lent (iokernel/state/iokernel.h). A loop that
    lost its CPU may have one in hand: it is waited for."""
    found: list[str] = []

    def balanced() -> bool:
        found[:] = unbalanced(iokernel.stats())
        return not found

    wait_until(balanced, what=lambda: f"counters to balance: {found}")


def unbalanced(stats: dict[str, Any]) -> list[str]:
    """Which of an iokernel's counters do not add up."""
    out = []

    def check(of: dict[str, Any], whole: str, parts: tuple[str, ...], dropped: str) -> None:
        total = sum(of[k] for k in parts) + sum(v for k, v in of.items() if dropped and k.startswith(dropped))
        if of[whole] != total:
            out.append(f"{whole} {of[whole]}, its parts {total}: {of}")

    for app in stats["apps"]:
        sent = ("tx_local", "tx_remote", "tx_uplink", "tx_flooded", "tx_answered", "tx_handed_on")
        check(app, "tx_taken", sent, "tx_dropped_")
        check(app, "rx_offered", ("rx_delivered",), "rx_dropped_")
        check(app | {"buffers": app["arena"]["n_rx"]}, "buffers", ("buffers_free", "buffers_lent"), "")
    for loop in stats["loops"]:
        check(loop, "up_received", ("up_local", "up_remote", "up_flooded", "up_answered"), "up_dropped_")
        check(loop, "out_offered", ("out_sent", "out_staged"), "out_dropped_")
    if stats["departed"]["buffers_lost"]:
        out.append(f"buffers were lost: {stats['departed']}")
    return out


def collect(port: Nic, n: int, deadline_s: float = 60.0) -> list[bytes]:
    """Receive on all queues until n frames have come; AssertionError if they do not."""
    got: list[bytes] = []

    def look() -> bool:
        for queue in range(port.queues):
            got.extend(port.recv(n, queue=queue))
        return len(got) >= n

    wait_until(look, deadline_s, what=lambda: f"{n} frames on {port}, {len(got)} came")
    return got

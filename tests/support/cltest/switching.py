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
    """Every frame is in exactly one counter, and every buffer is free or lent (iokernel/state/iokernel.h)."""
    stats = iokernel.stats()
    sent = ("tx_local", "tx_remote", "tx_uplink", "tx_flooded", "tx_answered", "tx_handed_on")
    for app in stats["apps"]:
        ends = sum(app[k] for k in sent)
        assert app["tx_taken"] == ends + sum(v for k, v in app.items() if k.startswith("tx_dropped_")), app
        assert app["rx_offered"] == app["rx_delivered"] + sum(
            v for k, v in app.items() if k.startswith("rx_dropped_")
        ), app
        assert app["buffers_free"] + app["buffers_lent"] == app["arena"]["n_rx"], app
    for loop in stats["loops"]:
        ends = sum(loop[k] for k in ("up_local", "up_remote", "up_flooded", "up_answered"))
        assert loop["up_received"] == ends + sum(v for k, v in loop.items() if k.startswith("up_dropped_")), loop
        assert loop["out_offered"] == loop["out_sent"] + loop["out_staged"] + sum(
            v for k, v in loop.items() if k.startswith("out_dropped_")
        ), loop
    assert stats["departed"]["buffers_lost"] == 0


def collect(port: Nic, n: int, deadline_s: float = 60.0) -> list[bytes]:
    """Receive on all queues until n frames have come; AssertionError if they do not."""
    got: list[bytes] = []

    def look() -> bool:
        for queue in range(port.queues):
            got.extend(port.recv(n, queue=queue))
        return len(got) >= n

    wait_until(look, deadline_s, what=lambda: f"{n} frames on {port}, {len(got)} came")
    return got

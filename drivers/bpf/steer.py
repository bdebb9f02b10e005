"""The XDP program of this package: an application's frames to its AF_XDP socket, everything else to Linux.

Which frames are the application's (steer="addresses"):
  - IPv4, untagged Ethernet, destination address in map `addresses` (exact) or in `subnets` (longest prefix). Fragments,
    options and any protocol included: the address is the application's, so all of its traffic is.
  - ARP for IPv4 over Ethernet whose target protocol address is such an address.
steer="all" takes every frame of the device; the load generator uses it. steer="raw" does so without counting: the
least that a program can do, which is what a floor is measured with.

A frame goes to the socket bound to the receive queue it came in on; if that queue has none, Linux keeps it. Truncated
frames, VLAN-tagged frames, IPv6, multicast, broadcast other than ARP: Linux. (A tag that the driver has stripped into
metadata is invisible to XDP: switch rxvlan off on devices that carry tagged traffic to the same addresses.)

Counters, a per-CPU array: one of them is incremented for every frame, so that their sum is what the device received.
"""

from __future__ import annotations

import socket
import struct
from functools import cache

from ...runtime.errors import CorelaneError
from .asm import R0, R1, R2, R3, R4, R6, R7, R8, R10, Assembler, Code, Helper
from .elf import MapDef, write_object
from .loader import HASH, LPM_TRIE, NO_PREALLOC, PERCPU_ARRAY, XSKMAP

XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT = range(5)

# Indices into the map `counters`.
COUNTERS = (
    "redirected_ipv4",
    "redirected_arp",
    "redirected_all",
    "passed_not_ours",
    "passed_other_protocol",
    "passed_malformed",
    "passed_no_socket",
)
FUNCTION = "corelane_steer"
MAX_ADDRESSES = 4096
MAX_QUEUES = 64

MAPS = {
    "xsks": MapDef(XSKMAP, 4, 4, MAX_QUEUES),
    "counters": MapDef(PERCPU_ARRAY, 4, 8, len(COUNTERS)),
    "addresses": MapDef(HASH, 4, 4, MAX_ADDRESSES),
    "subnets": MapDef(LPM_TRIE, 8, 4, MAX_ADDRESSES, NO_PREALLOC),
}

# struct xdp_md of linux/bpf.h
_MD_DATA, _MD_DATA_END, _MD_RX_QUEUE = 0, 4, 16
# Offsets in the frame: Ethernet II, IPv4 (RFC 791), ARP (RFC 826).
_ETHERTYPE, _IP, _IP_DST, _IP_END = 12, 14, 30, 34
_ARP_FIXED, _ARP_TPA, _ARP_END = 14, 38, 42
# Stack: the LPM key {prefix length u32, address u32}; the hash key is its second half.
_LPM_KEY, _ADDRESS, _INDEX = -8, -4, -12


def _network16(value: int) -> int:
    """What a little-endian 16-bit load of a big-endian field yields."""
    return int(struct.unpack("<H", struct.pack(">H", value))[0])


def _network32(value: int) -> int:
    return int(struct.unpack("<I", struct.pack(">I", value))[0])


def _count(a: Assembler, index: int | None) -> None:
    """counters[index]++ for this CPU; index None: the value in R8. Clobbers R0-R5. Keeps R6, R7, R8."""
    skip = f"counted_{a.position}"
    a.store("u32", R10, _INDEX, R8 if index is None else index)
    a.load_map(R1, "counters")
    a.move(R2, R10)
    a.alu("+", R2, _INDEX)
    a.call(Helper.MAP_LOOKUP_ELEM)
    a.jump_if(R0, "==", 0, skip)
    a.load("u64", R1, R0, 0)
    a.alu("+", R1, 1)
    a.store("u64", R0, 0, R1)
    a.label(skip)


def _pass(a: Assembler, label: str, counter: str) -> None:
    a.label(label)
    _count(a, COUNTERS.index(counter))
    a.move(R0, XDP_PASS)
    a.exit()


def _redirect(a: Assembler) -> None:
    """To the socket of this queue, counting under R8; without a socket pass to Linux and count that instead."""
    a.label("redirect")
    a.load("u32", R2, R6, _MD_RX_QUEUE)
    a.load_map(R1, "xsks")
    a.move(R3, XDP_PASS)  # the verdict if there is no socket
    a.call(Helper.REDIRECT_MAP)
    a.move(R7, R0)
    a.jump_if(R7, "==", XDP_REDIRECT, "tally")
    a.move(R8, COUNTERS.index("passed_no_socket"))
    a.label("tally")
    _count(a, None)
    a.move(R0, R7)
    a.exit()


def _assemble_all() -> Code:
    a = Assembler()
    a.move(R6, R1)
    a.move(R8, COUNTERS.index("redirected_all"))
    _redirect(a)
    return a.assemble()


def _assemble_raw() -> Code:
    a = Assembler()
    a.load("u32", R2, R1, _MD_RX_QUEUE)
    a.load_map(R1, "xsks")
    a.move(R3, XDP_PASS)
    a.call(Helper.REDIRECT_MAP)
    a.exit()
    return a.assemble()


def _assemble_addresses() -> Code:
    a = Assembler()
    a.move(R6, R1)
    a.load("u32", R2, R6, _MD_DATA)
    a.load("u32", R3, R6, _MD_DATA_END)
    a.move(R4, R2)
    a.alu("+", R4, _IP)
    a.jump_if(R4, ">", R3, "malformed")
    a.load("u16", R0, R2, _ETHERTYPE)
    a.jump_if(R0, "==", _network16(0x0800), "ipv4")
    a.jump_if(R0, "==", _network16(0x0806), "arp")
    _pass(a, "other", "passed_other_protocol")

    a.label("ipv4")
    a.move(R4, R2)
    a.alu("+", R4, _IP_END)
    a.jump_if(R4, ">", R3, "malformed")
    a.load("u8", R0, R2, _IP)  # version 4, header of 5 to 15 words
    a.jump_if(R0, "<", 0x45, "malformed")
    a.jump_if(R0, ">", 0x4F, "malformed")
    a.move(R8, COUNTERS.index("redirected_ipv4"))
    a.load("u32", R7, R2, _IP_DST)
    a.jump("lookup")

    a.label("arp")
    a.move(R4, R2)
    a.alu("+", R4, _ARP_END)
    a.jump_if(R4, ">", R3, "malformed")
    a.load("u32", R0, R2, _ARP_FIXED)  # hardware Ethernet (1), protocol IPv4
    a.jump_if(R0, "!=", _network32(0x00010800), "other", bits=32)
    a.load("u16", R0, R2, _ARP_FIXED + 4)  # address lengths 6 and 4
    a.jump_if(R0, "!=", _network16(0x0604), "other")
    a.move(R8, COUNTERS.index("redirected_arp"))
    # TPA lies at 38: its halves are 2-byte aligned, and XDP loads may be unaligned anyhow.
    a.load("u32", R7, R2, _ARP_TPA)

    a.label("lookup")
    a.store("u32", R10, _ADDRESS, R7)
    a.load_map(R1, "addresses")
    a.move(R2, R10)
    a.alu("+", R2, _ADDRESS)
    a.call(Helper.MAP_LOOKUP_ELEM)
    a.jump_if(R0, "!=", 0, "redirect")
    a.store("u32", R10, _LPM_KEY, 32)
    a.load_map(R1, "subnets")
    a.move(R2, R10)
    a.alu("+", R2, _LPM_KEY)
    a.call(Helper.MAP_LOOKUP_ELEM)
    a.jump_if(R0, "!=", 0, "redirect")
    _pass(a, "not_ours", "passed_not_ours")
    _pass(a, "malformed", "passed_malformed")
    _redirect(a)
    return a.assemble()


@cache
def steer_object(steer: str = "addresses") -> bytes:
    """The ELF object of the program. steer: "addresses", "all" or "raw". Raises CorelaneError for another word."""
    if steer == "raw":
        return write_object(_assemble_raw(), {"xsks": MAPS["xsks"]}, function=FUNCTION)
    if steer == "all":
        return write_object(_assemble_all(), {k: MAPS[k] for k in ("xsks", "counters")}, function=FUNCTION)
    if steer == "addresses":
        return write_object(_assemble_addresses(), MAPS, function=FUNCTION)
    raise CorelaneError(f"steer={steer!r}: choose 'addresses', 'all' or 'raw'")


def address_key(address: str) -> bytes:
    """Key of map `addresses`: the four bytes as they stand in the frame. Raises CorelaneError for no IPv4 address."""
    try:
        return socket.inet_aton(address) if address.count(".") == 3 else socket.inet_pton(socket.AF_INET, address)
    except OSError:
        raise CorelaneError(f"{address!r} is no IPv4 address (a.b.c.d)") from None


def subnet_key(subnet: str) -> bytes:
    """Key of map `subnets` for "a.b.c.d/n". Raises CorelaneError."""
    address, _, bits = subnet.partition("/")
    if not bits.isdecimal() or not 0 <= int(bits) <= 32:
        raise CorelaneError(f"{subnet!r} is no IPv4 subnet (a.b.c.d/n with n from 0 to 32)")
    return struct.pack("<I", int(bits)) + address_key(address)

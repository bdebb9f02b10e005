"""Wire helpers of runtime/net.h against their definitions in the RFCs."""

from __future__ import annotations

import random
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime._native import ffi, lib

BYTES = st.binary(min_size=0, max_size=300)


def model_sum(data: bytes) -> int:
    """Ones' complement sum of big-endian 16-bit words, as RFC 1071 defines it."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def model_checksum(data: bytes) -> int:
    """The checksum field of `data`, as a number read big-endian."""
    return ~model_sum(data) & 0xFFFF


def from_memory(value: int) -> int:
    """A 16-bit field as C holds it, as a big-endian number."""
    return int.from_bytes(value.to_bytes(2, sys.byteorder), "big")


def test_rfc1071_example() -> None:
    # RFC 1071, section 3: the words 0001 f203 f4f5 f6f7 sum to ddf2.
    data = bytes.fromhex("0001f203f4f5f6f7")
    assert from_memory(lib.cl_net_checksum(data, len(data))) == ~0xDDF2 & 0xFFFF


@given(BYTES)
def test_checksum_is_the_model(data: bytes) -> None:
    assert from_memory(lib.cl_net_checksum(data, len(data))) == model_checksum(data)


def test_checksum_of_the_largest_packet() -> None:
    data = b"\xff" * 65535
    assert from_memory(lib.cl_net_checksum(data, len(data))) == model_checksum(data)


@given(BYTES.filter(lambda b: len(b) >= 2 and any(b)))
def test_a_packet_with_its_checksum_sums_to_zero(data: bytes) -> None:
    even = data + b"\0" * (len(data) % 2)
    field = lib.cl_net_checksum(even, len(even))
    whole = even + field.to_bytes(2, sys.byteorder)
    assert lib.cl_net_checksum(whole, len(whole)) == 0


@given(st.binary(min_size=8, max_size=64).filter(lambda b: len(b) % 2 == 0), st.data())
def test_incremental_update_is_a_new_sum(data: bytes, draw: st.DataObject) -> None:
    """RFC 1624: updating the field gives what summing again gives (0 and all ones are the same number)."""
    width = draw.draw(st.sampled_from([2, 4]))
    at = 2 * draw.draw(st.integers(0, (len(data) - width) // 2))
    new = draw.draw(st.binary(min_size=width, max_size=width))
    changed = data[:at] + new + data[at + width :]
    was = int.from_bytes(data[at : at + width], sys.byteorder)
    update = lib.cl_net_checksum_update16 if width == 2 else lib.cl_net_checksum_update32
    got = update(lib.cl_net_checksum(data, len(data)), was, int.from_bytes(new, sys.byteorder))
    want = lib.cl_net_checksum(changed, len(changed))
    assert got % 0xFFFF == want % 0xFFFF


def udp_frame(payload: bytes, src: int, dst: int, sport: int, dport: int, *, checksum: bool = True) -> bytes:
    """A frame made by the library."""
    buf = ffi.new("uint8_t[]", lib.CL_UDP_HEADERS + len(payload))
    ffi.buffer(buf)[lib.CL_UDP_HEADERS :] = payload
    lib.cl_net_udp_headers(buf, b"\2" * 6, b"\4" * 6, src, dst, sport, dport, len(payload), checksum)
    return bytes(ffi.buffer(buf))


@given(BYTES, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 65535), st.integers(0, 65535))
def test_udp_headers(payload: bytes, src: int, dst: int, sport: int, dport: int) -> None:
    frame = udp_frame(payload, src, dst, sport, dport)
    eth, ip, udp = frame[:14], frame[14:34], frame[34:]
    assert eth == b"\4" * 6 + b"\2" * 6 + b"\x08\x00"
    assert model_checksum(ip) == 0
    assert struct.unpack(">BxHxxH", ip[:8]) == (0x45, len(ip) + len(udp), 0x4000)
    assert struct.unpack(">II", ip[12:]) == (src, dst)
    assert struct.unpack(">HHH", udp[:6]) == (sport, dport, len(udp))
    pseudo = ip[12:] + struct.pack(">BBH", 0, 17, len(udp))
    assert model_checksum(pseudo + udp) == 0
    assert udp[6:8] != b"\0\0", "0 means: not computed (RFC 768)"
    assert lib.cl_net_udp_checksum_ok(src, dst, udp, len(udp))


@given(st.binary(min_size=1, max_size=64), st.data())
def test_a_flipped_bit_is_seen(payload: bytes, draw: st.DataObject) -> None:
    udp = bytearray(udp_frame(payload, 1, 2, 3, 4)[34:])
    bit = draw.draw(st.integers(64, 8 * len(udp) - 1))  # beyond the header: a flip of `len` changes what is summed
    udp[bit // 8] ^= 1 << bit % 8
    assert not lib.cl_net_udp_checksum_ok(1, 2, bytes(udp), len(udp))


def test_no_checksum_is_accepted() -> None:
    udp = udp_frame(b"abc", 1, 2, 3, 4, checksum=False)[34:]
    assert udp[6:8] == b"\0\0"
    assert lib.cl_net_udp_checksum_ok(1, 2, udp, len(udp))


def hash_of(frame: bytes) -> int:
    return int(lib.cl_net_rss_frame(frame, len(frame)))


@pytest.mark.parametrize("queues", [1, 2, 3, 4, 7, 16, 64])
@pytest.mark.parametrize("vary", ["src port", "src address", "random"])
def test_flows_spread_evenly(queues: int, vary: str) -> None:
    """Chi-square of flow counts per queue, for the near-sequential flows that clients make."""
    rng = random.Random(7)
    flows = 64 * queues
    counts = [0] * queues
    for i in range(flows):
        sport, src = 20000, 0x0A4D0001
        if vary == "src port":
            sport += i
        elif vary == "src address":
            src += i
        else:
            src, sport = rng.getrandbits(32), rng.getrandbits(16)
        counts[lib.cl_net_rss_queue(hash_of(udp_frame(b"", src, 0x0A4D0002, sport, 9000)), queues)] += 1
    chi2 = sum((c - 64) ** 2 / 64 for c in counts)
    # Mean k, standard deviation sqrt(2k) for k = queues - 1 degrees of freedom.
    assert chi2 <= (queues - 1) + 4.5 * (2 * (queues - 1)) ** 0.5 + 1e-9, counts


def test_fragments_of_a_datagram_meet() -> None:
    whole = bytearray(udp_frame(b"x" * 32, 1, 2, 3, 4))
    first, second = bytearray(whole), bytearray(whole)
    first[20:22] = struct.pack(">H", 0x2000)
    second[20:22] = struct.pack(">H", 0x0004)
    second[34:38] = b"\xaa" * 4
    assert hash_of(bytes(first)) == hash_of(bytes(second)) != 0


def test_hash_reads_no_further_than_the_frame() -> None:
    frame = udp_frame(b"payload", 1, 2, 3, 4)
    for n in range(34):
        assert hash_of(frame[:n]) == 0
    for n in range(34, 38):
        assert hash_of(frame[:n]) == hash_of(frame[:34])
    assert hash_of(frame[:38]) == hash_of(frame)


def test_what_is_not_ipv4_has_no_hash() -> None:
    frame = bytearray(udp_frame(b"payload", 1, 2, 3, 4))
    frame[12:14] = b"\x08\x06"
    assert hash_of(bytes(frame)) == 0

"""The hash of flows: SipHash by its definition, symmetric, spread whatever a peer chooses, other with each key."""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

Ends = tuple[int, int, int, int]  # peer's address and port, own address and port
WORD = 2**64 - 1
PARTS = 256
# Of a fair spread over 256 parts chi-square is 255 on average, with a deviation of 22.6: this is six of them more.
MOST_CHI_SQUARE = 391
KEYS = [(0x0706050403020100, 0x0F0E0D0C0B0A0908), (0, 0), (WORD, 1), (0x243F6A8885A308D3, 0x13198A2E03707344)]

addresses, ports, words = st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, WORD)
ends = st.tuples(addresses, ports, addresses, ports)
keys = st.tuples(words, words)


def rotate(x: int, by: int) -> int:
    return (x << by | x >> 64 - by) & WORD


def siphash(key: tuple[int, int], message: bytes, each: int = 1, at_end: int = 3) -> int:
    """SipHash-each-at_end, written down from the paper."""
    k0, k1 = key
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(n: int) -> None:
        for _ in range(n):
            for a, b, c, d, left, right in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a] = v[a] + v[b] & WORD
                v[c] = v[c] + v[d] & WORD
                v[b] = rotate(v[b], left) ^ v[a]
                v[d] = rotate(v[d], right) ^ v[c]
                v[a] = rotate(v[a], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(each)
        v[0] ^= word
    v[2] ^= 255
    rounds(at_end)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def bound(c_library: Callable[..., Any], name: str) -> Callable[..., int]:
    function = getattr(ctypes.CDLL(str(c_library("tests/libos/net/c/flow_hash.c"))), name)
    u16, u32, u64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
    function.argtypes = [u64, u64, u32, u16, u32, u16, u32]
    function.restype = u64
    return lambda key, flow, protocol=17: int(function(*key, *flow, protocol))


@pytest.fixture(scope="module")
def flow_hash(c_library: Callable[..., Any]) -> Callable[..., int]:
    return bound(c_library, "flow_hash")


@pytest.fixture(scope="module")
def flow_hash_in(c_library: Callable[..., Any]) -> Callable[..., int]:
    return bound(c_library, "flow_hash_in")


def test_the_definition_is_the_paper_s() -> None:
    assert siphash(KEYS[0], bytes(range(15)), 2, 4) == 0xA129CA6149BE45E5  # its appendix A


@given(key=keys, flow=ends, protocol=st.sampled_from([6, 17]))
def test_it_is_siphash_of_the_ends_in_order(flow_hash: Any, key: tuple[int, int], flow: Ends, protocol: int) -> None:
    low, high = sorted((flow[0] << 16 | flow[1], flow[2] << 16 | flow[3]))
    message = low.to_bytes(6, "little") + high.to_bytes(6, "little") + bytes([protocol])
    assert flow_hash(key, flow, protocol) == siphash(key, message)


@given(key=keys, flow=ends, protocol=st.sampled_from([6, 17]))
def test_of_what_comes_in_it_is_siphash_of_the_key(
    flow_hash_in: Any, key: tuple[int, int], flow: Ends, protocol: int
) -> None:
    peer, peer_port, own, own_port = flow
    message = struct.pack(">IIHH", peer, own, peer_port, own_port) + protocol.to_bytes(3, "little")
    assert flow_hash_in(key, flow, protocol) == siphash(key, message)


@given(key=keys, flow=ends)
def test_both_directions_have_one_hash(flow_hash: Any, key: tuple[int, int], flow: Ends) -> None:
    assert flow_hash(key, flow) == flow_hash(key, (*flow[2:], *flow[:2]))


@given(key=keys, flow=ends, other=ends)
def test_different_flows_and_protocols_differ(flow_hash: Any, key: tuple[int, int], flow: Ends, other: Ends) -> None:
    assert flow_hash(key, flow, 6) != flow_hash(key, flow, 17)
    if other not in (flow, (*flow[2:], *flow[:2])):
        assert flow_hash(key, flow) != flow_hash(key, other)


def chi_square(parts: Iterable[int]) -> float:
    counts = Counter(parts)
    expected = sum(counts.values()) / PARTS
    return sum((counts[i] - expected) ** 2 / expected for i in range(PARTS))


# What a peer has in its hands: its ports, and perhaps a network of addresses.
CHOSEN: dict[str, list[Ends]] = {
    "ports one after the other": [(0x0A000002, 1024 + i, 0x0A000001, 9000) for i in range(16384)],
    "each fourth port": [(0x0A000002, 4 * i, 0x0A000001, 9000) for i in range(16384)],
    "addresses one after the other": [(0x0A000000 + i, 5000, 0xC0A80001, 443) for i in range(16384)],
    "addresses that differ above": [(i << 18 | 2, 5000, 0xC0A80001, 443) for i in range(16384)],
    "address and port together": [(0x0A000000 + i, 1024 + i, 0x0A000001, 80) for i in range(16384)],
}


@functools.cache
def hashes(hashed: Callable[..., int], key: tuple[int, int], what: str) -> list[int]:
    return [hashed(key, flow) for flow in CHOSEN[what]]


@pytest.mark.parametrize("shift", [0, 24, 56], ids=["low", "middle", "high"])
@pytest.mark.parametrize("what", CHOSEN)
def test_what_a_peer_chooses_is_spread_with_every_key(flow_hash: Any, flow_hash_in: Any, what: str, shift: int) -> None:
    for key, hashed in itertools.product(KEYS, (flow_hash, flow_hash_in)):
        parts = (each >> shift & PARTS - 1 for each in hashes(hashed, key, what))
        assert chi_square(parts) < MOST_CHI_SQUARE, key


def test_what_meets_with_one_key_is_spread_with_another(flow_hash: Any) -> None:
    """Flows that somebody found to meet in one bucket tell nothing of where they come with another secret."""
    candidates = ((0x0A000000 + n // 60000, 1024 + n % 60000, 0x0A000001, 9000) for n in itertools.count())
    aimed = list(itertools.islice((f for f in candidates if flow_hash(KEYS[0], f) % 32 == 0), 4096))
    for key in KEYS[1:]:
        assert chi_square(flow_hash(key, flow) % PARTS for flow in aimed) < MOST_CHI_SQUARE, key


@given(key=keys, flow=ends, bit=st.integers(0, 127))
def test_each_bit_of_the_key_matters(flow_hash: Any, key: tuple[int, int], flow: Ends, bit: int) -> None:
    both = (key[0] | key[1] << 64) ^ 1 << bit
    assert flow_hash(key, flow) != flow_hash((both & WORD, both >> 64), flow)

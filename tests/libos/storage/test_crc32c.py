"""CRC32C against published vectors and against a bit-by-bit implementation, by instructions and by tables."""

from __future__ import annotations

import random

import pytest

from corelane.libos._native import ffi, lib

# RFC 3720 (iSCSI), appendix B.4, and the check value of the catalogue of parametrised CRCs.
VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
    (
        bytes.fromhex(
            "01c000000000000000000000000000001400000000000400000000140000001828000000000000000200000000000000"
        ),
        0xD9963A56,
    ),
]
WAYS = {"machine": lib.cl_crc32c, "tables": lib.cl_crc32c_soft}


def bitwise(data: bytes) -> list[int]:
    """The checksum of the first 0, 1, 2, ... bytes."""
    crc, found = 0xFFFFFFFF, [0]
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc ^ 0xFFFFFFFF)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_known_vectors(way: str) -> None:
    for data, expected in VECTORS:
        assert WAYS[way](0, data, len(data)) == expected, data.hex()


@pytest.mark.parametrize("way", WAYS)
def test_every_length_up_to_two_rounds_of_streams(way: str, seed: int) -> None:
    data = random.Random(seed).randbytes(7_000)
    for n, expected in enumerate(bitwise(data)):
        assert WAYS[way](0, data[:n], n) == expected, n


def test_parts_add_up_at_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(50_000)
    held = ffi.from_buffer(data)
    whole = lib.cl_crc32c_soft(0, data, len(data))
    for _ in range(200):
        cut = rng.randrange(len(data))
        for first in WAYS.values():
            for second in WAYS.values():
                assert second(first(0, held, cut), held + cut, len(data) - cut) == whole

"""memcached's binary protocol for tests: requests made, answers taken apart."""

from __future__ import annotations

import struct
from typing import NamedTuple

HEADER = struct.Struct(">BBHBBHI4sQ")

GET, SET, ADD, REPLACE, DELETE, INCR, DECR, QUIT, FLUSH, GETQ, NOOP, VERSION, GETK, GETKQ, APPEND, PREPEND = range(16)
STAT, SETQ, ADDQ, REPLACEQ, DELETEQ, INCRQ, DECRQ, QUITQ, FLUSHQ, APPENDQ, PREPENDQ = range(16, 27)
TOUCH, GAT, GATQ = 0x1C, 0x1D, 0x1E
SASL_LIST, SASL_AUTH, SASL_STEP, GATK, GATKQ = 0x20, 0x21, 0x22, 0x23, 0x24

OK, NOT_FOUND, EXISTS, TOO_LARGE, INVALID, NOT_STORED, NON_NUMERIC, UNKNOWN = 0, 1, 2, 3, 4, 5, 6, 0x81


class Answer(NamedTuple):
    """An answer of the server."""

    opcode: int
    status: int
    opaque: bytes
    unique: int
    extras: bytes
    key: bytes
    value: bytes


def request(
    opcode: int,
    key: bytes = b"",
    value: bytes = b"",
    extras: bytes = b"",
    *,
    unique: int = 0,
    opaque: bytes = b"\0\0\0\0",
    body: int | None = None,
) -> bytes:
    """A request; body: what its header says of its length, if that is not so."""
    told = len(extras) + len(key) + len(value) if body is None else body
    header = HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, told, opaque, unique)
    return header + extras + key + value


def store(opcode: int, key: bytes, value: bytes, flags: int = 0, time: int = 0, unique: int = 0) -> bytes:
    """A request of set and its like."""
    return request(opcode, key, value, struct.pack(">II", flags, time), unique=unique)


def answers(data: bytes) -> list[Answer]:
    """The answers that the bytes are made of; what is no whole answer fails the test."""
    out, at = [], 0
    while at < len(data):
        magic, opcode, key, extras, kind, status, body, opaque, unique = HEADER.unpack_from(data, at)
        assert (magic, kind) == (0x81, 0), data[at:]
        at += HEADER.size
        rest = data[at : at + body]
        assert len(rest) == body >= extras + key, data[at:]
        out.append(
            Answer(opcode, status, opaque, unique, rest[:extras], rest[extras : extras + key], rest[extras + key :])
        )
        at += body
    return out

"""Control messages as bytes, for tests that speak the protocol by hand (runtime/control.h)."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
from collections.abc import Sequence
from typing import Any

from corelane.iokernel._native import ffi, lib

HEADER = struct.Struct("=IHHII")
STATS = HEADER.pack(lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION, lib.CL_CONTROL_STATS, HEADER.size, 0)


def hello(name: bytes = b"x", **fields: int) -> bytearray:
    message = ffi.new("struct cl_control_hello *")
    header = message.header
    header.magic, header.version = lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION
    header.type, header.bytes = lib.CL_CONTROL_HELLO, ffi.sizeof("struct cl_control_hello")
    ffi.memmove(message.name, name, len(name))
    for key, value in fields.items():
        setattr(message, key, value)
    return bytearray(ffi.buffer(message))


def kthreads(tids: Sequence[int], signal: int, n: int | None = None) -> bytes:
    message = ffi.new("struct cl_control_kthreads *")
    header = message.header
    header.magic, header.version = lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION
    header.type, header.bytes = lib.CL_CONTROL_KTHREADS, ffi.sizeof("struct cl_control_kthreads")
    message.n, message.signal = len(tids) if n is None else n, signal
    for i, tid in enumerate(tids):
        message.tids[i] = tid
    return bytes(ffi.buffer(message))


def policy(spec: bytes, params: bytes = b"") -> bytes:
    message = ffi.new("struct cl_control_policy *")
    header = message.header
    header.magic, header.version = lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION
    header.type, header.bytes = lib.CL_CONTROL_POLICY, ffi.sizeof("struct cl_control_policy")
    ffi.memmove(message.spec, spec, len(spec))
    ffi.memmove(message.params, params, len(params))
    return bytes(ffi.buffer(message))


def kind_of(message: bytes) -> int:
    return int(HEADER.unpack_from(message)[2])


def moves(loop: int, first: int = lib.CL_CONTROL_FROM_NOW) -> bytes:
    """MOVES, of a loop's log from an entry on."""
    message = ffi.new("struct cl_control_moves *", {"loop": loop, "next": first})
    header = message.header
    header.magic, header.version = lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION
    header.type, header.bytes = lib.CL_CONTROL_MOVES, ffi.sizeof("struct cl_control_moves")
    return bytes(ffi.buffer(message))


def area(op: int) -> bytes:
    """AREA, of no name."""
    message = ffi.new("struct cl_control_area *", {"op": op})
    header = message.header
    header.magic, header.version = lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION
    header.type, header.bytes = lib.CL_CONTROL_AREA, ffi.sizeof("struct cl_control_area")
    return bytes(ffi.buffer(message))


def connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)  # with a time-out it would not wait for room in the listener's queue
    sock.settimeout(60)
    return sock


def answer(sock: socket.socket) -> bytes:
    """One message; b"" if the connection ended."""
    got = b""
    while len(got) < HEADER.size or len(got) < HEADER.unpack_from(got)[3]:
        data = sock.recv(4096)
        if not data:
            return b""
        got += data
    return got


def garbled(message: bytes | bytearray, rng: random.Random) -> bytearray:
    """The message with random bytes changed, or cut, or as it is."""
    got = bytearray(message)
    for _ in range(rng.choice([0, 0, 1, 3, 20])):
        got[rng.randrange(len(got))] = rng.randrange(256)
    return got[: rng.randrange(len(got))] if rng.random() < 0.3 else got


def send_in_pieces(sock: socket.socket, message: bytes | bytearray, rng: random.Random) -> None:
    """In pieces of a random size; now and then all answers are read. It may be refused in the middle of it."""
    with contextlib.suppress(OSError):
        for at in range(0, len(message), step := rng.randrange(1, 300)):
            sock.sendall(message[at : at + step])
        if rng.random() < 0.5:
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass


def refusal(sock: socket.socket) -> str:
    message = answer(sock)
    assert HEADER.unpack_from(message)[2] == lib.CL_CONTROL_REFUSE, message
    return message[HEADER.size + 8 :].split(b"\0", 1)[0].decode()


def attached(path: str, name: bytes = b"x", **fields: int) -> socket.socket:
    """A connection that stands for an application."""
    sock = connect(path)
    sock.sendall(hello(name, **fields))
    message = answer(sock)
    assert kind_of(message) == lib.CL_CONTROL_ACCEPT, message
    return sock


def stats_of(sock: socket.socket) -> dict[str, Any]:
    """What the iokernel counts, asked over a connection that stays."""
    sock.sendall(STATS)
    return dict(json.loads(answer(sock)[HEADER.size :]))


def stats(path: str) -> dict[str, Any]:
    """What the iokernel counts."""
    with connect(path) as sock:
        return stats_of(sock)

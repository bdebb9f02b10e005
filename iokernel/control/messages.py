"""Messages of the control protocol (runtime/control.h) as bytes: how they are framed, and which are none."""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

from .._native import ffi, lib

_HEADER = struct.Struct("=IHHII")  # struct cl_control_header
_BYTES = {
    lib.CL_CONTROL_HELLO: ffi.sizeof("struct cl_control_hello"),
    lib.CL_CONTROL_STATS: _HEADER.size,
    lib.CL_CONTROL_KTHREADS: ffi.sizeof("struct cl_control_kthreads"),
    lib.CL_CONTROL_STATE: ffi.sizeof("struct cl_control_state"),
    lib.CL_CONTROL_PROMISE: ffi.sizeof("struct cl_control_promise"),
    lib.CL_CONTROL_POLICY: ffi.sizeof("struct cl_control_policy"),
    lib.CL_CONTROL_AREA: ffi.sizeof("struct cl_control_area"),
    lib.CL_CONTROL_MOVES: ffi.sizeof("struct cl_control_moves"),
    lib.CL_CONTROL_TRACE: ffi.sizeof("struct cl_control_trace"),
}


_QUERIES = frozenset((lib.CL_CONTROL_STATS, lib.CL_CONTROL_MOVES, lib.CL_CONTROL_TRACE))


class BadMessage(Exception):
    """A message that is refused; (counter, errno, text)."""


def whole(received: bytearray) -> bool:
    """Whether there is something to `take`, or to refuse."""
    if len(received) < _HEADER.size:
        return False
    magic, version, kind, n_bytes, _ = _HEADER.unpack_from(received)
    known = magic == lib.CL_CONTROL_MAGIC and version == lib.CL_CONTROL_VERSION and n_bytes == _BYTES.get(kind)
    return not known or len(received) >= n_bytes


def is_query(received: bytearray) -> bool:
    """Whether the next message, which is `whole`, only asks for numbers: such ones wait until others are done."""
    return _HEADER.unpack_from(received)[2] in _QUERIES


def take(received: bytearray) -> tuple[int, bytes] | None:
    """Remove the first message, if there is a whole one: its type, and all of it, header included.

    Raises BadMessage for anything that the protocol does not know.
    """
    if len(received) < _HEADER.size:
        return None
    magic, version, kind, n_bytes, _ = _HEADER.unpack_from(received)
    if magic != lib.CL_CONTROL_MAGIC:
        raise BadMessage("garbage", errno.EPROTO, "this is no corelane control message")
    if version != lib.CL_CONTROL_VERSION:
        text = f"this iokernel speaks control protocol {lib.CL_CONTROL_VERSION}, the application {version}"
        raise BadMessage("wrong_version", errno.EPROTO, f"{text}: use the same corelane for both")
    if n_bytes != _BYTES.get(kind):
        raise BadMessage("garbage", errno.EPROTO, f"no message of type {kind} and {n_bytes} bytes exists")
    if len(received) < n_bytes:
        return None
    message = bytes(received[:n_bytes])
    del received[:n_bytes]
    return kind, message


def message_of(kind: int, body: bytes = b"") -> bytes:
    """A whole message: the header, and what follows it."""
    return _HEADER.pack(lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION, kind, _HEADER.size + len(body), 0) + body


def refusal(code: int, text: str) -> bytes:
    """REFUSE, with an errno and one line that says why."""
    message = ffi.new("struct cl_control_refuse *")
    message.code = code
    line = line_of(text)
    ffi.memmove(message.text, line, len(line))
    return message_of(lib.CL_CONTROL_REFUSE, bytes(ffi.buffer(message))[_HEADER.size :])


def send_with(sock: socket.socket, message: bytes, fds: Sequence[int]) -> bool:
    """Send a message and descriptors. False: not all of it went, and the connection is of no use any more."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    try:
        return sock.sendmsg([message], rights) == len(message)
    except OSError:
        return False


def text_of(field: Any) -> str:
    """A field of characters, up to the first zero. A path in it is that path, whatever its bytes (PEP 383)."""
    return os.fsdecode(bytes(ffi.buffer(field)).split(b"\0", 1)[0])


def line_of(text: str, room: int = lib.CL_CONTROL_TEXT_BYTES) -> bytes:
    """A text as it fits into a message: one line, zero-terminated by the last byte of the field's `room`."""
    line = text.replace("\n", " ")
    try:
        return os.fsencode(line)[: room - 1]
    except UnicodeEncodeError:
        return line.encode(errors="backslashreplace")[: room - 1]

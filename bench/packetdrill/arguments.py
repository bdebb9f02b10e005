"""Arguments of a script's system calls as numbers and bytes. All raise NotSupported for what has no meaning here."""

from __future__ import annotations

import ipaddress
import socket
import struct

from . import model as m
from .stack import Address
from .symbols import SYMBOLS, number
from .text import expression_text
from .tokens import NotSupported

LARGEST = 1 << 28  # bytes that a call reads or writes
_REFUSED_FLAGS = {"MSG_ERRQUEUE": socket.MSG_ERRQUEUE, "MSG_ZEROCOPY": SYMBOLS["MSG_ZEROCOPY"]}


def integer(e: m.Expression) -> int:
    """An int of C, signed or not: descriptors, flags, names, times in ms."""
    return _within(number(e), -(1 << 31), (1 << 32) - 1, "where an int is expected")


def length(e: m.Expression) -> int:
    """Bytes of a buffer."""
    return _within(number(e), 0, LARGEST, "where a length is expected")


def _within(value: int, least: int, most: int, where: str) -> int:
    if not least <= value <= most:
        raise NotSupported(f"{value} {where}")
    return value


def address_of(e: m.Expression, default: Address) -> Address | None:
    """An address; `...` is the usual one. None: AF_UNSPEC."""
    if not isinstance(e, m.Struct):
        return default
    family, port, host = e.get("sa_family"), e.get("sin_port"), e.get("sin_addr")
    if family is not None and number(family) == socket.AF_UNSPEC:
        return None
    if family is None or number(family) != socket.AF_INET:
        raise NotSupported(f"the address {expression_text(e)}")
    match port, host:
        case m.Invoke("htons", (port_number,)), m.Invoke("inet_addr", (m.Text(text),)) if _is_ipv4(text):
            return text, number(port_number) & 0xFFFF
        case m.Invoke("htons", (port_number,)), m.Word() | m.Int():
            return "0.0.0.0", number(port_number) & 0xFFFF
    raise NotSupported(f"the address {expression_text(e)}")


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def size_of(e: m.Expression) -> int:
    """Bytes that an array of iovecs holds."""
    match e:
        case m.Array(items) | m.Struct(items) if items and all(isinstance(i, m.Struct) for i in items):
            return _within(sum(size_of(item) for item in items), 0, LARGEST, "where a length is expected")
        case m.Struct((_, size)):
            return length(size)
    raise NotSupported(f"the buffers {expression_text(e)}")


def flags_of(e: m.Expression | None) -> int:
    """Flags of a call that moves data."""
    flags = 0 if e is None else integer(e)
    for name, bit in _REFUSED_FLAGS.items():
        if flags & bit:
            raise NotSupported(f"the flag {name}")
    return flags


def option_bytes(e: m.Expression, size: int) -> bytes:
    """The value of a socket option as bytes."""
    match e:
        case m.Text(text):
            return text.encode()
        case m.Array((m.Text(text),)):
            return text.encode()
        case m.Array((one,)):
            return option_bytes(one, size)
        case m.Struct() if e.get("onoff") is not None:
            on, seconds = (number(e.get(name) or m.Int(0)) & 0x7FFFFFFF for name in ("onoff", "linger"))
            return struct.pack("ii", on, seconds)
        case m.Int() | m.Word() | m.Or():
            if size not in (1, 4, 8):
                size = 4
            return (number(e) % (1 << 8 * size)).to_bytes(size, "little")
    raise NotSupported(f"the value {expression_text(e)} of a socket option")

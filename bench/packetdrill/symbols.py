"""The names that scripts use for numbers: Linux's, of x86-64, as its man pages and public headers have them.

A stack of another kind is given the same numbers: they are names of what a script asks for.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket

from . import model as m
from .tokens import NotSupported

_PREFIXES = ("AF_", "PF_", "SOCK_", "IPPROTO_", "SOL_", "SO_", "MSG_", "TCP_", "IP_", "SHUT_")

# What this Python's socket module has no name for. linux/tcp.h, linux/in.h, linux/socket.h, linux/sockios.h.
_MORE = {
    "SOL_TCP": 6,
    "SOL_UDP": 17,
    "SOL_IP": 0,
    "TCP_THIN_LINEAR_TIMEOUTS": 16,
    "TCP_THIN_DUPACK": 17,
    "TCP_REPAIR": 19,
    "TCP_TIMESTAMP": 24,
    "TCP_CC_INFO": 26,
    "TCP_SAVE_SYN": 27,
    "TCP_SAVED_SYN": 28,
    "TCP_FASTOPEN_CONNECT": 30,
    "TCP_FASTOPEN_NO_COOKIE": 34,
    "TCP_INQ": 36,
    "TCP_CM_INQ": 36,
    "TCP_TX_DELAY": 37,
    "SO_ZEROCOPY": 60,
    "SO_MAX_PACING_RATE": 47,
    "SO_TIMESTAMPING": 37,
    "SO_BUSY_POLL": 46,
    "MSG_FASTOPEN": 0x20000000,
    "MSG_ZEROCOPY": 0x4000000,
    "IP_MTU_DISCOVER": 10,
    "IP_MTU": 14,
    "IP_RECVERR": 11,
    "IP_PMTUDISC_DONT": 0,
    "IP_PMTUDISC_WANT": 1,
    "IP_PMTUDISC_DO": 2,
    "IP_PMTUDISC_PROBE": 3,
    "SIOCINQ": 0x541B,
    "FIONREAD": 0x541B,
    "SIOCOUTQ": 0x5411,
    "SIOCOUTQNSD": 0x894B,
    "EPOLL_CTL_ADD": 1,
    "EPOLL_CTL_DEL": 2,
    "EPOLL_CTL_MOD": 3,
    "INADDR_ANY": 0,
    "SO_EE_ORIGIN_ICMP": 2,
    "SO_EE_ORIGIN_TIMESTAMPING": 4,
    "SO_EE_ORIGIN_ZEROCOPY": 5,
    "SO_EE_CODE_ZEROCOPY_COPIED": 1,
    "CMSG_LEVEL_IP": 0,  # names that runners of published tests define: SOL_IP, IP_RECVERR
    "CMSG_TYPE_RECVERR": 11,
}


def _symbols() -> dict[str, int]:
    out: dict[str, int] = {}
    for module, prefixes in ((socket, _PREFIXES), (fcntl, ("F_", "FD_")), (os, ("O_",)), (select, ("POLL", "EPOLL"))):
        out |= {n: int(getattr(module, n)) for n in dir(module) if n.startswith(prefixes) and n.isupper()}
    return out | _MORE


SYMBOLS: dict[str, int] = _symbols()
ERRNOS: dict[str, int] = {name: number for number, name in errno.errorcode.items()} | {
    "EWOULDBLOCK": errno.EAGAIN,
    "ENOTSUP": errno.EOPNOTSUPP,
}


def error_name(number: int) -> str:
    """EAGAIN for 11."""
    return errno.errorcode.get(number, str(number))


def unknown_words(e: m.Call | m.Expression) -> list[str]:
    """The constants in a call or an expression that have no number here."""
    match e:
        case m.Word(name):
            return [] if name in SYMBOLS or name in ERRNOS else [name]
        case m.Call():
            inner: tuple[m.Expression, ...] = (*e.arguments, e.result)
        case m.Or(inner) | m.Array(inner) | m.Struct(inner) | m.Invoke(_, inner):
            pass
        case m.Field(_, value, argument):
            inner = (value,) if argument is None else (value, argument)
        case _:
            return []
    return [word for part in inner for word in unknown_words(part)]


def number(e: m.Expression) -> int:
    """The number that an expression stands for. Raises NotSupported."""
    match e:
        case m.Int(value):
            return value
        case m.Word(name) if name in SYMBOLS:
            return SYMBOLS[name]
        case m.Word(name) if name in ERRNOS:
            return ERRNOS[name]
        case m.Word(name):
            raise NotSupported(f"the constant {name}")
        case m.Or(parts):
            value = 0
            for part in parts:
                value |= number(part)
            return value
    raise NotSupported(f"{type(e).__name__.lower()} where a number is expected")

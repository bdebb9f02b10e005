"""Options of Linux's sockets on corelane's TCP, for scripts: which are set, which are remembered, which are refused."""

from __future__ import annotations

import errno
import socket
import struct

from ...libos._native import lib
from .corelane_sysctls import scale_for
from .symbols import SYMBOLS
from .tokens import NotSupported

_TCP, _SOL, _IP = socket.IPPROTO_TCP, socket.SOL_SOCKET, socket.IPPROTO_IP
_LEVELS = {_TCP: ("SOL_TCP", "TCP_"), _SOL: ("SOL_SOCKET", "SO_"), _IP: ("SOL_IP", "IP_")}
Key = tuple[int, int]

LINGER: Key = (_SOL, socket.SO_LINGER)
ERROR: Key = (_SOL, socket.SO_ERROR)
MAXSEG: Key = (_TCP, socket.TCP_MAXSEG)
MTU: Key = (_IP, SYMBOLS["IP_MTU"])
CONGESTION: Key = (_TCP, socket.TCP_CONGESTION)
_BUFFERS: dict[Key, int] = {
    (_SOL, socket.SO_SNDBUF): lib.CL_TCP_SET_SEND_LIMIT,
    (_SOL, socket.SO_RCVBUF): lib.CL_TCP_SET_RECEIVE_LIMIT,
}
# With what a value is multiplied by.
_NUMBERS: dict[Key, tuple[int, int]] = {
    (_TCP, socket.TCP_NODELAY): (lib.CL_TCP_SET_NO_DELAY, 1),
    (_TCP, socket.TCP_CORK): (lib.CL_TCP_SET_CORK, 1),
    (_TCP, socket.TCP_USER_TIMEOUT): (lib.CL_TCP_SET_USER_TIMEOUT, 1),
    (_TCP, socket.TCP_QUICKACK): (lib.CL_TCP_SET_QUICK_ACK, 1),
    (_TCP, socket.TCP_KEEPIDLE): (lib.CL_TCP_SET_KEEP_IDLE, 1000),
    (_TCP, socket.TCP_KEEPINTVL): (lib.CL_TCP_SET_KEEP_INTERVAL, 1000),
    (_TCP, socket.TCP_KEEPCNT): (lib.CL_TCP_SET_KEEP_PROBES, 1),
    (_TCP, socket.TCP_SYNCNT): (lib.CL_TCP_SET_SYN_RETRIES, 1),
    MAXSEG: (lib.CL_TCP_SET_MSS, 1),
    (_SOL, socket.SO_KEEPALIVE): (lib.CL_TCP_SET_KEEP_ALIVE, 1),
}
# Of a connection, and not of all that a listener will take.
OF_SYNS = {lib.CL_TCP_SET_RECEIVE_LIMIT, lib.CL_TCP_SET_WSCALE, lib.CL_TCP_SET_MSS}  # what a SYN is made of
OF_CONNECTIONS = {lib.CL_TCP_SET_QUICK_ACK, lib.CL_TCP_SET_CORK}
_RULES = {b"cubic": 0, b"reno": 1, b"dctcp": 2}
# Nothing of a script depends on them here: there is one user, one address, and no other socket.
_WITHOUT_MEANING: set[Key] = {
    *((_SOL, n) for n in (socket.SO_REUSEADDR, socket.SO_REUSEPORT, socket.SO_PRIORITY, socket.SO_DONTROUTE)),
    *((_SOL, SYMBOLS[n]) for n in ("SO_ZEROCOPY", "SO_BUSY_POLL")),
    (_IP, SYMBOLS["IP_RECVERR"]),
}
INQ: Key = (_TCP, SYMBOLS["TCP_INQ"])
# What is so anyhow: as much is taken as fits; no packet may be cut.
_SAME: dict[Key, tuple[int, ...]] = {
    (_TCP, SYMBOLS["TCP_NOTSENT_LOWAT"]): (0xFFFFFFFF, 0),
    (_IP, SYMBOLS["IP_MTU_DISCOVER"]): (SYMBOLS["IP_PMTUDISC_WANT"], SYMBOLS["IP_PMTUDISC_DO"]),
}
_FIRST: dict[Key, int] = {
    **dict.fromkeys((*_NUMBERS, *_WITHOUT_MEANING), 0),
    MAXSEG: 536,
    (_TCP, socket.TCP_KEEPIDLE): 7200,
    (_TCP, socket.TCP_KEEPINTVL): 75,
    (_TCP, socket.TCP_KEEPCNT): 9,
    (_TCP, socket.TCP_SYNCNT): 6,
    **{key: values[0] for key, values in _SAME.items()},
    INQ: 0,
    (_SOL, socket.SO_TYPE): socket.SOCK_STREAM,
    (_SOL, socket.SO_DOMAIN): socket.AF_INET,
    (_SOL, socket.SO_PROTOCOL): _TCP,
    (_SOL, socket.SO_ACCEPTCONN): 0,
}


def name_of(key: Key) -> str:
    """An option as scripts write it."""
    level, prefix = _LEVELS.get(key[0], (str(key[0]), "-"))
    names = [name for name, number in SYMBOLS.items() if name.startswith(prefix) and number == key[1]]
    return f"{level}, {names[0] if names else key[1]}"


class Options:
    """Of one socket. to_set: pairs for cl_tcp_host_set_socket. linger_s: how long a close waits; 0: it resets; None: it
    does neither. Raises NotSupported."""

    def __init__(self) -> None:
        self.to_set: list[tuple[int, int]] = []
        self.linger_s: int | None = None
        self.rule = b"cubic"
        self._values: dict[Key, bytes] = {}

    def set(self, key: Key, data: bytes) -> list[tuple[int, int]]:
        """Remember an option. Returns the pairs that it adds."""
        value = int.from_bytes(data[:4], "little", signed=True)
        if key == LINGER:
            self._linger(data)
            added: list[tuple[int, int]] = []
        elif key in _BUFFERS:
            added = self._buffer(key, value)
            data = struct.pack("i", 2 * value)  # as Linux takes it
        elif key == MAXSEG and not 88 <= value <= 32767:  # as Linux has it
            raise OSError(errno.EINVAL, "no such MSS")
        elif key in _NUMBERS:
            option, factor = _NUMBERS[key]
            added = [(option, min(max(value, 0) * factor, 0x7FFFFFFF))]
        elif key == CONGESTION and data.rstrip(b"\0") in _RULES:
            self.rule = data.rstrip(b"\0")
            added = [(lib.CL_TCP_SET_RULE, _RULES[self.rule])]
        elif key in _WITHOUT_MEANING or key == INQ or value & 0xFFFFFFFF in _SAME.get(key, ()):
            added = []
        else:
            shown = "" if key not in _SAME else f" = {value}"
            raise NotSupported(f"setsockopt of {name_of(key)}{shown}")
        self._values[key] = data
        self.to_set += added
        return added

    def _linger(self, data: bytes) -> None:
        on, seconds = struct.unpack("ii", data.ljust(8, b"\0")[:8])
        self.linger_s = seconds if on else None

    @staticmethod
    def _buffer(key: Key, value: int) -> list[tuple[int, int]]:
        if not 0 < value < 1 << 28:
            raise NotSupported(f"{name_of(key)} of {value} bytes")
        limit = (_BUFFERS[key], 2 * value)
        if key[1] == socket.SO_SNDBUF:
            return [limit]
        return [limit, (lib.CL_TCP_SET_WSCALE, scale_for(2 * value))]

    def get(self, key: Key, size: int) -> bytes:
        """What was set, or how it is at first."""
        if key == CONGESTION:
            return self.rule.ljust(16, b"\0")[:size]
        if key == LINGER:
            return struct.pack("ii", self.linger_s is not None, self.linger_s or 0)[:size]
        if key in self._values and key != MAXSEG:  # which counts from the SYN on
            return self._values[key][:size]
        if key in _FIRST:
            return struct.pack("I", _FIRST[key])[:size]
        raise NotSupported(f"getsockopt of {name_of(key)}")

"""Sockets of a host of corelane's TCP, as Linux's calls have them: the operations of stack.py, one method each.

A call that would have to wait raises Again, and is tried again when something has happened, or at the time that this
names. What has no meaning here is refused by NotSupported, or by Linux's errno for it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...drivers.nic.nic import ipv4_to_int
from ...libos._native import ffi, lib
from .corelane_options import ERROR, INQ, MAXSEG, MTU, OF_CONNECTIONS, OF_SYNS, Key, Options
from .settings import Settings
from .stack import Address, Outcome
from .symbols import SYMBOLS
from .tokens import NotSupported

_SIOCINQ, _SIOCOUTQ, _SIOCOUTQNSD = 0x541B, 0x5411, 0x894B  # linux/sockios.h
_HEADERS = 40  # of IPv4 and TCP, without options
_MOST = 1000  # handles
_READ_FLAGS = socket.MSG_DONTWAIT | socket.MSG_PEEK | socket.MSG_TRUNC | socket.MSG_WAITALL | socket.MSG_NOSIGNAL
_WRITE_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL | socket.MSG_MORE
_FIN_UNACKNOWLEDGED = (5, 8, 9)  # FIN_WAIT_1, CLOSING, LAST_ACK (enum cl_tcp_state)
_ALWAYS = select.EPOLLERR | select.EPOLLHUP
OPERATIONS = frozenset(
    {"socket", "bind", "listen", "accept", "connect", "receive", "send", "shutdown", "close", "getsockopt"}
    | {"setsockopt", "getsockname", "getpeername", "fcntl", "ioctl", "poll", "epoll_create", "epoll_ctl", "epoll_wait"}
)


class Again(Exception):
    """The call would have to wait. due_us: until then at most, by the stack's clock; None: for ever."""

    def __init__(self, due_us: int | None = None) -> None:
        super().__init__()
        self.due_us = due_us


class _Socket:
    """What the host does not know of a socket."""

    def __init__(self, flags: int) -> None:
        self.waits = not flags & socket.SOCK_NONBLOCK
        self.number = -1  # of the host; -1: neither listens nor connects
        self.listens = False
        self.own: Address = ("0.0.0.0", 0)
        self.peer: Address | None = None
        self.told = False  # that it is connected
        self.reads = True  # its user has not shut that side
        self.lingers_us: int | None = None  # a close waits until then
        self.options = Options()


@dataclass
class _Member:
    """Of an epoll set. told: events that are not told again (edge); arrived: what had come by then."""

    events: int
    told: int = 0
    arrived: int = 0
    off: bool = False  # EPOLLONESHOT


def _check(rc: int) -> int:
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc))
    return rc


def _names(prefix: str, flags: int) -> str:
    known = [name for name, bit in SYMBOLS.items() if name.startswith(prefix) and bit and bit & flags == bit]
    return "|".join(sorted(known)) or hex(flags)


class Sockets:
    """Of one host. now_us: the stack's clock. Raises OSError, NotSupported, Again."""

    def __init__(self, host: Any, settings: Settings, now_us: Callable[[], int]) -> None:
        self._host, self._settings, self._now_us = host, settings, now_us
        self._sockets: dict[int, _Socket] = {}
        self._epolls: dict[int, dict[int, _Member]] = {}

    def call(self, name: str, *arguments: Any) -> Callable[[], Outcome]:
        """What tries an operation, again and again if it has to wait."""
        operation = getattr(self, f"_{name}")
        if name in ("send", "receive"):
            kept = bytearray()  # of what one call moves in parts
            return lambda: operation(*arguments, kept)
        if name in ("poll", "epoll_wait"):
            ms = arguments[-1]
            until_us = None if ms < 0 or ms >= 1 << 31 else self._now_us() + 1000 * ms
            return lambda: operation(*arguments[:-1], until_us)
        return lambda: operation(*arguments)

    def info(self, handle: int) -> tuple[Any, Any] | None:
        """struct cl_tcp_info, struct cl_tcp_host_traffic; None: it is no connection."""
        found = self._sockets.get(handle)
        i, t = ffi.new("struct cl_tcp_info *"), ffi.new("struct cl_tcp_host_traffic *")
        if found is None or lib.cl_tcp_host_info(self._host, found.number, i):
            return None
        lib.cl_tcp_host_traffic(self._host, found.number, t)
        return i, t

    # --- what is where ---

    def _add(self, made: _Socket | dict[int, _Member]) -> int:
        handle = next((n for n in range(3, _MOST) if n not in self._sockets and n not in self._epolls), 0)
        if handle == 0:
            raise OSError(errno.EMFILE, "as many sockets as may be are open")
        if isinstance(made, _Socket):
            self._sockets[handle] = made
        else:
            self._epolls[handle] = made
        return handle

    def _get(self, h: int) -> _Socket:
        if h not in self._sockets:
            raise OSError(errno.EBADF, "no such socket")
        return self._sockets[h]

    def _number(self, h: int) -> int:
        number = self._get(h).number
        if number < 0:
            raise OSError(errno.ENOTCONN, "neither listens nor connects")
        return number

    def _wait(self, h: int, rc: int, flags: int = 0) -> int:
        """A result; -EAGAIN of a socket that waits is tried again."""
        if rc == -errno.EAGAIN and self._get(h).waits and not flags & socket.MSG_DONTWAIT:
            raise Again
        return _check(rc)

    # --- calls that make and end connections ---

    def _socket(self, kind: int, protocol: int) -> Outcome:
        if kind & 15 != socket.SOCK_STREAM:
            raise NotSupported("UDP")
        return Outcome(self._add(_Socket(kind)))

    def _bind(self, h: int, address: Address) -> Outcome:
        s = self._get(h)
        if s.own[1]:
            raise OSError(errno.EINVAL, "it is bound already")
        port = address[1] or self._free_port()
        if any(other.own[1] == port for other in self._sockets.values()):
            raise OSError(errno.EADDRINUSE, "another socket has it")
        if address[0] not in ("0.0.0.0", self._settings.local_ip):
            raise OSError(errno.EADDRNOTAVAIL, "it is not ours")
        s.own = (address[0], port)
        return Outcome(0)

    def _listen(self, h: int, backlog: int) -> Outcome:
        s = self._get(h)
        if s.number >= 0 and not s.listens:
            raise OSError(errno.EINVAL, "it is a connection")
        if s.number < 0:
            port = s.own[1] or self._free_port()
            for option, value in s.options.to_set:
                if option not in OF_CONNECTIONS:
                    _check(lib.cl_tcp_host_set(self._host, option, value))
            s.number = _check(lib.cl_tcp_host_listen(self._host, port, min(max(backlog, 0), 4096) + 1))
            s.own, s.listens = (s.own[0], port), True
        return Outcome(0)

    def _accept(self, h: int, flags: int) -> Outcome:
        peer, port = ffi.new("uint32_t *"), ffi.new("uint16_t *")
        listener = self._get(h)
        if not listener.listens:
            raise OSError(errno.EINVAL, "it does not listen")
        number = self._wait(h, lib.cl_tcp_host_accept(self._host, listener.number, peer, port))
        s = _Socket(flags)
        s.number, s.own = number, (self._settings.local_ip, listener.own[1])
        s.peer = (socket.inet_ntoa(struct.pack(">I", peer[0])), port[0])
        s.options.rule = listener.options.rule
        self._apply(s, [pair for pair in listener.options.to_set if pair[0] in OF_CONNECTIONS])
        return Outcome(self._add(s), address=s.peer)

    def _connect(self, h: int, address: Address | None) -> Outcome:
        s = self._get(h)
        if address is None:
            return self._disconnect(s)
        if s.listens:
            raise OSError(errno.EISCONN, "it listens")
        if s.number < 0:
            port = s.own[1] or self._free_port()
            s.own, s.peer = (self._settings.local_ip, port), address
            for option, value in s.options.to_set:
                if option in OF_SYNS:
                    _check(lib.cl_tcp_host_set(self._host, option, value))
            s.number = _check(lib.cl_tcp_host_connect(self._host, port, ipv4_to_int(address[0]), address[1]))
            self._apply(s, s.options.to_set)
            if not s.waits:
                raise OSError(errno.EINPROGRESS, "it was begun")
        rc = lib.cl_tcp_host_connected(self._host, s.number)
        if rc == 0 and s.told:
            rc = -errno.EISCONN
        s.told = rc == 0 or s.told
        if rc == -errno.EINPROGRESS:
            if s.waits:
                raise Again
            rc = -errno.EALREADY
        return Outcome(_check(rc))

    def _disconnect(self, s: _Socket) -> Outcome:
        if s.listens:
            raise NotSupported("connect of a listener to AF_UNSPEC")
        if s.number >= 0:
            lib.cl_tcp_host_close(self._host, s.number, True)
        s.number, s.peer, s.told = -1, None, False
        return Outcome(0)

    def _free_port(self) -> int:
        used = {s.own[1] for s in self._sockets.values()}
        return next(port for port in range(32768, 60999) if port not in used)

    def _apply(self, s: _Socket, pairs: list[tuple[int, int]]) -> None:
        for option, value in pairs:
            lib.cl_tcp_host_set_socket(self._host, s.number, option, value)

    def _shutdown(self, h: int, how: int) -> Outcome:
        s = self._get(h)
        if how not in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
            raise OSError(errno.EINVAL, "no such side")
        if s.listens:
            raise NotSupported("shutdown of a listener")
        number = self._number(h)
        if how != socket.SHUT_RD:
            _check(lib.cl_tcp_host_shutdown(self._host, number))
        s.reads = s.reads and how == socket.SHUT_WR
        return Outcome(0)

    def _close(self, h: int) -> Outcome:
        if self._epolls.pop(h, None) is not None:
            return Outcome(0)
        s = self._get(h)
        if s.options.linger_s and s.number >= 0 and not s.listens:
            self._linger(s, s.options.linger_s)
        del self._sockets[h]
        for members in self._epolls.values():
            members.pop(h, None)
        if s.number >= 0:
            lib.cl_tcp_host_close(self._host, s.number, s.options.linger_s == 0)
        return Outcome(0)

    def _linger(self, s: _Socket, seconds: int) -> None:
        """Wait until the peer has acknowledged all, the FIN included, or the time is over."""
        i = ffi.new("struct cl_tcp_info *")
        if s.lingers_us is None:
            s.lingers_us = self._now_us() + 1_000_000 * seconds
            if lib.cl_tcp_host_info(self._host, s.number, i) or i.to_read:
                return  # it is reset
            lib.cl_tcp_host_shutdown(self._host, s.number)
        lib.cl_tcp_host_info(self._host, s.number, i)
        waits = i.state in _FIN_UNACKNOWLEDGED
        if waits and self._now_us() < s.lingers_us and s.waits:
            raise Again(s.lingers_us)

    # --- calls that move data ---

    def _receive(self, h: int, size: int, flags: int, kept: bytearray) -> Outcome:
        if flags & ~_READ_FLAGS:
            raise NotSupported(f"recv with {_names('MSG_', flags & ~_READ_FLAGS)}")
        s, number = self._get(h), self._number(h)
        room = ffi.new("uint8_t[]", max(size - len(kept), 1))
        take = lib.cl_tcp_host_peek if flags & socket.MSG_PEEK else lib.cl_tcp_host_read
        rc = take(self._host, number, room, size - len(kept))
        if rc == -errno.EAGAIN and not s.reads:
            rc = 0
        if rc < 0 and kept and rc != -errno.EAGAIN:
            rc = 0  # the error is told by the next call
        n = self._wait(h, rc, flags) if not kept or s.waits else max(rc, 0)
        kept += bytes(ffi.buffer(room, n))
        all_of_it = flags & socket.MSG_WAITALL and s.waits and not flags & (socket.MSG_PEEK | socket.MSG_DONTWAIT)
        if all_of_it and n and len(kept) < size:
            raise Again
        return Outcome(len(kept), data=bytes(kept), numbers=(0, *self._left(s)))

    def _left(self, s: _Socket) -> tuple[int, ...]:
        """What waits behind that, if TCP_INQ asks; its end counts as a byte."""
        i = ffi.new("struct cl_tcp_info *")
        if not any(s.options.get(INQ, 4)) or lib.cl_tcp_host_info(self._host, s.number, i):
            return ()
        ended = bool(lib.cl_tcp_host_ready(self._host, s.number) & lib.CL_TCP_PEER_SHUT)
        return (i.to_read + (ended and i.to_read == 0),)

    def _send(self, h: int, data: bytes, flags: int, address: Address | None, kept: bytearray) -> Outcome:
        """kept: what was taken so far; a socket that waits has all of it taken."""
        if flags & ~_WRITE_FLAGS:
            raise NotSupported(f"send with {_names('MSG_', flags & ~_WRITE_FLAGS)}")
        s, number, left = self._get(h), self._number(h), data[len(kept) :]
        rc = int(lib.cl_tcp_host_send(self._host, number, left, len(left), bool(flags & socket.MSG_MORE)))
        if rc < 0 and kept and rc != -errno.EAGAIN:
            return Outcome(len(kept))
        kept += left[: self._wait(h, rc, flags)]
        if len(kept) < len(data) and s.waits and not flags & socket.MSG_DONTWAIT:
            raise Again
        return Outcome(len(kept))

    # --- options and names ---

    def _setsockopt(self, h: int, level: int, name: int, data: bytes) -> Outcome:
        s = self._get(h)
        added = s.options.set((level, name), data)
        if s.number >= 0 and not s.listens:
            self._apply(s, added)
        return Outcome(0)

    def _getsockopt(self, h: int, level: int, name: int, size: int) -> Outcome:
        s, key = self._get(h), (level, name)
        return Outcome(0, data=self._number_of(s, key) or s.options.get(key, size))

    def _number_of(self, s: _Socket, key: Key) -> bytes | None:
        """An option that a connection knows by itself."""
        i = ffi.new("struct cl_tcp_info *")
        if key == ERROR:
            rc = lib.cl_tcp_host_error(self._host, s.number) if s.number >= 0 else 0
            s.told |= rc == 0 and s.peer is not None
            return struct.pack("i", rc)
        if (
            key in (MAXSEG, MTU)
            and s.peer is not None
            and s.number >= 0
            and lib.cl_tcp_host_info(self._host, s.number, i) == 0
        ):
            return struct.pack("i", i.snd_mss if key == MAXSEG else i.snd_mss + _HEADERS + 12 * i.times)
        if key == (socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return struct.pack("i", s.listens)
        return None

    def _getsockname(self, h: int) -> Outcome:
        return Outcome(0, address=self._get(h).own)

    def _getpeername(self, h: int) -> Outcome:
        peer = self._get(h).peer
        if peer is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return Outcome(0, address=peer)

    def _fcntl(self, h: int, command: int, argument: int) -> Outcome:
        s = self._get(h)
        if command == fcntl.F_SETFL:
            s.waits = not argument & os.O_NONBLOCK
        elif command == fcntl.F_GETFL:
            return Outcome(os.O_RDWR | (0 if s.waits else os.O_NONBLOCK))
        elif command not in (fcntl.F_GETFD, fcntl.F_SETFD):
            raise NotSupported(f"fcntl command {_names('F_', command)}")
        return Outcome(0)

    def _ioctl(self, h: int, request: int) -> Outcome:
        i = ffi.new("struct cl_tcp_info *")
        _check(lib.cl_tcp_host_info(self._host, self._number(h), i))
        numbers = {_SIOCINQ: i.to_read, _SIOCOUTQ: i.unacked_bytes, _SIOCOUTQNSD: i.unsent}
        if request not in numbers:
            raise NotSupported(f"ioctl {request:#x}")
        return Outcome(0, numbers=(numbers[request],))

    # --- waiting for many ---

    def _poll(self, wanted: tuple[tuple[int, int], ...], until_us: int | None) -> Outcome:
        came = [self._ready_or_bad(h) & (events | _ALWAYS | select.POLLNVAL) for h, events in wanted]
        n = sum(map(bool, came))
        self._waits_until(n, until_us)
        return Outcome(n, numbers=tuple(came))

    def _waits_until(self, n: int, until_us: int | None) -> None:
        """Nothing is ready, and there is time left."""
        if n == 0 and (until_us is None or self._now_us() < until_us):
            raise Again(until_us)

    def _ready_or_bad(self, h: int) -> int:
        return self._ready(h) if h in self._sockets else int(select.POLLNVAL)

    def _ready(self, h: int) -> int:
        s = self._get(h)
        if s.number < 0:
            return int(select.POLLOUT | select.POLLHUP)
        what, out = lib.cl_tcp_host_ready(self._host, s.number), 0
        out |= select.POLLIN if what & lib.CL_TCP_READABLE or not s.reads else 0
        out |= select.POLLOUT if what & lib.CL_TCP_WRITABLE else 0
        out |= select.POLLRDHUP if what & lib.CL_TCP_PEER_SHUT or not s.reads else 0
        out |= select.POLLERR if what & lib.CL_TCP_FAILED else 0
        out |= select.POLLHUP if what & lib.CL_TCP_OVER else 0
        return out

    def _epoll_create(self) -> Outcome:
        return Outcome(self._add({}))

    def _members(self, h: int) -> dict[int, _Member]:
        if h not in self._epolls:
            raise OSError(errno.EINVAL if h in self._sockets else errno.EBADF, "no epoll set")
        return self._epolls[h]

    def _epoll_ctl(self, e: int, operation: int, h: int, events: int) -> Outcome:
        members = self._members(e)
        self._get(h)
        if operation == SYMBOLS["EPOLL_CTL_ADD"]:
            if h in members:
                raise OSError(errno.EEXIST, "it is in")
        elif h not in members:
            raise OSError(errno.ENOENT, "it is not in")
        if operation == SYMBOLS["EPOLL_CTL_DEL"]:
            del members[h]
        else:
            members[h] = _Member(events)
        return Outcome(0)

    def _epoll_wait(self, e: int, most: int, until_us: int | None) -> Outcome:
        if most <= 0:
            raise OSError(errno.EINVAL, "room for none")
        numbers: list[int] = []
        for h, member in self._members(e).items():
            events = 0 if member.off else self._ready(h) & (member.events | _ALWAYS) & ~member.told
            if events and len(numbers) < 2 * most:
                numbers += [h, events]
                member.off = bool(member.events & select.EPOLLONESHOT)
                if member.events & select.EPOLLET:
                    member.told |= events
        self._waits_until(len(numbers), until_us)
        return Outcome(len(numbers) // 2, numbers=tuple(numbers))

    def happened(self) -> None:
        """Something has: what an edge has told of, and is not so any more or has come again, is told again."""
        for members in self._epolls.values():
            for h, member in members.items():
                found = self.info(h)
                arrived = found[1].bytes_received if found else 0
                member.told &= self._ready(h)
                if arrived > member.arrived:
                    member.told &= ~select.EPOLLIN
                member.arrived = arrived

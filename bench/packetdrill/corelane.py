"""corelane's own stack under test: libos/net/tcp as a host without a NIC, in virtual time (libos/net/tcp/host.h).

A call that waits is tried again whenever something has happened. The rest is one to one: packets as bytes, calls of
sockets, numbers of a connection. What has no meaning there is refused by NotSupported, or by Linux's errno for it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

from ...drivers.nic.nic import ipv4_to_int
from ...libos._native import ffi, lib
from ...runtime.errors import CorelaneError
from .settings import Settings
from .stack import Address, Outcome
from .tokens import NotSupported

_START_NS = 1_000_000_000_000
_SIOCINQ, _SIOCOUTQ = 0x541B, 0x5411  # linux/sockios.h
_NEVER_NS = 2**64 - 1
_TCP = socket.IPPROTO_TCP
# Linux's numbers of states (linux/tcp_states.h), in the order of enum cl_tcp_state.
_STATES = (7, 10, 2, 3, 1, 4, 5, 8, 11, 9, 6)
_OPEN, _CWR, _RECOVERY, _LOSS = 0, 2, 3, 4  # tcpi_ca_state

# Settings by Linux's sysctl, with what a value is multiplied by; and options of sockets.
_SYSCTLS = {
    "net.ipv4.tcp_keepalive_time": (lib.CL_TCP_SET_KEEP_IDLE, 1000),
    "net.ipv4.tcp_keepalive_intvl": (lib.CL_TCP_SET_KEEP_INTERVAL, 1000),
    "net.ipv4.tcp_keepalive_probes": (lib.CL_TCP_SET_KEEP_PROBES, 1),
    "net.ipv4.tcp_fin_timeout": (lib.CL_TCP_SET_FIN_WAIT, 1000),
    "net.ipv4.tcp_early_retrans": (lib.CL_TCP_SET_TAIL_PROBES, 1),
    "net.ipv4.tcp_ecn": (lib.CL_TCP_SET_ECN, 1),
    "net.ipv4.tcp_mtu_probing": (lib.CL_TCP_SET_BLACK_HOLES, 1),
}
_SYSCTL_OPTIONS = {
    "net.ipv4.tcp_timestamps": lib.CL_TCPO_TIMES,
    "net.ipv4.tcp_sack": lib.CL_TCPO_SACK_OK,
    "net.ipv4.tcp_window_scaling": lib.CL_TCPO_WSCALE,
}
_SOCKET_OPTIONS = {
    (_TCP, socket.TCP_NODELAY): lib.CL_TCP_SET_NO_DELAY,
    (_TCP, socket.TCP_USER_TIMEOUT): lib.CL_TCP_SET_USER_TIMEOUT,
    (_TCP, socket.TCP_QUICKACK): lib.CL_TCP_SET_QUICK_ACK,
    (_TCP, socket.TCP_KEEPIDLE): lib.CL_TCP_SET_KEEP_IDLE,
    (_TCP, socket.TCP_KEEPINTVL): lib.CL_TCP_SET_KEEP_INTERVAL,
    (_TCP, socket.TCP_KEEPCNT): lib.CL_TCP_SET_KEEP_PROBES,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): lib.CL_TCP_SET_KEEP_ALIVE,
    (socket.SOL_SOCKET, socket.SO_SNDBUF): lib.CL_TCP_SET_SEND_LIMIT,
    (socket.SOL_SOCKET, socket.SO_RCVBUF): lib.CL_TCP_SET_RECEIVE_LIMIT,
}
# Of Linux's ways what this stack does: other values are refused.
_SAME = {
    "net.ipv4.tcp_recovery": ("1",),
    "net.ipv4.tcp_frto": ("1", "2"),
    "net.ipv4.tcp_fastopen": ("0", "1"),
    "net.ipv4.tcp_slow_start_after_idle": ("1",),
    "net.ipv4.tcp_congestion_control": ("cubic",),
    "net.ipv4.tcp_dsack": ("1",),
    "net.ipv4.tcp_tw_reuse": ("0",),
    "net.ipv4.tcp_invalid_ratelimit": ("0",),
}
# Where our defaults are not Linux's.
_DEFAULTS = (("net.ipv4.tcp_mtu_probing", "0"),)
_WITHOUT_MEANING = {(socket.SOL_SOCKET, socket.SO_REUSEADDR), (socket.SOL_SOCKET, socket.SO_REUSEPORT)}
_OPERATIONS = frozenset(
    {"socket", "bind", "listen", "accept", "connect", "receive", "send", "shutdown", "close", "getsockopt"}
    | {"setsockopt", "getsockname", "getpeername", "fcntl", "ioctl", "poll"}
)


class _Again(Exception):
    """The call would have to wait."""


class _Socket:
    """What the host does not know of a socket."""

    def __init__(self, flags: int) -> None:
        self.waits = not flags & socket.SOCK_NONBLOCK
        self.number = -1  # of the host; -1: neither listens nor connects
        self.own: Address = ("0.0.0.0", 0)
        self.peer: Address | None = None
        self.linger = False
        self.told = False  # that it is connected
        self.set: list[tuple[int, int]] = []  # options, before there is a connection
        self.options: dict[tuple[int, int], bytes] = {}


class _Pending:
    def __init__(self, stack: CorelaneStack, call: Callable[[], Outcome], waits: bool) -> None:
        self._stack, self._call, self._waits = stack, call, waits
        self._outcome: Outcome | None = None
        self.attempt()

    def attempt(self) -> None:
        """Try it. Done already, or would have to wait: nothing happens."""
        if self._outcome is not None:
            return
        try:
            came = self._call()
        except _Again:
            return
        except OSError as error:
            came = Outcome(-1, errno=error.errno or errno.EIO)
        self._outcome = Outcome(**{**_fields(came), "ended_us": self._stack.now_us()})

    def outcome(self, deadline_us: int) -> Outcome | None:
        """See stack.Pending."""
        while self._outcome is None and self._waits and self._stack.step(deadline_us):
            pass
        return self._outcome


def _fields(o: Outcome) -> dict[str, Any]:
    return {name: getattr(o, name) for name in ("value", "errno", "data", "address", "numbers")}


def _check(rc: int) -> int:
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc))
    return rc


class CorelaneStack:
    """stack.Stack. Raises CorelaneError."""

    name = "corelane"
    real_time = False
    operations = _OPERATIONS
    info_fields: frozenset[str]

    def __init__(self, settings: Settings) -> None:
        out = ffi.new("struct cl_tcp_host **")
        mtu = settings.mss + 40 if settings.mss else settings.mtu
        if lib.cl_tcp_host_new(ipv4_to_int(settings.local_ip), mtu, _START_NS, out):
            raise CorelaneError("run scripts on corelane's TCP", "out of memory")
        self._host, self._now_ns, self._settings = out[0], _START_NS, settings
        for name, value in _DEFAULTS:
            self.sysctl(name, value)
        self._sockets: dict[int, _Socket] = {}
        self._pending: list[_Pending] = []
        self._options = lib.CL_TCPO_TIMES | lib.CL_TCPO_SACK_OK | lib.CL_TCPO_WSCALE
        self._sent: list[tuple[int, bytes]] = []

    # --- time and packets ---

    def now_us(self) -> int:
        return self._now_ns // 1000

    def step(self, until_us: int) -> bool:
        """The next thing that is due, no later than that. False: nothing is, and it is then."""
        due_ns = lib.cl_tcp_host_due_ns(self._host)
        now_ns = min(due_ns, until_us * 1000)
        self._now_ns = max(self._now_ns, now_ns)
        lib.cl_tcp_host_run(self._host, self._now_ns)
        self._happened()
        return bool(due_ns <= until_us * 1000)

    def _happened(self) -> None:
        room, at_ns = ffi.new("uint8_t[65536]"), ffi.new("uint64_t *")
        for pending in self._pending:
            pending.attempt()
        while n := lib.cl_tcp_host_next(self._host, room, 65536, at_ns):
            self._sent.append((at_ns[0] // 1000, bytes(ffi.buffer(room, n))))

    def wait_until(self, when_us: int) -> None:
        while self.step(when_us):
            pass

    def inject(self, packet: bytes) -> None:
        lib.cl_tcp_host_take(self._host, packet, len(packet))
        self._happened()

    def next_packet(self, deadline_us: int) -> tuple[int, bytes] | None:
        while not self._sent and self.step(deadline_us):
            pass
        return self._sent.pop(0) if self._sent else None

    def close(self) -> None:
        lib.cl_tcp_host_delete(self._host)

    # --- settings and numbers ---

    def sysctl(self, name: str, value: str) -> None:
        if name in _SYSCTLS:
            option, factor = _SYSCTLS[name]
            if lib.cl_tcp_host_set(self._host, option, int(value) * factor) < 0:
                raise NotSupported(f"sysctl {name}={value}")
        elif name in _SYSCTL_OPTIONS:
            bit = _SYSCTL_OPTIONS[name]
            self._options = self._options | bit if int(value) else self._options & ~bit
            _check(lib.cl_tcp_host_set(self._host, lib.CL_TCP_SET_OPTIONS, self._options))
        elif name in _SAME and value in _SAME[name]:
            pass
        else:
            raise NotSupported(f"sysctl {name}={value}")

    def info(self, handle: int) -> dict[str, int]:
        i = ffi.new("struct cl_tcp_info *")
        if lib.cl_tcp_host_info(self._host, self._sockets[handle].number, i):
            return {}
        return _info(i)

    # --- operations ---

    def begin(self, waits: bool, name: str, *arguments: Any) -> _Pending:
        call = getattr(self, f"_{name}")
        pending = _Pending(self, lambda: call(*arguments), waits)
        self._pending.append(pending)
        self._happened()
        return pending

    def _socket(self, kind: int, protocol: int) -> Outcome:
        if kind & 15 != socket.SOCK_STREAM:
            raise NotSupported("UDP")
        return Outcome(self._add(_Socket(kind)))

    def _add(self, made: _Socket) -> int:
        handle = next(n for n in range(3, 1000) if n not in self._sockets)
        self._sockets[handle] = made
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
            raise _Again
        return _check(rc)

    def _bind(self, h: int, address: Address) -> Outcome:
        if any(s.own[1] == address[1] for s in self._sockets.values()):
            raise OSError(errno.EADDRINUSE, "another socket has it")
        self._get(h).own = address
        return Outcome(0)

    def _listen(self, h: int, backlog: int) -> Outcome:
        s = self._get(h)
        if s.number < 0:
            for option, value in s.set:
                _check(lib.cl_tcp_host_set(self._host, option, value))
            s.number = _check(lib.cl_tcp_host_listen(self._host, s.own[1], backlog + 1))
        return Outcome(0)

    def _accept(self, h: int, flags: int) -> Outcome:
        peer, port = ffi.new("uint32_t *"), ffi.new("uint16_t *")
        number = self._wait(h, lib.cl_tcp_host_accept(self._host, self._number(h), peer, port))
        s = _Socket(flags)
        s.number, s.own = number, (self._settings.local_ip, self._get(h).own[1])
        s.peer = (socket.inet_ntoa(struct.pack(">I", peer[0])), port[0])
        return Outcome(self._add(s), address=s.peer)

    def _connect(self, h: int, address: Address | None) -> Outcome:
        s = self._get(h)
        if address is None:
            raise NotSupported("connect to AF_UNSPEC")
        if s.number < 0:
            port = s.own[1] or self._free_port()
            s.own, s.peer = (self._settings.local_ip, port), address
            s.number = _check(lib.cl_tcp_host_connect(self._host, port, ipv4_to_int(address[0]), address[1]))
            self._apply(s)
            if not s.waits:
                raise OSError(errno.EINPROGRESS, "it was begun")
        rc = lib.cl_tcp_host_connected(self._host, s.number)
        if rc == 0 and s.told:
            rc = -errno.EISCONN
        s.told = rc == 0 or s.told
        if rc == -errno.EINPROGRESS:
            if s.waits:
                raise _Again
            rc = -errno.EALREADY
        return Outcome(_check(rc))

    def _free_port(self) -> int:
        used = {s.own[1] for s in self._sockets.values()}
        return next(port for port in range(32768, 60999) if port not in used)

    def _apply(self, s: _Socket) -> None:
        for option, value in s.set:
            lib.cl_tcp_host_set_socket(self._host, s.number, option, value)

    def _receive(self, h: int, size: int, flags: int) -> Outcome:
        if flags & ~socket.MSG_DONTWAIT:
            raise NotSupported(f"recv with flags {flags:#x}")
        room = ffi.new("uint8_t[]", max(size, 1))
        n = self._wait(h, lib.cl_tcp_host_read(self._host, self._number(h), room, size), flags)
        return Outcome(n, data=bytes(ffi.buffer(room, n)), numbers=(0,))

    def _send(self, h: int, data: bytes, flags: int, address: Address | None) -> Outcome:
        if flags & ~(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL):
            raise NotSupported(f"send with flags {flags:#x}")
        rc = lib.cl_tcp_host_write(self._host, self._number(h), data, len(data))
        return Outcome(self._wait(h, int(rc), flags))

    def _shutdown(self, h: int, how: int) -> Outcome:
        if how == socket.SHUT_RD:
            raise NotSupported("shutdown(SHUT_RD)")
        return Outcome(_check(lib.cl_tcp_host_shutdown(self._host, self._number(h))))

    def _close(self, h: int) -> Outcome:
        s = self._get(h)
        del self._sockets[h]
        if s.number >= 0:
            lib.cl_tcp_host_close(self._host, s.number, s.linger)
        return Outcome(0)

    def _setsockopt(self, h: int, level: int, name: int, data: bytes) -> Outcome:
        s, key = self._get(h), (level, name)
        value = struct.unpack("i", data[:4])[0] if len(data) >= 4 else 0
        if key == (socket.SOL_SOCKET, socket.SO_LINGER):
            on, seconds = struct.unpack("ii", data)
            if on and seconds:
                raise NotSupported("SO_LINGER with a time")
            s.linger = bool(on)
        elif key in _SOCKET_OPTIONS:
            if name in (socket.SO_SNDBUF, socket.SO_RCVBUF) and level == socket.SOL_SOCKET:
                value = 2 * value  # as Linux takes it
            elif name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL) and level == _TCP:
                value = 1000 * value
            s.set.append((_SOCKET_OPTIONS[key], value))
            if s.number >= 0:
                self._apply(s)
        elif key not in _WITHOUT_MEANING:
            raise NotSupported(f"setsockopt({level}, {name})")
        s.options[key] = data
        return Outcome(0)

    def _getsockopt(self, h: int, level: int, name: int, size: int) -> Outcome:
        s = self._get(h)
        if (level, name) == (socket.SOL_SOCKET, socket.SO_ERROR):
            rc = lib.cl_tcp_host_error(self._host, s.number) if s.number >= 0 else 0
            s.told |= rc == 0 and s.peer is not None
            return Outcome(0, data=struct.pack("i", rc))
        if (level, name) not in s.options:
            raise NotSupported(f"getsockopt({level}, {name})")
        return Outcome(0, data=s.options[level, name][:size])

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
            return Outcome(0)
        if command != fcntl.F_GETFL:
            raise NotSupported(f"fcntl command {command}")
        return Outcome(os.O_RDWR | (0 if s.waits else os.O_NONBLOCK))

    def _ioctl(self, h: int, request: int) -> Outcome:
        i = ffi.new("struct cl_tcp_info *")
        _check(lib.cl_tcp_host_info(self._host, self._number(h), i))
        if request not in (_SIOCINQ, _SIOCOUTQ):
            raise NotSupported(f"ioctl {request:#x}")
        return Outcome(0, numbers=(i.to_read if request == _SIOCINQ else i.unacked_bytes,))

    def _poll(self, wanted: tuple[tuple[int, int], ...], ms: int) -> Outcome:
        came = [self._ready(h) & (events | select.POLLERR | select.POLLHUP) for h, events in wanted]
        n = sum(map(bool, came))
        if n == 0 and ms != 0:
            raise NotSupported("poll that waits")
        return Outcome(n, numbers=tuple(came))

    def _ready(self, h: int) -> int:
        number = self._get(h).number
        if number < 0:
            return int(select.POLLOUT | select.POLLHUP)
        what, out = lib.cl_tcp_host_ready(self._host, number), 0
        out |= select.POLLIN if what & lib.CL_TCP_READABLE else 0
        out |= select.POLLOUT if what & lib.CL_TCP_WRITABLE else 0
        out |= select.POLLRDHUP if what & lib.CL_TCP_PEER_SHUT else 0
        out |= select.POLLERR if what & lib.CL_TCP_FAILED else 0
        out |= select.POLLHUP if what & lib.CL_TCP_OVER else 0
        return out


def _info(i: Any) -> dict[str, int]:
    return {
        "tcpi_state": _STATES[i.state],
        "tcpi_ca_state": (_OPEN, _RECOVERY, _LOSS, _CWR)[i.recovering],
        "tcpi_retransmits": i.retries,
        "tcpi_probes": i.probes,
        "tcpi_backoff": i.backoff,
        "tcpi_options": i.times | i.sacks << 1 | i.scales << 2 | i.ecn << 3,
        "tcpi_snd_wscale": i.snd_scale,
        "tcpi_rcv_wscale": i.rcv_scale,
        "tcpi_rto": i.rto_us,
        "tcpi_rtt": i.rtt_us,
        "tcpi_rttvar": i.rtt_var_us,
        "tcpi_snd_mss": i.snd_mss,
        "tcpi_rcv_mss": i.rcv_mss,
        "tcpi_snd_cwnd": i.cwnd,
        "tcpi_snd_ssthresh": min(i.ssthresh, 0x7FFFFFFF),
        "tcpi_snd_wnd": i.snd_wnd,
        "tcpi_rcv_wnd": i.rcv_wnd,
        "tcpi_unacked": i.unacked,
        "tcpi_notsent_bytes": i.unsent,
        "tcpi_total_retrans": i.resent,
        "tcpi_sacked": i.sacked,
        "tcpi_lost": i.lost,
        "tcpi_dsack_dups": i.dsacks,
        "tcpi_min_rtt": i.rtt_least_us,
    }


CorelaneStack.info_fields = frozenset(_info(ffi.new("struct cl_tcp_info *")))


def corelane_stack(settings: Settings) -> CorelaneStack:
    """A host for a script."""
    return CorelaneStack(settings)

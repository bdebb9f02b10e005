"""The kernel's stack under test: real sockets of this process, in a network namespace with a TUN device of its own.

Its clock is CLOCK_REALTIME, by which the kernel stamps the packets that it sends: a runner that reads a packet late
still knows when it was sent. Calls that may block run in a thread each; their sockets are of the namespace, for ever.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from ...drivers.linux import netns
from ...runtime.errors import CorelaneError
from . import model as m
from . import tcp_info
from .settings import Settings
from .stack import OPERATIONS, Outcome
from .tokens import NotSupported

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SO_TIMESTAMPNS = 35
_ETH_P_ALL = 3  # the only protocol of which a packet socket sees what goes out
_OUTGOING = 4  # linux/if_packet.h, PACKET_OUTGOING
_DEVICE = "tun0"
_CONGESTION = "net.ipv4.tcp_congestion_control"
_POLL_MS = 1
_CM_INQ = [socket.IPPROTO_TCP, 36]  # level and type of a control message (linux/tcp.h)


def missing() -> str | None:
    """What this process lacks to test the kernel's stack, as one line that names the remedy; None if nothing."""
    lacks = netns.missing()
    if lacks is None and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        lacks = "needs /dev/net/tun (a kernel with CONFIG_TUN, and the right to open it)"
    return lacks


class LinuxStack:
    """stack.Stack. Needs root. Raises CorelaneError."""

    name = "linux"
    real_time = True
    operations = OPERATIONS
    tcp_options = frozenset(get_args(m.TcpOption))
    info_fields = tcp_info.FIELDS

    def __init__(self, settings: Settings) -> None:
        self._made = contextlib.ExitStack()
        self._sent: deque[tuple[int, bytes]] = deque()
        self._sockets: dict[int, socket.socket] = {}
        self._epolls: dict[int, select.epoll] = {}
        self._congestion = b"cubic"  # set on each socket: the machine's default may be another one
        lacks = missing()
        if lacks:
            raise CorelaneError("test the kernel's TCP", lacks)
        try:
            self._space = self._made.enter_context(netns.namespace("drill"))
            with self._space.entered():
                self._tun = self._open_tun()
                self._tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
                self._made.callback(self._tap.close)
            self._address(settings)
            with self._space.entered():
                self._tap.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                self._tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
                self._tap.bind((_DEVICE, _ETH_P_ALL))
                self._tap.setblocking(False)
        except BaseException:
            self._made.close()
            raise

    def _open_tun(self) -> int:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._made.callback(os.close, tun)
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
        return tun

    def _address(self, settings: Settings) -> None:
        ip = self._space.ip
        ip("address", "add", f"{settings.local_ip}/16", "dev", _DEVICE)
        ip("link", "set", _DEVICE, "mtu", str(settings.mtu), "txqueuelen", "10000", "up")
        ip("route", "add", f"{settings.remote_ip.rpartition('.')[0]}.0/24", "dev", _DEVICE)

    # --- the wire and the clock ---

    def now_us(self) -> int:
        """The machine's clock."""
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000

    def wait_until(self, when_us: int) -> None:
        """Sleep, and keep what comes meanwhile."""
        while (left_us := when_us - self.now_us()) > 0:
            if left_us > 1500:
                self._poll((left_us - 1000) // 1000)
        self._take()

    def inject(self, packet: bytes) -> None:
        """Into the TUN device: the kernel handles it within the call, or in its softirq thread if it is busy."""
        try:
            os.write(self._tun, packet)
        except OSError as error:
            raise CorelaneError("inject a packet", error.strerror or str(error)) from error

    def next_packet(self, deadline_us: int) -> tuple[int, bytes] | None:
        """What the kernel sent, with its own stamp."""
        self._take()
        while not self._sent and (left_us := deadline_us - self.now_us()) > 0:
            self._poll(max(_POLL_MS, left_us // 1000))
        return self._sent.popleft() if self._sent else None

    def _poll(self, ms: int) -> None:
        waiting = select.poll()
        waiting.register(self._tap, select.POLLIN)
        waiting.poll(ms)
        self._take()

    def _take(self) -> None:
        """Move what was sent from the socket to the queue, and empty the device."""
        while True:
            try:
                data, control, _, address = self._tap.recvmsg(65536, 64)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENETDOWN:
                    raise
                continue
            if address[2] == _OUTGOING:
                self._sent.append((_stamp_us(control) or self.now_us(), data))
        with contextlib.suppress(BlockingIOError):
            while os.read(self._tun, 65536):
                pass

    def close(self) -> None:
        """Close the sockets, end calls that still wait, and remove the namespace."""
        for sock in self._sockets.values():
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        for epoll in self._epolls.values():
            epoll.close()
        self._made.close()

    # --- settings and numbers ---

    def sysctl(self, name: str, value: str) -> None:
        """In the namespace. A sysctl of the machine, or one that this kernel lacks, is refused."""
        path = Path("/proc/sys") / name.replace(".", "/")

        def write() -> str:
            if not path.exists():
                return "this kernel has no such sysctl in a network namespace"
            try:
                if path.read_text().split() != value.split():  # some may not be written here, and are what they should
                    path.write_text(value)
            except OSError as error:
                return error.strerror or str(error)
            return ""

        wrong = self._space.call(write)
        if wrong and name == _CONGESTION:  # which a namespace may not set to what is not allowed for all users
            self._congestion = value.encode()
        elif wrong:
            raise NotSupported(f"sysctl {name}={value}: {wrong}")

    def info(self, handle: int) -> dict[str, int]:
        """TCP_INFO of a socket."""
        sock = self._sockets[handle]
        return tcp_info.read(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 512))

    # --- operations ---

    def begin(self, waits: bool, name: str, *arguments: Any) -> _Pending:
        """In a thread if it may wait, at once if not."""
        call = _OPERATIONS[name]
        pending = _Pending(self, lambda: call(self, *arguments))
        if waits or name not in _AT_ONCE:
            pending.start(name in _MAY_WAIT)
        elif not self._would_wait(name, *arguments):
            pending.start(False)
        return pending

    def _would_wait(self, name: str, handle: int, *arguments: Any) -> bool:
        """Whether a call on a socket that waits would do so now."""
        if handle not in self._sockets or not os.get_blocking(handle):
            return False
        if name != "accept" and arguments[1] & socket.MSG_DONTWAIT:
            return False
        waiting = select.poll()
        waiting.register(handle, select.POLLOUT if name == "send" else select.POLLIN)
        return not waiting.poll(0)

    def _socket(self, kind: int, protocol: int) -> Outcome:
        sock = self._space.call(lambda: socket.socket(socket.AF_INET, kind, protocol))
        sock.settimeout(None)
        if kind & socket.SOCK_NONBLOCK:
            os.set_blocking(sock.fileno(), False)
        if self._congestion and kind & 15 == socket.SOCK_STREAM:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion)
        return self._add(sock)

    def _add(self, sock: socket.socket) -> Outcome:
        self._sockets[sock.fileno()] = sock
        return Outcome(sock.fileno())

    def _bind(self, h: int, address: tuple[str, int]) -> Outcome:
        self._sockets[h].bind(address)
        return Outcome(0)

    def _listen(self, h: int, backlog: int) -> Outcome:
        self._sockets[h].listen(backlog)
        return Outcome(0)

    def _accept(self, h: int, flags: int) -> Outcome:
        sock, address = self._sockets[h].accept()
        sock.settimeout(None)
        os.set_blocking(sock.fileno(), not flags & socket.SOCK_NONBLOCK)
        return Outcome(self._add(sock).value, address=address)

    def _connect(self, h: int, address: tuple[str, int] | None) -> Outcome:
        sock = self._sockets[h]
        if address is None:
            return _unconnect(sock.fileno())
        sock.connect(address)
        return Outcome(0)

    def _receive(self, h: int, size: int, flags: int) -> Outcome:
        data, control, msg_flags, address = self._sockets[h].recvmsg(size, 64, flags)
        numbers = (msg_flags, *(int.from_bytes(said[:4], "little") for *kind, said in control if kind == _CM_INQ))
        if flags & socket.MSG_TRUNC and flags & ~socket.MSG_TRUNC == 0 and self._is_tcp(h):
            return Outcome(len(data), numbers=numbers)  # tcp(7): the bytes are thrown away
        return Outcome(len(data), data=data, address=address or None, numbers=numbers)

    def _is_tcp(self, h: int) -> bool:
        return self._sockets[h].type & 15 == socket.SOCK_STREAM

    def _send(self, h: int, data: bytes, flags: int, address: tuple[str, int] | None) -> Outcome:
        sock = self._sockets[h]
        flags |= socket.MSG_NOSIGNAL
        return Outcome(sock.send(data, flags) if address is None else sock.sendto(data, flags, address))

    def _shutdown(self, h: int, how: int) -> Outcome:
        self._sockets[h].shutdown(how)
        return Outcome(0)

    def _close(self, h: int) -> Outcome:
        if h in self._epolls:
            self._epolls.pop(h).close()
        else:
            self._sockets.pop(h).close()
        return Outcome(0)

    def _getsockopt(self, h: int, level: int, name: int, size: int) -> Outcome:
        return Outcome(0, data=self._sockets[h].getsockopt(level, name, size))

    def _setsockopt(self, h: int, level: int, name: int, data: bytes) -> Outcome:
        self._sockets[h].setsockopt(level, name, data)
        return Outcome(0)

    def _getsockname(self, h: int) -> Outcome:
        return Outcome(0, address=self._sockets[h].getsockname())

    def _getpeername(self, h: int) -> Outcome:
        return Outcome(0, address=self._sockets[h].getpeername())

    def _fcntl(self, h: int, command: int, argument: int) -> Outcome:
        return Outcome(fcntl.fcntl(h, command, argument))

    def _ioctl(self, h: int, request: int) -> Outcome:
        return Outcome(0, numbers=struct.unpack("i", fcntl.ioctl(h, request, b"\0" * 4)))

    def _poll_sockets(self, wanted: tuple[tuple[int, int], ...], ms: int) -> Outcome:
        waiting = select.poll()
        for h, events in wanted:
            waiting.register(h, events)
        ready = dict(waiting.poll(ms))
        return Outcome(len(ready), numbers=tuple(ready.get(h, 0) for h, _ in wanted))

    def _epoll_create(self) -> Outcome:
        epoll = select.epoll()
        self._epolls[epoll.fileno()] = epoll
        return Outcome(epoll.fileno())

    def _epoll_ctl(self, e: int, operation: int, h: int, events: int) -> Outcome:
        epoll = self._epolls[e]
        if operation == 2:
            epoll.unregister(h)
        else:
            (epoll.register if operation == 1 else epoll.modify)(h, events)
        return Outcome(0)

    def _epoll_wait(self, e: int, most: int, ms: int) -> Outcome:
        ready = self._epolls[e].poll(ms / 1000 if ms >= 0 else None, most)
        return Outcome(len(ready), numbers=tuple(n for pair in ready for n in pair))


def _unconnect(fd: int) -> Outcome:
    """connect() to AF_UNSPEC, which Python's socket has no form of."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.connect(fd, struct.pack("H14x", socket.AF_UNSPEC), 16):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return Outcome(0)


def _stamp_us(control: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= 16:
            seconds, ns = struct.unpack("qq", data[:16])
            return int(seconds * 1_000_000 + ns // 1000)
    return None


class _Pending:
    """A call, in a thread or done."""

    def __init__(self, stack: LinuxStack, call: Callable[[], Outcome]) -> None:
        self._stack = stack
        self._call = call
        self._done = threading.Event()
        self._outcome: Outcome | None = None

    def start(self, threaded: bool) -> None:
        if threaded:
            threading.Thread(target=self._run, name="packetdrill call", daemon=True).start()
        else:
            self._run()

    def _run(self) -> None:
        try:
            found = self._call()
        except OSError as error:
            found = Outcome(-1, error.errno or errno.EIO)
        except KeyError:
            found = Outcome(-1, errno.EBADF)
        ended = self._stack.now_us()
        self._outcome = Outcome(found.value, found.errno, found.data, found.address, found.numbers, ended)
        self._done.set()

    def outcome(self, deadline_us: int) -> Outcome | None:
        """Wait for the call, and keep what the kernel sends meanwhile."""
        self._done.wait(max(0, deadline_us - self._stack.now_us()) / 1e6)
        return self._outcome


_OPERATIONS: dict[str, Callable[..., Outcome]] = {
    "socket": LinuxStack._socket,
    "bind": LinuxStack._bind,
    "listen": LinuxStack._listen,
    "accept": LinuxStack._accept,
    "connect": LinuxStack._connect,
    "receive": LinuxStack._receive,
    "send": LinuxStack._send,
    "shutdown": LinuxStack._shutdown,
    "close": LinuxStack._close,
    "getsockopt": LinuxStack._getsockopt,
    "setsockopt": LinuxStack._setsockopt,
    "getsockname": LinuxStack._getsockname,
    "getpeername": LinuxStack._getpeername,
    "fcntl": LinuxStack._fcntl,
    "ioctl": LinuxStack._ioctl,
    "poll": LinuxStack._poll_sockets,
    "epoll_create": LinuxStack._epoll_create,
    "epoll_ctl": LinuxStack._epoll_ctl,
    "epoll_wait": LinuxStack._epoll_wait,
}
_AT_ONCE = frozenset({"accept", "receive", "send"})
_MAY_WAIT = frozenset({"accept", "connect", "receive", "send", "close", "poll", "epoll_wait"})

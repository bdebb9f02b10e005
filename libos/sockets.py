"""UDP sockets and poll sets of a runtime, for Python threads and, by their addresses, for compiled handlers.

    server = runtime.open_udp(5353)
    data, peer = server.receive(timeout_s=1.0)
    server.send(data, peer)

From Python each call runs on a uthread and costs some 10 to 20 us: it is for control and tests. Compiled code calls
the same functions on its own uthread (corelane.libos.numba.calls). Ctrl-C is heeded while a call waits.
"""

from __future__ import annotations

import errno
import ipaddress
import math
import time
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from ..runtime.closing import Closing
from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib
from .leases import Leases

Address = tuple[str, int]

_SLICE_S = 0.2  # a wait in C at most, then Python may handle signals
_MOST_BYTES = 65536
_SAID = {
    -errno.EDEADLK: "this thread runs the runtime, nothing comes while it waits: wait on another, or with timeout 0",
    -errno.ESHUTDOWN: "it was closed, or the runtime stops",
    -errno.EBADF: "it was closed",
}


class Owner(Protocol):
    """What a socket needs of its runtime: `ptr` raises CorelaneError once that is closed."""

    @property
    def ptr(self) -> Any: ...

    @property
    def leases(self) -> Leases: ...


class Pollable(Protocol):
    """What a poll set needs of a socket."""

    @property
    def address(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    def join(self, poll: Any, how: int, data: int, *, also: int) -> int:
        """Enter a `struct cl_poll *`: 0 or -errno. also: CL_POLL_... that its user waits for besides what comes."""
        ...

    def leave(self, poll: Any) -> int:
        """Leave it: 0 or -errno."""
        ...


def _address(peer: Address, what: str) -> dict[str, int]:
    try:
        host, port = peer
        ipv4 = int(ipaddress.IPv4Address(host))
    except (TypeError, ValueError) as error:
        raise CorelaneError(what, f"{peer!r} is no address", "as in ('10.77.0.9', 5353)") from error
    if not isinstance(port, int) or not 0 < port < 65536:
        raise CorelaneError(what, f"port {port!r}", "UDP ports are 1 to 65535")
    return {"ipv4": ipv4, "port": port}


def said(rc: int) -> str | None:
    """A result in words, where those of its errno would not do."""
    return _SAID.get(rc)


def in_slices(call: Callable[[int], int], timeout_s: float | None, *again: int) -> int:
    """Call with a timeout in ns, again and again until it returns something else than `again` or the time is over."""
    end = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = min(_SLICE_S, max(0.0, end - time.monotonic()))
        rc = call(int(left * 1e9))
        if rc not in (*again, -errno.EAGAIN) or not time.monotonic() < end:  # NaN is over at once
            return rc


def lives(runtime: Owner) -> bool:
    """Whether it is not closed."""
    try:
        return bool(runtime.ptr)
    except CorelaneError:
        return False


class Socket(Closing):
    """What all sockets have in common: a runtime, and one of C's, which another thread may close at any time.

    C's memory of a closed socket is used again. So each call names the socket's life, too, and C refuses what is not
    for the socket that is there now, and does not let go of one while it is in a call (EBADF).
    """

    _kind: ClassVar[str]  # in words
    _call_type: ClassVar[str]
    _perform: ClassVar[Any]  # C's function for all calls
    _close_it: ClassVar[int]
    _again: ClassVar[tuple[int, ...]] = (-errno.ETIMEDOUT, -errno.EAGAIN)

    def __init__(self, runtime: Owner, pointer: Any, life: int) -> None:
        self._runtime = runtime
        self._pointer = pointer
        self._life = life
        self._closed = False

    @property
    def ptr(self) -> Any:
        """C's socket. Raises CorelaneError once it, or its runtime, is closed."""
        if self._closed or not lives(self._runtime):
            raise CorelaneError(f"use a {self._kind} socket", "it is closed", "open another")
        return self._pointer

    @property
    def address(self) -> int:
        """C's socket as a number. Give it to a compiled handler in its state, never as a global."""
        return int(ffi.cast("uintptr_t", self._pointer))

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def _call(self, what: int, **fields: Any) -> tuple[int, Any]:
        call = ffi.new(self._call_type, {"what": what, "s": self.ptr, "life": self._life, **fields})
        return int(type(self)._perform(self._runtime.ptr, call)), call

    def close(self) -> None:
        """Close it; who waits in a call on it is told. May be called twice, and after its runtime is closed."""
        if not self._closed and lives(self._runtime):
            rc, _ = self._call(self._close_it)
            self._closed = True
            if rc != -errno.EBADF:  # another thread was first
                check(rc, f"close a {self._kind} socket")
        self._closed = True


class UdpSocket(Socket):
    """A UDP socket of a runtime. Made by Runtime.open_udp; closed with its runtime, or by `close`.

    Calls raise CorelaneError: no route, too long, closed, the runtime is not started or stops. An ICMP error about what
    a connected socket has sent is raised by its next call, with its errno.
    """

    _kind = "UDP"
    _call_type = "struct cl_udp_call *"
    _perform = lib.cl_outside_udp
    _close_it = lib.CL_UDP_DO_CLOSE

    @property
    def port(self) -> int:
        """Its UDP port."""
        rc, _ = self._call(lib.CL_UDP_DO_PORT)
        return check(rc, "ask for the port of a UDP socket", said(rc))

    @typed("connect a UDP socket")
    def connect(self, peer: Address | None) -> None:
        """Send to `peer` unless told otherwise, and receive from there only. None: from anybody again."""
        to = {} if peer is None else {"peer": _address(peer, "connect a UDP socket")}
        rc, _ = self._call(lib.CL_UDP_DO_CONNECT, **to)
        check(rc, f"connect a UDP socket to {peer}", said(rc))

    @typed("send a datagram")
    def send(self, data: bytes, peer: Address | None = None) -> None:
        """Send one datagram, to `peer` or to whom the socket is connected to."""
        to = {} if peer is None else {"peer": _address(peer, "send a datagram")}
        rc, _ = self._call(lib.CL_UDP_DO_SEND, data=ffi.from_buffer(data), len=len(data), **to)
        check(rc, "send a datagram", said(rc))

    @typed("receive a datagram")
    def receive(self, timeout_s: float | None = None) -> tuple[bytes, Address]:
        """Wait for a datagram: its bytes, and who sent it. Raises TimeoutError after timeout_s; None: never."""
        room = ffi.new("uint8_t[]", _MOST_BYTES)
        last: list[Any] = []

        def step(ns: int) -> int:
            rc, call = self._call(lib.CL_UDP_DO_RECEIVE, data=room, len=_MOST_BYTES, timeout_ns=ns)
            last[:] = [call.peer]
            return rc

        rc = in_slices(step, timeout_s, *self._again)
        if rc in self._again:
            raise TimeoutError(f"no datagram came to UDP port {self.port} within {timeout_s:g} s")
        check(rc, "receive a datagram", said(rc))
        return bytes(ffi.buffer(room, rc)), (str(ipaddress.IPv4Address(last[0].ipv4)), int(last[0].port))

    def join(self, poll: Any, how: int, data: int, *, also: int) -> int:
        """What Poll.add does."""
        number = ffi.cast("void *", data)
        return -errno.EINVAL if also else self._call(lib.CL_UDP_DO_POLL_ADD, poll=poll, value=how, data=number)[0]

    def leave(self, poll: Any) -> int:
        """What Poll.remove does."""
        return self._call(lib.CL_UDP_DO_POLL_REMOVE, poll=poll)[0]


class Poll(Closing):
    """Waits for many sockets at once (corelane/libos/poll.h). Made by Runtime.open_poll.

    `address` is for compiled code: calls.poll_wait. A socket is in one set at a time.
    """

    def __init__(self, runtime: Owner, pointer: Any) -> None:
        self._runtime = runtime
        self._pointer = pointer
        self._members: dict[int, Pollable] = {}

    @property
    def ptr(self) -> Any:
        """The `struct cl_poll *`. Raises CorelaneError once it, or its runtime, is closed."""
        if self._pointer is None or not lives(self._runtime):
            raise CorelaneError("use a poll set", "it is closed", "open another")
        return self._pointer

    @property
    def address(self) -> int:
        """The `struct cl_poll *` as a number."""
        return int(ffi.cast("uintptr_t", self.ptr))

    @typed("add a socket to a poll set")
    def add(
        self, socket: Any, data: int | None = None, *, edge: bool = False, room: bool = False, released: bool = False
    ) -> None:
        """Wait for this one, too: a UdpSocket, TcpStream or TcpListener.

        data: what compiled code gets for it; `wait` returns the sockets themselves. edge: it is told of once for what
        has come since; else for as long as something waits in it. room: of a TcpStream, wait for room to write, too.
        released: of one, for what is released of regions, until its `released` is asked.
        """
        data = socket.address if data is None else data
        if data in self._members and not self._members[data].closed:
            raise CorelaneError("add a socket to a poll set", f"{data} stands for another", "give each its own number")
        how = lib.CL_POLL_EDGE if edge else lib.CL_POLL_LEVEL
        also = (lib.CL_POLL_OUT if room else 0) | (lib.CL_POLL_RELEASED if released else 0)
        check(socket.join(self.ptr, how, data, also=also), "add a socket to a poll set")
        self._members[data] = socket

    @typed("remove a socket from a poll set")
    def remove(self, socket: Any) -> None:
        """Wait for it no more."""
        check(socket.leave(self.ptr), "remove a socket from a poll set")
        self._members = {n: s for n, s in self._members.items() if s is not socket}

    @typed("wait for sockets")
    def wait(self, timeout_s: float | None = None, *, most: int = 64) -> list[Any]:
        """Those that are ready: something waits, or an error, or the runtime stops. [] once timeout_s is over."""
        if not 1 <= most <= lib.CL_UDP_MAX_SOCKETS:
            raise CorelaneError("wait for sockets", f"most is {most}", f"give 1 to {lib.CL_UDP_MAX_SOCKETS}")
        events = ffi.new("struct cl_poll_event[]", most)
        n = in_slices(lambda ns: int(lib.cl_outside_poll(self._runtime.ptr, self.ptr, events, most, ns)), timeout_s, 0)
        check(n, "wait for sockets", said(n))
        return [self._members[events[i].data] for i in range(n) if events[i].data in self._members]

    def close(self) -> None:
        """Take all sockets out and free it. Nobody may wait. May be called twice, also with its runtime closed."""
        if self._pointer is not None and lives(self._runtime):
            for socket in [s for s in self._members.values() if not s.closed]:
                self.remove(socket)
            check(lib.cl_poll_delete(self.ptr), "close a poll set")
        self._pointer = None
        self._members.clear()

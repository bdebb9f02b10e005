"""What a stack under test offers to the runner: its sockets, its end of the wire, and its clock.

Operations of sockets, begun by `begin(waits, name, *arguments)`. Handles are the stack's own numbers; addresses are
("a.b.c.d", port); levels, names and flags are Linux's numbers (symbols.py); options of sockets are bytes as Linux lays
them out.

    socket(type, protocol)            value: a handle. type: SOCK_STREAM or SOCK_DGRAM, SOCK_NONBLOCK or-ed in
    bind(h, address)
    listen(h, backlog)
    accept(h, flags)                  value: a handle; address: the peer's
    connect(h, address)               address None: AF_UNSPEC
    receive(h, size, flags)           value: bytes; data; address: the sender's (UDP); numbers: (msg_flags,), and what
                                      waits behind that, if TCP_INQ of the socket asks for it
    send(h, data, flags, address)     value: bytes taken; address None: the peer
    shutdown(h, how)
    close(h)
    getsockopt(h, level, name, size)  data
    setsockopt(h, level, name, data)
    getsockname(h), getpeername(h)    address
    fcntl(h, command, argument)       value; F_GETFL and F_SETFL with O_NONBLOCK
    ioctl(h, request)                 numbers: (what it says,); SIOCINQ, SIOCOUTQ
    poll(((h, events), ...), ms)      value: how many are ready; numbers: revents of each
    epoll_create(), epoll_ctl(e, operation, h, events), epoll_wait(e, most, ms)
                                      numbers: (h, events, h, events, ...)

An operation that fails has the value -1 and an errno, as Linux's calls do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from . import model as m

Address = tuple[str, int]

OPERATIONS = frozenset(
    {"socket", "bind", "listen", "accept", "connect", "receive", "send", "shutdown", "close", "getsockopt"}
    | {"setsockopt", "getsockname", "getpeername", "fcntl", "ioctl", "poll", "epoll_create", "epoll_ctl", "epoll_wait"}
)


@dataclass(frozen=True)
class Outcome:
    """What an operation gave. ended_us: when it returned, by the stack's clock."""

    value: int
    errno: int = 0
    data: bytes = b""
    address: Address | None = None
    numbers: tuple[int, ...] = ()
    ended_us: int = 0


class Pending(Protocol):
    """An operation that was begun."""

    def outcome(self, deadline_us: int) -> Outcome | None:
        """What it gave; waits until the deadline of the stack's clock, and lets the stack run. None: not yet."""


class Stack(Protocol):
    """A stack under test, made for one script and closed behind it. One thread uses it.

    name: for messages. real_time: its clock is the machine's, so that a runner may be late. operations: names from the
    list above. tcp_options: those that it may send. info_fields: what info() has.
    """

    name: str
    real_time: bool
    operations: frozenset[str]
    tcp_options: frozenset[type[m.TcpOption]]
    info_fields: frozenset[str]

    def now_us(self) -> int:
        """Its clock, in microseconds."""

    def wait_until(self, when_us: int) -> None:
        """Let it run until then. Returns at once if that has passed. Packets that it sends meanwhile are kept."""

    def inject(self, packet: bytes) -> None:
        """An IPv4 packet comes in from the remote side. It has been handled, but for what timers do, on return."""

    def next_packet(self, deadline_us: int) -> tuple[int, bytes] | None:
        """The next IPv4 packet that it sent, and when. Lets it run up to the deadline. None: there was none."""

    def begin(self, waits: bool, name: str, *arguments: Any) -> Pending:
        """Begin an operation of the list above. waits: it may; if not, and it has to, it never has an outcome."""

    def info(self, handle: int) -> dict[str, int]:
        """The TCP_INFO of a connection, by Linux's names (tcpi_...)."""

    def sysctl(self, name: str, value: str) -> None:
        """A setting, by Linux's name, for connections to come. Raises NotSupported for one without a meaning here."""

    def close(self) -> None:
        """End all of it."""

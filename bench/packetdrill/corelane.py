"""corelane's own stack under test, in virtual time: libos/net/tcp over the memory NIC. To be connected.

What it needs of libos, as a Python protocol (`Sockets`, below): the calls of a socket that do not wait, and whether one
that could not be done is worth trying again. The rest is here already, or in libos and drivers:

- the clock: runtime.clock.VirtualClock; the runtime and its timers are driven by libos.Stepper on it
- the wire: drivers.nic.memory.memory_link(clock=...); the runtime has one end, this has the other and answers ARP, or a
  static entry for the remote address saves that: packets are Ethernet frames there, and IPv4 packets in stack.Stack
- a call that waits is tried again after each step of the stepper, until it can be done or its time has come

`CorelaneStack` then implements stack.Stack: wait_until(t) is stepper.run in slices that end where a frame is due at the
far end, so that next_packet() knows when each was sent; info() maps the stack's numbers to tcpi_ names; sysctl() maps
the names that have a meaning to options of the stack, and refuses the rest by NotSupported.
"""

from __future__ import annotations

from typing import Any, Protocol

from ...runtime.errors import CorelaneError
from .settings import Settings
from .stack import Address, Stack


class Sockets(Protocol):
    """Sockets of libos that never wait: a call that would is -EAGAIN, and is tried again when `ready` says so.

    All are called between two steps of the stepper, by its thread. Results are those of the calls that stack.py lists:
    a value from 0 on, or -errno.
    """

    def socket(self, kind: int) -> int: ...
    def bind(self, h: int, address: Address) -> int: ...
    def listen(self, h: int, backlog: int) -> int: ...
    def accept(self, h: int) -> tuple[int, Address | None]: ...
    def connect(self, h: int, address: Address | None) -> int:
        """-EINPROGRESS once begun; then -EALREADY, 0 or the error."""

    def receive(self, h: int, size: int, flags: int) -> tuple[int, bytes]: ...
    def send(self, h: int, data: bytes, flags: int) -> int: ...
    def shutdown(self, h: int, how: int) -> int: ...
    def close(self, h: int) -> int: ...
    def getsockopt(self, h: int, level: int, name: int) -> tuple[int, bytes]: ...
    def setsockopt(self, h: int, level: int, name: int, data: bytes) -> int: ...
    def names(self, h: int) -> tuple[Address, Address | None]: ...
    def ready(self, h: int) -> int:
        """POLLIN, POLLOUT, POLLERR, POLLHUP as poll(2) would say."""

    def queued(self, h: int) -> tuple[int, int]:
        """Bytes to read, and bytes written that are not acknowledged (SIOCINQ, SIOCOUTQ)."""

    def info(self, h: int) -> dict[str, int]:
        """TCP_INFO, by Linux's names, as far as there are fields."""

    def set(self, name: str, value: Any) -> bool:
        """A setting by Linux's sysctl name, before the first socket. False: it has no meaning."""


def corelane_stack(settings: Settings) -> Stack:
    """Raises CorelaneError: the stack is not connected yet."""
    raise CorelaneError("run scripts on corelane's TCP", "it is not connected to the runner yet", "use --stack linux")

"""Python callables as handlers: called for a burst of requests with the GIL taken once.

C calls `PythonHandler.callback` on the kthread's own large stack with no stack switching (cl_runtime_bind_udp_foreign).
The requests' fields are read as words out of one memoryview, and payloads are slices of one memoryview over the address
space, which costs less than making a buffer object for each. Both views of a request are released after the call, so
that one that was kept raises ValueError instead of showing another request's bytes. What holds
the buffer itself is noticed and counted in kept_views; slices and arrays of a view are not: copy what you keep.

An exception in a handler fails that request alone (handler_errors); it is counted, and logged with its traceback, at
most once in LOG_EVERY_S seconds.
"""

from __future__ import annotations

import ipaddress
import logging
import operator
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from .interrupts import is_interrupt
from .shape import check_python, name_of

LOG_EVERY_S = 10.0

_log = logging.getLogger("corelane.libos")

_FIELDS = dict(ffi.typeof("struct cl_udp_req").fields)
BYTES = ffi.sizeof("struct cl_udp_req")
WORDS = BYTES // 8


def _word(name: str) -> int:
    offset = _FIELDS[name].offset
    assert offset % 8 == 0
    return int(offset // 8)


DATA, LEN, REPLY, ROOM, REPLY_LEN = (_word(n) for n in ("data", "len", "reply", "room", "reply_len"))
assert BYTES % 8 == 0
assert [LEN, REPLY, ROOM] == [DATA + 1, DATA + 2, DATA + 3]
# Two words of smaller fields, in the order of a little-endian machine: address and port of the peer; port, broadcast.
_PEER, _RX_TSC = _word("peer"), _word("rx_tsc")
_PORT = _word("port")
assert _FIELDS["broadcast"].offset == _FIELDS["port"].offset + 2
assert ffi.typeof("struct cl_udp_addr").fields[1][1].offset == 4
assert sys.byteorder == "little"

# User space, but for the page at 0: 47 bits on x86-64 and 48 on aarch64; 56 and 52 with the longer page tables that
# either may have. No byte of it is touched by making the view or slicing it.
BASE = 4096
_SPACE = (1 << 57) - 2 * BASE


class Request:
    """The request that a Python handler is working on, from `current_request`.

    peer: (address, port) of the sender. port: the port it came to. broadcast: it was sent to a broadcast address.
    rx_tsc: time stamp counter when it was taken from the NIC (runtime.clock converts). from_server: whether it comes
    from a server, by its source port: that is `port`, or below 1024. A handler that answers whatever it gets does not
    answer such a one (corelane/libos/udp.h).
    """

    __slots__ = ("_peer", "broadcast", "from_server", "port", "rx_tsc")

    def __init__(self, words: memoryview, at: int) -> None:
        self._peer = words[at + _PEER]
        ports = words[at + _PORT]
        self.port = ports & 0xFFFF
        self.broadcast = ports >> 16 & 0xFF != 0
        self.rx_tsc = words[at + _RX_TSC]
        source = self._peer >> 32 & 0xFFFF
        self.from_server = source < 1024 or source == self.port

    @property
    def peer(self) -> tuple[str, int]:
        return str(ipaddress.IPv4Address(self._peer & 0xFFFFFFFF)), self._peer >> 32 & 0xFFFF


# Where the handler of each thread is: the `words` of its burst, and the position `at` in them.
_here = threading.local()


def current_request() -> Request:
    """Peer, port and stamp of the request being handled. In a Python handler; elsewhere raises CorelaneError."""
    words = getattr(_here, "words", None)
    if words is None:
        raise CorelaneError("current_request()", "no Python handler is running on this thread")
    return Request(words, _here.at)


class PythonHandler:
    """Wraps a callable. `callback` is a cl_udp_burst_handler; keep this object as long as C may call it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.counters = {"errors": 0, "kept_views": 0}
        self._two = self._check(function)
        self._logged_at = float("-inf")
        self._unlogged = 0
        self._all = memoryview(ffi.buffer(ffi.cast("char *", BASE), _SPACE))
        self._all_read = self._all.toreadonly()
        self.callback: Any = ffi.callback("cl_udp_burst_handler", self._burst)

    def _check(self, function: Callable[..., Any]) -> bool:
        """Whether it takes the room for its reply, too. Raises CorelaneError for a function of another shape."""
        return check_python(function)

    def _burst(self, reqs: Any, n: int, arg: Any) -> None:
        function, two, space, space_read = self.function, self._two, self._all, self._all_read
        words = memoryview(ffi.buffer(reqs, n * BYTES)).cast("q")
        here = _here
        here.words = words
        for at in range(0, n * WORDS, WORDS):
            start = words[at + DATA] - BASE
            request = space_read[start : start + words[at + LEN]]
            room = words[at + ROOM]
            start = words[at + REPLY] - BASE
            reply = space[start : start + room] if room else space[0:0]
            here.at = at
            try:
                result = function(request, reply) if two else function(request)
                if result.__class__ is not int:
                    result = self._other_result(result, reply)
                words[at + REPLY_LEN] = result
            except BaseException as error:
                words[at + REPLY_LEN] = lib.CL_HANDLER_ERROR
                if not is_interrupt(error):
                    self._failed(error)
            try:
                request.release()
                reply.release()
            except BufferError:
                self._kept()
        here.words = None

    def _other_result(self, result: Any, reply: memoryview) -> int:
        """Length of a reply that was returned and not written, or of none."""
        if result is None:
            return 0
        if isinstance(result, bytes | bytearray | memoryview):
            n = len(result)
            if n > len(reply):
                raise ValueError(f"the handler returned {n} bytes, but a reply has room for {len(reply)}")
            reply[:n] = result
            return n
        try:
            return operator.index(result)
        except TypeError:
            kind = type(result).__name__
            raise TypeError(f"the handler returned {kind}: return the reply as bytes, or its length") from None

    def _failed(self, error: BaseException) -> None:
        self.counters["errors"] += 1
        now = time.monotonic()
        if now - self._logged_at < LOG_EVERY_S:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} more since the last report)" if self._unlogged else ""
        self._logged_at, self._unlogged = now, 0
        name = name_of(self.function)
        _log.error("handler %s failed a request%s", name, more, exc_info=error)

    def _kept(self) -> None:
        if self.counters["kept_views"] == 0:
            name = name_of(self.function)
            _log.error("handler %s keeps a view of its request or reply: copy the bytes, the buffer is reused", name)
        self.counters["kept_views"] += 1

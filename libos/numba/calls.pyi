"""libos calls in compiled handlers (calls.py).

What an editor shows; tests/libos/numba/test_calls.py compares it with the code and with docs/handlers.md. Numbers are
integers of 64 bits or less. They exist in compiled code only.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Int: TypeAlias = int | np.integer[Any]
_Bytes: TypeAlias = npt.NDArray[Any]

def sleep_ns(ns: _Int) -> int:
    """Sleep for at least so long. 0, or -errno: -ESHUTDOWN once the runtime stops, at once. Blocks the uthread."""

def yield_now() -> int:
    """Let other uthreads that are ready go first. 0. Blocks the uthread."""

def stopping() -> int:
    """1 once the runtime stops, when what runs for ever has to end; else 0."""

def now_ns() -> int:
    """Nanoseconds on the scheduler's clock."""

def tsc() -> int:
    """The processor's time stamp counter; corelane.runtime.clock converts it."""

def mutex_lock(mutex: _Int) -> int:
    """Lock the `struct cl_mutex` at this address. 0, or -errno. Blocks the uthread."""

def mutex_unlock(mutex: _Int) -> int:
    """Unlock it. 0, or -EPERM: the caller is not its owner."""

def sem_wait(sem: _Int) -> int:
    """Take one from the `struct cl_sem` at this address. 0, or -errno. Blocks the uthread."""

def sem_post(sem: _Int) -> None:
    """Give one to the `struct cl_sem` at this address."""

def udp_send(socket: _Int, ipv4: _Int, port: _Int, view: _Bytes) -> int:
    """Send the bytes of a view as one datagram: their number, or -errno. ipv4 in host byte order."""

def udp_recv(socket: _Int, view: _Bytes, timeout_ns: _Int) -> int:
    """Receive a datagram into a view: its length, or -errno. timeout_ns < 0: for ever. Blocks the uthread."""

def udp_connect(socket: _Int, ipv4: _Int, port: _Int) -> int:
    """Send by udp_write to there, and receive from there only. 0, or -errno. ipv4 in host byte order."""

def udp_write(socket: _Int, view: _Bytes) -> int:
    """Send the bytes of a view to whom the socket is connected to: their number, or -errno."""

def poll_wait(poll: _Int, events: _Bytes, timeout_ns: _Int) -> int:
    """Wait for the sockets of a Poll: how many events, 0 when the time is over, or -errno. events: uint64, two words an
    event, its data and what is ready. timeout_ns < 0: for ever. Blocks the uthread."""

def tcp_accept(listener: _Int, timeout_ns: _Int) -> int:
    """Take a connection of a TcpListener: its address, or -errno. timeout_ns < 0: for ever. Blocks the uthread."""

def tcp_connect(runtime: _Int, ipv4: _Int, port: _Int, timeout_ns: _Int) -> int:
    """Open a connection: its address, or -errno. runtime: Runtime.pointer. ipv4 in host order. Blocks the uthread."""

def tcp_read(stream: _Int, view: _Bytes, timeout_ns: _Int) -> int:
    """Take what has come into a view: at least one byte; 0 at the end of the stream; or -errno. Blocks the uthread."""

def tcp_peek(stream: _Int, view: _Bytes, timeout_ns: _Int) -> int:
    """The same, and leave it there. Blocks the uthread."""

def tcp_write(stream: _Int, view: _Bytes, timeout_ns: _Int) -> int:
    """Write the bytes of a view: their number, fewer when the time is over, or -errno. Blocks the uthread."""

def tcp_shutdown(stream: _Int) -> int:
    """Write no more, while reading goes on. 0, or -errno. Blocks the uthread."""

def tcp_close(stream: _Int) -> int:
    """Close it; what was written is still sent. 0, or -errno."""

def tcp_abort(stream: _Int) -> int:
    """Close it with a reset. 0, or -errno."""

def log_append(log: _Int, view: _Bytes, tag: _Int = 0) -> int:
    """Append a record: its index once it is durable, or -errno. Blocks the uthread."""

def log_trim(log: _Int, first_kept: _Int) -> int:
    """Free the records before first_kept: 0 once that is durable, or -errno. Blocks the uthread."""

def peer_ipv4() -> int:
    """The sender's IPv4 address in host byte order; 0 outside of a handler."""

def peer_port() -> int:
    """The sender's port; 0 outside of a handler."""

def local_port() -> int:
    """The port that the request came to; 0 outside of a handler."""

def from_server() -> bool:
    """Whether the request comes from a server's port, so that an answer may be answered for ever."""

def rx_tsc() -> int:
    """Time stamp counter when the request was taken from the NIC; 0 outside of a handler."""

def be16(view: _Bytes, index: _Int) -> int:
    """16-bit big-endian number at an index. Beyond the end 0, and the request is marked as faulted."""

def be32(view: _Bytes, index: _Int) -> int:
    """32-bit big-endian number at an index. Beyond the end 0, and the request is marked as faulted."""

def be64(view: _Bytes, index: _Int) -> int:
    """64-bit big-endian number at an index. Beyond the end 0, and the request is marked as faulted."""

def le16(view: _Bytes, index: _Int) -> int:
    """16-bit little-endian number at an index. Beyond the end 0, and the request is marked as faulted."""

def le32(view: _Bytes, index: _Int) -> int:
    """32-bit little-endian number at an index. Beyond the end 0, and the request is marked as faulted."""

def le64(view: _Bytes, index: _Int) -> int:
    """64-bit little-endian number at an index. Beyond the end 0, and the request is marked as faulted."""

def put_be16(view: _Bytes, index: _Int, value: _Int) -> None:
    """Store a 16-bit big-endian number at an index. Beyond the end nothing, and the request faults."""

def put_be32(view: _Bytes, index: _Int, value: _Int) -> None:
    """Store a 32-bit big-endian number at an index. Beyond the end nothing, and the request faults."""

def put_be64(view: _Bytes, index: _Int, value: _Int) -> None:
    """Store a 64-bit big-endian number at an index. Beyond the end nothing, and the request faults."""

def put_le16(view: _Bytes, index: _Int, value: _Int) -> None:
    """Store a 16-bit little-endian number at an index. Beyond the end nothing, and the request faults."""

def put_le32(view: _Bytes, index: _Int, value: _Int) -> None:
    """Store a 32-bit little-endian number at an index. Beyond the end nothing, and the request faults."""

def put_le64(view: _Bytes, index: _Int, value: _Int) -> None:
    """Store a 64-bit little-endian number at an index. Beyond the end nothing, and the request faults."""

"""libos calls in compiled handlers (calls.py).

What an editor shows; tests/libos/numba/test_calls.py compares it with the code and with docs/handlers.md. Numbers are
integers of 64 bits or less. They exist in compiled code only.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Int: TypeAlias = int | np.integer[Any]
_Bytes: TypeAlias = npt.NDArray[Any]
_Words: TypeAlias = npt.NDArray[np.uint64]
_Numbers: TypeAlias = npt.NDArray[np.uint32]
_Views: TypeAlias = tuple[_Bytes, ...]
_Channels: TypeAlias = tuple[_Int, ...]
_Name: TypeAlias = str
_Function: TypeAlias = Callable[..., Any]

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

def channel_send(channel: _Int, element: _Bytes, timeout_ns: _Int) -> int:
    """Put an element in. 0, or -errno: -EPIPE: it is closed. element: an array of as many bytes as an element has.
    timeout_ns: 0 not at all, < 0 for ever. Blocks the uthread."""

def channel_receive(channel: _Int, element: _Bytes, timeout_ns: _Int) -> int:
    """Take one out, into such an array. 0, or -errno: -EPIPE: it is closed and empty. Blocks the uthread."""

def channel_select(channels: _Channels, elements: _Views, senders: _Int, timeout_ns: _Int) -> int:
    """Do one of several: case i sends to channel i if bit i of senders is set, else it receives. The case's index;
    -1000 - i: its channel is closed; or -errno. Blocks the uthread."""

def channel_close(channel: _Int) -> int:
    """Nothing more is sent. 0, or -EALREADY."""

def channel_count(channel: _Int) -> int:
    """Elements that wait in it."""

def counter_add(counter: _Int, n: _Int) -> None:
    """Add to a ShardedCounter (its address)."""

def counter_read(counter: _Int) -> int:
    """Its sum."""

def bucket_take(bucket: _Int, n: _Int) -> int:
    """Take n tokens of a TokenBucket (its address). 0: they are taken; > 0: none is, and they will be there in so many
    ns; -EINVAL: more than the burst."""

def lru_get(table: _Int, key: _Bytes, value: _Bytes) -> int:
    """Copy the value of a key of a LruTable (its address) into an array. 0; -ENOENT; -EINVAL: arrays of other sizes."""

def lru_put(table: _Int, key: _Bytes, value: _Bytes) -> int:
    """Enter or replace it. 0; 1: another one has gone for it; -EINVAL."""

def lru_remove(table: _Int, key: _Bytes) -> int:
    """0; -ENOENT; -EINVAL."""

def scope_open(timeout_ns: _Int) -> int:
    """Open a scope: its address, or -errno. It is cancelled after timeout_ns; < 0: never."""

def scope_spawn(scope: _Int, function: _Function, *args: _Int) -> int:
    """Start function(*args) on a uthread of the scope. 0, or -errno. function: what numba.njit or libos.batch has
    wrapped; it returns nothing, or an integer, which is an error if it is negative. args: of any types."""

def scope_close(scope: _Int) -> int:
    """Wait until all its uthreads have ended. 0, or why it was cancelled: the first error, -ETIMEDOUT, -ECANCELED.
    Blocks the uthread."""

def scope_cancel(scope: _Int) -> None:
    """Cancel it: calls of its uthreads, and of who has opened it, that would have to wait return -ECANCELED."""

def scope_fail(scope: _Int, error: _Int) -> None:
    """The same with a reason, as in -5, for scope_close to return."""

def scope_why(scope: _Int) -> int:
    """Why it is cancelled; 0: it is not."""

def cancelled() -> int:
    """1 if the scope that the caller is in is cancelled; else 0."""

def shield_enter() -> None:
    """From here to shield_leave a cancel does not reach the caller's waits."""

def shield_leave() -> None:
    """The end of that."""

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

def poll_add(poll: _Int, socket: _Int, how: _Int, data: _Int) -> int:
    """Put a UdpSocket into a Poll. how: 0 level, 1 edge. 0, or -errno. Take it out before the Poll is closed."""

def poll_remove(poll: _Int, socket: _Int) -> int:
    """Take it out. 0, or -errno."""

def poll_add_tcp(poll: _Int, stream: _Int, events: _Int, how: _Int, data: _Int) -> int:
    """The same of a TCP socket. events: CL_POLL_IN 1, CL_POLL_OUT 8, CL_POLL_RELEASED 16, or a sum. 0, or -errno."""

def poll_remove_tcp(poll: _Int, stream: _Int) -> int:
    """Take it out. 0, or -errno."""

def tcp_listen(runtime: _Int, port: _Int, backlog: _Int) -> int:
    """Take connections to a port: the listener's address, or -errno. runtime: Runtime.pointer."""

def tcp_accept(listener: _Int, timeout_ns: _Int) -> int:
    """Take a connection of a TcpListener: its address, or -errno. timeout_ns < 0: for ever. Blocks the uthread."""

def tcp_connect(runtime: _Int, ipv4: _Int, port: _Int, timeout_ns: _Int, own_ipv4: _Int = 0, own_port: _Int = 0) -> int:
    """Open a connection: its address, or -errno. Addresses in host order; own ones of 0: any. Blocks the uthread."""

def tcp_open(runtime: _Int, ipv4: _Int, port: _Int, own_ipv4: _Int = 0, own_port: _Int = 0) -> int:
    """The same without waiting: tcp_wait_open, or a Poll (CL_POLL_OUT), tells when it is open."""

def tcp_wait_open(stream: _Int, timeout_ns: _Int) -> int:
    """Wait until it is open. 0, or -errno: also why it is over. Blocks the uthread."""

def tcp_error(stream: _Int) -> int:
    """Why it is over, -EINPROGRESS while it is being opened, or 0."""

def tcp_read(stream: _Int, view: _Bytes, timeout_ns: _Int) -> int:
    """Take what has come into a view: at least one byte; 0 at the end of the stream; or -errno. Blocks the uthread."""

def tcp_readv(stream: _Int, views: _Views, timeout_ns: _Int) -> int:
    """The same into the views of a tuple, one after the other. Blocks the uthread."""

def tcp_peek(stream: _Int, view: _Bytes, timeout_ns: _Int) -> int:
    """The same, and leave it there. Blocks the uthread."""

def tcp_write(stream: _Int, view: _Bytes, timeout_ns: _Int) -> int:
    """Write the bytes of a view: their number, fewer when the time is over, or -errno. Blocks the uthread."""

def tcp_writev(stream: _Int, views: _Views, timeout_ns: _Int) -> int:
    """The same of all views of a tuple. Blocks the uthread."""

def tcp_lease(stream: _Int, lease: _Words, timeout_ns: _Int) -> int:
    """Take what has come without a copy: bytes, 0 at the end, or -errno. lease: four uint64, which stand for it.
    Blocks the uthread."""

def lease_view(lease: _Words) -> _Bytes:
    """Its bytes, read-only. Of no use once it is returned."""

def lease_return(runtime: _Int, lease: _Words) -> int:
    """Give it back. 0, or -errno."""

def tcp_write_from(stream: _Int, region: _Int, offset: _Int, length: _Int, timeout_ns: _Int) -> int:
    """As tcp_write, of bytes of a Region (its address), without a copy. Blocks the uthread."""

def tcp_wait_released(stream: _Int, count: _Int, timeout_ns: _Int) -> int:
    """Wait until so many bytes of all that were written from regions are released; < 0: all. 0, or -errno.
    Blocks the uthread."""

def tcp_released(stream: _Int) -> int:
    """How many are; CL_POLL_RELEASED is over with that. Or -errno."""

def tcp_shutdown(stream: _Int, sides: _Int = 2) -> int:
    """Write no more (2), read no more (1), or both (3). 0, or -errno. Blocks the uthread."""

def tcp_close(stream: _Int, linger_ns: _Int = 0) -> int:
    """Close it; what was written is still sent. linger_ns: wait so long until the peer has it. 0, or -errno.
    Blocks the uthread."""

def tcp_abort(stream: _Int) -> int:
    """Close it with a reset. 0, or -errno."""

def tcp_set(stream: _Int, option: _Int, value: _Int) -> int:
    """Set an option, by its number in stream.h. 0, or -errno. Blocks the uthread."""

def tcp_get(stream: _Int, option: _Int) -> int:
    """Its value, or -errno. Blocks the uthread."""

def tcp_set_congestion(stream: _Int, name: _Name) -> int:
    """Congestion control by its name, a constant: "cubic", "newreno", "dctcp". 0, or -errno. Blocks the uthread."""

def tcp_ends(stream: _Int, ends: _Words) -> int:
    """Its own end and its peer's into two uint64: ipv4 in the low half, then 16 bits of the port. 0, or -errno."""

def tcp_info(stream: _Int, numbers: _Numbers) -> int:
    """struct cl_tcp_info (tcp.h) into 34 uint32. 0, or -errno. Blocks the uthread."""

def elastic_limit(memory: _Int) -> int:
    """Bytes that an Elastic (its address) may hold now."""

def elastic_use(memory: _Int, n_bytes: _Int) -> int:
    """Use the first n_bytes of it from now on, or as many as are allowed: how many. The rest is given back."""

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

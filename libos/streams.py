"""TCP connections of a runtime as stream sockets, for Python threads and, by their addresses, for compiled handlers.

    with runtime.connect_tcp(("10.77.0.9", 80)) as stream:
        stream.write(b"GET / HTTP/1.0\\r\\n\\r\\n")
        while part := stream.read():
            print(part)

From Python each call runs on a uthread and costs some 10 to 20 us. Compiled code calls the same functions on its own
uthread (corelane.libos.numba.calls). Servers with a function for what comes: `tcp` (handlers/streams.py). Ctrl-C is
heeded while a call waits.
"""

from __future__ import annotations

import errno
import ipaddress
import math
import time
from dataclasses import dataclass
from typing import Any, Self

from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib
from .leases import Lease, Region
from .sockets import Address, Owner, Socket, in_slices, lives, said

BACKLOG = 1024

_OPTIONS = {
    "no_delay": lib.CL_STREAM_NO_DELAY,
    "keep_alive": lib.CL_STREAM_KEEP_ALIVE,
    "send_buffer": lib.CL_STREAM_SEND_BUFFER,
    "receive_buffer": lib.CL_STREAM_RECEIVE_BUFFER,
    "user_timeout_ms": lib.CL_STREAM_USER_TIMEOUT_MS,
    "keep_frames": lib.CL_STREAM_KEEP_FRAMES,
    "keep_idle_s": lib.CL_STREAM_KEEP_IDLE_S,
    "keep_interval_s": lib.CL_STREAM_KEEP_INTERVAL_S,
    "keep_probes": lib.CL_STREAM_KEEP_PROBES,
    "cork": lib.CL_STREAM_CORK,
}
_AGAIN = (-errno.ETIMEDOUT, -errno.EAGAIN, -errno.EINPROGRESS)


@dataclass(frozen=True, slots=True)
class TcpInfo:
    """Numbers of a connection, as Linux' TCP_INFO has them.

    Times in microseconds, windows in bytes but for cwnd and ssthresh, which are segments. ssthresh None: there is none
    yet. unacked: segments under way. delivery_rate: bytes a second that came at the peer; 0: not known (tcp.h).
    """

    state: int
    rto_us: int
    rtt_us: int
    rtt_var_us: int
    snd_mss: int
    rcv_mss: int
    cwnd: int
    ssthresh: int | None
    snd_wnd: int
    rcv_wnd: int
    unacked: int
    retries: int
    resent: int
    to_read: int
    unsent: int
    delivery_rate: int


def _end(address: Any) -> Address:
    return str(ipaddress.IPv4Address(int(address.ipv4))), int(address.port)


def _ends_of(where: Address, what: str, least: int = 1) -> dict[str, int]:
    try:
        host, port = where
        ipv4 = int(ipaddress.IPv4Address(host))
    except (TypeError, ValueError) as error:
        raise CorelaneError(what, f"{where!r} is no address", "as in ('10.77.0.9', 80)") from error
    if isinstance(port, bool) or not isinstance(port, int) or not least <= port < 65536:
        raise CorelaneError(what, f"port {port!r}", "TCP ports are 1 to 65535")
    return {"ipv4": ipv4, "port": port}


class _Stream(Socket):
    """What listeners and connections have in common."""

    _kind = "TCP"
    _call_type = "struct cl_stream_call *"
    _perform = lib.cl_outside_stream
    _close_it = lib.CL_STREAM_DO_CLOSE

    @property
    def own(self) -> Address:
        """Its own end; of a listener ("0.0.0.0", port)."""
        return self._ends()[0]

    def _ends(self) -> tuple[Address, Address]:
        rc, call = self._call(lib.CL_STREAM_DO_ENDS)
        check(rc, "ask for the ends of a TCP socket")
        return _end(getattr(call, "from")), _end(call.to)

    def _wait(self, doing: str, timeout_s: float | None, what: int, **fields: Any) -> tuple[int, Any]:
        """A call that waits: its result, which is one of _AGAIN if the time is over. Raises what else went wrong."""
        last: list[Any] = []

        def step(ns: int) -> int:
            rc, call = self._call(what, timeout_ns=ns, **fields)
            last[:] = [call]
            if rc == -errno.ETIMEDOUT:  # the time is over, or the connection is, for that reason
                error, _ = self._call(lib.CL_STREAM_DO_ERROR)
                rc = check(error, doing) if error not in (0, -errno.EINPROGRESS) else rc
            return rc

        rc = in_slices(step, timeout_s, *_AGAIN)
        return rc if rc in _AGAIN else check(rc, doing, said(rc)), last[0]

    @typed("set an option of a TCP socket")
    def set(
        self,
        *,
        no_delay: bool | None = None,
        keep_alive: bool | None = None,
        send_buffer: int | None = None,
        receive_buffer: int | None = None,
        user_timeout_ms: int | None = None,
        keep_frames: bool | None = None,
        keep_idle_s: int | None = None,
        keep_interval_s: int | None = None,
        keep_probes: int | None = None,
        cork: bool | None = None,
        congestion: str | None = None,
    ) -> None:
        """Set options, of a listener those that its connections begin with. Raises CorelaneError for a wrong value.

        no_delay: small segments leave at once. keep_alive: ask an idle peer whether it lives. send_buffer,
        receive_buffer: bytes. user_timeout_ms: how long the peer may answer nothing; 0: as retransmissions go.
        keep_frames: what comes stays in its frame if it can, for `lease`. keep_idle_s, keep_interval_s, keep_probes:
        with keep_alive, seconds of silence until the first probe, and between probes (1 to 32767), and how many are
        not answered (1 to 127). cork: full segments only; what fills none waits for about 200 ms at most.
        congestion: "cubic", "newreno", or "dctcp", which needs ECN: that the end which connects offers it
        (Runtime.tcp_congestion). Connections of a listener without it have the rule of the runtime.
        """
        given = {
            "no_delay": no_delay,
            "keep_alive": keep_alive,
            "send_buffer": send_buffer,
            "receive_buffer": receive_buffer,
            "user_timeout_ms": user_timeout_ms,
            "keep_frames": keep_frames,
            "keep_idle_s": keep_idle_s,
            "keep_interval_s": keep_interval_s,
            "keep_probes": keep_probes,
            "cork": cork,
        }
        for name, value in given.items():
            if value is not None:
                rc, _ = self._call(lib.CL_STREAM_DO_SET, option=_OPTIONS[name], value=int(value))
                check(rc, f"set {name} of a TCP socket to {value}")
        if congestion is not None:
            name = ffi.new("char[]", congestion.encode())
            rc, _ = self._call(lib.CL_STREAM_DO_SET_CONGESTION, name=name)
            words = {
                -errno.ENOENT: "give cubic, newreno or dctcp",
                -errno.EOPNOTSUPP: "the ends have not agreed on ECN; the one that connects has to offer it first: "
                "Runtime.tcp_congestion(ecn='offer')",
            }
            check(rc, f"set the congestion control to {congestion}", words.get(rc))

    @typed("ask for an option of a TCP socket")
    def get(self, option: str) -> int | str | None:
        """An option, by its name in `set`."""
        if option == "congestion":
            _, call = self._call(lib.CL_STREAM_DO_CONGESTION)
            return ffi.string(call.name).decode() if call.name else None
        if option not in _OPTIONS:
            known = ", ".join([*_OPTIONS, "congestion"])
            raise CorelaneError("ask for an option of a TCP socket", f"there is no {option}", f"there are {known}")
        rc, _ = self._call(lib.CL_STREAM_DO_GET, option=_OPTIONS[option])
        return check(rc, f"ask for {option} of a TCP socket")

    def join(self, poll: Any, how: int, data: int, *, also: int) -> int:
        """What Poll.add does."""
        number, events = ffi.cast("void *", data), lib.CL_POLL_IN | also
        return self._call(lib.CL_STREAM_DO_POLL_ADD, poll=poll, option=events, value=how, data=number)[0]

    def leave(self, poll: Any) -> int:
        """What Poll.remove does."""
        return self._call(lib.CL_STREAM_DO_POLL_REMOVE, poll=poll)[0]


class TcpListener(_Stream):
    """Takes connections to a port. Made by Runtime.listen_tcp; closed with its runtime, or by `close`.

    Connections that wait to be accepted are reset when it is closed.
    """

    @typed("accept a connection")
    def accept(self, timeout_s: float | None = None) -> TcpStream:
        """Wait for a connection. Raises TimeoutError after timeout_s; None: never."""
        rc, call = self._wait("accept a connection", timeout_s, lib.CL_STREAM_DO_ACCEPT)
        if rc in _AGAIN:
            raise TimeoutError(f"nobody connected to TCP port {self.own[1]} within {timeout_s:g} s")
        return TcpStream(self._runtime, call.s, call.life)


class TcpStream(_Stream):
    """A TCP connection. Made by Runtime.connect_tcp or TcpListener.accept; closed with its runtime, or by `close`.

    A connection that is over raises CorelaneError with its errno (ECONNRESET, ...) from each call that needs it. When
    it is closed what was written is still sent; but if something was not read, or comes, it is reset.
    """

    @classmethod
    def connect(cls, runtime: Owner, peer: Address, own: Address | None, timeout_s: float | None) -> Self:
        """What Runtime.connect_tcp does."""
        what = f"connect to {peer}"
        call = ffi.new("struct cl_stream_call *", {"what": lib.CL_STREAM_DO_CONNECT, "to": _ends_of(peer, what)})
        if own is not None:
            setattr(call, "from", _ends_of(own, what, 0))
        rc = int(lib.cl_outside_stream(runtime.ptr, call))
        if rc != -errno.EINPROGRESS:
            check(rc, what, said(rc))
        made = cls(runtime, call.s, call.life)
        try:
            rc, _ = made._wait(what, timeout_s, lib.CL_STREAM_DO_WAIT_OPEN)
            if rc in _AGAIN:
                raise TimeoutError(f"{peer} did not answer within {timeout_s:g} s")
        except BaseException:
            made.abort()
            raise
        return made

    @property
    def peer(self) -> Address:
        """The other end."""
        return self._ends()[1]

    def _read(self, what: int, most: int, timeout_s: float | None) -> bytes:
        if most < 1:
            raise CorelaneError("read from a TCP socket", f"most is {most}", "give 1 or more")
        room = ffi.new("uint8_t[]", most)
        rc, _ = self._wait("read from a TCP socket", timeout_s, what, data=room, len=most)
        if rc in _AGAIN:
            raise TimeoutError(f"nothing came from {self.peer} within {timeout_s:g} s")
        return bytes(ffi.buffer(room, rc))

    @typed("read from a TCP socket")
    def read(self, most: int = 65536, timeout_s: float | None = None) -> bytes:
        """Take what has come, at least one byte and at most `most`. b"": the peer has shut its side, and all was read.

        Raises TimeoutError after timeout_s; None: never.
        """
        return self._read(lib.CL_STREAM_DO_READ, most, timeout_s)

    @typed("look into a TCP socket")
    def peek(self, most: int = 65536, timeout_s: float | None = None) -> bytes:
        """The same, and leave it there."""
        return self._read(lib.CL_STREAM_DO_PEEK, most, timeout_s)

    @typed("write to a TCP socket")
    def write(self, data: bytes, timeout_s: float | None = None) -> None:
        """Write all of it; waits while the buffer is full. Raises TimeoutError after timeout_s: a part may be gone."""
        bytes_of, done = ffi.from_buffer(data), 0
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while done < len(data):
            left = None if timeout_s is None else max(0.0, end - time.monotonic())
            rest = {"data": bytes_of + done, "len": len(data) - done}
            rc, _ = self._wait("write to a TCP socket", left, lib.CL_STREAM_DO_WRITE, **rest)
            if rc in _AGAIN:
                raise TimeoutError(f"{self.peer} took {done} of {len(data)} bytes within {timeout_s:g} s")
            done += rc

    @typed("lease what came by TCP")
    def lease(self, timeout_s: float | None = None) -> Lease | None:
        """Take what has come, as much as lies in one piece, without a copy. None: as b"" of `read`.

        Raises TimeoutError after timeout_s; None: never. Raises CorelaneError (errno ENOBUFS) while as much is leased
        as may be.
        """
        rc, call = self._wait("lease what came by TCP", timeout_s, lib.CL_STREAM_DO_LEASE)
        if rc in _AGAIN:
            raise TimeoutError(f"nothing came from {self.peer} within {timeout_s:g} s")
        return Lease(self._runtime, call.lease) if call.lease.chunk else None

    @typed("write from a region")
    def write_from(
        self, region: Region, offset: int = 0, size: int | None = None, timeout_s: float | None = None
    ) -> None:
        """Write a part of a region, without a copy; size None: all from `offset` on. Waits as `write` does.

        It must not change until it is released: `wait_released`.
        """
        size, done = len(region) - offset if size is None else size, 0
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while done < size or size < 0:
            left = None if timeout_s is None else max(0.0, end - time.monotonic())
            rest = {"region": region.ptr, "value": offset + done, "len": size - done}
            rc, _ = self._wait("write from a region", left, lib.CL_STREAM_DO_WRITE_FROM, **rest)
            if rc in _AGAIN:
                raise TimeoutError(f"{self.peer} took {done} of {size} bytes within {timeout_s:g} s")
            done += rc

    @typed("wait for what was lent")
    def wait_released(self, timeout_s: float | None = None) -> None:
        """Wait until the peer has acknowledged all that was written from regions.

        Raises TimeoutError after timeout_s; CorelaneError if the connection is over with an error: then it is released,
        too.
        """
        rc, _ = self._wait("wait for what was lent", timeout_s, lib.CL_STREAM_DO_WAIT_RELEASED, value=-1)
        if rc in _AGAIN:
            raise TimeoutError(f"{self.peer} did not acknowledge all within {timeout_s:g} s")

    def released(self) -> int:
        """How many bytes of all that it has written from regions are released. Poll tells of more from then on."""
        rc, _ = self._call(lib.CL_STREAM_DO_RELEASED)
        return check(rc, "ask what is released", said(rc))

    def shutdown(self) -> None:
        """Write no more: the peer reads the end. Reading goes on."""
        rc, _ = self._call(lib.CL_STREAM_DO_SHUTDOWN, value=lib.CL_STREAM_WRITE)
        check(rc, "shut a TCP socket")

    @property
    def info(self) -> TcpInfo:
        """Its numbers. Raises CorelaneError when it is over."""
        rc, call = self._call(lib.CL_STREAM_DO_INFO)
        check(rc, "ask for the numbers of a TCP connection")
        numbers = {name: int(getattr(call.info, name)) for name in TcpInfo.__slots__}
        threshold = numbers.pop("ssthresh")
        return TcpInfo(**numbers, ssthresh=None if threshold == 2**32 - 1 else threshold)

    @typed("close a TCP socket")
    def linger(self, timeout_s: float) -> bool:
        """Close it, and wait until the peer has acknowledged all that was written: whether it has, within timeout_s.

        Raises CorelaneError if the connection ended with an error instead.
        """
        rc, _ = self._call(lib.CL_STREAM_DO_CLOSE, timeout_ns=max(1, int(timeout_s * 1e9)))
        self._closed = True
        if rc != -errno.ETIMEDOUT:
            check(rc, "close a TCP socket")
        return rc == 0

    def abort(self) -> None:
        """Close it with a reset. May be called twice, and after its runtime is closed."""
        if not self._closed and lives(self._runtime):
            rc, _ = self._call(lib.CL_STREAM_DO_ABORT)
            check(rc, "abort a TCP connection")
        self._closed = True


def listen(runtime: Owner, port: int, backlog: int) -> TcpListener:
    """What Runtime.listen_tcp does."""
    out = ffi.new("struct cl_stream **")
    check(lib.cl_stream_listen(runtime.ptr, port, backlog, out), f"listen on TCP port {port}")
    return TcpListener(runtime, out[0], lib.cl_stream_life(out[0]))

"""Python face of `struct cl_nic`: what every driver's constructor returns, and what the floors above are given.

A `Nic` owns one C object and closes it once (device.py). The data path is C (corelane/drivers/nic.h); `send` and `recv`
here copy bytes in and out, for control traffic, tools and tests.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..device import Device

BURST: int = lib.CL_NIC_BURST
"""Largest number of frames that one C call moves."""


@dataclass(frozen=True, slots=True)
class NicStats:
    """Counters of one queue or of all of them; the fields of `struct cl_nic_stats`, where each is explained."""

    rx_frames: int
    rx_bytes: int
    tx_frames: int
    tx_bytes: int
    rx_dropped_no_buffer: int
    rx_dropped_ring_full: int
    rx_dropped_malformed: int
    tx_dropped_malformed: int
    tx_dropped_error: int
    tx_full: int
    alloc_short: int
    syscalls: int

    def __add__(self, other: NicStats) -> NicStats:
        return NicStats(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def dropped(self) -> int:
        """Frames lost for any reason, in both directions."""
        return sum(getattr(self, f.name) for f in fields(self) if "_dropped_" in f.name)


def mac_to_bytes(mac: str) -> bytes:
    """Six bytes of "02:00:00:00:00:01". Raises CorelaneError if it is not one."""
    try:
        raw = bytes(int(part, 16) for part in mac.split(":"))
    except ValueError:
        raw = b""
    if len(raw) != 6:
        raise CorelaneError(f"not a MAC address: {mac!r}; write six bytes in hex, as in 02:00:00:00:00:01")
    return raw


def ipv4_to_int(address: str) -> int:
    """An IPv4 address in host byte order. Raises CorelaneError if it is not one."""
    try:
        return int(ipaddress.IPv4Address(address))
    except ValueError as error:
        raise CorelaneError(f"not an IPv4 address: {address!r}; write it as in 10.77.0.1") from error


def ipv4_and_prefix(address: str, prefix: int = 24) -> tuple[int, int]:
    """Address in host byte order and prefix length of "a.b.c.d/n" or, with `prefix`, "a.b.c.d". Or CorelaneError."""
    try:
        found = ipaddress.IPv4Interface(address)
    except ValueError as error:
        raise CorelaneError(f"not an IPv4 address: {address!r}; write it as in 10.77.0.1/24") from error
    return int(found.ip), found.network.prefixlen if "/" in address else prefix


class Nic(Device):
    """A network interface: `queues` receive and transmit queues and one set of buffers. `ptr` is the `struct cl_nic *`.

    Closing it loses the frames that a user still holds.
    """

    _noun, _wrapper = "NIC", "NIC"

    def __init__(self, ptr: Any, keep: Sequence[object] = ()) -> None:
        super().__init__(ptr, keep)
        self._scratch: Any = ffi.new("struct cl_frame[]", BURST)

    @classmethod
    def at(cls, address: int | None, keep: Sequence[object] = ()) -> Nic:
        """A NIC of a driver that is not corelane's: a `struct cl_nic *` that your C function returned, as a number.

        It is this object's from now on: closing it calls the driver's `close`. keep: what has to stay, as the library.
        Raises CorelaneError for None and 0.
        """
        if not address:
            raise CorelaneError("take a NIC of another driver", "it has made none: its constructor returned NULL")
        return cls(ffi.cast("struct cl_nic *", address), keep)

    def __repr__(self) -> str:
        if self.closed:
            return "<Nic closed>"
        return f"<Nic {self.name} {self.mac} queues={self.queues} buffers={self.buffers}>"

    @property
    def buffers(self) -> int:
        """Number of packet buffers."""
        return int(self.ptr.n_buffers)

    @property
    def buffer_bytes(self) -> int:
        """Room of a fresh buffer."""
        return int(self.ptr.buffer_bytes)

    @property
    def mtu(self) -> int:
        """Largest IP packet in bytes; a frame is at most 14 bytes longer."""
        return int(self.ptr.mtu)

    @property
    def mac(self) -> str:
        """Hardware address, as in "02:00:00:00:00:01"."""
        return bytes(ffi.buffer(self.ptr.mac)).hex(":")

    @property
    def ipv4(self) -> str | None:
        """Address that the device was given, if any."""
        return str(ipaddress.IPv4Address(int(self.ptr.ipv4))) if self.ptr.ipv4 else None

    @property
    def ipv4_prefix(self) -> int:
        """Prefix length of `ipv4` in bits."""
        return int(self.ptr.ipv4_prefix)

    @property
    def buffers_free(self) -> int:
        """Buffers neither in flight nor held by a user; exact while all queues are idle."""
        return int(lib.cl_nic_buffers_free(self.ptr))

    def stats(self, queue: int | None = None) -> NicStats:
        """Counters of one queue, or the sum over all queues."""
        if queue is None:
            total = self.stats(0)
            for q in range(1, self.queues):
                total = total + self.stats(q)
            return total
        out = ffi.new("struct cl_nic_stats *")
        lib.cl_nic_stats(self.ptr, self._queue(queue), out)
        return NicStats(*(int(getattr(out, f.name)) for f in fields(NicStats)))

    def send(self, frames: bytes | Sequence[bytes], queue: int = 0) -> int:
        """Copy frames (whole Ethernet frames without FCS) into buffers and send them; returns how many were taken.

        Fewer than given: no buffer, or the queue is full. Raises CorelaneError for a frame that no buffer can hold.
        """
        todo = [frames] if isinstance(frames, bytes) else list(frames)
        q, burst, sent = self._queue(queue), self._scratch, 0
        for data in todo:
            if len(data) > self.buffer_bytes:
                raise CorelaneError(f"frame of {len(data)} bytes, but the buffers of this NIC hold {self.buffer_bytes}")
        while sent < len(todo):
            got = lib.cl_nic_alloc(self.ptr, q, burst, min(BURST, len(todo) - sent))
            for i in range(got):
                data = todo[sent + i]
                ffi.memmove(burst[i].data, data, len(data))
                burst[i].len = len(data)
            taken = lib.cl_nic_tx(self.ptr, q, burst, got) if got else 0
            if taken < got:
                lib.cl_nic_free(self.ptr, q, burst + taken, got - taken)
            sent += taken
            if taken < BURST:
                break
        return sent

    def recv(self, n: int = 64, queue: int = 0, timeout_s: float = 0.0) -> list[bytes]:
        """Receive up to n frames as bytes; waits up to timeout_s for the first one. Empty list: none came."""
        q = self._queue(queue)
        deadline = time.monotonic() + timeout_s
        out = self._take(q, n)
        while not out and timeout_s > 0 and (left := deadline - time.monotonic()) > 0:
            parker = self.ptr.ops.parker(self.ptr, q)
            lib.cl_park_begin(parker)
            out = self._take(q, n)
            if out:
                lib.cl_park_cancel(parker)
                break
            lib.cl_nic_wait(self.ptr, q, int(left * 1e9) + 1)
            out = self._take(q, n)
        return out

    def _take(self, queue: int, n: int) -> list[bytes]:
        out: list[bytes] = []
        burst = self._scratch
        while len(out) < n:
            got = lib.cl_nic_rx(self.ptr, queue, burst, min(BURST, n - len(out)))
            if not got:
                break
            out += [bytes(ffi.buffer(burst[i].data, burst[i].len)) for i in range(got)]
            lib.cl_nic_free(self.ptr, queue, burst, got)
        return out

    def wake(self, queue: int = 0) -> bool:
        """Wake the thread that sleeps on a queue; returns whether it slept."""
        return bool(lib.cl_park_wake(self.ptr.ops.parker(self.ptr, self._queue(queue))))

    def _close(self, ptr: Any) -> None:
        lib.cl_nic_close(ptr)

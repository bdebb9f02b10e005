"""Python face of `struct cl_blk`: what every block driver's constructor returns, and what the floors above are given.

A `Blk` owns one C object and closes it once (device.py). The data path is C (corelane/drivers/blk.h); `read`, `write`
and `flush` here block and copy, for control, tools and tests, and `Request` with `submit` and `poll` shows the queues
as they are.
"""

from __future__ import annotations

import errno
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...runtime.errors import CorelaneError
from ...runtime.typed import typed, typed_class
from .._native import ffi, lib
from ..device import Device, check

READ: int = lib.CL_BLK_READ
WRITE: int = lib.CL_BLK_WRITE
FLUSH: int = lib.CL_BLK_FLUSH
DURABLE: int = lib.CL_BLK_DURABLE


@dataclass(frozen=True, slots=True)
class BlkStats:
    """Counters of one queue or of all of them; the fields of `struct cl_blk_stats`, where each is explained."""

    submitted: int
    completed: int
    reads: int
    read_bytes: int
    writes: int
    write_bytes: int
    flushes: int
    failed: int
    full: int
    continued: int
    syscalls: int
    in_call: int
    fixed: int

    def __add__(self, other: BlkStats) -> BlkStats:
        return BlkStats(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class BlkError(CorelaneError):
    """A request failed. `errno` says how; the blocks of a failed write or flush are in an unknown state."""

    @classmethod
    def of(cls, code: int, what: str) -> BlkError:
        """The error for a positive errno."""
        return cls(what, os.strerror(code), errno=code)


_BLOCK_MOST = 65536  # bytes of a block (blk_file.h)


class Request:
    """One request and its buffer: memory of its own, aligned for blocks of any size, seen through `data`.

    op: READ, WRITE or FLUSH. data: what to write, or how many bytes to read. It may not be changed or read from the
    submit that takes it to the poll that returns it; the `Blk` keeps it alive meanwhile.
    """

    def __init__(self, op: int, offset: int = 0, data: bytes | int = 0, *, durable: bool = False) -> None:
        size = data if isinstance(data, int) else len(data)
        room = max(size, 1) + (_BLOCK_MOST if size > mmap.PAGESIZE else 0)
        mapped = mmap.mmap(-1, room)
        at = -int(ffi.cast("uintptr_t", ffi.from_buffer(mapped))) % _BLOCK_MOST if size > mmap.PAGESIZE else 0
        self._buffer = memoryview(mapped)[at : at + max(size, 1)]
        if not isinstance(data, int):
            self._buffer[:size] = data
        self._view = ffi.from_buffer(self._buffer)
        self.c: Any = ffi.new("struct cl_blk_req *")
        self.c.op, self.c.offset, self.c.bytes, self.c.buf = op, offset, size, self._view
        self.c.flags = DURABLE if durable else 0

    @property
    def result(self) -> int:
        """0, or a negative errno."""
        return int(self.c.result)

    @property
    def view(self) -> memoryview:
        """The buffer itself."""
        return self._buffer

    @property
    def data(self) -> bytes:
        """The buffer's bytes."""
        return bytes(self._buffer[: self.c.bytes])


# What devices that could not be closed have in flight: the kernel may still write to these buffers.
_KEPT: list[dict[int, Request]] = []


class Blk(Device):
    """A block device with `queues` queues. `ptr` is the `struct cl_blk *`. Closing it waits for what is in flight.

    Closing raises BlkError if that does not come back; the requests are then kept for good. It raises CorelaneError and
    closes nothing while a log is open on it. In the child of a fork it cannot be used, and closing it does nothing.
    """

    _noun, _wrapper = "block device", "one"

    def __init__(self, ptr: Any, keep: Sequence[object] = ()) -> None:
        super().__init__(ptr, keep)
        self._in_flight: dict[int, Request] = {}
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return "<Blk closed>" if self.closed else f"<Blk {self.name} bytes={self.size_bytes} queues={self.queues}>"

    @property
    def ptr(self) -> Any:
        if self._pid != os.getpid():
            raise CorelaneError("use the block device", "the process that forked this one has it open", "use it there")
        return super().ptr

    def close(self) -> None:
        if self._ptr is None or self._pid != os.getpid():
            return
        if self._ptr.claimed:
            raise CorelaneError("close the block device", "a log is open on it", "close that first", errno.EBUSY)
        super().close()

    @property
    def size_bytes(self) -> int:
        """Size of the device."""
        return int(self.ptr.bytes)

    @property
    def depth(self) -> int:
        """Requests that may be in flight on a queue."""
        return int(self.ptr.depth)

    @property
    def block_bytes(self) -> int:
        """Unit of offset and size, and alignment of buffers."""
        return int(self.ptr.block_bytes)

    @property
    def atomic_bytes(self) -> int:
        """A crash tears a write only at multiples of this."""
        return int(self.ptr.atomic_bytes)

    def stats(self, queue: int | None = None) -> BlkStats:
        """Counters of one queue, or the sum over all queues."""
        if queue is None:
            total = self.stats(0)
            for q in range(1, self.queues):
                total = total + self.stats(q)
            return total
        out = ffi.new("struct cl_blk_stats *")
        lib.cl_blk_stats(self.ptr, self._queue(queue), out)
        return BlkStats(*(int(getattr(out, f.name)) for f in fields(BlkStats)))

    def submit(self, requests: Sequence[Request], queue: int = 0) -> int:
        """Submit requests by one doorbell; returns how many of the first ones were taken."""
        array = ffi.new("struct cl_blk_req *[]", [r.c for r in requests])
        for request in requests:  # before the device has them: it may finish them at once
            self._in_flight[int(ffi.cast("uintptr_t", request.c))] = request
        taken = int(lib.cl_blk_submit(self.ptr, self._queue(queue), array, len(requests)))
        for request in requests[taken:]:
            del self._in_flight[int(ffi.cast("uintptr_t", request.c))]
        return taken

    def poll(self, queue: int = 0, n: int = 256) -> list[Request]:
        """Up to n requests that are done."""
        array = ffi.new("struct cl_blk_req *[]", n)
        got = int(lib.cl_blk_poll(self.ptr, self._queue(queue), array, n))
        return [self._in_flight.pop(int(ffi.cast("uintptr_t", array[i]))) for i in range(got)]

    def wait(self, queue: int = 0, timeout_s: float = -1.0) -> None:
        """Wait until a request is done, none is in flight, or the timeout (< 0: none) is over."""
        rc = lib.cl_blk_wait(self.ptr, self._queue(queue), int(timeout_s * 1e9) if timeout_s >= 0 else -1)
        if rc < 0 and rc != -errno.EINTR:
            raise BlkError.of(-rc, f"cannot wait for {self.name} requests")

    def finish(self, count: int, queue: int = 0, timeout_s: float = 30.0) -> list[Request]:
        """Poll and wait until count requests are done; fewer only after the timeout."""
        out: list[Request] = []
        deadline = time.monotonic() + timeout_s
        while len(out) < count and time.monotonic() < deadline:
            out += self.poll(queue, count - len(out))
            if len(out) < count:
                self.wait(queue, max(0.0, min(0.1, deadline - time.monotonic())))
        return out

    def read(self, offset: int, size: int, queue: int = 0) -> bytes:
        """Read and wait, with nothing else in flight on the queue. Raises BlkError."""
        return self._do(Request(READ, offset, size), queue, f"cannot read {size} bytes at {offset}").data

    def write(self, offset: int, data: bytes, queue: int = 0, *, durable: bool = False) -> None:
        """Write and wait, with nothing else in flight on the queue. Raises BlkError."""
        self._do(Request(WRITE, offset, data, durable=durable), queue, f"cannot write {len(data)} bytes at {offset}")

    def flush(self, queue: int = 0) -> None:
        """Make durable what has been written. Raises BlkError."""
        self._do(Request(FLUSH), queue, "cannot flush")

    def _do(self, request: Request, queue: int, what: str) -> Request:
        rc = lib.cl_blk_do(self.ptr, self._queue(queue), request.c)
        if rc < 0:
            raise BlkError.of(-rc, f"{self.name}: {what}")
        return request

    def _close(self, ptr: Any) -> None:
        rc = lib.cl_blk_close(ptr)
        if rc < 0:
            _KEPT.append(dict(self._in_flight))
        n = len(self._in_flight)
        self._in_flight.clear()
        if rc < 0:
            raise BlkError.of(-rc, f"cannot close the block device: {n} requests in flight do not come back")


@typed("make a memory block device")
def memory_blk(size: int = 0, *, queues: int = 0, depth: int = 0, block_bytes: int = 0, atomic_bytes: int = 0) -> Blk:
    """A block device in memory (drivers/blk/memory.h). Zero chooses the default. Raises CorelaneError."""
    config = ffi.new("struct cl_blk_memory_config *")
    config.bytes, config.queues, config.depth = size, queues, depth
    config.block_bytes, config.atomic_bytes = block_bytes, atomic_bytes
    out, err = ffi.new("struct cl_blk **"), ffi.new("char[256]")
    check(lib.cl_blk_memory_new(config, out, err), err, "block device in memory")
    return Blk(out[0])


@dataclass(frozen=True, slots=True)
class BlkFaultCounts:
    """What a fault device did; the fields of `struct cl_blk_fault_counts`, where each is explained."""

    seen: int
    vanished: int
    read_errors: int
    write_errors: int
    flush_errors: int
    no_space: int
    dropped: int
    read_rotted: int
    write_rotted: int
    unreadable: int
    refused: int
    crashes: int
    kills: int
    pieces_written: int
    pieces_stored: int
    pieces_superseded: int
    pieces_dropped: int
    pieces_lost: int
    pieces_cached: int


@typed_class("make faults of a block device")
@dataclass(frozen=True, slots=True)
class BlkFaults:
    """The faults of a device; the fields of `struct cl_blk_fault_config`, explained in drivers/blk/fault.h."""

    read_error: float = 0.0
    write_error: float = 0.0
    flush_error: float = 0.0
    no_space: float = 0.0
    drop: float = 0.0
    read_rot: float = 0.0
    write_rot: float = 0.0
    survive: float = 0.5
    torn: float = 0.5
    latency_min_ns: int = 0
    latency_max_ns: int = 0
    full_from: int = 0
    fail_after: int = 0
    cut_after: int = 0
    hang: int = 0
    cache_bytes: int = 0

    def c(self) -> Any:
        """A `struct cl_blk_fault_config`."""
        return ffi.new("struct cl_blk_fault_config *", {f.name: getattr(self, f.name) for f in fields(self)})


class FaultBlk(Blk):
    """A bad disk around a device, which then belongs to it (drivers/blk/fault.h).

    virtual_clock: time stands still until `now_ns` is set. Raises CorelaneError for faults outside their limits.
    """

    @typed("make a block device with faults")
    def __init__(
        self, inner: Blk, faults: BlkFaults | None = None, *, seed: int = 0, virtual_clock: bool = False
    ) -> None:
        config, out, err = (faults or BlkFaults()).c(), ffi.new("struct cl_blk **"), ffi.new("char[256]")
        self._clock: Any = ffi.new("uint64_t *")
        config.seed = seed
        if virtual_clock:
            config.clock = ffi.addressof(lib, "cl_blk_fault_clock_word")
            config.clock_arg = self._clock
        check(lib.cl_blk_fault_new(inner.ptr, config, out, err), err, "fault device")
        inner.release()
        super().__init__(out[0], keep=(inner, self._clock))

    @property
    def now_ns(self) -> int:
        """The virtual clock."""
        return int(self._clock[0])

    @now_ns.setter
    def now_ns(self, value: int) -> None:
        self._clock[0] = value

    def set(self, faults: BlkFaults) -> None:
        """Other faults from now on; a device that has failed works again. Raises CorelaneError."""
        err = ffi.new("char[256]")
        check(lib.cl_blk_fault_set(self.ptr, faults.c(), err), err, "fault device")

    def crash(self) -> int:
        """Cut the power and restore it; requests in flight vanish. Returns how many pieces of writes were lost."""
        self._in_flight.clear()
        return int(lib.cl_blk_fault_crash(self.ptr))

    def kill(self) -> None:
        """End the process that uses it, and not the power: what is cached stays, requests in flight are done or not."""
        lib.cl_blk_fault_kill(self.ptr)
        self._in_flight.clear()

    def rot(self, offset: int, size: int, bits: int = 1) -> None:
        """Flip bits at rest, at drawn places of a range. Raises BlkError."""
        rc = lib.cl_blk_fault_rot(self.ptr, offset, size, bits)
        if rc < 0:
            raise BlkError.of(-rc, f"cannot flip bits at {offset}")

    def unreadable(self, offset: int, size: int, on: bool = True) -> None:
        """Have reads of these bytes fail (EIO) until they are written over, or not any more. Raises BlkError."""
        rc = lib.cl_blk_fault_unreadable(self.ptr, offset, size, on)
        if rc < 0:
            raise BlkError.of(-rc, f"cannot make {size} bytes at {offset} unreadable")

    def counts(self) -> BlkFaultCounts:
        """What has happened so far."""
        out = ffi.new("struct cl_blk_fault_counts *")
        lib.cl_blk_fault_counts(self.ptr, out)
        return BlkFaultCounts(*(int(getattr(out, f.name)) for f in fields(BlkFaultCounts)))

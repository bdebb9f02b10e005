"""Reading what a runtime writes down of its requests. The layout, and who may trust what: trace.h.

    with Segment.of_process(pid) as segment:
        seen = segment.read()           # what its rings hold; then again and again what is new
        seen.messages["end"]            # a numpy array of `struct cl_trace_message`

A segment is a memory file that the process has open; the kernel lets those open it who may look into the process: its
user and root. It is mapped read-only, and the process does not notice.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ._native import ffi, lib
from .clock import Pairs
from .errors import CorelaneError, check
from .layout import dtype
from .memory_files import FIRST, link_of, open_at, places
from .printable import printable

if TYPE_CHECKING:
    import numpy

LINK = link_of("corelane-trace")
"""What /proc shows of a process' segments: CL_TRACE_NAME."""
_AT_ONCE = 4096  # records that are copied by one call
_COUNTS = 2**64  # of which numbers wrap, as in C
_unfilled = ffi.new_allocator(should_clear_after_alloc=False)  # no page of it is touched for nothing

MODES = {lib.CL_TRACE_OFF: "off", lib.CL_TRACE_SAMPLED: "sampled", lib.CL_TRACE_FULL: "full"}
KINDS = {
    lib.CL_TRACE_UDP: "UDP",
    lib.CL_TRACE_TCP: "TCP",
    lib.CL_TRACE_RAFT: "Raft",
    lib.CL_TRACE_RESP: "RESP",
    lib.CL_TRACE_BLOCKING: "blocking",
    lib.CL_TRACE_LOG: "log",
}
WAITS = {
    lib.CL_TRACE_WAITS_OTHER: "other",
    lib.CL_TRACE_WAITS_SLEEP: "sleep",
    lib.CL_TRACE_WAITS_MUTEX: "mutex",
    lib.CL_TRACE_WAITS_COND: "condition",
    lib.CL_TRACE_WAITS_SEM: "semaphore",
    lib.CL_TRACE_WAITS_JOIN: "join",
    lib.CL_TRACE_WAITS_CHANNEL: "channel",
    lib.CL_TRACE_WAITS_YIELD: "yield",
    lib.CL_TRACE_WAITS_QUANTUM: "quantum",
    lib.CL_TRACE_WAITS_CORE: "core",
    lib.CL_TRACE_WAITS_LOG: "log",
    lib.CL_TRACE_WAITS_DISK: "disk",
    lib.CL_TRACE_WAITS_CONNECT: "connect",
    lib.CL_TRACE_WAITS_ACCEPT: "accept",
    lib.CL_TRACE_WAITS_READ: "read",
    lib.CL_TRACE_WAITS_WRITE: "write",
    lib.CL_TRACE_WAITS_POLL: "poll",
    lib.CL_TRACE_WAITS_RESEND: "retransmission",
    lib.CL_TRACE_WAITS_WINDOW: "closed window",
    lib.CL_TRACE_WAITS_HOLE: "missing segment",
    lib.CL_TRACE_WAITS_COMMIT: "commit",
    lib.CL_TRACE_WAITS_KEYS: "keys",
}
"""What a handler or a connection waits for, by its number."""


@dataclass(frozen=True)
class Records:
    """What was read: numpy arrays of `struct cl_trace_message`, `_wait`, `_core`, `_gap`, `_command`, `_sample` and
    `_burst`, each ring's in order.

    lost: as many had been overwritten; garbage: were no records."""

    messages: numpy.ndarray[Any, Any]
    waits: numpy.ndarray[Any, Any]
    cores: numpy.ndarray[Any, Any]
    lost: int
    garbage: int
    gaps: numpy.ndarray[Any, Any] = field(default_factory=lambda: _of(_no_lines(), lib.CL_TRACE_GAP))
    commands: numpy.ndarray[Any, Any] = field(default_factory=lambda: _of(_no_lines(), lib.CL_TRACE_COMMAND))
    samples: numpy.ndarray[Any, Any] = field(default_factory=lambda: _of(_no_lines(), lib.CL_TRACE_SAMPLE))
    bursts: numpy.ndarray[Any, Any] = field(default_factory=lambda: _of(_no_lines(), lib.CL_TRACE_BURST))


_STRUCTS = {
    lib.CL_TRACE_MESSAGE: "struct cl_trace_message",
    lib.CL_TRACE_WAIT: "struct cl_trace_wait",
    lib.CL_TRACE_CORE: "struct cl_trace_core",
    lib.CL_TRACE_GAP: "struct cl_trace_gap",
    lib.CL_TRACE_COMMAND: "struct cl_trace_command",
    lib.CL_TRACE_SAMPLE: "struct cl_trace_sample",
    lib.CL_TRACE_BURST: "struct cl_trace_burst",
}


def _no_lines() -> numpy.ndarray[Any, Any]:
    import numpy

    return numpy.zeros((0, lib.CL_TRACE_RECORD), numpy.uint8)


def _of(lines: numpy.ndarray[Any, Any], kind: int) -> numpy.ndarray[Any, Any]:
    """The records of a kind."""
    records: numpy.ndarray[Any, Any] = lines[lines[:, 0] == kind].reshape(-1).view(dtype(ffi, _STRUCTS[kind]))
    return records


def records_of(raw: bytes, lost: int = 0, garbage: int = 0) -> Records:
    """Records, one after the other, by their kinds."""
    import numpy

    lines = numpy.frombuffer(raw, numpy.uint8).reshape(-1, lib.CL_TRACE_RECORD)
    messages, waits, cores, *others = (_of(lines, kind) for kind in _STRUCTS)
    return Records(messages, waits, cores, lost, garbage, *others)


class Raw(NamedTuple):
    """What `records_of` takes. Several of a segment, one after the other, are one."""

    data: bytes
    lost: int
    garbage: int

    @property
    def records(self) -> int:
        """How many."""
        return len(self.data) // int(lib.CL_TRACE_RECORD)


class RingCounts(NamedTuple):
    """Records of a ring."""

    written: int
    overwritten: int
    missed: int
    garbage: int


def _is_ours(source: int) -> bool:
    """Whether stamps of such a clock (CL_CLOCK_*) are those that this process would take."""
    if source == lib.CL_CLOCK_VIRTUAL:
        return False
    return bool(lib.cl_tsc_is_fallback() == (source == lib.CL_CLOCK_MONOTONIC))


class Segment:
    """A trace segment that is mapped read-only. Its number of a record is where `read` goes on; it begins with what the
    rings hold. fd: of the file; it is closed. Raises CorelaneError: it is none."""

    def __init__(self, fd: int, what: str = "read a trace") -> None:
        self._memory, err = ffi.new("struct cl_memory *"), ffi.new("char[256]")
        try:
            size = os.fstat(fd).st_size
            check(lib.cl_memory_map(fd, size, False, self._memory, err), what, err)
        except BaseException:
            os.close(fd)
            raise
        lib.cl_memory_shut(self._memory)
        try:
            check(lib.cl_trace_check(self._memory.base, self._memory.bytes, err), what, err)
        except BaseException:
            self.close()
            raise
        header = ffi.new("struct cl_trace_header *")
        ffi.memmove(header, self._memory.base, ffi.sizeof("struct cl_trace_header"))
        self.pid, self.rings, self.hz = int(header.pid), int(header.n_rings), int(header.hz)
        self._base = int(header.base_tsc), int(header.base_ns)
        self._pairs = Pairs(self.hz) if _is_ours(int(header.source)) else None
        self.name = printable(bytes(ffi.buffer(header.name)).split(b"\0", 1)[0])
        self._next = ffi.new("uint64_t[]", self.rings)
        self._lost, self._garbage = ffi.new("uint64_t[]", self.rings), ffi.new("uint64_t[]", self.rings)

    @classmethod
    def all_of_process(cls, pid: int) -> list[Self]:
        """One for each runtime of a process that traces.

        Raises CorelaneError: there is no such process, or it is another user's."""
        return cls._of_process(pid)

    @classmethod
    def _of_process(cls, pid: int, most: int | None = None) -> list[Self]:
        """The same, so many at most. All but the first descriptors are left alone: who is looked at may have as many as
        it likes."""
        what = f"read the traces of process {pid}"
        found: list[Self] = []
        try:
            seen = set[int]()
            for _, place in places(pid, LINK, FIRST):
                if (inode := os.fstat(place).st_ino) not in seen:
                    seen.add(inode)
                    found.append(cls(open_at(place), what))
                if len(found) == most:
                    break
        except (FileNotFoundError, ProcessLookupError) as error:
            close_all(found)
            raise CorelaneError(what, "there is no such process", "corelane ps lists them", errno.ESRCH) from error
        except PermissionError as error:
            close_all(found)
            why = "it is another user's, and what it writes down of its requests is its own"
            raise CorelaneError(what, why, "ask as that user or as root", errno.EACCES) from error
        except BaseException:
            close_all(found)
            raise
        return found

    @classmethod
    def of_process(cls, pid: int) -> Self:
        """The first of its runtimes'. Raises CorelaneError: as `all_of_process`; or none of it traces."""
        found = cls._of_process(pid, 1)
        if not found:
            hint = "start it with tracing on, as it is by default: corelane run --trace sampled"
            raise CorelaneError(f"read the trace of process {pid}", "no runtime of it traces", hint, errno.ENOENT)
        return found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Unmap it. May be called twice."""
        lib.cl_memory_close(self._memory)

    @property
    def base(self) -> Any:
        """Its first byte, as `void *`. Raises CorelaneError once closed."""
        if self._memory.base == ffi.NULL:
            raise CorelaneError("read a trace", "it is closed")
        return self._memory.base

    @property
    def apart_ns(self) -> float | None:
        """By how much two stamps of different cores may lie wrong to each other, at most. None: it was not measured."""
        clocks = ffi.cast("struct cl_trace_clocks *", ffi.cast("uint8_t *", self.base) + lib.CL_TRACE_CLOCKS_OFFSET)
        return int(clocks.apart) * 1e9 / self.hz if clocks.version else None

    @property
    def mode(self) -> str:
        """Which requests are written down: "off", "sampled", "full"."""
        return MODES.get(int(self._control().mode), "unknown")

    @property
    def one_in(self) -> int:
        """Of how many messages one is drawn."""
        return 1 if self.mode == "full" else max(1, int(self._control().one_in))

    def ask_samples(self, hz: int, seconds: float) -> bool:
        """Have its kthreads sampled from now on: so often a second of CPU time, for so long. They come as `samples`, at
        the tick of its kernel at most. False: it does not take that. Raises CorelaneError: it has ended."""
        signal = int(self._control().ask_signal)
        if not signal:
            return False
        ms = min(max(int(1000 * seconds), 1), lib.CL_TRACE_ASK_MS_MOST)
        check(lib.cl_trace_ask_samples(self.pid, signal, hz, ms), f"sample process {self.pid}")
        return True

    def tsc_of(self, ns: int) -> int:
        """The stamp of a time of CLOCK_MONOTONIC, or of the virtual clock. Good to some 20 ns, for times since this was
        made and, as far as NTP steers the machine's clock, for older ones."""
        if self._pairs is not None:
            return self._pairs.stamp_of(ns)
        tsc, then = self._base
        return tsc + (ns - then) * self.hz // 10**9

    def ns_of(self, stamp: int) -> int:
        """CLOCK_MONOTONIC in ns at a stamp, or the virtual clock's time: as good."""
        if self._pairs is not None:
            return self._pairs.ns_of(stamp)
        tsc, then = self._base
        return then + (stamp - tsc) * 10**9 // self.hz

    def _control(self) -> Any:
        at = ffi.cast("uint8_t *", self.base) + lib.CL_TRACE_CONTROL_OFFSET
        return ffi.cast("struct cl_trace_control *", at)

    def services(self) -> list[str]:
        """Names by a message's `service`: "UDP 9000". The first stands for all that have none."""
        n = min(max(1, int(self._control().n_services)), lib.CL_TRACE_SERVICES)
        all_of = ffi.cast("struct cl_trace_service *", ffi.cast("uint8_t *", self.base) + lib.CL_TRACE_PAGE)
        named = [f"{KINDS.get(all_of[i].kind, 'service')} {all_of[i].port}" for i in range(1, n)]
        return ["others", *named]

    def skip(self) -> None:
        """Begin with what comes from now on."""
        for ring in range(self.rings):
            self._next[ring] = 2**64 - 1
            self._read_ring(ring, ffi.NULL, 0)

    def read(self, most: int | None = None) -> Records:
        """What has come since the last call. most: records of all rings together, the newest of each; None: all that
        they hold, which can be gigabytes of one who means ill."""
        return records_of(*self.read_raw(most))

    def read_raw(self, most: int | None = None) -> Raw:
        """The same, for who looks at it later, or not at all."""
        if self._pairs is not None:
            self._pairs.look()
        lost, garbage = sum(self._lost), sum(self._garbage)
        times = 3 * lib.CL_TRACE_MAX_RECORDS // _AT_ONCE  # a writer that is faster ends it, too
        if most is not None:
            self._pass_over(most // self.rings)
            times = 1 + most // self.rings // _AT_ONCE
        room, parts = _unfilled("uint8_t[]", _AT_ONCE * lib.CL_TRACE_RECORD), []
        for ring in range(self.rings):
            for _ in range(times):
                before = int(self._next[ring])
                n = self._read_ring(ring, room, _AT_ONCE)
                parts.append(bytes(ffi.buffer(room, n * lib.CL_TRACE_RECORD)))
                if int(self._next[ring]) == before:
                    break
        return Raw(b"".join(parts), sum(self._lost) - lost, sum(self._garbage) - garbage)

    def _pass_over(self, most: int) -> None:
        """What lies before the newest records of each ring is lost."""
        for ring, of in enumerate(self.counts()):
            first = max(of.written - most, 0)
            if (passed := first - int(self._next[ring])) > 0:
                self._lost[ring] = (of.missed + passed) % _COUNTS
                self._next[ring] = first

    def counts(self) -> list[RingCounts]:
        """Of each ring: what its kthread has written, ever, and what of that it has overwritten; what this reader has
        missed, and found to be no records."""
        written, overwritten, out = ffi.new("uint64_t *"), ffi.new("uint64_t *"), []
        for ring in range(self.rings):
            lib.cl_trace_counts(self.base, self._memory.bytes, ring, written, overwritten)
            of = int(written[0]), int(overwritten[0]), int(self._lost[ring]), int(self._garbage[ring])
            out.append(RingCounts(*of))
        return out

    def _read_ring(self, ring: int, room: Any, n: int) -> int:
        lost, garbage = self._lost + ring, self._garbage + ring
        return int(lib.cl_trace_read(self.base, self._memory.bytes, ring, self._next + ring, room, n, lost, garbage))


def links(pid: int) -> dict[int, str]:
    """The segments that a process has open: paths to open them by, by their inodes. Raises OSError."""
    return {os.fstat(place).st_ino: path for path, place in places(pid, LINK)}


def close_all(segments: Sequence[Segment]) -> None:
    """Unmap several."""
    for segment in segments:
        segment.close()

"""Where threads are at this moment: their program counters, sampled by the kernel (perf_event_open(2)).

    with Sampler(kthreads_of(pid), hz=2000) as sampler:
        ...
        samples = sampler.read()        # what has come since; then again and again

The threads notice an interrupt of a microsecond or two for each sample; nothing is written into them, nor into their
process. It takes the software clock of each thread's CPU time, which virtual machines have, too: a thread that does not
run is not sampled. The kernel lets those sample a process who may look into it, if kernel.perf_event_paranoid is 2 or
less; else root (CAP_PERFMON).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import mmap
import os
import platform
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .closing import Closing
from .errors import CorelaneError, SystemLimit

PAGES = 16  # of a thread's ring: 100 ms and more of what is sampled; a power of two
MOST_HZ = 10_000
_CALLS = {"x86_64": 298, "aarch64": 241}  # perf_event_open
_ATTR = struct.Struct("<IIQQQQQIIQQQQIiQIHH")  # struct perf_event_attr as of PERF_ATTR_SIZE_VER5
_SOFTWARE, _TRACEPOINT, _CPU_CLOCK = 1, 2, 0
_IP, TID, TIME, _CALLCHAIN = 1 << 0, 1 << 1, 1 << 2, 1 << 5
_DISABLED, _EXCLUDE_KERNEL, _EXCLUDE_HV, _FREQ, _USE_CLOCKID = 1 << 0, 1 << 5, 1 << 6, 1 << 10, 1 << 25
_CLOCK_MONOTONIC = 1
_CLOEXEC = 8
ENABLE = 0x2400  # PERF_EVENT_IOC_ENABLE
_HEAD, _TAIL = 1024, 1032  # of struct perf_event_mmap_page
LOST, _SAMPLE = 2, 9  # PERF_RECORD_*
_CONTEXT = 2**64 - 4096  # from here on an entry of a chain says what follows it (PERF_CONTEXT_*)


@dataclass(frozen=True)
class Sample:
    """number: of the thread, as the Sampler was told. ns: CLOCK_MONOTONIC. chain: program counters, the innermost
    first; those of its callers are return addresses, as far as frame pointers lead."""

    number: int
    ns: int
    chain: tuple[int, ...]


class Ring(Closing):
    """What the kernel writes of an event. fd: of the event; it is closed with the ring. pages: of it, a power of two.
    Raises OSError."""

    def __init__(self, fd: int, pages: int = PAGES) -> None:
        self._fd = fd
        try:
            self._memory = mmap.mmap(fd, (1 + pages) * mmap.PAGESIZE)
        except OSError:
            os.close(fd)
            raise

    def enable(self) -> None:
        """Begin. Raises OSError."""
        fcntl.ioctl(self._fd, ENABLE, 0)

    def close(self) -> None:
        """End it. May be called twice."""
        if self._fd >= 0:
            self._memory.close()
            os.close(self._fd)
            self._fd = -1

    def read(self) -> Iterator[tuple[int, int, bytes]]:
        """Records that have come since the last call: their type, `misc`, and what follows their header."""
        ring = self._memory
        # x86 keeps the order of these loads. Elsewhere the worst is a record that is cut short, and is dropped.
        head, tail = (struct.unpack_from("<Q", ring, at)[0] for at in (_HEAD, _TAIL))
        size = len(ring) - mmap.PAGESIZE
        begin, end = tail % size, head % size
        data = ring[mmap.PAGESIZE + begin : mmap.PAGESIZE + (end if end >= begin else size)]
        if end < begin:
            data += ring[mmap.PAGESIZE : mmap.PAGESIZE + end]
        struct.pack_into("<Q", ring, _TAIL, head)
        at = 0
        while at + 8 <= len(data):
            kind, misc, length = struct.unpack_from("<IHH", data, at)
            if length < 8 or at + length > len(data):
                break
            yield kind, misc, data[at + 8 : at + length]
            at += length


@dataclass(frozen=True)
class Mapped:
    """Code that a process has mapped: [begin, end) holds the file from `offset` on. path "": of no file."""

    begin: int
    end: int
    offset: int
    path: str


@functools.lru_cache(maxsize=1)
def permitted() -> bool:
    """Whether the kernel lets this process sample its own threads."""
    try:
        os.close(_open(0, 1))
    except OSError:
        return False
    return True


def kthreads_of(pid: int) -> dict[int, int]:
    """Thread ids of a process' kthreads, with the kthreads' numbers. CorelaneError: there are none, or of several
    runtimes, whose numbers are the same."""
    what, found = f"sample process {pid}", {}
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/comm", "rb") as file:
                name = file.read().strip()
            if name.startswith(b"cl-kthread-"):
                found[int(tid)] = int(name.removeprefix(b"cl-kthread-"))
    except (FileNotFoundError, ProcessLookupError) as error:
        raise CorelaneError(what, "there is no such process, or it ends", errno=errno.ESRCH) from error
    if not found:
        raise CorelaneError(what, "it has no kthreads", "sample it once its runtime was started", errno.ENOENT)
    if len(set(found.values())) < len(found):
        raise CorelaneError(what, "it has several runtimes, whose kthreads cannot be told apart")
    return found


def mapped_code(pid: int) -> list[Mapped]:
    """What a process may execute, by address. Raises OSError."""
    found = []
    with open(f"/proc/{pid}/maps", "rb") as file:  # in which paths need not be text
        for line in file:
            where, rights, offset, _, _, *path = line.split(maxsplit=5)
            if b"x" in rights:
                begin, end = (int(part, 16) for part in where.split(b"-"))
                name = os.fsdecode(path[0].rstrip(b"\n")) if path else ""
                found.append(Mapped(begin, end, int(offset, 16), name))
    return found


class Sampler(Closing):
    """Samples threads. threads: their ids, with numbers for `Sample`. lost: samples for which there was no room.

    Raises SystemLimit: the kernel refuses it, and how it would not.
    """

    def __init__(self, threads: Mapping[int, int], hz: int) -> None:
        self.hz, self.lost = hz, 0
        self._rings: list[tuple[int, Ring]] = []
        try:
            for tid, number in threads.items():
                self._rings.append((number, Ring(_open(tid, hz))))
            for _, ring in self._rings:
                ring.enable()
        except OSError as error:
            self.close()
            if error.errno == errno.ESRCH:
                raise CorelaneError("sample a process", "it has ended", errno=errno.ESRCH) from error
            hint = "sysctl kernel.perf_event_paranoid=2, or ask as root; in a container: --cap-add PERFMON"
            raise SystemLimit("sample program counters", error.strerror or str(error), hint) from error

    def close(self) -> None:
        """End it. May be called twice."""
        for _, ring in self._rings:
            ring.close()
        self._rings.clear()

    def read(self) -> list[Sample]:
        """What has come since the last call."""
        found: list[Sample] = []
        for number, ring in self._rings:
            for kind, _, data in ring.read():
                if kind == _SAMPLE and len(data) >= 32:
                    found.append(_sample(number, data))
                elif kind == LOST and len(data) >= 16:
                    self.lost += struct.unpack_from("<Q", data, 8)[0]
        return found


def _sample(number: int, data: bytes) -> Sample:
    ip, _, _, ns, n = struct.unpack_from("<QIIQQ", data)
    n = min(n, (len(data) - 32) // 8)
    chain = tuple(pc for pc in struct.unpack_from(f"<{n}Q", data, 32) if pc < _CONTEXT)
    return Sample(number, ns, chain or (ip,))


def _open(tid: int, hz: int) -> int:
    """The event of a thread, not enabled yet. Raises OSError."""
    flags = _EXCLUDE_KERNEL | _EXCLUDE_HV | _FREQ
    return open_event(_CPU_CLOCK, hz, _IP | TID | TIME | _CALLCHAIN, flags, tid, -1)


def open_tracepoint(event: int, what: int, tid: int) -> int:
    """Each time that a thread comes by a tracepoint; as open_event. event: its id in tracefs. Raises OSError."""
    return open_event(event, 1, what, 0, tid, -1, _TRACEPOINT)


def open_event(config: int, period: int, what: int, flags: int, tid: int, cpu: int, kind: int = _SOFTWARE) -> int:
    """An event, not enabled yet, whose times are CLOCK_MONOTONIC's; a descriptor. tid, cpu: -1: any. kind: software, if
    nothing else is said. Raises OSError."""
    call = _CALLS.get(platform.machine())
    if call is None:
        raise OSError(errno.ENOSYS, f"not on {platform.machine()}")
    attr = _ATTR.pack(
        *(kind, _ATTR.size, config, period, what, 0, flags | _DISABLED | _USE_CLOCKID),
        *(0, 0, 0, 0, 0, 0, 0),
        *(_CLOCK_MONOTONIC, 0, 0, 0, 0),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attr, len(attr))
    fd = int(libc.syscall(call, buffer, tid, cpu, -1, ctypes.c_ulong(_CLOEXEC)))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd

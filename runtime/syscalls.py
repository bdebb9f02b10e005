"""System calls of threads, each with when it began and ended, as the kernel's tracepoints tell them.

    with SystemCalls(kthreads_of(pid)) as calls:
        ...
        found = calls.read()            # those that have ended since; then again and again

The reader asks the kernel (perf_event_open(2) on raw_syscalls/sys_enter and sys_exit); nothing is written into the
threads. Each call of theirs takes longer meanwhile. sched_yield is left out: a kthread that looks for work does little
else, and would fill the rings. It takes root (CAP_PERFMON, and tracefs, which is root's).
"""

from __future__ import annotations

import fcntl
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .closing import Closing
from .errors import SystemLimit
from .perf import ENABLE, LOST, TID, TIME, Ring, open_tracepoint

PAGES = 256  # of a thread's ring: 6,500 calls between two looks; a power of two
EVENTS = Path("/sys/kernel/tracing/events/raw_syscalls")
_SET_OUTPUT, _SET_FILTER = 0x2405, 0x40082406  # PERF_EVENT_IOC_*
_YIELDS = {"x86_64": 24, "aarch64": 124}  # sched_yield
_SAMPLE, _RAW = 9, 1 << 10  # PERF_RECORD_SAMPLE, PERF_SAMPLE_RAW
_RECORD = struct.Struct("<IIQIHHiq")  # pid, tid, time, size; of the tracepoint: its id, flags, pid, the call's number

# name:x86_64:aarch64
_TABLE = """
accept:43:202 accept4:288:242 access:21: bind:49:200 brk:12:214 clock_gettime:228:113 clock_nanosleep:230:115
clone:56:220 clone3:435:435 close:3:57 connect:42:203 copy_file_range:326:285 dup:32:23 dup3:292:24
epoll_ctl:233:21 epoll_pwait:281:22 epoll_wait:232: eventfd2:290:19 execve:59:221 exit:60:93 exit_group:231:94
faccessat:269:48 faccessat2:439:439 fallocate:285:47 fcntl:72:25 fdatasync:75:83 flock:73:32 fstat:5:80
fsync:74:82 ftruncate:77:46 futex:202:98 getdents64:217:61 getpid:39:172 getrandom:318:278 getrusage:98:165
getsockopt:55:209 gettid:186:178 gettimeofday:96:169 io_uring_enter:426:426 ioctl:16:29 kill:62:129
listen:50:201 lseek:8:62 lstat:6: madvise:28:233 membarrier:324:283 memfd_create:319:279 mincore:27:232
mkdirat:258:34 mmap:9:222 mprotect:10:226 mremap:25:216 msync:26:227 munmap:11:215 nanosleep:35:101
newfstatat:262:79 open:2: openat:257:56 openat2:437:437 pipe2:293:59 poll:7: ppoll:271:73 pread64:17:67
preadv:295:69 process_vm_readv:310:270 pselect6:270:72 pwrite64:18:68 pwritev:296:70 read:0:63 readlinkat:267:78
readv:19:65 recvfrom:45:207 recvmmsg:299:243 recvmsg:47:212 rename:82: renameat2:316:276 rt_sigaction:13:134
rt_sigprocmask:14:135 rt_sigreturn:15:139 rt_sigtimedwait:128:137 sched_getaffinity:204:123
sched_setaffinity:203:122 sched_yield:24:124 select:23: sendfile:40:71 sendmmsg:307:269 sendmsg:46:211
sendto:44:206 setsockopt:54:208 shutdown:48:210 socket:41:198 splice:275:76 stat:4: statx:332:291 sync:162:81
sync_file_range:277:84 syncfs:306:267 tgkill:234:131 timerfd_settime:286:86 times:100:153 unlink:87:
unlinkat:263:35 wait4:61:260 waitid:247:95 write:1:64 writev:20:66
"""
_COLUMNS = {"x86_64": 1, "aarch64": 2}


class Call(NamedTuple):
    """thread: its number, as SystemCalls was told. call: the system call's. begin_ns, end_ns: CLOCK_MONOTONIC."""

    thread: int
    call: int
    begin_ns: int
    end_ns: int


def names(machine: str = platform.machine()) -> dict[int, str]:
    """Of the system calls that handlers make, by their numbers."""
    column = _COLUMNS.get(machine)
    rows = [row.split(":") for row in _TABLE.split()] if column is not None else []
    return {int(row[column]): row[0] for row in rows if column is not None and row[column]}


@dataclass
class Pairs:
    """Of one thread: makes calls of what its tracepoints tell. enter, exit: their ids. lost: records that were."""

    thread: int
    enter: int
    exit: int
    lost: int = 0
    _open: tuple[int, int] | None = None  # number, begin

    def calls(self, records: Iterable[tuple[int, int, bytes]]) -> list[Call]:
        """Those that end here. One whose begin was not seen is none, nor is one whose end was lost."""
        found = []
        for kind, _, data in records:
            if kind == LOST and len(data) >= 16:
                self.lost += struct.unpack_from("<Q", data, 8)[0]
                self._open = None
            elif kind == _SAMPLE and len(data) >= _RECORD.size:
                _, _, ns, _, event, _, _, call = _RECORD.unpack_from(data)
                if event == self.enter:
                    self._open = call, ns
                elif event == self.exit:
                    # An execve may end as another one's number; a call that ends as another is none of these.
                    if self._open is not None and self._open[0] == call and ns >= self._open[1]:
                        found.append(Call(self.thread, call, self._open[1], ns))
                    self._open = None
        return found


class SystemCalls(Closing):
    """Of threads. threads: their ids, with numbers for `Call`. Raises SystemLimit: the kernel refuses it."""

    def __init__(self, threads: Mapping[int, int]) -> None:
        self._rings: list[tuple[Ring, Pairs]] = []
        self._exits: list[int] = []  # descriptors of events that write into the others' rings, so that all is in order
        try:
            enter, leave = (int((EVENTS / name / "id").read_text()) for name in ("sys_enter", "sys_exit"))
            for tid, number in threads.items():
                entered = open_tracepoint(enter, TID | TIME | _RAW, tid)
                self._rings.append((Ring(entered, PAGES), Pairs(number, enter, leave)))
                self._exits.append(open_tracepoint(leave, TID | TIME | _RAW, tid))
                fcntl.ioctl(self._exits[-1], _SET_OUTPUT, entered)
                for fd in (entered, self._exits[-1]):
                    fcntl.ioctl(fd, _SET_FILTER, b"id != %d\0" % _YIELDS[platform.machine()])
            for ring, _ in self._rings:
                ring.enable()
            for fd in self._exits:
                fcntl.ioctl(fd, ENABLE, 0)
        except OSError as error:
            self.close()
            hint = "ask as root, with tracefs mounted; in a container: --cap-add PERFMON"
            raise SystemLimit("time system calls", error.strerror or str(error), hint) from error

    @property
    def lost(self) -> int:
        """Records for which there was no room."""
        return sum(pairs.lost for _, pairs in self._rings)

    def close(self) -> None:
        """End it. May be called twice."""
        for fd in self._exits:
            os.close(fd)
        self._exits.clear()
        for ring, _ in self._rings:
            ring.close()

    def read(self) -> list[Call]:
        """Those that have ended since the last call, of each thread in order."""
        return [call for ring, pairs in self._rings for call in pairs.calls(ring.read())]

"""What threads cost: CPU time and context switches, of this process's threads or of another's (/proc); what memory this
process has; and what the kernel counts of sockets and disks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Of a set of threads: busy seconds (user, system), context switches (voluntary, involuntary), and seconds in which
    they were ready to run and had no CPU."""

    user_s: float = 0.0
    system_s: float = 0.0
    voluntary: int = 0
    involuntary: int = 0
    waited_s: float = 0.0

    @property
    def busy_s(self) -> float:
        return self.user_s + self.system_s

    @property
    def switches(self) -> int:
        return self.voluntary + self.involuntary

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.user_s + other.user_s,
            self.system_s + other.system_s,
            self.voluntary + other.voluntary,
            self.involuntary + other.involuntary,
            self.waited_s + other.waited_s,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.user_s - other.user_s,
            self.system_s - other.system_s,
            self.voluntary - other.voluntary,
            self.involuntary - other.involuntary,
            self.waited_s - other.waited_s,
        )


def own_memory() -> int:
    """Bytes of this process that are of no file."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Anonymous:"))


def threads(pid: int | str = "self") -> dict[int, str]:
    """Thread ids of a process and their names; empty if it is gone."""
    out: dict[int, str] = {}
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            out[int(task.name)] = (task / "comm").read_text(errors="replace").strip()
    except OSError:
        pass
    return out


def of_thread(tid: int, pid: int | str = "self") -> Usage:
    """Usage of one thread so far; zeros if it is gone. CPU time is that of schedstat (ns) where there is one."""
    base = Path(f"/proc/{pid}/task/{tid}")
    try:
        text = (base / "status").read_text(errors="replace")  # the name may be any bytes
        status = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        fields = (base / "stat").read_bytes().rpartition(b")")[2].split()
        user_s, system_s = int(fields[11]) * _TICK_S, int(fields[12]) * _TICK_S
        ran_ns, waited_ns = _schedstat_ns(base)
    except (OSError, ValueError):
        return Usage()
    if ran_ns is not None:  # exact total; the tick-based split is only a proportion
        total = user_s + system_s
        share = user_s / total if total else 1.0
        user_s, system_s = ran_ns * 1e-9 * share, ran_ns * 1e-9 * (1 - share)
    voluntary, involuntary = (int(status[f"{kind}_ctxt_switches"]) for kind in ("voluntary", "nonvoluntary"))
    return Usage(user_s, system_s, voluntary, involuntary, waited_ns * 1e-9)


def cpu_s(tid: int) -> float:
    """CPU seconds of a thread of this process so far, to the nanosecond, by one system call. OSError: it is gone.
    Its clock's number: CPUCLOCK_PERTHREAD and CPUCLOCK_SCHED, include/linux/posix-timers_types.h."""
    return time.clock_gettime_ns(~tid << 3 | 4 | 2) / 1e9


def _schedstat_ns(base: Path) -> tuple[int | None, int]:
    """How long it ran, and waited for a CPU; None and 0 where the kernel does not say."""
    try:
        ran, waited, _ = (base / "schedstat").read_text().split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None, 0


def of_threads(tids: Iterable[int], pid: int | str = "self") -> Usage:
    """Usage of some threads of a process so far."""
    return sum((of_thread(tid, pid) for tid in tids), Usage())


def of_process(pid: int | str = "self") -> Usage:
    """Usage of all living threads of a process so far."""
    return of_threads(threads(pid), pid)


def udp_dropped(where: str, root: Path = Path("/proc")) -> int:
    """Datagrams that full UDP sockets refused so far, in the network namespace of a process or thread: "PID",
    "self/task/TID". 0 if it is gone. Source: the last column of /proc/PID/net/udp, proc(5)."""
    try:
        lines = (root / where / "net/udp").read_text().splitlines()[1:]
        return sum(int(line.split()[-1]) for line in lines)
    except (OSError, ValueError, IndexError):
        return 0


def backlog_dropped(root: Path = Path("/proc")) -> int:
    """Packets that the kernel's queues of received packets refused so far, one a CPU, of this machine. Source: the
    second column of /proc/net/softnet_stat, net/core/net-procfs.c."""
    try:
        return sum(int(line.split()[1], 16) for line in (root / "net/softnet_stat").read_text().splitlines())
    except (OSError, ValueError, IndexError):
        return 0


BLOCK = Path("/sys/dev/block")
_BUSY_MS, _FLUSHES = 9, 15  # places of a block device's `stat`: Documentation/block/stat.rst


def disk_busy_s(path: Path, root: Path = BLOCK) -> float | None:
    """Time so far in which the block device under a file or folder had requests in flight, s. None: there is none that
    says so."""
    busy_ms = _of_disk(path, root, _BUSY_MS)
    return None if busy_ms is None else busy_ms / 1e3


def disk_flushes(path: Path, root: Path = BLOCK) -> int | None:
    """Flushes of its cache that the block device under a file or folder has done so far, several at once counted as
    one. None: there is none that says so."""
    return _of_disk(path, root, _FLUSHES)


def _of_disk(path: Path, root: Path, place: int) -> int | None:
    try:
        device = os.stat(path).st_dev
        return int((root / f"{os.major(device)}:{os.minor(device)}" / "stat").read_text().split()[place])
    except (OSError, ValueError, IndexError):
        return None

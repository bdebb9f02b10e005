"""Which CPUs other iokernels of this machine use: each says so in a locked file, and reads what others say.

Two iokernels on one CPU take turns of milliseconds, and neither sees why. So an iokernel leaves a file in a folder
where everybody may write: the first of /run/lock, /dev/shm and /tmp that is there. It holds a lock on the file for as
long as it runs, and reads the files of others. The Linux kernel frees the lock even after SIGKILL: a file without one
is stale, whatever it says.

Anybody may write such a file, or hold the lock of another one. So nobody is refused for what a file says, only warned,
and a file counts only as far as the Linux kernel confirms it. Its owner must be the user of that process. On each CPU
of its loops a thread of that process called "cl-loop-N" must be bound. Worker CPUs are believed along with them.

Does not deal with: iokernels in other PID or mount namespaces, which are not seen; other programs that poll.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ...runtime.printable import printable
from ...runtime.topology import format_cpu_list

FOLDERS = ("/run/lock", "/dev/shm", "/tmp")
_PREFIX = "corelane-cpus-"
_MOST_BYTES = 8192  # of a file that is read: 512 CPUs and a path
_MOST_ENTRIES = 4096  # of the folder that are looked at
_MOST_OF_A_USER = 64  # files that are read
_MOST_SHOWN = 107  # characters of a path, as many as a socket's may have
_LOCK_TRIES, _LOCK_PAUSE_S = 100, 0.001
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Claim:
    """What an iokernel says of itself. socket: its control socket's path."""

    pid: int
    socket: str
    loops: tuple[int, ...]
    workers: tuple[int, ...]


def shared_folder() -> str | None:
    """The folder of the files: one that everybody may write to, and where nobody may remove another's file."""
    for folder in FOLDERS:
        with contextlib.suppress(OSError):
            found = os.lstat(folder)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and found.st_mode & 0o1777 == 0o1777:
                return folder
    return None


class OwnClaim:
    """Our file, from construction to `close`. Nothing is claimed where there is no folder, or no room in it."""

    def __init__(self, socket: str, loops: Sequence[int], workers: Sequence[int], folder: str | None = None) -> None:
        self._claim = Claim(os.getpid(), os.path.abspath(socket), tuple(loops), tuple(workers))
        self._path = ""
        self._fd = -1
        folder = folder or shared_folder()
        if folder is not None and (loops or workers):
            with contextlib.suppress(OSError):
                self._write(f"{folder}/{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}")

    def _write(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        self._path = path
        os.fchmod(self._fd, 0o644)  # whatever the umask: others are to read it
        os.pwrite(self._fd, json.dumps(asdict(self._claim)).encode(), 0)
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:  # somebody looks whether it is locked
                time.sleep(_LOCK_PAUSE_S)

    def close(self) -> None:
        """Give the CPUs up. Again: nothing."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # somebody cleaned up
                os.unlink(self._path)
            os.close(self._fd)
        self._fd = -1

    def shared(self) -> list[str]:
        """A line for each other iokernel that uses a CPU of ours: who it is, and what to change.

        Once our loops run: of two that start together one sees the other.
        """
        if self._fd < 0:
            return []
        ours = {*self._claim.loops, *self._claim.workers}
        return [_line(other, ours) for other in _others(Path(self._path)) if ours & {*other.loops, *other.workers}]


def _line(other: Claim, ours: set[int]) -> str:
    polled, given = sorted(ours & set(other.loops)), sorted(ours & set(other.workers))
    does = [f"polls on CPU {format_cpu_list(polled)}"] if polled else []
    does += [f"gives CPU {format_cpu_list(given)} to applications"] if given else []
    return (
        f"another iokernel, on {other.socket} (pid {other.pid}), {' and '.join(does)}, which this one uses too: each "
        "takes milliseconds from the other; start one with other CPUs (taskset -c, and --cores for its loops), or stop "
        "it"
    )


def _others(own: Path) -> Iterator[Claim]:
    """Claims that are locked, and that the kernel confirms."""
    seen: Counter[int] = Counter()
    with contextlib.suppress(OSError), os.scandir(own.parent) as entries:
        for entry in itertools.islice(entries, _MOST_ENTRIES):
            if not entry.name.startswith(_PREFIX) or entry.name == own.name:
                continue
            try:
                uid = entry.stat(follow_symlinks=False).st_uid
            except OSError:
                continue  # it has just gone
            seen[uid] += 1
            if seen[uid] <= _MOST_OF_A_USER and (claim := _claim_in(entry.path, entry.name)) is not None:
                yield claim


def _claim_in(path: str, name: str) -> Claim | None:
    """The claim in a file, if it holds. A file that a dead process of ours left is removed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None  # it has gone, or is not for us to read
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        if not _locked(fd):
            pid = name.removeprefix(_PREFIX).partition("-")[0]
            if pid.isdigit() and not (_PROC / pid).exists():
                with contextlib.suppress(OSError):  # another's
                    os.unlink(path)
            return None
        claim = _read(fd)
        return claim if claim is not None and _confirmed(claim, found.st_uid) else None
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _read(fd: int) -> Claim | None:
    """What a file says; None for anything that is no claim."""
    try:
        said = json.loads(os.pread(fd, _MOST_BYTES, 0))
        pid, socket = int(said["pid"]), str(said["socket"])
        loops, workers = (tuple(int(cpu) for cpu in said[key]) for key in ("loops", "workers"))
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return Claim(pid, printable(socket[:_MOST_SHOWN]), loops, workers) if pid > 0 else None


def _confirmed(claim: Claim, uid: int) -> bool:
    """Whether that process is of that user, and a loop of an iokernel runs in it on each CPU that it says."""
    folder = _PROC / str(claim.pid)
    bound: set[int] = set()
    loops = 0
    try:
        if _user_of(folder) != uid:
            return False
        for task in (folder / "task").iterdir():
            with contextlib.suppress(OSError):  # that thread has ended
                if (task / "comm").read_bytes().startswith(b"cl-loop-"):
                    loops += 1
                    cpus = os.sched_getaffinity(int(task.name))
                    bound |= cpus if len(cpus) == 1 else set()
    except OSError:
        return False
    return loops > 0 and bound >= set(claim.loops)


def _user_of(folder: Path) -> int:
    """The effective user of a process; the owner of its folder is root's for one that has gained rights."""
    for line in (folder / "status").read_bytes().splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[2])
    return -1

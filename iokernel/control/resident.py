"""How much of a mapping of another process is memory, as Linux says: read on a thread of its own, since whoever owns
the process decides how long that takes. The thread is started when it is first needed, and ends with `close`."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from pathlib import Path

PENDING = -1
_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_BYTES = 16 << 20  # of a process's list of mappings that are read: more than 10,000 of them


class Residents:
    """Owned by one thread, which calls all of it."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._asked: queue.SimpleQueue[tuple[int, int, int] | None] = queue.SimpleQueue()
        self._known: queue.SimpleQueue[tuple[int, int | None]] = queue.SimpleQueue()
        self._pending: set[int] = set()
        self._results: dict[int, int | None] = {}
        self._thread: threading.Thread | None = None

    def ask(self, key: int, pid: int, size: int) -> int | None:
        """Bytes that process `pid` has of its mapping of `size` bytes; PENDING: it is being read, ask again with that
        key. None: it cannot be seen."""
        while not self._known.empty():
            done, found = self._known.get()
            self._pending.discard(done)
            self._results[done] = found
        if key in self._results:
            return self._results.pop(key)
        if key not in self._pending:
            self._pending.add(key)
            self._asked.put((key, pid, size))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="corelane-resident", daemon=True)
                self._thread.start()
        return PENDING

    def close(self) -> None:
        """Have the thread end, once it has read what it reads. What was asked is forgotten."""
        if self._thread is not None:
            self._asked.put(None)
        self._forget()

    def _work(self) -> None:
        asked, known = self._asked, self._known  # of now: `close` has others made
        while (job := asked.get()) is not None:
            key, pid, size = job
            known.put((key, resident_bytes(pid, size)))


def resident_bytes(pid: int, size: int) -> int | None:
    """As Residents.ask, at once (proc(5), smaps). The mapping is known by its size; of several, the one that takes
    least."""
    pages = -(-size // _PAGE) * _PAGE
    found, is_it = [], False
    with contextlib.suppress(OSError, ValueError, IndexError), (_PROC / str(pid) / "smaps").open("rb") as file:
        for line in file.read(_MOST_BYTES).splitlines():
            word = line.split(maxsplit=1)[0]
            if not word.endswith(b":"):
                low, high = (int(part, 16) for part in word.split(b"-"))
                is_it = high - low == pages
            elif is_it and word == b"Rss:":
                found.append(int(line.split()[1]) * 1024)
    return min(found, default=None)

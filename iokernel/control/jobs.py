"""Slow functions of several users, for a thread that must not wait: it says by a descriptor when there are results.

Of a user one function runs at a time, of all users a few; the others wait in order, users by turns. A function that
finds busy what it wants does not wait for it on its thread: it raises what `again` is, and is called again a few times,
_PAUSES_S later each time. What it raised last is its result.

The threads are started when they are first needed, and kept. The end of a thread gives its stack back to the kernel,
which interrupts every core that runs this process for it: the iokernel's loop, too.
"""

from __future__ import annotations

import heapq
import itertools
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

_PAUSES_S = (0.01, 0.02, 0.04, 0.08, 0.15, 0.2)  # half a second in all


@dataclass(slots=True, eq=False)
class _Job:
    user: Hashable
    tag: Any
    function: Callable[[], Any]
    tries: int = 0
    result: Any = None


class Jobs:
    """Owned by one thread, which calls everything here. again: see above. at_once: functions that run at a time."""

    def __init__(self, again: type[BaseException], at_once: int = 1) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable once a function has returned, until `results` was called."""
        self._again = again
        self._at_once = at_once
        self._waiting: dict[Hashable, deque[_Job]] = {}  # by user, in the order of their turns
        self._running: dict[Hashable, _Job] = {}
        self._aside: list[tuple[float, int, _Job]] = []  # a heap: when it is called again
        self._numbers = itertools.count()
        self._begun: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()  # for the threads; None: one of them ends
        self._ended: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def put(self, user: Hashable, tag: Any, function: Callable[[], Any]) -> None:
        """Run a function of a user when it is his turn; `tag` comes back with its result."""
        self._add(_Job(user, tag, function))
        self._start()

    def forget(self, tag: Any) -> None:
        """Nobody waits for those with this tag any more: they are not begun. One that runs has a result, even so."""
        for user, jobs in list(self._waiting.items()):
            if left := deque(job for job in jobs if job.tag is not tag):
                self._waiting[user] = left
            else:
                del self._waiting[user]
        self._aside = [entry for entry in self._aside if entry[2].tag is not tag]
        heapq.heapify(self._aside)

    @property
    def due(self) -> float:
        """When `step` has something to do, on the monotonic clock; inf: when a result has been taken."""
        return self._aside[0][0] if self._aside else float("inf")

    def step(self) -> None:
        """Call again what is due."""
        now = time.monotonic()
        while self._aside and self._aside[0][0] <= now:
            self._add(heapq.heappop(self._aside)[2])
        self._start()

    def results(self) -> Iterator[tuple[Any, Any]]:
        """Tag and result, or the exception that was raised, of each that is done."""
        os.eventfd_read(self.fd)
        while not self._ended.empty():
            job = self._ended.get()
            del self._running[job.user]
            if isinstance(job.result, self._again) and job.tries < len(_PAUSES_S):
                due = time.monotonic() + _PAUSES_S[job.tries]
                job.tries += 1
                heapq.heappush(self._aside, (due, next(self._numbers), job))
            else:
                yield job.tag, job.result
        self._start()

    def close(self, wait_s: float | None = None) -> None:
        """Wait for those that run; the others are not begun.

        wait_s: for so long in all. One that has not ended then is left to itself, and ends with the process at the
        latest.
        """
        self._waiting.clear()
        self._aside.clear()
        until = None if wait_s is None else time.monotonic() + wait_s
        for _ in self._threads:
            self._begun.put(None)
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):
            os.close(self.fd)  # else one will write to it

    def _add(self, job: _Job) -> None:
        self._waiting.setdefault(job.user, deque()).append(job)

    def _start(self) -> None:
        for user in list(self._waiting):
            if len(self._running) >= self._at_once:
                return
            if user in self._running:
                continue
            jobs = self._waiting.pop(user)
            job = jobs.popleft()
            if jobs:
                self._waiting[user] = jobs  # behind the others
            self._running[user] = job
            if len(self._threads) < len(self._running):
                self._threads.append(threading.Thread(target=self._work, name="corelane-job", daemon=True))
                self._threads[-1].start()
            self._begun.put(job)

    def _work(self) -> None:
        while (job := self._begun.get()) is not None:
            try:
                job.result = job.function()
            except BaseException as error:  # whatever it is, it is the result: SystemExit would end the thread silently
                job.result = error
            self._ended.put(job)
            del job  # its tag and result are the owner's: a thread that waits holds nobody's connection
            os.eventfd_write(self.fd, 1)

"""Records that nobody waits for: a future for each, and the thread that sets them.

The thread writes (group.py) while nobody else does, and runs the futures' callbacks, without a lock and without
leading: so they may append themselves, and wait for that. It begins with the first record and ends with the log.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from ....runtime.errors import CorelaneError
from .group import Batch, Group

_LOGGER = logging.getLogger("corelane.log")


class Promises:
    """The futures of a log. result(batch): what the future of one that is done gets, or raises."""

    def __init__(self, group: Group, result: Callable[[Batch], int]) -> None:
        self._group, self._result = group, result
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._asked: deque[tuple[Batch, Future[int]]] = deque()  # in the order in which they end
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, batch: Batch) -> Future[int]:
        """Have it written. Raises CorelaneError if the log is closed, or being closed."""
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()  # nobody can take it back
        with self._lock:
            if self._closed:
                raise CorelaneError("use the log", "it is closed", "open it again")
            if not self._thread:
                thread = threading.Thread(target=self._run, name="corelane-log", daemon=True)
                thread.start()
                self._thread = thread
            self._asked.append((batch, future))
            self._group.promise(batch, self._wake)
        return future

    def close(self) -> None:
        """Take no more, and wait until all are done. Raises CorelaneError if a callback of one of them asks for it."""
        thread = self._thread
        if thread is threading.current_thread():
            why = "a callback of one of its futures asks for it, and is waited for"
            raise CorelaneError("close the log", why, "close it on another thread")
        with self._lock:
            self._closed = True
            self._wake.set()
        if thread:
            thread.join()

    def _run(self) -> None:
        while self._asked or not self._closed:
            self._wake.wait()
            self._wake.clear()
            while self._asked:
                batch, future = self._asked[0]
                self._group.lead_for(batch)
                if not batch.done:
                    break
                self._asked.popleft()
                self._settle(batch, future)

    def _settle(self, batch: Batch, future: Future[int]) -> None:
        error, result = None, 0
        try:
            result = self._result(batch)
        except Exception as raised:
            error = raised
        try:  # a future takes no more than Exception from its callbacks
            if error:
                future.set_exception(error)
            else:
                future.set_result(result)
        except BaseException as raised:
            _LOGGER.error("a callback of a future of append_async raised %r; the log goes on", raised)

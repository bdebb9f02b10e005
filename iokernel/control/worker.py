"""One slow function at a time in a thread of its own, for a thread that must not wait: it says by a descriptor when
there is a result."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

STOP_EVERY_S = 0.02


class Worker:
    """Owned by one thread, which calls everything here."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable once the function has returned, until `result` was called."""
        self._thread: threading.Thread | None = None
        self._tag: Any = None
        self._result: Any = None

    @property
    def busy(self) -> bool:
        """A function runs, or its result was not taken yet."""
        return self._thread is not None

    def start(self, tag: Any, function: Callable[[], Any]) -> None:
        """Run a function; `tag` comes back with its result. Only if not busy."""
        assert not self.busy

        def work() -> None:
            try:
                self._result = function()
            except BaseException as error:  # whatever it is, it is the result: SystemExit would end the thread silently
                self._result = error
            os.eventfd_write(self.fd, 1)

        self._tag = tag
        self._thread = threading.Thread(target=work, name="corelane-worker", daemon=True)
        self._thread.start()

    def result(self) -> tuple[Any, Any]:
        """Tag and result, or the exception that was raised. Once `fd` is readable."""
        os.eventfd_read(self.fd)
        assert self._thread is not None  # it made the descriptor readable
        self._thread.join()
        self._thread = None
        return self._tag, self._result

    def close(self, stop: Callable[[int], None] | None = None) -> None:
        """Wait for the function. stop: called with its thread's number, again and again, to have it return soon."""
        thread = self._thread
        while thread is not None and stop is not None and thread.is_alive():
            assert thread.ident is not None  # it was started
            stop(thread.ident)
            thread.join(STOP_EVERY_S)  # it may not have come to what can be stopped yet
        if thread is not None:
            thread.join()
        os.close(self.fd)

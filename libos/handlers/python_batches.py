"""Python callables that get a batch of requests at a time: `handler(requests) -> replies`.

requests is a list of read-only memoryviews, released after the call. What is returned has an element for each of them,
in their order: an object with bytes, or None for no reply. An exception, and a wrong number of replies, fail the batch;
a reply that cannot be one fails its own request. All else is as in python.py, which calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._native import ffi, lib
from .interrupts import is_interrupt
from .python import BASE, BYTES, DATA, LEN, REPLY, REPLY_LEN, ROOM, WORDS, PythonHandler
from .shape import check_python_batch


class PythonBatchHandler(PythonHandler):
    """Wraps a callable. `callback` is a cl_udp_burst_handler; keep this object as long as C may call it."""

    def _check(self, function: Callable[..., Any]) -> bool:
        check_python_batch(function)
        return False

    def _burst(self, reqs: Any, n: int, arg: Any) -> None:
        space, words = self._all_read, memoryview(ffi.buffer(reqs, n * BYTES)).cast("q")
        places = range(0, n * WORDS, WORDS)
        requests = [space[words[at + DATA] - BASE :][: words[at + LEN]] for at in places]
        try:
            self._answer(words, places, self.function(list(requests)))
        except BaseException as error:
            for at in places:
                words[at + REPLY_LEN] = lib.CL_HANDLER_ERROR
            if not is_interrupt(error):
                self._failed(error)
        for request in requests:
            try:
                request.release()
            except BufferError:
                self._kept()

    def _answer(self, words: memoryview, places: Sequence[int], replies: Any) -> None:
        if len(replies) != len(places):
            why = f"the handler returned {len(replies)} replies to {len(places)} requests"
            raise ValueError(f"{why}: return one for each, None for none")
        for at, reply in zip(places, replies, strict=True):
            try:
                words[at + REPLY_LEN] = 0 if reply is None else self._put(words, at, reply)
            except (TypeError, ValueError) as error:
                words[at + REPLY_LEN] = lib.CL_HANDLER_ERROR
                self._failed(error)

    def _put(self, words: memoryview, at: int, reply: Any) -> int:
        """Copy a reply to its place. Returns its bytes."""
        try:
            data = memoryview(reply).cast("B")
        except TypeError:
            kind = type(reply).__name__
            raise TypeError(f"the handler returned {kind} for a request: return its reply as bytes") from None
        start, room = words[at + REPLY] - BASE, words[at + ROOM]
        if len(data) > room:
            raise ValueError(f"the handler returned {len(data)} bytes, but a reply has room for {room}")
        self._all[start : start + len(data)] = data
        return len(data)

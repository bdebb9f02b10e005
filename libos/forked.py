"""Runtimes in the child of a fork: it has none of their threads, and must not touch what it shares with its parent.

So in the child each runtime that was made before is over: what is called on it raises CorelaneError, and `close` does
nothing. The child makes runtimes of its own, or calls exec.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from ..runtime.errors import CorelaneError


class Forked:
    """What a Runtime knows of forks. `_forked`: it was made by a process that this one was forked from."""

    _forked = False
    _ptr: Any
    _ended: bool

    def refuse_forked(self, what: str) -> None:
        """Raise CorelaneError in the child of a fork."""
        if self._forked:
            why = "this process is a fork of the one that made it, and has none of its threads"
            raise CorelaneError(what, why, "use it there, and make another one here after the fork")

    def _in_child(self) -> None:
        self._forked = self._ended = True
        self._ptr = None  # what it points to is the parent's, who frees it


_made: weakref.WeakSet[Forked] = weakref.WeakSet()


def note(runtime: Forked) -> None:
    """It was made by this process."""
    _made.add(runtime)


def _after_fork() -> None:
    for runtime in list(_made):
        runtime._in_child()
    _made.clear()


os.register_at_fork(after_in_child=_after_fork)

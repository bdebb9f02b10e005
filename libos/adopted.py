"""Kthreads that a thread of the caller's drives: `Runtime.turn` and `Runtime.fileno` (corelane/libos/adopt.h).

with Runtime(nic=nic, adopted=1) as runtime, selectors.DefaultSelector() as selector:
    runtime.bind(handler)
    runtime.start()
    selector.register(runtime, selectors.EVENT_READ)
    while serving:
        again = runtime.turn()
        for key, _ in selector.select(0 if again else None):
            ...  # what else the loop serves
"""

from __future__ import annotations

import errno
import time
from typing import Any

from ..runtime.errors import CorelaneError
from ..runtime.typed import typed
from ._native import ffi, lib
from .handlers.interrupts import pending

_turn = lib.cl_kthread_turn


class Adopted:
    """What a Runtime does with its adopted kthreads.

    `_sched` is its `struct cl_sched *`, None once it is closed. `_inside` has one entry for each thread that may be
    inside of a call with it: whoever frees it has set `_sched` to None, and waits (`_left`). Entries come and go in one
    step each.
    """

    _sched: Any = None
    _inside: list[None]

    def turn(self, kthread: int = 0) -> bool:
        """Run what is due on an adopted kthread, and come back: timers, uthreads, frames, each a bounded number.

        True: turn again, after a look at what else there is. False: it sleeps, and `fileno` is readable when there is
        something to do; turns before that do no harm. poll "spin" never sleeps, "adaptive" only after spin_us without
        work, "block" at once. The first call makes the calling thread the kthread's; `let_go` or the end of the
        thread ends that. Handlers run on this thread.

        It never sleeps, but in code that is interrupted as an iokernel takes the core (docs/cores.md). It holds the
        interpreter's lock in Python handlers only.

        KeyboardInterrupt, or what else a signal's handler raises, comes out of here if it comes in a Python handler.
        Raises CorelaneError: another thread's, called from a handler, in a forked child, stopped (errno ESHUTDOWN).
        """
        self._inside.append(None)
        try:
            if self._sched is None:
                raise _error(-errno.ESHUTDOWN)
            rc = _turn(self._sched, kthread)
            if rc == -errno.EPERM:
                self._adopt(kthread)
                rc = _turn(self._sched, kthread)
        except (OverflowError, TypeError) as error:
            raise _error(-errno.EINVAL) from error
        finally:
            self._inside.pop()
        if pending:
            raise pending.pop()
        if rc < 0:
            raise _error(rc)
        return bool(rc)

    def _left(self) -> None:
        """Wait until no thread is in the middle of a turn: it may just have let go of the interpreter's lock."""
        while self._inside:
            time.sleep(0.0001)

    @typed("adopt a kthread")
    def _adopt(self, kthread: int) -> None:
        err = ffi.new("char[256]")
        rc = lib.cl_kthread_adopt(self._sched, kthread, err)
        if rc:
            raise CorelaneError("adopt a kthread", ffi.string(err).decode(errors="replace"), errno=-rc)

    @typed("get the descriptor of a kthread")
    def fileno(self, kthread: int = 0) -> int:
        """The descriptor that tells when an adopted kthread, whose last turn was False, has something to do.

        For selectors, select and poll; never to be read or closed. From `Runtime()` to `close` the same, from any
        thread. It is readable before the first turn, too, and when the runtime has stopped: then take it out.
        """
        rc = -errno.ESHUTDOWN if self._sched is None else int(lib.cl_kthread_fd(self._sched, kthread))
        if rc < 0:
            raise _error(rc)
        return rc

    @typed("let go of a kthread")
    def let_go(self, kthread: int = 0) -> None:
        """The calling thread, which has adopted it, turns it no more; another thread may. Raises CorelaneError."""
        rc = -errno.ESHUTDOWN if self._sched is None else int(lib.cl_kthread_let_go(self._sched, kthread))
        if rc < 0:
            raise _error(rc)


def _error(rc: int) -> CorelaneError:
    return CorelaneError("turn the runtime", ffi.string(lib.cl_adopt_error(rc)).decode(), errno=-rc)

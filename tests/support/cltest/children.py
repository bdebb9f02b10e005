"""Processes that tests start end with the tests, however those end."""

from __future__ import annotations

import ctypes
import signal

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For `preexec_fn` of subprocess.Popen: SIGKILL when the thread that started the process ends (prctl(2))."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))

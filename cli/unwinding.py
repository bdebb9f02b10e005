"""SIGTERM ends a command as Ctrl-C does: what it started ends, and the folders and namespaces that it made go away."""

from __future__ import annotations

import signal
import time
from types import FrameType

REPEAT_S = 5.0


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def unwind_at_sigterm() -> None:
    """From now on SIGTERM raises Terminated in the main thread, which calls this. Nothing where it is ignored.

    `timeout` sends it twice, to the process and to its group: what comes within REPEAT_S of the first one is left out,
    so that it does not end what the first one began.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    raised_s = -REPEAT_S

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal raised_s
        now_s = time.monotonic()
        if now_s - raised_s >= REPEAT_S:
            raised_s = now_s
            raise Terminated

    signal.signal(signal.SIGTERM, on_signal)

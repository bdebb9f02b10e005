"""What a signal raises inside a Python handler: KeyboardInterrupt, or what else the signal's handler raises.

Signals' handlers run on the main thread. So it happens only where the main thread drives a kthread (Runtime.turn),
which is in C between its caller and the handler. The exception is kept here until it is back in its caller.
"""

from __future__ import annotations

import threading

pending: list[BaseException] = []


def is_interrupt(error: BaseException) -> bool:
    """Whether it is none of the handler's own; then it is kept for `Runtime.turn`."""
    if isinstance(error, Exception) or threading.current_thread() is not threading.main_thread():
        return False
    pending.append(error)
    return True

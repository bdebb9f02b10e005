"""Collections of garbage by this process' interpreter, told to the traces of the kthreads that stand still meanwhile.

CPython calls what is in `gc.callbacks` on the thread that collects, before and after. Where that is a kthread's, or has
adopted one (an event loop's), C writes it down (cl_kthread_collects); on any other thread nothing is.
"""

from __future__ import annotations

import gc
from typing import Any

from .._native import lib

_tell = lib.cl_kthread_collects


def watch() -> None:
    """From now on, for the life of the process. May be called again."""
    if _collects not in gc.callbacks:
        gc.callbacks.append(_collects)


def _collects(phase: str, info: dict[str, Any]) -> None:
    _tell(phase == "start", info["generation"])

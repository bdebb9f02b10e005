"""Threads that numerical libraries start by themselves (OpenBLAS, MKL, OpenMP) are none of an iokernel's: they run on
any CPU, its own and other applications' among them, at ordinary priority, and who waits for one has its core taken for
nothing. So where cores are managed such pools have one thread: the kthread that calls.
"""

from __future__ import annotations

import logging
import os
import sys

# Who sets one of these has decided.
WISHES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")

_log = logging.getLogger("corelane.libos")
_seen = -1  # number of modules when it was last done: a library comes with one


def keep_to_one() -> None:
    """Set the pools of all loaded libraries to one thread, for this process and for good; of what is loaded later, the
    next time. Tells the log. Nothing where the environment has one of WISHES."""
    global _seen
    if len(sys.modules) == _seen or any(w in os.environ for w in WISHES):
        return
    from threadpoolctl import ThreadpoolController

    try:
        controller = ThreadpoolController()
    except UnicodeDecodeError:  # it reads all paths as text
        _log.warning("a loaded library's path is no text, so pools of threads keep theirs: set OMP_NUM_THREADS=1")
        _seen = len(sys.modules)
        return
    wide = [pool for pool in controller.info() if pool["num_threads"] > 1]
    if wide:
        controller.limit(limits=1)
        _log.info("%s: one thread each, since an iokernel gives cores to kthreads only", _names(wide))
    _seen = len(sys.modules)


def _names(pools: list[dict[str, object]]) -> str:
    return ", ".join(f"{p['internal_api']} had {p['num_threads']} threads" for p in pools)

"""corelane.libos: what an application links. User-level threads, the network stack, request handlers, the runtime.

    runtime.py         Runtime: attach to an iokernel, or run embedded on a NIC; bind, serve, stop, statistics
    handlers.py        what may be a handler: numba function, C function, Python callable
    libos/handlers/python.py  calling Python callables in bursts
    batch*.py          batch work: compiling with probes, jobs (start at libos/batch/work.py)
    thread_pools.py    numerical libraries' own threads, where an iokernel has the cores
    numba_*.py         compiling handlers; atomics and libos calls in them. Imported only when a handler is compiled
    libos.h            the C API, one header
    sched/             the scheduler of user-level threads (start at sched.h)
    net/               the network stack (start at netif.h)
    storage/           block I/O on uthreads (io.h), the persistent log (start at log.h)
    log*.py            the log from Python (start at log.py); libos/storage/log/shared.py: in the hands of a runtime's
    uthreads

    @libos.udp(port=9000)
    def echo(request, reply):
        n = len(request)
        reply[:n] = request
        return n

    libos.Runtime("/run/corelane.sock", kthreads=2).serve(echo)

Threads: a Runtime's kthreads are C threads. Compiled and C handlers never touch the interpreter; Python callables take
the GIL once a burst. Everything here may be called from any Python thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch.work import Batch, Job, batch
    from .handlers.handlers import Handler, c_handler, udp
    from .handlers.python import Request, current_request
    from .runtime import Runtime, RuntimeStats, UdpSocket
    from .storage.log.shared import SharedLog

__all__ = [
    "Batch",
    "Handler",
    "Job",
    "Request",
    "Runtime",
    "RuntimeStats",
    "SharedLog",
    "UdpSocket",
    "batch",
    "c_handler",
    "current_request",
    "udp",
]

_HOME = {
    "Batch": "batch.work",
    "Job": "batch.work",
    "batch": "batch.work",
    "Handler": "handlers.handlers",
    "c_handler": "handlers.handlers",
    "udp": "handlers.handlers",
    "Request": "handlers.python",
    "current_request": "handlers.python",
    "Runtime": "runtime",
    "RuntimeStats": "runtime",
    "SharedLog": "storage.log.shared",
    "UdpSocket": "runtime",
}


def __getattr__(name: str) -> Any:
    """The public names, imported at first use: an iokernel or a tool that touches this package pays for nothing."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value

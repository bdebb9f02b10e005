"""corelane.libos: what an application links. User-level threads, the network stack, request handlers, the runtime.

    runtime.py   Runtime: attach to an iokernel, or run embedded on a NIC; bind, serve, stop
                 (C: runtime.c its life, attach.c, source.c, bind.c; internal.h what these share)
    bound.py     what its ports are bound to
    configure.py, options.py   what it is given: finer settings of scheduler, network, share of the cores
    awaited.py   its end, and signals (C: deadline.c, stuck.c)
    adopted.py   kthreads that a thread of yours turns
    forked.py    what is left of a runtime in the child of a fork
    promise.py   work with a deadline (C: promise.c)
    elastic.py   memory of batch work that can be given back (C: elastic.c)
    stats.py     its counters (C: stats.c, counters.c)
    traced.py    what it writes down of requests, and keeps
    sockets.py, streams.py   UDP sockets and poll sets; TCP connections (C: outside_udp.c, outside_stream.c)
    leases.py    TCP's bytes without a copy
    scopes.py, channels.py   uthreads that end before a block of Python does; queues to and from them (C:
                 outside_channel.c)
    stepper.py   Stepper: runtimes driven by one thread on a virtual clock, for tests (stepper.c: C)
    handlers/    request handlers: numba function, C function, Python callable
    sched/       the scheduler of user-level threads
    net/         the network stack
    state/       state that uthreads share: counter, rate limiter, LRU table
    storage/     block I/O on uthreads, and the persistent log (storage/log/)
    asyncio/     an event loop whose TCP is a runtime's
    trace/       what kthreads write down of requests (how others read it: runtime/trace.py)
    posix/       stock Linux programs' sockets on a runtime (posix/preload/: what is preloaded into them)
    batch_work/  batch work: compiling with probes, jobs
    numba/       what compiled code on uthreads may use
    objects/     compiled code as object files: for the cache, and for
    aot/         services that run without Python (service/: C, what loads and runs them)
    include/corelane/libos/libos.h   the C API, one header

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
    from .batch_work.work import Batch, Job, batch
    from .channels import Channel
    from .elastic import Elastic
    from .handlers.handlers import Handler, c_handler, udp
    from .handlers.periodic import Periodic, every
    from .handlers.python import Request, current_request
    from .handlers.streams import Connection, StreamHandler, tcp
    from .leases import Lease, Region
    from .options import CoreShare, Network, Scheduler, Trace
    from .promise import Promised
    from .runtime import Runtime
    from .scopes import Scope
    from .sockets import Poll, UdpSocket
    from .state.tables import LruTable, ShardedCounter, TokenBucket
    from .stats import RuntimeStats
    from .stepper import Stepper
    from .storage.log.shared import SharedLog
    from .streams import TcpInfo, TcpListener, TcpStream

__all__ = [
    "Batch",
    "Channel",
    "Connection",
    "CoreShare",
    "Elastic",
    "Handler",
    "Job",
    "Lease",
    "LruTable",
    "Network",
    "Periodic",
    "Poll",
    "Promised",
    "Region",
    "Request",
    "Runtime",
    "RuntimeStats",
    "Scheduler",
    "Scope",
    "ShardedCounter",
    "SharedLog",
    "Stepper",
    "StreamHandler",
    "TcpInfo",
    "TcpListener",
    "TcpStream",
    "TokenBucket",
    "Trace",
    "UdpSocket",
    "batch",
    "c_handler",
    "current_request",
    "every",
    "tcp",
    "udp",
]

_HOME = {
    "Batch": "batch_work.work",
    "Job": "batch_work.work",
    "batch": "batch_work.work",
    "Elastic": "elastic",
    "Handler": "handlers.handlers",
    "c_handler": "handlers.handlers",
    "udp": "handlers.handlers",
    "Periodic": "handlers.periodic",
    "every": "handlers.periodic",
    "Request": "handlers.python",
    "current_request": "handlers.python",
    "Connection": "handlers.streams",
    "StreamHandler": "handlers.streams",
    "tcp": "handlers.streams",
    "Lease": "leases",
    "Region": "leases",
    "Runtime": "runtime",
    "RuntimeStats": "stats",
    "SharedLog": "storage.log.shared",
    "CoreShare": "options",
    "Network": "options",
    "Scheduler": "options",
    "Trace": "options",
    "Channel": "channels",
    "LruTable": "state.tables",
    "ShardedCounter": "state.tables",
    "TokenBucket": "state.tables",
    "Scope": "scopes",
    "Poll": "sockets",
    "Promised": "promise",
    "UdpSocket": "sockets",
    "Stepper": "stepper",
    "TcpInfo": "streams",
    "TcpListener": "streams",
    "TcpStream": "streams",
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

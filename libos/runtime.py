"""The runtime: a scheduler, a NIC and a network stack as one object. corelane/libos/runtime.h is the C side.

Attached to an iokernel (`Runtime("/run/corelane.sock")`) or embedded on a NIC of its own (`Runtime(nic=nic)`).
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from ..drivers.nic.nic import Nic
from ..runtime.closing import Closing
from ..runtime.ending import Ending
from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from . import forked, traced
from ._native import ffi, lib
from .adopted import Adopted
from .awaited import STOP_TIMEOUT_S, Awaited
from .bound import Bound
from .configure import fill, stack_bytes
from .elastic import Elastic
from .handlers.c_functions import address_of_function
from .leases import Leases
from .options import CoreShare, Network, Scheduler, Trace
from .promise import Promising
from .scopes import Scoped
from .sockets import Poll, UdpSocket
from .stats import RuntimeStats, published, read
from .streams import BACKLOG, TcpListener, TcpStream
from .streams import listen as listen_tcp
from .trace.collects import watch as watch_collections

if TYPE_CHECKING:
    from .batch_work.work import Job
    from .storage.log.log import Log
    from .storage.log.shared import SharedLog

EVENTS = {
    lib.CL_EVENT_ATTACHED: "attached",
    lib.CL_EVENT_STALLED: "stalled",
    lib.CL_EVENT_GONE: "gone",
    lib.CL_EVENT_CONFLICT: "conflict",
    lib.CL_EVENT_UNFINISHED: "unfinished",
    lib.CL_EVENT_LIMITED: "limited",
    lib.CL_EVENT_DRAIN: "drain",
    lib.CL_EVENT_RAISED: "raised",
}

_log = logging.getLogger("corelane.libos")
_abandoned: list[Runtime] = []  # whose kthreads do not come back: they use what C and Python have of them


class Runtime(Adopted, Awaited, Bound, Promising, Scoped, traced.Traced, forked.Forked, Closing):
    """An application's kthreads, network stack and handlers.

    socket: path of an iokernel's socket (attached mode), or nic: a Nic, which stays the caller's and must stay open
    (embedded mode); exactly one of them. name: of the application; address and MAC follow from it. kthreads: C
    threads that run uthreads and handlers; embedded: the number of the NIC's queues. kind: "latency" or "batch", which
    gets the cores that others leave, and has larger stacks and a quantum. adopted: the first so many kthreads have no
    thread of the runtime's: a thread of yours drives each by `turn` (adopted.py). poll: "spin", "adaptive" or "block",
    what a kthread without work does. cpus: CPU of each kthread, -1 for any. address: "10.77.0.9" or "10.77.0.9/16",
    for a NIC that has none. scheduler, network, share: the finer settings (options.py). trace: what is written down of
    requests: "sampled", "full", "off", or a Trace (docs/tracing.md). slo: limits of latency, as "1ms" or "p99=50us";
    where one is broken, the trace around that is kept on disk. on_event: called with
    ("attached" | "stalled" | "gone" | "conflict" | "unfinished" | "drain" | "raised", text) on a thread of the runtime;
    with ("recorded" | "unrecorded", text) on another one, where an slo was broken;
    with ("limited", text), which are wishes that the iokernel does not grant, before this returns; with ("serving",
    text) by `serve`.
    Without it they are logged as warnings of the logger "corelane.libos", but for the last. Public attributes: socket,
    as given; leases, those of TCP's bytes that are out (leases.py); replaced, whether another member of its group has
    taken over.

    Raises CorelaneError with the reason: no iokernel there, refused, no address, too few queues, ...
    """

    @typed("make a runtime")
    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        nic: Nic | None = None,
        name: str | None = None,
        kthreads: int | None = None,
        kind: str = "latency",
        adopted: int = 0,
        poll: str = "adaptive",
        cpus: Sequence[int] | None = None,
        address: str | None = None,
        scheduler: Scheduler | None = None,
        network: Network | None = None,
        share: CoreShare | None = None,
        trace: str | Trace = "sampled",
        slo: str | Sequence[str] = (),
        on_event: Callable[[str, str], None] | None = None,
    ) -> None:
        self._ptr: Any = None
        socket = None if socket is None else os.fspath(socket)
        self._nic = nic
        self.socket = socket
        self._lock = threading.Lock()
        self._on_event = on_event
        self._event_callback = ffi.callback("cl_runtime_event", self._event)
        self._counters_callback: Any = None
        self._published_by: Callable[[], Mapping[str, int]] | None = None
        scheduler = scheduler or Scheduler()
        self._stop_s = scheduler.stop_s
        self._n_adopted = adopted
        self._options: dict[str, Any] = {
            "socket": socket,
            "nic": nic,
            "name": name,
            "kthreads": kthreads,
            "kind": kind,
            "adopted": adopted,
            "poll": poll,
            "cpus": cpus,
            "address": address,
            "scheduler": scheduler,
            "network": network or Network(),
            "share": share or CoreShare(),
            "trace": traced.settled(trace, slo),
        }
        self._bound = []
        self._shared: list[SharedLog] = []
        self.scopes, self.channels = set(), []
        self._elastic: weakref.ref[Elastic] | None = None
        self._done = Ending()
        self.leases = Leases()
        self._started = self._stopped = self._ended = self._stuck = self.replaced = False
        config = ffi.new("struct cl_runtime_config *")
        keep = fill(config, **self._options)
        self.stack_bytes = stack_bytes(kind, scheduler)
        config.on_event = self._event_callback
        others = traced.segments(self._options["trace"])
        out, err = ffi.new("struct cl_runtime **"), ffi.new("char[256]")
        check(lib.cl_runtime_new(config, out, err), "make a runtime", err)
        del keep
        self._ptr = out[0]
        self._sched = lib.cl_runtime_sched(self._ptr)
        self._inside = []
        forked.note(self)
        self._watch(self._options["trace"], others, self._tell)

    # Life

    def __del__(self) -> None:
        # C threads must not outlive the callbacks that they call.
        if getattr(self, "_ptr", None) is not None:
            self.close()

    @property
    def ptr(self) -> Any:
        """The `struct cl_runtime *`. Raises CorelaneError once closed."""
        if self._ptr is None:
            self.refuse_forked("use a runtime")
            raise CorelaneError("use a runtime", "it is closed", "make a new one")
        return self._ptr

    def start(self) -> Self:
        """Start the kthreads. Once. Raises CorelaneError if a thread cannot be made or pinned."""
        err = ffi.new("char[256]")
        self._let_sample()
        check(lib.cl_runtime_start(self.ptr, err), "start the runtime", err)
        self._started = True
        if self._options["trace"].mode != "off":
            watch_collections()
        self._record()
        return self

    def stepped_by(self, stepper: Any) -> None:
        """Run when a `struct cl_stepper *` runs it: what Stepper.add calls. Raises CorelaneError if it cannot be."""
        err = ffi.new("char[256]")
        check(lib.cl_stepper_add_runtime(stepper, self.ptr, err), "step the runtime", err)
        self._started = True

    @typed("stop the runtime")
    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop receiving, wait up to timeout_s for uthreads, end the kthreads; `wait` then returns.

        Returns how many uthreads were still alive (blocked for good, or in an endless loop of yields). From any thread
        but a handler. May be called twice. Logs that were shared are their openers' again.

        Raises CorelaneError (errno ETIMEDOUT) if a kthread is in code that does not come back within
        Scheduler(stop_s=...), and says in which: a handler or job that loops for ever, or sleeps in the kernel. The
        runtime cannot be freed then, and the process should end; `stop` may be called again.
        """
        with self._lock:
            left = self._stop(timeout_s)
            self._stopped = True
            self._ended = self._started
            if self._ended:
                for shared in self._shared:
                    shared.give_back()
        self._done.set()
        self._end_record()
        return left

    def close(self) -> None:
        """Stop, free everything, and unregister from the iokernel. From any thread but a handler. May be called twice.

        Logs that were shared are their openers' again; what uthreads left behind have appended is waited for. Raises
        CorelaneError while leases are out: then it has stopped, and is to be closed again. Raises what `stop` raises,
        unless that has raised it: then nothing is freed, and nothing more is said. It does nothing in the child
        of a fork.
        """
        if self._forked:
            return
        with self._lock:
            if self._ptr is not None and self._stuck and lib.cl_runtime_stop(self._ptr, 0) == -errno.ETIMEDOUT:
                _abandoned.append(self)
                self._ptr = self._sched = None
                self._done.set()
                return
            if self._ptr is not None:
                self._stop(0.0, "close the runtime")
                self.leases.settle(self._ptr)
                ptr, self._ptr, self._sched = self._ptr, None, None
                self._left()
                for shared in self._shared:
                    shared.give_back()
                for shared in self._shared:
                    shared.settle()
                for work in self._periodic():
                    work.ended(self)
                for scope in tuple(self.scopes):
                    scope.ended(self)
                lib.cl_runtime_delete(ptr)
                if self._elastic and (memory := self._elastic()):
                    memory.end_calls()
                for channel in self.channels:
                    channel.ended(self)
                self._shared.clear()
                self._ended = True
        self._done.set()
        self._end_record()
        self._bound = []

    def restart(self) -> Runtime:
        """Close it, and return a new one that is started: with its options, handlers, ports and periodic work.

        Not from a handler. Compiled code, the states of handlers and an embedded NIC are the same. What was opened on
        the old one is over: sockets, connections, polls, channels, scopes, jobs, and logs that were shared. Raises what
        `close`, the constructor, `bind` and `start` raise; the old one is closed then, too, and there is no new one.
        """
        self.refuse_forked("restart the runtime")
        assert self.ptr  # or it is closed, and says so
        bound, published_by = self._bound, self._published_by
        self.close()
        if self._stuck:
            raise CorelaneError("restart the runtime", "a kthread does not come back", "end the process")
        made = Runtime(on_event=self._on_event, **self._options)
        try:
            for kind, handler, port in bound:
                made.bind(handler, port if kind else None)
            if published_by is not None:
                made.publish(published_by)
            return made.start()
        except BaseException:
            made.close()
            raise

    def _stop(self, timeout_s: float, what: str = "stop the runtime") -> int:
        rc = int(lib.cl_runtime_stop(self.ptr, int(timeout_s * 1e9)))
        self._stuck = rc == -errno.ETIMEDOUT
        if self._stuck:
            hint = "end the process; a handler returns, and a job that runs on looks whether it is to end"
            raise CorelaneError(what, f"{self._stuck_in()} does not come back", hint, errno.ETIMEDOUT)
        hint = "call it from a thread that is in no handler of the runtime" if rc == -errno.EDEADLK else ""
        return check(rc, what, hint=hint)

    def _stuck_in(self) -> str:
        """The kthread that does not come back, and the code that it is in."""
        stuck, text = ffi.new("struct cl_runtime_stuck *"), ffi.new("char[256]")
        if not lib.cl_runtime_stuck(self.ptr, stuck, text):
            return "a kthread"  # it just has
        if not stuck.port and stuck.arg:
            from .batch_work.work import name_of

            if name := name_of(self, int(ffi.cast("uintptr_t", stuck.arg))):
                return f"kthread {stuck.kthread} (thread {stuck.tid}) in batch job {name}"
        return str(ffi.string(text).decode(errors="replace")).rstrip(",")

    def serve(self, *handlers: Any, quiet: bool = False) -> None:
        """Bind, start, and run until Ctrl-C, SIGTERM, `stop` or `close`; then close. Handlers as for `bind`.

        Once it serves it says where: as the event "serving" to on_event, or on stderr. quiet: it does not. Raises what
        `stop` raises for a handler that does not come back. If it also keeps the interpreter's lock, the process ends,
        with status 1 and the reason on stderr.
        """
        if self._n_adopted:
            raise CorelaneError(
                "serve", f"{self._n_adopted} of its kthreads are adopted", "bind, start, and call `turn` in your loop"
            )
        with self, self.ended_by_signals():  # while numba compiles Python would lose an interrupt in a callback
            for handler in handlers:
                self.bind(handler)
            with self.ends_in_time():  # before the first request can be answered
                self.start()
                self.ready()
                if not quiet:
                    self._say_where()
                self.wait()
                self._end_serving()

    def _end_serving(self) -> None:
        """Leave the group and stop. Another thread may close the runtime meanwhile, or have closed it."""
        with self._lock:
            if self._ptr is None:
                return
            self._leave_group()
        try:
            self.stop()
        except CorelaneError:
            if self._ptr is not None:
                raise

    def _say_where(self) -> None:
        both = {kind: ", ".join(map(str, self._ports_of(kind))) for kind in ("UDP", "TCP")}
        named = [f"{kind} port {numbers}" for kind, numbers in both.items() if numbers]
        ports = " and ".join(named) or "no port"
        where = f"attached to {self.socket}" if self.attached else "embedded"
        line = f"corelane: process {os.getpid()} serves {ports} at {self.address} ({where}); ^C ends it"
        if self._on_event is not None:
            self._on_event("serving", line)
        else:
            print(line, file=sys.stderr, flush=True)

    # Sockets

    @typed("open a UDP socket")
    def open_udp(self, port: int = 0, *, queue: int = 0, shared: bool = False) -> UdpSocket:
        """A UDP socket.

        port 0: any free one. queue: datagrams that may wait (256). shared: others opened so may have the same port;
        each flow goes to one of them (corelane/libos/udp.h). Raises CorelaneError.
        """
        out = ffi.new("struct cl_udp_socket **")
        open_it = lib.cl_udp_open_shared if shared else lib.cl_udp_open
        check(open_it(self.ptr, port, queue, out), f"open a UDP socket on port {port}")
        return UdpSocket(self, out[0], lib.cl_udp_life(out[0]))

    @typed("choose the congestion control")
    def tcp_congestion(self, rule: str = "cubic", *, ecn: str = "take") -> None:
        """How connections answer congestion, before the first of them.

        rule: "cubic", "newreno" or "dctcp", for a data centre whose switches mark and whose hosts all do this. ecn:
        "off"; "take" it where a peer offers it; "offer" it, too, without which no connection that is opened from here
        has it. Raises CorelaneError.
        """
        how = {"off": 0, "offer": 1, "take": 2}
        if ecn not in how:
            raise CorelaneError("choose the congestion control", f"ecn is {ecn!r}", "give off, take or offer")
        rc = lib.cl_runtime_tcp_congestion(self.ptr, rule.encode(), how[ecn])
        check(rc, f"choose {rule} as congestion control", "give cubic, newreno or dctcp" if rc else None)

    @typed("listen on a TCP port")
    def listen_tcp(self, port: int, *, backlog: int = BACKLOG) -> TcpListener:
        """A socket that takes connections to a TCP port. Several may listen on one.

        backlog: connections that are half open or wait to be accepted, at most. Raises CorelaneError.
        """
        return listen_tcp(self, port, backlog)

    @typed("connect")
    def connect_tcp(
        self, peer: tuple[str, int], *, own: tuple[str, int] | None = None, timeout_s: float | None = None
    ) -> TcpStream:
        """Open a TCP connection to ("10.77.0.9", 80), once the runtime was started.

        own: the own end; port 0 is any free one, "0.0.0.0" the runtime's address. Raises TimeoutError after timeout_s,
        None: after some two minutes CorelaneError; CorelaneError: refused, no route, the port is in use, ...
        """
        return TcpStream.connect(self, peer, own, timeout_s)

    @property
    def pointer(self) -> int:
        """The `struct cl_runtime *` as a number, for compiled code (calls.tcp_connect). Not as a global."""
        return int(ffi.cast("uintptr_t", self.ptr))

    def open_poll(self) -> Poll:
        """A set of sockets to wait for at once. Raises CorelaneError."""
        out = ffi.new("struct cl_poll **")
        check(lib.cl_poll_new(self.ptr, out), "open a poll set")
        return Poll(self, out[0])

    def share(self, log: Log) -> SharedLog:
        """Give an open log to this runtime's uthreads; compiled handlers append to it (numba_calls.log_append).

        Before `start`. From here until the runtime has stopped the log's own calls raise CorelaneError, `close` among
        them, but for those that read numbers; then it is the caller's again, who closes it. A runtime may have several.
        Raises CorelaneError: the runtime was started, the log is closed or shared already, or cannot be watched.
        """
        from .storage.log.log import Log
        from .storage.log.shared import SharedLog

        if not isinstance(log, Log):
            raise CorelaneError("share the log", f"{log!r} is none", "open it first, as in Log.open(path)")
        with self._lock:
            if self._started or self._stopped:
                raise CorelaneError("share the log", "the runtime was started or stopped", "share it before `start`")
            shared = SharedLog(log, lib.cl_runtime_sched(self.ptr))
            self._shared.append(shared)
        return shared

    @typed("add a neighbour")
    def add_neighbour(self, address: str, mac: str) -> None:
        """A static ARP entry. Raises CorelaneError if its set of the cache holds only static ones."""
        try:
            ipv4, raw = int(ipaddress.IPv4Address(address)), bytes.fromhex(mac.replace(":", ""))
            if len(raw) != 6:
                raise ValueError(f"{mac!r} has not six bytes")
        except ValueError as error:
            hint = 'as in add_neighbour("10.77.0.9", "02:00:00:00:00:09")'
            raise CorelaneError(f"add neighbour {address}", str(error), hint) from error
        check(lib.cl_runtime_add_neighbour(self.ptr, ipv4, raw), f"add neighbour {address}")

    def batch(self, function: Any, *args: Any, **kwargs: Any) -> Job:
        """Start a function as batch work on a uthread; before or after `start`.

        function: made by `libos.batch`, or bare, which is compiled. Raises CorelaneError if it cannot be compiled for
        these arguments. See docs/probes.md.
        """
        from .batch_work.work import start

        return start(self, function, args, kwargs)

    @typed("reserve elastic memory")
    def elastic(self, most: int, *, least: int = 0) -> Elastic:
        """Memory that batch work can give back when an iokernel needs it for others (elastic.py): `most` bytes, of
        which it can do with `least`. One of a runtime. Raises CorelaneError."""
        if not 0 < most < 2**62 or not 0 <= least <= most:
            raise CorelaneError("reserve elastic memory", f"{least} to {most} bytes cannot be", "give least <= most")
        memory = Elastic(self.ptr, most, least)
        self._elastic = weakref.ref(memory)
        return memory

    @property
    def started(self) -> bool:
        """Whether `start` was called and came to its end."""
        return self._started

    @property
    def stopped(self) -> bool:
        """Whether `stop` or `close` was called and came to its end."""
        return self._stopped or self._ptr is None

    @property
    def ended(self) -> bool:
        """Whether no uthread of it runs any more, nor ever will: closed, or stopped after it was started."""
        return self._ended

    def spawn(self, function: Any, arg: Any = None) -> None:
        """Start a C function `void (*)(void *)` (cffi pointer or address) on a uthread. Raises CorelaneError."""
        pointer = ffi.cast("cl_uthread_fn", address_of_function(function, "spawn a uthread"))
        check(lib.cl_runtime_spawn(self.ptr, pointer, ffi.NULL if arg is None else ffi.cast("void *", arg)), "spawn")

    # What it is doing

    @typed("publish numbers")
    def publish(self, numbers: Callable[[], Mapping[str, int]] | None) -> None:
        """Show these numbers to whoever asks the iokernel (corelane ps --json, corelane metrics), live.

        numbers: called some times a second by a thread of the runtime, while it is attached. Names are of small
        letters, digits and '_', at most 31 characters; negative values are left out. Numbers of 0 may be, too. None: no
        more. The runtime's own counters are shown in any case.
        """
        callback = None if numbers is None else published(numbers)
        lib.cl_runtime_publish(self.ptr, callback or ffi.NULL, ffi.NULL)
        self._counters_callback = callback  # the one before may be called until here
        self._published_by = numbers

    @typed("read the statistics")
    def stats(self, kthread: int | None = None) -> RuntimeStats:
        """Counters of one kthread, or of all."""
        return read(self.ptr, kthread)

    def _info(self) -> Any:
        info = ffi.new("struct cl_runtime_info *")
        lib.cl_runtime_info(self.ptr, info)
        return info

    @property
    def address(self) -> str:
        """Its IPv4 address."""
        return str(ipaddress.IPv4Address(int(self._info().ipv4)))

    @property
    def prefix(self) -> int:
        """Bits of its address that its link has in common."""
        return int(self._info().ipv4_prefix)

    @property
    def mac(self) -> str:
        """Its MAC address."""
        return bytes(ffi.buffer(self._info().mac)).hex(":")

    @property
    def kthreads(self) -> int:
        """Number of kthreads."""
        return int(self._info().kthreads)

    @property
    def attached(self) -> bool:
        """Whether it is an application of an iokernel."""
        return bool(self._info().attached)

    @property
    def gone(self) -> bool:
        """Whether the iokernel or NIC is away at this moment."""
        return bool(self._info().gone)

    def wait_until(self, condition: Callable[[RuntimeStats], bool], timeout_s: float = 60.0) -> RuntimeStats:
        """Look at the statistics until a condition holds; returns them. Raises CorelaneError when time is over."""
        deadline = time.monotonic() + timeout_s
        while True:
            stats = self.stats()
            if condition(stats):
                return stats
            if time.monotonic() >= deadline:
                raise CorelaneError("wait for the runtime", f"not so after {timeout_s} s: {stats}")
            time.sleep(0.0005)

    def _event(self, arg: Any, event: int, text: Any) -> None:
        name, line = EVENTS.get(event, str(event)), ffi.string(text).decode(errors="replace")
        if event == lib.CL_EVENT_GONE and self._nic is not None:
            line = f"{self._nic.name}: {line}"
        if event == lib.CL_EVENT_DRAIN:
            self.replaced = True
            self._done.set()
        self._tell(name, line)

    def _tell(self, name: str, line: str) -> None:
        if self._on_event is not None:
            self._on_event(name, line)
        else:
            _log.log(logging.ERROR if name == EVENTS[lib.CL_EVENT_RAISED] else logging.WARNING, "%s", line)

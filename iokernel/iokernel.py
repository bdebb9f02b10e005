"""The iokernel as an object: loops in C, control socket and bookkeeping in one Python thread.

    with Iokernel("/tmp/x.sock", uplinks=[nic], loop_cpus=[0], worker_cpus=[1]) as iok:
        ...
        iok.stats()["apps"]

Several may run in one process, on different socket paths. `corelane up` runs one (main.py).
"""

from __future__ import annotations

import errno
import ipaddress
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..drivers.nic.nic import Nic
from ..runtime.closing import Single
from ..runtime.config import AppConfig, MemoryConfig, NetworkConfig
from ..runtime.errors import ConfigError, CorelaneError, Refused, check
from ..runtime.peers import Peer
from ..runtime.typed import typed
from ._native import ffi, lib
from .control import moves, report
from .control.admission import Admission
from .control.applications import Applications
from .control.claims import OwnClaim
from .control.deadlines import Answer, Deadlines
from .control.elastic import Elastic
from .control.manager import CoreManager, parse_params
from .control.promises import Ask
from .control.registry import Grant
from .control.server import ControlServer
from .control.settings import Access, Allocation, Allowance, AppMemory, Idle, Outside, Patience
from .control.statistics import statistics
from .policy.policy import load

if TYPE_CHECKING:
    from .areas.areas import Areas

POLL: Mapping[str, int] = {"spin": lib.CL_IO_SPIN, "adaptive": lib.CL_IO_ADAPTIVE, "block": lib.CL_IO_BLOCK}
_log = logging.getLogger("corelane.iokernel")
_LOOK_S = 1.0
_BEGINS_S = 1.0  # in which a thread that was started begins


class Iokernel(Single):
    """An iokernel on a socket path.

    uplinks: NICs that lead outside; they stay the caller's and must outlive the iokernel. loop_cpus: CPU of each loop
    (-1: anywhere); worker_cpus: CPUs for the applications' kthreads, none: anywhere. poll: "spin", "adaptive" or
    "block", what a loop without work does. policy: who decides how cores move ("delay", "module:function",
    "file.so:symbol"; None: kthreads stay where they were put). apps: what the configuration says about applications, by
    name. areas: storage areas that it gives out (areas.py); they stay the caller's. network: addresses and MTU.
    outside, allowance, idle, allocation, access, memory, batch_memory, patience: the finer settings (settings.py).

    tell: called with an event and a line for people: "shared" for each other iokernel that uses CPUs of ours, by
    `start`; by the control thread "gone" for an uplink whose device went away, once, "missed" for a promised deadline,
    "stubborn" for batch work that does not give memory back. None: it is logged as a warning.

    manual_hz: for tests. Loops are not started: `step` runs a round at a stamp of the caller's, on a clock of that
    rate.

    `start` raises Refused if another iokernel has the path, SystemLimit and ConfigError for what cannot be.
    """

    @typed("make an iokernel")
    def __init__(
        self,
        socket_path: str,
        *,
        uplinks: Sequence[Nic] = (),
        loop_cpus: Sequence[int] = (-1,),
        worker_cpus: Sequence[int] = (),
        poll: str = "adaptive",
        policy: str | None = None,
        apps: Mapping[str, AppConfig] | None = None,
        areas: Areas | None = None,
        network: NetworkConfig | None = None,
        outside: Outside | None = None,
        allowance: Allowance | None = None,
        idle: Idle | None = None,
        allocation: Allocation | None = None,
        access: Access | None = None,
        memory: AppMemory | None = None,
        batch_memory: MemoryConfig | None = None,
        patience: Patience | None = None,
        tell: Callable[[str, str], None] | None = None,
        manual_hz: int = 0,
    ) -> None:
        if poll not in POLL:
            raise ConfigError("polling mode", f"{poll!r} is none", f"choose one of {', '.join(POLL)}")
        if not loop_cpus or set(loop_cpus) & set(worker_cpus) - {-1}:
            raise ConfigError(
                "loop CPUs", f"{list(loop_cpus)} with worker CPUs {list(worker_cpus)}", "a loop needs a CPU of its own"
            )
        self._network = network or NetworkConfig()
        self.subnet = ipaddress.IPv4Network(self._network.subnet)
        self.socket_path = socket_path
        self.poll = poll
        self._uplinks = tuple(uplinks)
        self._watched: list[Nic] = []  # of these, whose device was there at the last look
        self._outside = outside or Outside()
        self._loop_cpus = tuple(loop_cpus)
        self._worker_cpus = tuple(worker_cpus)
        self._tell = tell or _warn
        self._own_claim: OwnClaim | None = None
        self._manager: CoreManager | None = None
        if policy is not None:
            self._manager = CoreManager(worker_cpus, len(loop_cpus), policy, allocation or Allocation())
        self._areas = areas
        self._idle = idle or Idle()
        self._access = access or Access()
        self._memory = memory or AppMemory()
        self._patience = patience or Patience()
        self._manual_hz = manual_hz
        self._lock = threading.Lock()  # guards _applications and every call that takes _io
        self._admission = Admission(
            apps or {},
            allowance or Allowance(),
            self._network,
            self._outside,
            self._memory,
            loops=len(loop_cpus),
            manager=self._manager,
        )
        self._applications = Applications(self._lock, self._admission, worker_cpus, self._manager)
        self._deadlines = Deadlines(
            self._lock, lambda: self._applications.attached, self._manager, self._admission.users, self._tell
        )
        self._elastic = Elastic(
            self._lock, lambda: self._applications.attached, batch_memory or MemoryConfig(), self._tell
        )
        self._io: Any = None
        self._server: ControlServer | None = None
        self._thread: threading.Thread | None = None
        self._started = 0.0
        self._failure = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Take the socket path, start the loops and the control thread. Once stopped, it can be started again."""
        if self._io is not None:
            raise CorelaneError("start the iokernel", "it is running", "stop it first")
        self._server = ControlServer(
            self.socket_path,
            self,
            self._access,
            patience_s=self._patience.client_s,
            users=self._admission.users,
            areas=self._areas,
        )
        try:
            self._io = self._make_io()
            self._applications.begin(self._io)
            self._deadlines.begin(self._io)
            self._elastic.begin(self._io)
            loops, workers = ([cpu for cpu in cpus if cpu >= 0] for cpus in (self._loop_cpus, self._worker_cpus))
            self._own_claim = OwnClaim(self.socket_path, loops, workers)
            err = ffi.new("char[256]")
            if not self._manual_hz:
                check(lib.cl_io_start(self._io, err), "start the iokernel's loops", err)
            for line in self._own_claim.shared():
                self._tell("shared", line)
            self._watched = list(self._uplinks)
            self._started, self._failure = time.monotonic(), ""
            self._thread = threading.Thread(
                target=self._serve, args=(self._server,), name="corelane-control", daemon=True
            )
            self._thread.start()
        except BaseException:  # also an interrupt, anywhere: loops that went on would poll uplinks that are closed
            self.stop()
            raise

    def _serve(self, server: ControlServer) -> None:
        others = os.sched_getaffinity(0) - set(self._loop_cpus)
        if others:
            os.sched_setaffinity(0, others)  # this thread alone: off the polled cores
        try:
            server.serve()
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            _log.critical("the control thread has ended: nobody can attach any more", exc_info=True)

    @property
    def failure(self) -> str:
        """Why the control thread ended by itself, so that nobody can attach any more; "": it did not."""
        return self._failure

    def stop(self) -> None:
        """Close the socket (applications see it), stop the loops, free everything. Idempotent."""
        if self._server is not None:
            self._server.stop()
            if self._thread is None or not _joined(self._thread):
                self._server.close()
        self._server = self._thread = None
        self._delete_io()

    @property
    def ptr(self) -> Any:
        """The `struct cl_io *`, for what C alone tells (iokernel.h: histograms, log of moves). Good until `stop`."""
        if self._io is None:
            raise CorelaneError("read from the iokernel", "it is not running", "start it")
        return self._io

    def step(self, now: int, loop: int = 0) -> bool:
        """One round of a loop at stamp `now`, with manual_hz; returns whether it did something."""
        if not self._manual_hz:
            raise CorelaneError("step a loop", "the loops run by themselves", "make the Iokernel with manual_hz")
        return bool(lib.cl_io_step(self._io, loop, now))

    def _make_io(self) -> Any:
        config = ffi.new("struct cl_io_config *")
        config.n_loops = len(self._loop_cpus)
        config.poll = POLL[self.poll]
        # C takes 0 for its default.
        config.spin_us, config.pause_us = (us or lib.CL_IO_NO_TIME for us in (self._idle.spin_us, self._idle.pause_us))
        config.mtu = self._network.mtu
        config.ipv4, config.ipv4_prefix = int(self.subnet.network_address), self.subnet.prefixlen
        config.floods_per_s = self._network.flood_frames_per_s or lib.CL_IO_NO_LIMIT
        config.floods_burst = self._network.flood_burst_frames
        config.command_timeout_ms = int(self._patience.loop_s * 1000)
        config.memory_flags = lib.CL_MEMORY_HUGE if self._memory.huge_pages else 0
        config.tsc_hz = self._manual_hz
        for loop, cpu in enumerate(self._loop_cpus):
            config.cpus[loop] = cpu
        if self._manager is not None:
            self._manager.configure(config)
        out, err = ffi.new("struct cl_io **"), ffi.new("char[256]")
        check(lib.cl_io_new(config, out, err), "make an iokernel", err)
        try:
            for nic in self._uplinks:
                rc = lib.cl_io_add_uplink(out[0], nic.ptr, self._outside.share_mac, err)
                check(rc, f"add uplink {nic.name}", err)
            if self._manager is not None:
                self._manager.install(out[0])
        except BaseException:
            lib.cl_io_delete(out[0])
            raise
        return out[0]

    def _delete_io(self) -> None:
        with self._lock:
            if self._io is not None:
                io, self._io = self._io, None
                lib.cl_io_delete(io)
            if self._own_claim is not None:
                self._own_claim.close()
                self._own_claim = None
            self._applications.clear()
            self._deadlines.begin(None)
            self._elastic.begin(None)

    # What the control server calls, in its thread (Registry).

    def register(self, hello: Any, peer: Peer) -> Grant:
        """Register an application (Registry). Raises Refused with the reason if it may not have what it asks."""
        grant = self._applications.register(hello, peer)
        if self._elastic.limits and self._server is not None:
            self._server.look_soon()  # its arena may be room that batch work has to make
        return grant

    def unregister(self, app: int) -> None:
        """An application has gone (Registry): its cores and buffers are taken back."""
        self._deadlines.forget(app)
        self._applications.unregister(app)

    def promise(self, app: int, ask: Ask) -> Answer:
        """An application asks for a deadline, or what became of it (Registry)."""
        answer = self._deadlines.ask(self._applications.by_id(app), ask)
        if ask.work and self._server is not None:
            self._server.look_soon()
        return answer

    def manage(self, app: int, pid: int, tids: Sequence[int], number: int) -> None:
        """Give cores to the kthreads of an application from now on (Registry)."""
        self._applications.manage(app, pid, tids, number)

    def sweep(self) -> bool:
        """Try again to remove those that leave (Registry); returns whether there are still some."""
        return self._applications.sweep()

    def say_state(self, app: int, state: int, others: bool) -> tuple[int, int]:
        """A member of a group is ready, or drains (Registry)."""
        return self._applications.say_state(app, state, others)

    def named(self, name: str) -> tuple[int, ...]:
        """Ids of the attached applications of that name (Registry)."""
        return self._applications.named(name)

    def end(self) -> None:
        """Stop the loops, and give kthreads their class and CPUs back (Registry)."""
        with self._lock:
            if self._io is not None:
                lib.cl_io_give_back(self._io)

    def set_policy(self, spec: str, params: str = "") -> str:
        """Have another policy decide who gets the cores; params: "name=value" words. Returns what decides now, a line.

        From any thread; loading may take seconds, in which the old one decides. Raises CorelaneError if cores are not
        managed or the policy cannot be used; the old one then stays.
        """
        if self._manager is None:
            raise _unmanaged()
        policy = load(spec, parse_params(params))
        with self._lock:
            if self._io is None:
                raise CorelaneError("set the policy", "the iokernel is not running", "start it")
            return self._manager.install(self._io, policy)

    def look(self) -> float:
        """See to deadlines, and tell of uplinks whose device went away (Registry)."""
        return min(self._deadlines.look(), self._elastic.look(), self._look_at_uplinks())

    def _look_at_uplinks(self) -> float:
        for nic in list(self._watched):
            nic.stats()  # asks the device whether it is there, should no frame do so
            if nic.gone:
                self._watched.remove(nic)
                text = f"the uplink {nic.name} is gone: its device was removed; applications still reach each other"
                self._tell("gone", f"{text}; start the iokernel again for another uplink")
        return time.monotonic() + _LOOK_S if self._watched else math.inf

    def stats_json(self) -> bytes:
        """`stats` as JSON (Registry)."""
        return json.dumps(self.stats()).encode()

    def evictions(self) -> dict[tuple[int, str], int]:
        """How often kthreads of each attached application, by id and name, had to be demoted to free a core."""
        with self._lock:
            if self._io is None:
                return {}
            managed = [a for a in self._applications.attached if a.claim is not None]
            return {(a.id, a.name): report.evicted(self._io, a.id) for a in managed}

    def trace(self, name: str, pid: int, how: int, peer: Peer) -> tuple[int, dict[str, Any], int]:
        """An application's trace, and how it is to be traced (Registry)."""
        return self._applications.trace(name, pid, how, peer)

    def moves(self, loop: int, first: int) -> bytes:
        """Entries of a loop's log of moves, from number `first` on (Registry).

        CL_CONTROL_FROM_NOW: none of those that are there. Raises CorelaneError if cores are not managed, or there is no
        such loop.
        """
        if self._manager is None:
            raise _unmanaged()
        if loop >= len(self._loop_cpus):
            hint = f"{len(self._loop_cpus)} run, counted from 0"
            raise Refused(f"there is no loop {loop}", hint=hint, errno=errno.EINVAL)
        with self._lock:
            if self._io is None:
                raise CorelaneError("read the log of moves", "the iokernel is not running", "start it")
            return moves.answer(self._io, loop, first)

    # Statistics.

    def stats(self) -> dict[str, Any]:
        """Everything that is counted, as it can go into JSON, read while the loops run.

        loops: `struct cl_io_loop_stats` each, with cpu and busy_s. apps: `struct cl_io_app_stats` each, with name, pid,
        addresses, cpus, arena, counters (report.app_counters: what it counts of itself), and cores
        (CoreManager.app_stats, None: not managed). uplinks: name, mac, `struct cl_nic_stats` summed over queues.
        control: what the control socket saw. departed: applications that have left, buffers lost by them (always 0),
        and frames dropped that were for them. leaving: names of those that a loop without a core has not let go. cores:
        CoreManager.stats, None: they are not managed. deadlines: Promises.stats; of an application as `deadline`.
        """
        with self._lock:
            if self._io is None:
                raise CorelaneError("read the iokernel's statistics", "it is not running", "start it")
            parts = self._applications, self._uplinks, self._manager, self._deadlines, self._elastic
            return {
                "version": 1,
                "pid": os.getpid(),
                "socket": self.socket_path,
                "mode": self.poll,
                "generation": int(lib.cl_io_generation(self._io)),
                "uptime_s": time.monotonic() - self._started,
                "subnet": str(self.subnet),
                **statistics(self._io, self._loop_cpus, *parts),
                "control": {**self._server.counts, "last_error": self._server.last_error} if self._server else {},
            }

    @property
    def apps(self) -> tuple[str, ...]:
        """Names of the attached applications."""
        with self._lock:
            return tuple(a.name for a in self._applications.attached)


def _warn(_event: str, text: str) -> None:
    _log.warning("%s", text)


def _joined(thread: threading.Thread) -> bool:
    """Wait for its end. False: it never began, since an interrupt came before."""
    end = time.monotonic() + _BEGINS_S
    while True:
        try:
            thread.join()
            return True
        except RuntimeError:
            if thread is threading.current_thread():
                raise
            if time.monotonic() > end:  # else it is about to begin
                return False
            time.sleep(0.001)


def _unmanaged() -> Refused:
    hint = "start the iokernel with a policy: corelane up --policy delay"
    return Refused("cores are not managed here", hint=hint, errno=errno.EINVAL)

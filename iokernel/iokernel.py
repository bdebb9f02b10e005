"""The iokernel as an object: loops in C, control socket and bookkeeping in one Python thread.

    with Iokernel("/tmp/x.sock", uplinks=[nic], loop_cpus=[0], worker_cpus=[1]) as iok:
        ...
        iok.stats()["apps"]

Several may run in one process, on different socket paths. `corelane up` runs one (main.py).
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..drivers.nic.nic import Nic
from ..runtime.config import AppConfig, NetworkConfig, UserConfig
from ..runtime.errors import ConfigError, CorelaneError, Refused, check
from ..runtime.peers import Peer
from ..runtime.typed import typed
from ._native import ffi, lib
from .control import moves, report
from .control.addresses import Addresses
from .control.claims import OwnClaim
from .control.cores import Claim, CoreAssigner, claim, not_granted, without_policy
from .control.descriptors import Closer
from .control.kthreads import check_threads
from .control.manager import CoreManager, parse_params
from .control.messages import line_of
from .control.registry import Grant
from .control.server import ControlServer
from .control.settings import Access, AppMemory, Idle, Patience, Timing
from .control.users import Held, Users
from .policy.policy import load

if TYPE_CHECKING:
    from .areas.areas import Areas

POLL: Mapping[str, int] = {"spin": lib.CL_IO_SPIN, "adaptive": lib.CL_IO_ADAPTIVE, "block": lib.CL_IO_BLOCK}
_log = logging.getLogger("corelane.iokernel")
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,31}\Z")

# An arena, where neither the configuration nor the application says otherwise: slots of a ring; packet buffers a
# kthread, and at least _MIN_BUFFERS in all; longest frame. On a virtual machine the host takes a core away for
# milliseconds at a time, in which a receive ring must hold what comes: 4096 frames are 2 ms of two million a second.
# Buffers that no such pause fills are never touched.
_RX_SLOTS, _TX_SLOTS = 4096, 1024
_RX_BUFFERS, _TX_BUFFERS, _MIN_BUFFERS = 4096, 2048, 4096
_BUFFER_BYTES = 2048
_LOOK_S = 1.0


@dataclass(slots=True)
class _App:
    id: int
    name: str
    peer: Peer
    mac: bytes
    ipv4: int
    loop: int
    cpus: tuple[int, ...]
    may_spin: bool
    claim: Claim | None  # None: its cores are not managed
    note: str  # what it wished for and did not get
    layout: dict[str, int]
    slot: int  # of its first kthread in the state segment
    since: float


class Iokernel:
    """An iokernel on a socket path.

    uplinks: NICs that lead outside; they stay the caller's and must outlive the iokernel. share_mac: applications
    appear outside under the uplink's MAC. loop_cpus: CPU of each loop (-1: anywhere); worker_cpus: CPUs for the
    applications' kthreads, none: anywhere. poll: "spin", "adaptive" or "block", what a loop without work does. policy:
    who decides how cores move ("delay", "module:function", "file.so:symbol"; None: kthreads stay where they were put),
    with policy_params by name. apps: what the configuration says about applications, by name; app_defaults: about all
    others. users: what the applications of a user may have, by his name or number; user_defaults: of all others.
    areas: storage areas that it gives out (areas.py); they stay the caller's. idle, timing, access, memory, patience:
    the finer settings (settings.py). network: addresses and MTU. host_macs, host_addresses: this machine's own, which
    no application gets; the second tells its IPv4 addresses at any time, in host byte order.

    tell: called with an event and a line for people: "shared" for each other iokernel that uses CPUs of ours, by
    `start`; "gone" for an uplink whose device went away, once, by the control thread. None: it is logged as a warning.

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
        share_mac: bool = False,
        loop_cpus: Sequence[int] = (-1,),
        worker_cpus: Sequence[int] = (),
        poll: str = "adaptive",
        policy: str | None = None,
        policy_params: Mapping[str, int | float] | None = None,
        apps: Mapping[str, AppConfig] | None = None,
        app_defaults: AppConfig | None = None,
        users: Mapping[str, UserConfig] | None = None,
        user_defaults: UserConfig | None = None,
        areas: Areas | None = None,
        network: NetworkConfig | None = None,
        host_macs: Sequence[str] = (),
        host_addresses: Callable[[], Collection[int]] = tuple,
        idle: Idle | None = None,
        timing: Timing | None = None,
        access: Access | None = None,
        memory: AppMemory | None = None,
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
        self._share_mac = share_mac
        self._loop_cpus = tuple(loop_cpus)
        self._worker_cpus = tuple(worker_cpus)
        self._tell = tell or _warn
        self._own_claim: OwnClaim | None = None
        self._cores = CoreAssigner(worker_cpus)
        self._manager: CoreManager | None = None
        if policy is not None:
            self._manager = CoreManager(worker_cpus, len(loop_cpus), policy, policy_params or {}, timing or Timing())
        self._settings = dict(apps or {})
        self._default_settings = app_defaults or AppConfig()
        self._users = Users(self._settings, users, user_defaults)
        self._addresses = Addresses(self._network, self._settings, macs=host_macs, host=host_addresses)
        self._areas = areas
        self._idle = idle or Idle()
        self._access = access or Access()
        self._memory = memory or AppMemory()
        self._patience = patience or Patience()
        self._manual_hz = manual_hz
        self._apps: dict[int, _App] = {}
        # A descriptor of each arena: freeing what an application has used of it takes a while, on a thread of its own.
        self._arenas: dict[int, int] = {}
        self._closer = Closer()
        self._leaving: dict[int, str] = {}  # of these some loop has not said yet that it has forgotten them
        self._departed = {"apps": 0, "buffers_lost": 0}
        self._lock = threading.Lock()  # guards _apps, _departed and every call that takes _io
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
            users=self._users,
            areas=self._areas,
        )
        try:
            self._io = self._make_io()
            loops, workers = ([cpu for cpu in cpus if cpu >= 0] for cpus in (self._loop_cpus, self._worker_cpus))
            self._own_claim = OwnClaim(self.socket_path, loops, workers)
            err = ffi.new("char[256]")
            if not self._manual_hz:
                check(lib.cl_io_start(self._io, err), "start the iokernel's loops", err)
        except BaseException:
            self._server.close()
            self._delete_io()
            raise
        for line in self._own_claim.shared():
            self._tell("shared", line)
        self._watched = list(self._uplinks)
        self._started, self._failure = time.monotonic(), ""
        self._thread = threading.Thread(target=self._serve, name="corelane-control", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        others = os.sched_getaffinity(0) - set(self._loop_cpus)
        if others:
            os.sched_setaffinity(0, others)  # this thread alone: off the polled cores
        assert self._server is not None  # made by start, which started this thread
        try:
            self._server.serve()
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            _log.critical("the control thread has ended: nobody can attach any more", exc_info=True)

    @property
    def failure(self) -> str:
        """Why the control thread ended by itself, so that nobody can attach any more; "": it did not."""
        return self._failure

    def stop(self) -> None:
        """Close the socket (applications see it), stop the loops, free everything. Idempotent."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join()
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
                check(lib.cl_io_add_uplink(out[0], nic.ptr, self._share_mac, err), f"add uplink {nic.name}", err)
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
            for fd in self._arenas.values():
                self._closer.close(fd)
            self._arenas.clear()
            self._closer.end(wait=True)
            self._apps.clear()
            self._leaving.clear()

    # What the control server calls, in its thread (Registry).

    def register(self, hello: Any, peer: Peer) -> Grant:
        """Register an application (Registry). Raises Refused with the reason if it may not have what it asks."""
        raw = bytes(ffi.buffer(hello.name))
        name = raw.split(b"\0", 1)[0].decode("ascii", errors="replace")
        if raw[-1] or not _NAME.match(name):
            raise _refused(f"{name!r} is no application name", "use 1 to 31 letters, digits and _.:-")
        self._users.check_name(name, peer)
        if (other := self.find(name)) is not None:
            pid = self._apps[other].peer.pid
            raise _refused(
                f"the name {name} is taken: process {pid} is attached under it",
                f"end process {pid} first, or give another name: corelane run --name NAME, Runtime(..., name=NAME)",
            )
        if len(self._apps) >= self._memory.max_apps:
            raise _refused(f"{self._memory.max_apps} applications are attached already", "stop one, or raise max_apps")
        settings = self._settings_of(name)
        config = ffi.new("struct cl_io_app_config *")
        ffi.memmove(config.name, name.encode(), len(name))
        self._fill_layout(config.layout, name, hello, settings)
        more = Held(1, int(config.layout.n_kthreads), int(config.layout.total_bytes))
        self._users.check(peer, self._held_by(peer.uid), more)
        config.ipv4 = self._addresses.ipv4(name, settings, int(hello.ipv4))
        mac = self._addresses.mac(name, settings)
        ffi.memmove(config.mac, mac, 6)
        claimed = self._claim(name, hello, settings, peer, more.kthreads) if self._manager is not None else None
        config.loop = self._home(name, settings, claimed)
        if self._manager is not None and claimed is not None:
            self._manager.fill(config, claimed)
        limits = config.limits
        limits.frames_per_s, limits.bytes_per_s = settings.rate_frames_per_s, settings.rate_bytes_per_s
        limits.burst_frames, limits.burst_bytes = settings.burst_frames, settings.burst_bytes
        config.any_ethertype = settings.any_ethertype
        grant, err = ffi.new("struct cl_io_app_grant *"), ffi.new("char[256]")
        with self._lock:
            rc = lib.cl_io_app_add(self._io, config, grant, err)
            if rc < 0 and grant.app:
                self._leaving[int(grant.app)] = name
            check(rc, f"register {name}", err)
            with contextlib.suppress(OSError):  # out of descriptors: then it takes a while here
                self._arenas[int(grant.app)] = os.dup(grant.arena_fd)
            cpus, alone = self._place(int(grant.app), int(config.loop), int(grant.layout.n_kthreads), settings)
            app = _App(
                id=int(grant.app),
                name=name,
                peer=peer,
                mac=mac,
                ipv4=int(config.ipv4),
                loop=int(config.loop),
                cpus=cpus,
                may_spin=alone and settings.may_spin,
                claim=claimed,
                note=without_policy(hello) if claimed is None else not_granted(name, hello, claimed, peer.uid),
                layout=report.fields(grant.layout, "struct cl_arena_layout"),
                slot=int(grant.slot),
                since=time.monotonic(),
            )
            self._apps[app.id] = app
        fds = (int(grant.arena_fd), int(lib.cl_io_state_fd(self._io)), int(grant.doorbell_fd))
        return Grant(app.id, self._accept_message(app, grant), fds)

    def unregister(self, app: int) -> None:
        """An application has gone (Registry): its cores and buffers are taken back."""
        with self._lock:
            left = self._apps.pop(app, None)
            self._cores.give_back(app)
            self._leaving[app] = left.name if left else "?"
            err = ffi.new("char[256]")
            check(self._remove(app, err), f"remove application {app}", err)

    def end(self) -> None:
        """Stop the loops, and give kthreads their class and CPUs back (Registry)."""
        with self._lock:
            if self._io is not None:
                lib.cl_io_give_back(self._io)

    def manage(self, app: int, pid: int, tids: Sequence[int], number: int) -> None:
        """Give cores to the kthreads of an application from now on (Registry)."""
        known = self._apps[app]
        if known.claim is None:
            raise _refused("cores are not managed here", "kthreads need not be named")
        if len(tids) != known.layout["n_kthreads"]:
            raise _refused(f"{len(tids)} kthreads are named", f"{known.name} registered {known.layout['n_kthreads']}")
        check_threads(pid, tids, number)
        err = ffi.new("char[256]")
        with self._lock:
            rc = lib.cl_io_app_threads(self._io, app, pid, list(tids), len(tids), number, err)
            check(rc, f"manage the kthreads of {known.name}", err)

    def set_policy(self, spec: str, params: str = "") -> str:
        """Have another policy decide who gets the cores; params: "name=value" words. Returns what decides now, a line.

        From any thread; loading may take seconds, in which the old one decides. Raises CorelaneError if cores are not
        managed or the policy cannot be used; the old one then stays.
        """
        if self._manager is None:
            raise _refused("cores are not managed here", "start the iokernel with a policy: corelane up --policy delay")
        policy = load(spec, parse_params(params))
        with self._lock:
            if self._io is None:
                raise CorelaneError("set the policy", "the iokernel is not running", "start it")
            return self._manager.install(self._io, policy)

    def _remove(self, app: int, err: Any) -> int:
        """Have the loops forget an application. Negative: not all have; it stays among those that leave."""
        final = ffi.new("struct cl_io_app_final *")
        rc = int(lib.cl_io_app_remove(self._io, app, final, err))
        if rc == 0:
            del self._leaving[app]
            if app in self._arenas:
                self._closer.close(self._arenas.pop(app))
            self._departed["apps"] += 1
            self._departed["buffers_lost"] += int(final.buffers_lost)
        return rc

    def sweep(self) -> bool:
        """Try again to remove those that leave (Registry); returns whether there are still some."""
        if not self._leaving:
            return False
        with self._lock:
            err = ffi.new("char[256]")
            for app in list(self._leaving):
                self._remove(app, err)
            return bool(self._leaving)

    def look(self) -> float:
        """Tell of uplinks whose device went away (server.Registry)."""
        for nic in list(self._watched):
            nic.stats()  # asks the device whether it is there, should no frame do so
            if nic.gone:
                self._watched.remove(nic)
                text = f"the uplink {nic.name} is gone: its device was removed; applications still reach each other"
                self._tell("gone", f"{text}; start the iokernel again for another uplink")
        return time.monotonic() + _LOOK_S if self._watched else math.inf

    def find(self, name: str) -> int | None:
        """Id of the attached application of that name (Registry)."""
        return next((a.id for a in self._apps.values() if a.name == name), None)

    def stats_json(self) -> bytes:
        """`stats` as JSON (Registry)."""
        return json.dumps(self.stats()).encode()

    def evictions(self) -> dict[tuple[int, str], int]:
        """How often kthreads of each attached application, by id and name, had to be demoted to free a core."""
        with self._lock:
            if self._io is None:
                return {}
            apps = {(a.id, a.name): a for a in self._apps.values() if a.claim is not None}
            return {key: report.evicted(self._io, a.id) for key, a in apps.items()}

    def moves(self, loop: int, first: int) -> bytes:
        """Entries of a loop's log of moves, from number `first` on (Registry).

        CL_CONTROL_FROM_NOW: none of those that are there. Raises CorelaneError if cores are not managed, or there is no
        such loop.
        """
        if self._manager is None:
            raise _refused("cores are not managed here", "start the iokernel with a policy: corelane up --policy delay")
        if loop >= len(self._loop_cpus):
            raise _refused(f"there is no loop {loop}", f"{len(self._loop_cpus)} run, counted from 0")
        with self._lock:
            if self._io is None:
                raise CorelaneError("read the log of moves", "the iokernel is not running", "start it")
            return moves.answer(self._io, loop, first)

    def _fill_layout(self, layout: Any, name: str, hello: Any, settings: AppConfig) -> None:
        """What the configuration says, else what the application asks for, else the defaults."""
        kthreads = int(hello.n_kthreads) or 1
        if settings.kthreads and kthreads > settings.kthreads:
            why = f"{kthreads} kthreads are too many: it may have {settings.kthreads}"
            raise _refused(why, f"ask for fewer, or raise kthreads in [apps.{name}] or [app_defaults]")
        layout.n_kthreads = kthreads
        layout.rx_slots = settings.rx_slots or hello.rx_slots or _RX_SLOTS
        layout.tx_slots = settings.tx_slots or hello.tx_slots or _TX_SLOTS
        few = min(kthreads, lib.CL_SHM_MAX_KTHREADS)  # more are refused below, with all else that cannot be
        layout.n_rx = settings.rx_buffers or hello.n_rx or max(_MIN_BUFFERS, _RX_BUFFERS * few)
        layout.n_tx = settings.tx_buffers or hello.n_tx or max(_MIN_BUFFERS, _TX_BUFFERS * few)
        layout.buffer_bytes = hello.buffer_bytes or _BUFFER_BYTES
        if lib.cl_shm_layout(ffi.addressof(layout)) < 0:
            raise _refused(
                f"an arena of {kthreads} kthreads, rings of {layout.rx_slots} and {layout.tx_slots} slots, "
                f"{layout.n_rx} and {layout.n_tx} buffers of {layout.buffer_bytes} bytes cannot be",
                f"1 to {lib.CL_SHM_MAX_KTHREADS} kthreads, rings of 16 to 2^20 (powers of two), 16 to 2^24 buffers of "
                f"{lib.CL_SHM_MIN_BUFFER_BYTES} to {lib.CL_SHM_MAX_BUFFER_BYTES} bytes",
            )
        if layout.total_bytes > self._memory.max_arena_mib << 20:
            why = f"an arena of {layout.total_bytes >> 20} MiB is too large"
            raise _refused(why, "ask for fewer buffers or slots, or raise max_arena_mib")

    def _settings_of(self, name: str) -> AppConfig:
        return self._settings.get(name, self._default_settings)

    def _held_by(self, uid: int) -> Held:
        """What the attached applications of a user have."""
        theirs = [a.layout for a in self._apps.values() if a.peer.uid == uid]
        kthreads = sum(layout["n_kthreads"] for layout in theirs)
        return Held(len(theirs), kthreads, sum(layout["total_bytes"] for layout in theirs))

    def _claim(self, name: str, hello: Any, settings: AppConfig, peer: Peer, kthreads: int) -> Claim:
        """What an application gets of the cores, its wishes within what its user may ask for."""
        allowed = self._users.of(peer.uid)
        wished = sum(
            a.claim.guaranteed
            for a in self._apps.values()
            if a.peer.uid == peer.uid and a.claim is not None and self._settings_of(a.name).guaranteed_cores is None
        )
        left = max(0, allowed.guaranteed_cores - wished)
        return claim(name, hello, settings, kthreads, most_weight=allowed.weight, most_guaranteed=left)

    def _place(self, app: int, loop: int, kthreads: int, settings: AppConfig) -> tuple[tuple[int, ...], bool]:
        """CPUs of the kthreads, of managed ones where they begin, and whether nobody else gets these."""
        if self._manager is not None:
            return self._manager.cores.begin(loop, kthreads), True
        return self._cores.take(app, kthreads, settings.cpus)

    def _home(self, name: str, settings: AppConfig, claimed: Claim | None) -> int:
        """The loop that serves an application: the configured one, or the one with the fewest."""
        loops = range(len(self._loop_cpus))
        fixed = settings.loop if settings.loop in loops else None
        if self._manager is not None and claimed is not None:
            others = [(a.name, a.loop, a.claim.guaranteed) for a in self._apps.values() if a.claim is not None]
            return self._manager.cores.home(name, claimed.guaranteed, others, fixed)
        if fixed is not None:
            return fixed
        users = [a.loop for a in self._apps.values()]
        return min(loops, key=users.count)

    def _accept_message(self, app: _App, grant: Any) -> bytes:
        message = ffi.new("struct cl_control_accept *")
        header = message.header
        header.magic, header.version = lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION
        header.type, header.bytes = lib.CL_CONTROL_ACCEPT, ffi.sizeof("struct cl_control_accept")
        message.app, message.loop, message.layout = app.id, app.loop, grant.layout
        message.generation = lib.cl_io_generation(self._io)
        message.state_bytes = lib.cl_io_state_bytes(self._io)
        ffi.memmove(message.mac, app.mac, 6)
        message.may_spin = app.may_spin
        message.managed, message.slot = app.claim is not None, grant.slot
        message.ipv4, message.ipv4_prefix = app.ipv4, self.subnet.prefixlen
        message.mtu = min(int(lib.cl_io_mtu(self._io)), app.layout["buffer_bytes"] - lib.CL_ETH_HLEN)
        message.gateway = int(ipaddress.IPv4Address(self._network.gateway or 0))
        for k in range(lib.CL_SHM_MAX_KTHREADS):
            message.cpus[k] = app.cpus[k] if k < len(app.cpus) else -1
        note = line_of(app.note, len(message.note))
        ffi.memmove(message.note, note, len(note))
        return bytes(ffi.buffer(message))

    # Statistics.

    def stats(self) -> dict[str, Any]:
        """Everything that is counted, as it can go into JSON, read while the loops run.

        loops: `struct cl_io_loop_stats` each, with cpu and busy_s. apps: `struct cl_io_app_stats` each, with name, pid,
        addresses, cpus, arena, counters (report.app_counters: what it counts of itself), and cores
        (CoreManager.app_stats, None: not managed). uplinks: name, mac, `struct
        cl_nic_stats` summed over queues. control: what the control socket saw. departed: applications that have left,
        and buffers lost by them (always 0). leaving: names of those that a loop without a core has not let go. cores:
        CoreManager.stats, None: they are not managed.
        """
        with self._lock:
            if self._io is None:
                raise CorelaneError("read the iokernel's statistics", "it is not running", "start it")
            hz = int(lib.cl_clock_default().hz)
            return {
                "version": 1,
                "pid": os.getpid(),
                "socket": self.socket_path,
                "mode": self.poll,
                "generation": int(lib.cl_io_generation(self._io)),
                "uptime_s": time.monotonic() - self._started,
                "subnet": str(self.subnet),
                "loops": [report.loop_stats(self._io, i, cpu, hz) for i, cpu in enumerate(self._loop_cpus)],
                "apps": [self._app_stats(a) for a in self._apps.values()],
                "uplinks": [report.uplink_stats(nic) for nic in self._uplinks],
                "cores": self._manager.stats(self._io, {a.id: a.name for a in self._apps.values()})
                if self._manager is not None
                else None,
                "control": {**self._server.counts, "last_error": self._server.last_error} if self._server else {},
                "departed": dict(self._departed),
                "leaving": list(self._leaving.values()),
            }

    def _app_stats(self, app: _App) -> dict[str, Any]:
        age_s = time.monotonic() - app.since
        return {
            "id": app.id,
            "name": app.name,
            "pid": app.peer.pid,
            "uid": app.peer.uid,
            "mac": app.mac.hex(":"),
            "ipv4": str(ipaddress.IPv4Address(app.ipv4)),
            "loop": app.loop,
            "kthreads": app.layout["n_kthreads"],
            "slot": app.slot,
            "cpus": list(app.cpus),
            "may_spin": app.may_spin,
            "arena": app.layout,
            "age_s": age_s,
            **report.app_stats(self._io, app.id, app.name),
            "counters": report.app_counters(self._io, app.id, app.name),
            "cores": self._manager.app_stats(self._io, app.id, app.name, app.loop, app.claim, age_s)
            if self._manager is not None and app.claim is not None
            else None,
        }

    @property
    def apps(self) -> tuple[str, ...]:
        """Names of the attached applications."""
        with self._lock:
            return tuple(a.name for a in self._apps.values())


def _warn(_event: str, text: str) -> None:
    _log.warning("%s", text)


def _refused(why: str, hint: str) -> Refused:
    return Refused(why, hint=hint, errno=errno.EINVAL)

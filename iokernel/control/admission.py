"""What an application gets that wants to attach: name, arena, addresses, loop, cores. Or why it is refused.

Decides, and does nothing: applications.py carries it out.
"""

from __future__ import annotations

import errno
import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...runtime.config import AppConfig, NetworkConfig
from ...runtime.errors import Refused
from ...runtime.peers import Peer
from .._native import ffi, lib
from .addresses import Addresses
from .apps import App
from .cores import Claim, claim, not_granted, without_policy
from .manager import CoreManager
from .settings import Allowance, AppMemory, Outside
from .users import Held, Users

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,31}\Z")

# An arena, where neither the configuration nor the application says otherwise: slots of a ring; packet buffers a
# kthread, and at least _MIN_BUFFERS in all; longest frame. On a virtual machine the host takes a core away for
# milliseconds at a time, in which a receive ring must hold what comes: 4096 frames are 2 ms of two million a second.
# Buffers that no such pause fills are never touched.
_RX_SLOTS, _TX_SLOTS = 4096, 1024
_RX_BUFFERS, _TX_BUFFERS, _MIN_BUFFERS = 4096, 2048, 4096
_BUFFER_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Admitted:
    """What an application is to get. config: a `struct cl_io_app_config *`. note: what it wished for in vain."""

    name: str
    settings: AppConfig
    config: Any
    claim: Claim | None
    note: str


class Admission:
    """The rules of one iokernel.

    apps: the configuration's sections by name. loops: how many run. manager: of the cores, None: they do not move.
    Raises ConfigError for addresses, users and groups that cannot be.
    """

    def __init__(
        self,
        apps: Mapping[str, AppConfig],
        allowance: Allowance,
        network: NetworkConfig,
        outside: Outside,
        memory: AppMemory,
        *,
        loops: int,
        manager: CoreManager | None,
    ) -> None:
        self.network = network
        self.users = Users(apps, allowance.users, allowance.user_defaults, allowance.app_defaults)
        self._apps = dict(apps)
        self._default_app = allowance.app_defaults
        self._addresses = Addresses(network, self._apps, macs=outside.host_macs, host=outside.host_addresses)
        self._memory = memory
        self._loops = loops
        self._manager = manager

    def admit(self, hello: Any, peer: Peer, attached: Collection[App]) -> Admitted:
        """What a `struct cl_control_hello` of a peer comes to, beside those that are attached. Raises Refused."""
        name = self._name(hello, peer)
        settings = self._settings_of(name)
        group = [other for other in attached if other.name == name]
        _check_room(name, settings, group)
        if len(attached) >= self._memory.max_apps:
            raise refused(f"{self._memory.max_apps} applications are attached already", "stop one, or raise max_apps")
        config = ffi.new("struct cl_io_app_config *")
        ffi.memmove(config.name, name.encode(), len(name))
        self._fill_layout(config.layout, name, hello, settings)
        more = Held(1, int(config.layout.n_kthreads), int(config.layout.total_bytes))
        self.users.check(peer, _held_by(peer.uid, attached), more)
        config.ipv4 = self._addresses.ipv4(name, settings, int(hello.ipv4))
        if group and config.ipv4 != group[0].ipv4:
            other = f"process {group[0].peer.pid} is attached under the name {name} with {_dotted(group[0].ipv4)}"
            raise refused(f"{other}, not {_dotted(config.ipv4)}", "members of a group have one address: leave it out")
        ffi.memmove(config.mac, self._addresses.mac(name, settings), 6)
        config.members, config.place = settings.members, int(hello.member)
        claimed = None
        if self._manager is not None:
            claimed = self._claim(name, hello, settings, peer, more.kthreads, attached)
            self._manager.fill(config, claimed)
        config.loop = self._home(name, settings, claimed, attached, group)
        limits = config.limits
        limits.frames_per_s, limits.bytes_per_s = settings.rate_frames_per_s, settings.rate_bytes_per_s
        limits.burst_frames, limits.burst_bytes = settings.burst_frames, settings.burst_bytes
        config.any_ethertype = settings.any_ethertype
        note = without_policy(hello) if claimed is None else not_granted(name, hello, claimed, peer.uid)
        return Admitted(name, settings, config, claimed, note)

    def _name(self, hello: Any, peer: Peer) -> str:
        raw = bytes(ffi.buffer(hello.name))
        name = raw.split(b"\0", 1)[0].decode("ascii", errors="replace")
        if raw[-1] or not _NAME.match(name):
            raise refused(f"{name!r} is no application name", "use 1 to 31 letters, digits and _.:-")
        self.users.check_name(name, peer)
        return name

    def _fill_layout(self, layout: Any, name: str, hello: Any, settings: AppConfig) -> None:
        """What the configuration says, else what the application asks for, else the defaults."""
        kthreads = int(hello.n_kthreads) or 1
        if settings.kthreads and kthreads > settings.kthreads:
            why = f"{kthreads} kthreads are too many: it may have {settings.kthreads}"
            raise refused(why, f"ask for fewer, or raise kthreads in [apps.{name}] or [app_defaults]")
        layout.n_kthreads = kthreads
        layout.rx_slots = settings.rx_slots or hello.rx_slots or _RX_SLOTS
        layout.tx_slots = settings.tx_slots or hello.tx_slots or _TX_SLOTS
        few = min(kthreads, lib.CL_SHM_MAX_KTHREADS)  # more are refused below, with all else that cannot be
        layout.n_rx = settings.rx_buffers or hello.n_rx or max(_MIN_BUFFERS, _RX_BUFFERS * few)
        layout.n_tx = settings.tx_buffers or hello.n_tx or max(_MIN_BUFFERS, _TX_BUFFERS * few)
        layout.buffer_bytes = hello.buffer_bytes or _BUFFER_BYTES
        if lib.cl_shm_layout(ffi.addressof(layout)) < 0:
            raise refused(
                f"an arena of {kthreads} kthreads, rings of {layout.rx_slots} and {layout.tx_slots} slots, "
                f"{layout.n_rx} and {layout.n_tx} buffers of {layout.buffer_bytes} bytes cannot be",
                f"1 to {lib.CL_SHM_MAX_KTHREADS} kthreads, rings of 16 to 2^20 (powers of two), 16 to 2^24 buffers of "
                f"{lib.CL_SHM_MIN_BUFFER_BYTES} to {lib.CL_SHM_MAX_BUFFER_BYTES} bytes",
            )
        if layout.total_bytes > self._memory.max_arena_mib << 20:
            why = f"an arena of {layout.total_bytes >> 20} MiB is too large"
            raise refused(why, "ask for fewer buffers or slots, or raise max_arena_mib")

    def _settings_of(self, name: str) -> AppConfig:
        return self._apps.get(name, self._default_app)

    def _claim(
        self, name: str, hello: Any, settings: AppConfig, peer: Peer, kthreads: int, attached: Collection[App]
    ) -> Claim:
        """What an application gets of the cores, its wishes within what its user may ask for."""
        allowed = self.users.of(peer.uid)
        wished = sum(
            a.claim.guaranteed
            for a in attached
            if a.peer.uid == peer.uid and a.claim is not None and self._settings_of(a.name).guaranteed_cores is None
        )
        left = max(0, allowed.guaranteed_cores - wished)
        return claim(
            name,
            hello,
            settings,
            kthreads,
            most_weight=allowed.weight,
            most_guaranteed=left,
            may_signal=allowed.quantum_signal,
        )

    def _home(
        self, name: str, settings: AppConfig, claimed: Claim | None, attached: Collection[App], group: Sequence[App]
    ) -> int:
        """The loop that serves an application: its group's, or the configured one, or the one with the fewest."""
        loops: Sequence[int] = range(self._loops)
        fixed = group[0].loop if group else settings.loop if settings.loop in loops else None
        if self._manager is not None and claimed is not None:
            others = [(a.name, a.loop, a.claim.guaranteed) for a in attached if a.claim is not None]
            return self._manager.cores.home(name, claimed.guaranteed, others, fixed)
        if fixed is not None:
            return fixed
        return min(loops, key=[a.loop for a in attached].count)


def _check_room(name: str, settings: AppConfig, group: Sequence[App]) -> None:
    """Whether one more may attach under a name. Raises Refused."""
    if len(group) < settings.members:
        return
    pids = ", ".join(str(other.peer.pid) for other in group)
    if settings.members > 1:
        raise refused(
            f"the group {name} has {len(group)} members already: processes {pids}",
            f"end one of them first, or raise members in [apps.{name}]",
        )
    raise refused(
        f"the name {name} is taken: process {pids} is attached under it",
        f"end process {pids} first, or give another name: corelane run --name NAME, Runtime(..., name=NAME); or let "
        f"several have it: members in [apps.{name}]",
    )


def _dotted(ipv4: int) -> str:
    return str(ipaddress.IPv4Address(ipv4))


def _held_by(uid: int, attached: Collection[App]) -> Held:
    """What the attached applications of a user have."""
    theirs = [a.layout for a in attached if a.peer.uid == uid]
    kthreads = sum(layout["n_kthreads"] for layout in theirs)
    return Held(len(theirs), kthreads, sum(layout["total_bytes"] for layout in theirs))


def refused(why: str, hint: str) -> Refused:
    """A refusal of what cannot be."""
    return Refused(why, hint=hint, errno=errno.EINVAL)

"""Options of an Iokernel, in groups of one concern each. A value outside of its limits is refused by ConfigError.

    Iokernel(path, apps={"kv": AppConfig(ip="10.77.0.9")}, memory=AppMemory(max_apps=8), idle=Idle(spin_us=5000))

What a whole section of the configuration file says is that section's class in runtime/config.py: AppConfig,
NetworkConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from ...runtime.config import AppConfig, UserConfig
from ...runtime.options import Group, option
from ...runtime.typed import typed_class
from .._native import lib

_HOUR_US = 3_600_000_000
_MAX_ID = 2**32 - 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(Group):
    """What a loop with poll "adaptive" does without work: it spins, then polls more slowly, then sleeps.

    spin_us, pause_us: how long it does each of the first two; 0: not at all.
    """

    spin_us: int = option(50, "time that it spins", low=0, high=_HOUR_US)
    pause_us: int = option(200, "time that it then polls more slowly", low=0, high=_HOUR_US)


@typed_class("set how cores are allocated")
@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation(Group):
    """How the policy divides the cores, and how they move between applications.

    params: settings of the policy, by name. interval_us: from one decision of the policy to the next. doorbell: an
    application that calls for help (docs/cores.md) has one at once. cede_us: how long a kthread has to cede when asked;
    interrupt_us: how long it then has when interrupted, before it is evicted.
    """

    params: dict[str, int | float] = field(default_factory=dict)
    interval_us: int = option(5, "time between two decisions", low=1, high=1_000_000)
    doorbell: bool = option(True, "decide at once where an application calls for help")
    cede_us: int = option(10, "time to cede when asked", low=1, high=1_000_000)
    interrupt_us: int = option(50, "time to cede when interrupted", low=1, high=1_000_000)


@typed_class("set what applications may have")
@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What applications may have, besides what `apps` says of some names.

    app_defaults: each whose name is not in `apps`. users: all of a user together, by his name or number. user_defaults:
    those of all other users.
    """

    app_defaults: AppConfig = field(default_factory=AppConfig)
    users: Mapping[str, UserConfig] = field(default_factory=dict)
    user_defaults: UserConfig = field(default_factory=UserConfig)


@typed_class("set how applications appear outside")
@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """How applications appear outside, beside this machine itself.

    share_mac: under the uplink's MAC. host_macs, host_addresses: this machine's own, which no application gets; the
    second tells its IPv4 addresses at any time, in host byte order.
    """

    share_mac: bool = False
    host_macs: tuple[str, ...] = ()
    host_addresses: Callable[[], Collection[int]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(Group):
    """Who may attach, besides root and the iokernel's own user.

    mode: permission bits of the socket file. uids, gids: numbers of users, and of groups whose members may attach;
    supplementary groups count.
    """

    mode: int = option(0o600, "permission bits of the socket file", low=0, high=0o777)
    uids: tuple[int, ...] = option((), "users", low=0, high=_MAX_ID)
    gids: tuple[int, ...] = option((), "groups", low=0, high=_MAX_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppMemory(Group):
    """Memory of the applications.

    max_apps: applications attached at the same time; one more is refused. max_arena_mib: largest arena that one
    may ask for. huge_pages: arenas of huge pages, where the machine has some.
    """

    max_apps: int = option(lib.CL_IO_MAX_APPS, "applications at the same time", low=1, high=lib.CL_IO_MAX_APPS)
    max_arena_mib: int = option(4096, "largest arena", low=1, high=1 << 20)
    huge_pages: bool = option(False, "arenas of huge pages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience(Group):
    """How long the control thread waits for others.

    client_s: for a client to finish a message that it began, and to take an answer; its connection is then closed.
    loop_s: for a loop to admit or forget an application. One that could not be forgotten is `leaving` in the
    statistics, keeps its address, and is tried again until it is gone.
    """

    client_s: float = option(2.0, "for a client", low=0.001, high=3600)
    loop_s: float = option(5.0, "for a loop", low=0.001, high=3600)

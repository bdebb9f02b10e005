"""corelane's configuration file: its sections, options, defaults and what may stand in them.

    config = load("corelane.toml")
    config.iokernel.socket, config.nic.queues, config.app("kv").rate_frames_per_s

Everything has a default, so an empty file, or none, is a configuration. `sample()` writes all options with comments;
docs/runtime.md shows it. The machinery, and how errors look, is in options.py.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import options
from ._native import lib
from .options import Group, option
from .paths import DEFAULT_SOCKET_DOC
from .tracing import Trace

DEFAULT_SUBNET = "10.77.0.0/16"
POLL_MODES = ("spin", "adaptive", "block")
MAX_KTHREADS: int = lib.CL_SHM_MAX_KTHREADS
MAX_ID = 2**32 - 2  # of users and groups; one more means "none" to the kernel
EVERYBODY = "*"


def _socket_path(value: str) -> None:
    # sun_path of struct sockaddr_un, with its terminating zero (unix(7)).
    if len(os.fsencode(value)) >= 108:
        raise ValueError("a path of at most 107 bytes")


def _subnet(value: str) -> None:
    import ipaddress

    try:
        net = ipaddress.IPv4Network(value)
    except ValueError as error:
        raise ValueError(f"an IPv4 network like {DEFAULT_SUBNET!r} ({error})") from None
    if not 8 <= net.prefixlen <= 30:
        raise ValueError("an IPv4 network of 8 to 30 bits")
    if net.is_multicast or net.is_loopback or net.is_reserved or net.network_address.is_unspecified:
        raise ValueError(f"an IPv4 network for hosts, like {DEFAULT_SUBNET!r}")


def _address(value: str) -> None:
    import ipaddress

    try:
        ipaddress.IPv4Address(value)
    except ValueError as error:
        raise ValueError(f"an IPv4 address like '10.77.0.5' ({error})") from None


def _mac(value: str) -> None:
    if not re.fullmatch(r"([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", value):
        raise ValueError("a MAC address like '02:00:00:00:00:01'")
    if int(value[:2], 16) & 1:
        raise ValueError("a unicast MAC address: the first byte even")


def _app_name(value: str) -> None:
    if not re.fullmatch(rf"[A-Za-z0-9_.:-]{{1,{lib.CL_SHM_NAME_BYTES - 1}}}", value):
        raise ValueError(f"1 to {lib.CL_SHM_NAME_BYTES - 1} letters, digits, '-', '_', '.' or ':'")


def _user(value: str) -> None:
    if not value or (value.isdigit() and int(value) > MAX_ID):
        raise ValueError(f"a user's name, or an id of 0 to {MAX_ID}")


def _policy(value: str) -> None:
    if not value or len(os.fsencode(value)) >= 240:
        raise ValueError('a policy\'s name, module:function, file.so:symbol, or "none"')


def _param_name(value: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,31}", value):
        raise ValueError("the name of one of the policy's settings")


def _power_of_two(value: int) -> None:
    if value and value & (value - 1):
        raise ValueError("a power of two, or 0 for the default")


def _cpus(value: str | tuple[int, ...]) -> None:
    if isinstance(value, str):
        if value != "auto":
            raise ValueError('"auto" or a list of CPU numbers')
    elif len(set(value)) != len(value):
        raise ValueError("each CPU once")


@dataclass(frozen=True, kw_only=True)
class IokernelConfig(Group):
    """[iokernel]"""

    socket: str = option("", f'control socket; "": {DEFAULT_SOCKET_DOC}', check=_socket_path)
    socket_mode: int = option(
        0o660, "permissions of the socket file (0o660: owner and group)", low=0, high=0o777, octal=True
    )
    users: tuple[str | int, ...] = option(
        (), "users, by name or id, who may attach besides root and the iokernel's own", low=0, high=MAX_ID
    )
    groups: tuple[str | int, ...] = option(
        (),
        "groups, by name or id, whose members may attach; with users or groups the socket file is open to all, and "
        "the kernel's word on who connects decides",
        low=0,
        high=MAX_ID,
    )
    cores: str | tuple[int, ...] = option(
        "auto", '"auto" or the CPUs to poll on, a loop each', low=0, high=4095, check=_cpus
    )
    loops: int = option(1, 'loops when cores is "auto"', low=1, high=lib.CL_SHM_MAX_LOOPS)
    poll: str = option("adaptive", "what an idle loop does", choices=POLL_MODES)
    spin_us: int = option(50, "adaptive: how long an idle loop spins", low=0, high=1_000_000)
    pause_us: int = option(
        200, "adaptive: how long it then pauses between looks before it sleeps", low=0, high=1_000_000
    )
    huge_pages: bool = option(False, "arenas of huge pages, where the machine has some")
    hold_cpu_latency: bool = option(False, "hold /dev/cpu_dma_latency at 0: quick wake-ups, more power")
    max_apps: int = option(64, "applications registered at the same time", low=1, high=lib.CL_SHM_MAX_APPS)
    max_arena_mib: int = option(1024, "largest arena that an application may ask for", low=1, high=1 << 20)


@dataclass(frozen=True, kw_only=True)
class CoresConfig(Group):
    """[cores]"""

    policy: str = option(
        "delay",
        "who decides which application has which core: static, shenango, delay, fair, attained, module:function or "
        "file.so:symbol; none: kthreads stay where they were put",
        check=_policy,
    )
    interval_us: int = option(5, "time between two decisions", low=1, high=1_000_000)
    doorbell: bool = option(True, "decide at once where an application calls for help, not at the next interval")
    cede_us: int = option(10, "how long a kthread has to cede when asked", low=1, high=1_000_000)
    interrupt_us: int = option(50, "how long it then has when interrupted, before it is evicted", low=1, high=1_000_000)


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(Group):
    """[memory]"""

    limit_mib: int = option(
        0, "arenas, and what batch work holds of memory that it can give back, together; 0: any", low=0, high=1 << 30
    )
    free_mib: int = option(
        0, "memory that the machine is to keep free, if batch work can give some back; 0: none", low=0, high=1 << 30
    )
    shrink_ms: int = option(1000, "how long batch work has to give memory back", low=250, high=3_600_000)
    stubborn: str = option(
        "deny",
        "what is done with one that does not: only shown, or it is denied cores until it has, or then ended, too",
        choices=("show", "deny", "end"),
    )


@dataclass(frozen=True, kw_only=True)
class StorageConfig(Group):
    """[storage]"""

    directory: str = option("", 'folder of the storage areas, a file each; "": none')
    device: str = option("", 'raw block device that the areas are parts of; "": none. One of both')
    capacity_mib: int = option(0, "directory: all areas together; 0: what the file system has", low=0, high=1 << 30)
    quota_mib: int = option(
        0,
        "areas of one user together; 0: half of all, and no limit for root and the iokernel's own user",
        low=0,
        high=1 << 30,
    )
    quota_areas: int = option(64, "areas of one user, other than these two", low=1, high=1 << 16)
    trusted: bool = option(
        False,
        "device: all clients are trusted with the whole of it. Users other than root and the iokernel's get areas too; "
        "and where there are no loop devices, which hold mistakes up, applications get the whole device",
    )


@dataclass(frozen=True, kw_only=True)
class FaultConfig(Group):
    """[nic.fault]"""

    loss: float = option(0.0, "of the frames, in each direction: lost", low=0, high=1)
    duplicate: float = option(0.0, "delivered twice", low=0, high=1)
    reorder: float = option(0.0, "overtaken by later ones", low=0, high=1)
    delay: float = option(0.0, "delayed", low=0, high=1)
    corrupt: float = option(0.0, "with a bit turned over", low=0, high=1)
    delay_us: float = option(0.0, "longest delay", low=0, high=1e6)
    seed: int = option(1, "of all these choices", low=0, high=2**63 - 1)


@dataclass(frozen=True, kw_only=True)
class LinkConfig(Group):
    """[nic.link]: fields as of drivers/nic/link/link.py, for each direction"""

    rate_bps: float = option(0.0, "bits a second, of frames and their overhead; 0: no limit", low=0, high=1e12)
    overhead_bytes: int = option(0, "of each frame on the line besides; Ethernet: 24", low=0, high=1024)
    priorities: int = option(1, "queues, by VLAN tag or class selector", low=1, high=8)
    queue_bytes: int = option(1 << 20, "longest queue, of each priority", low=1, high=1 << 40)
    ecn_bytes: int = option(0, "length of a queue from which frames are marked; 0: never", low=0, high=1 << 40)
    loss: float = option(0.0, "of the frames: lost on the line", low=0, high=1)
    burst: float = option(1.0, "lost in a row on average; 1: each by itself", low=1, high=1e6)
    delay_us: float = option(0.0, "that each frame takes", low=0, high=6e7)
    jitter_us: float = option(0.0, "up to so much more", low=0, high=6e7)
    reorder: float = option(0.0, "of the frames: overtaken", low=0, high=1)
    reorder_by: int = option(3, "by so many later ones", low=1, high=1024)
    frames: int = option(16384, "room for so many", low=2, high=1 << 20)
    seed: int = option(1, "of all these choices", low=0, high=2**63 - 1)

    def given(self) -> dict[str, float]:
        """All but the seed; empty if nothing is asked for."""
        values = {key: value for key, value in dataclasses.asdict(self).items() if key != "seed"}
        return {} if dataclasses.replace(self, seed=1) == LinkConfig() else values


@dataclass(frozen=True, kw_only=True)
class NicConfig(Group):
    """[nic]"""

    driver: str = option(
        "none",
        "the uplink; pcap replays a recording; a load generator is asked for by `corelane up --nic loadgen:...` alone",
        choices=("none", "af_xdp", "tap", "pcap"),
    )
    device: str = option("", "network device of af_xdp or tap, file to replay of pcap")
    share_mac: bool = option(False, "applications appear outside under the NIC's own MAC address")
    record: str = option("", 'pcap file to which the uplink\'s traffic is recorded; "": none')
    speed: float = option(1.0, "pcap: 1 as recorded, 2 twice as fast, 0 at once", low=0, high=1e6)
    loops: int = option(1, "pcap: how often the file is replayed; 0: for ever", low=0, high=1 << 31)
    queues: int = option(1, "receive and transmit queues", low=1, high=64)
    mode: str = option("auto", "af_xdp: how XDP is attached", choices=("auto", "native", "generic"))
    zero_copy: str = option("auto", "af_xdp: zero copy", choices=("auto", "yes", "no"))
    program: str = option("", "af_xdp: a compiled XDP object of your own instead of the package's")
    buffers: int = option(4096, "packet buffers", low=64, high=1 << 20)
    ring_slots: int = option(1024, "descriptors of each device ring", low=64, high=1 << 16, check=_power_of_two)
    link: LinkConfig = option(LinkConfig, "a line with a rate and a queue in front of the uplink, for tests")
    fault: FaultConfig = option(FaultConfig, "a bad wire in front of that, for tests")

    def check(self) -> None:
        """ValueError if options do not go together."""
        if self.driver != "none" and not self.device:
            raise ValueError(f"driver {self.driver!r} needs `device`")


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Group):
    """[network]"""

    subnet: str = option(DEFAULT_SUBNET, "addresses of applications are taken from here", check=_subnet)
    host_address: str | None = option(
        None, "tap: this machine's own address on the device; default: the subnet's first", check=_address
    )
    gateway: str | None = option(None, "next hop for what is outside of the subnet", check=_address)
    mtu: int = option(1500, "largest IP packet in bytes", low=576, high=9000)
    flood_frames_per_s: int = option(
        250, "broadcasts and multicasts a second, of an uplink and of an application; 0: no limit", low=0, high=10**9
    )
    flood_burst_frames: int = option(64, "and at once after a pause", low=1, high=1 << 20)


@dataclass(frozen=True, kw_only=True)
class AppConfig(Group):
    """[apps.NAME] and [app_defaults]: what an application of this name gets, whatever it asks for."""

    users: tuple[str | int, ...] = option(
        (),
        "users, by name or id, who may use this name besides root and the iokernel's own; "
        f'["{EVERYBODY}"]: all who may attach',
        low=0,
        high=MAX_ID,
    )
    groups: tuple[str | int, ...] = option((), "groups whose members may", low=0, high=MAX_ID)
    ip: str | None = option(None, "address; default: from a hash of the name, within the subnet", check=_address)
    mac: str | None = option(None, "MAC address; default: from a hash of the name", check=_mac)
    members: int = option(
        1,
        "how many processes may be attached under this name and address at the same time, as a group",
        low=1,
        high=lib.CL_SHM_MAX_MEMBERS,
    )
    kthreads: int = option(0, "most kthreads; 0: as it asks", low=0, high=MAX_KTHREADS)
    cores: str | tuple[int, ...] = option("auto", '"auto" or the CPUs of its kthreads', low=0, high=4095, check=_cpus)
    loop: int | None = option(
        None, "index of the loop that serves it; default: the one with the fewest", low=0, high=lib.CL_SHM_MAX_LOOPS - 1
    )
    may_spin: bool = option(True, "whether its idle kthreads may keep their cores")
    class_: str | None = option(
        None,
        "what it is served as where cores move: latency before batch; default: as it asks, else latency",
        choices=("latency", "batch"),
    )
    guaranteed_cores: int | None = option(
        None,
        "cores that it has whenever it wants them; default: as it asks, within users.NAME.guaranteed_cores",
        low=0,
        high=MAX_KTHREADS,
    )
    deadline_cores: float | None = option(
        None,
        "cores that may be promised to it for work with a deadline; default: within users.NAME.deadline_cores",
        low=0,
        high=MAX_KTHREADS,
    )
    max_cores: int | None = option(None, "most cores; default: one a kthread", low=1, high=MAX_KTHREADS)
    weight: int | None = option(
        None, "share among equals; default: as it asks, within users.NAME.weight", low=1, high=1000
    )
    deadline_us: int | None = option(
        None, "what its tail should stay under, 0: nothing; default: as it asks", low=0, high=10_000_000
    )
    quantum_us: int | None = option(
        None,
        "how long a uthread runs before it yields to others at its next probe, 0: for ever; default: as it asks",
        low=0,
        high=10_000_000,
    )
    quantum_signal: bool | None = option(
        None,
        "whether it is then sent a signal, too, for code without probes, which costs the iokernel's loop a system call "
        "each time; default: as it asks, if users.NAME.quantum_signal allows it",
    )
    rx_slots: int = option(0, "slots of a receive ring; 0: the default", low=0, high=1 << 20, check=_power_of_two)
    tx_slots: int = option(0, "slots of a transmit ring; 0: the default", low=0, high=1 << 20, check=_power_of_two)
    rx_buffers: int = option(0, "receive buffers; 0: the default", low=0, high=1 << 20)
    tx_buffers: int = option(0, "transmit buffers; 0: the default", low=0, high=1 << 20)
    rate_frames_per_s: int = option(0, "most frames it may send a second; 0: no limit", low=0, high=10**12)
    rate_bytes_per_s: int = option(0, "most bytes it may send a second; 0: no limit", low=0, high=10**12)
    burst_frames: int = option(64, "frames it may send at once after a pause", low=1, high=1 << 20)
    burst_bytes: int = option(65536, "bytes it may send at once after a pause", low=1514, high=1 << 30)
    any_ethertype: bool = option(False, "whether it may send frames that are neither IPv4 nor ARP")

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs of its kthreads; none: "auto"."""
        return () if isinstance(self.cores, str) else self.cores


@dataclass(frozen=True, kw_only=True)
class UserConfig(Group):
    """[users.NAME] and [user_defaults]: what the applications of a user may have.

    connections, apps, kthreads and arena_mib bind root and the iokernel's own user only in a section of their own.
    """

    connections: int = option(256, "connections to the control socket", low=1, high=1024)
    apps: int = option(32, "applications at the same time", low=1, high=lib.CL_SHM_MAX_APPS)
    kthreads: int = option(256, "kthreads of all of them", low=1, high=lib.CL_SHM_MAX_SLOTS)
    arena_mib: int = option(2048, "memory of all their arenas, which takes none until it is used", low=1, high=1 << 20)
    guaranteed_cores: int = option(
        0, "cores that they may ask to be guaranteed, all together", low=0, high=lib.CL_SHM_MAX_CORES
    )
    deadline_cores: float = option(
        0.0,
        "cores that may be promised to their batch work with deadlines, all together, at the expense of all others",
        low=0,
        high=lib.CL_SHM_MAX_CORES,
    )
    weight: int = option(1, "largest weight that one of them may ask for", low=1, high=1000)
    quantum_signal: bool = option(False, "whether they may ask for a signal at the end of a quantum")


@dataclass(frozen=True)
class Config:
    """A whole file."""

    iokernel: IokernelConfig = option(IokernelConfig, "the iokernel process")
    cores: CoresConfig = option(CoresConfig, "how cores move between applications")
    policy: dict[str, int | float] = option(
        dict, "the policy's settings by name, as in target_us = 10", check=_param_name
    )
    memory: MemoryConfig = option(MemoryConfig, "memory that batch work gives back when others need it")
    nic: NicConfig = option(NicConfig, "the uplink NIC")
    network: NetworkConfig = option(NetworkConfig, "addresses")
    storage: StorageConfig = option(StorageConfig, "areas of a disk that applications are given")
    app_defaults: AppConfig = option(AppConfig, "for applications without a section of their own")
    apps: dict[str, AppConfig] = option(dict, "one section an application", check=_app_name, example="kv")
    user_defaults: UserConfig = option(UserConfig, "for users without a section of their own")
    users: dict[str, UserConfig] = option(dict, "one section a user, by name or id", check=_user, example="65534")
    trace: Trace = option(
        Trace, "what is written down of requests, by applications that `corelane run --config` starts with this file"
    )

    def app(self, name: str) -> AppConfig:
        """What holds for the application `name`."""
        return self.apps.get(name, self.app_defaults)

    def host_address(self) -> str:
        """This machine's own address on a tap; no application gets it by its name (iokernel/control/addresses.py)."""
        import ipaddress

        return self.network.host_address or str(ipaddress.IPv4Network(self.network.subnet)[1])

    def check(self) -> None:
        """ValueError if sections do not go together."""
        import ipaddress

        net = ipaddress.IPv4Network(self.network.subnet)
        if self.storage.directory and self.storage.device:
            raise ValueError("storage.directory and storage.device exclude each other: leave one out")
        for what in ("ip", "mac"):
            owners: dict[str, str] = {}
            for name, app in self.apps.items():
                value = getattr(app, what)
                if value is not None and owners.setdefault(value.lower(), name) != name:
                    raise ValueError(f"apps {owners[value.lower()]!r} and {name!r} have the same {what} {value}")
        for name, app in self.apps.items():
            if app.ip is None:
                continue
            if ipaddress.IPv4Address(app.ip) not in net:
                raise ValueError(f"apps.{name}.ip {app.ip} is outside of network.subnet {self.network.subnet}")
            if app.ip in (str(net.network_address), str(net.broadcast_address)):
                raise ValueError(f"apps.{name}.ip {app.ip} is the network's own or its broadcast address")
        host = self.host_address()
        if ipaddress.IPv4Address(host) not in net:
            raise ValueError(f"network.host_address {host} is outside of network.subnet {self.network.subnet}")
        for name, app in self.apps.items():
            if self.nic.driver == "tap" and app.ip == host:
                raise ValueError(f"apps.{name}.ip {app.ip} is this machine's own (network.host_address)")
        if self.app_defaults.ip or self.app_defaults.mac:
            raise ValueError("app_defaults cannot give an address: it would be that of several applications")
        if self.app_defaults.users or self.app_defaults.groups:
            raise ValueError("app_defaults has no users or groups: a name without a section is free for all")
        for where, app in (
            *((f"apps.{name}", app) for name, app in self.apps.items()),
            ("app_defaults", self.app_defaults),
        ):
            if (app.guaranteed_cores or 0) > (app.max_cores or MAX_KTHREADS):
                raise ValueError(
                    f"{where}.guaranteed_cores {app.guaranteed_cores} is more than max_cores {app.max_cores}"
                )


def load(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration file (None: all defaults), then apply assignments like "iokernel.poll=spin".

    ConfigError names file, line, key, value and what was expected.
    """
    config = Config() if path is None else options.load(Config, path)
    return options.override(config, overrides)


def override(config: Config, overrides: Sequence[str]) -> Config:
    """A copy with assignments like "iokernel.poll=spin" made."""
    return options.override(config, overrides)


def loads(text: str, source: str = "<text>", overrides: Sequence[str] = ()) -> Config:
    """The same from a TOML text."""
    return options.loads(Config, text, source, overrides)


def sample() -> str:
    """A commented configuration file with every option at its default."""
    return options.sample(Config)


def as_dict(config: Config) -> dict[str, object]:
    """For JSON."""
    return dataclasses.asdict(config)

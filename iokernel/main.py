"""An iokernel in the foreground, from a configuration: what `corelane up` runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..drivers.linux.addresses import local_ipv4
from ..drivers.nic.nic import Nic
from ..runtime.config import Config, NetworkConfig
from ..runtime.errors import ConfigError, CorelaneError, SystemLimit
from ..runtime.paths import default_socket
from ..runtime.peers import group_ids, user_ids
from ..runtime.placement import Placement, choose
from ..runtime.topology import Topology, format_cpu_list
from .control.report import bound_elsewhere
from .control.settings import Access, Allocation, Allowance, AppMemory, Idle, Outside
from .iokernel import Iokernel

if TYPE_CHECKING:
    from .areas.areas import Areas

_log = logging.getLogger("corelane.iokernel")
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_S = 1.0


def open_uplink(config: Config, tell: Callable[[str], None] = print) -> Nic | None:
    """The NIC of [nic] with line, faults and recorder, or None for driver "none". tell: gets what is left to root."""
    if config.nic.driver == "none":
        return None
    return wrap(_open_device(config, tell), config)


def wrap(nic: Nic, config: Config) -> Nic:
    """`nic` behind what [nic] says of a line, faults and recording. It owns `nic`."""
    from ..drivers.nic.link.link import linked
    from ..drivers.nic.wrap import RATES, wrapped

    fault, link = config.nic.fault, config.nic.link
    rates = {name: getattr(fault, name) for name in RATES}
    nic = linked(nic, link.given(), link.seed)
    return wrapped(nic, rates=rates, delay_us=fault.delay_us, seed=fault.seed, record=config.nic.record)


def _open_device(config: Config, tell: Callable[[str], None]) -> Nic:
    """The NIC itself. Drivers are imported only if they are used."""
    nic = config.nic
    if nic.driver == "af_xdp":
        from ..drivers.nic.af_xdp.af_xdp import AfXdp, SocketOptions, Umem

        return AfXdp(
            nic.device,
            nic.queues,
            subnets=[config.network.subnet],
            program=nic.program or None,
            mode=nic.mode,
            promiscuous=True,
            umem=Umem(ring_slots=nic.ring_slots, buffers=nic.buffers),
            sockets=SocketOptions(zero_copy=nic.zero_copy),
        )
    if nic.driver == "tap":
        from ..drivers.nic.tap.tap import open_tap

        address = f"{config.host_address()}/{config.network.subnet.partition('/')[2]}"
        mtu, buffers = config.network.mtu, nic.buffers
        return open_tap(nic.device, nic.queues, tell=tell, address=address, mtu=mtu, buffers=buffers)
    from ..drivers.nic.pcap import ReplayNic

    return ReplayNic(nic.device, speed=nic.speed, loops=nic.loops, buffers=nic.buffers)


def allowed(config: Config) -> Access:
    """Who may attach: the numbers of users and groups that [iokernel] names, and the socket file's mode."""
    io = config.iokernel
    uids, gids = user_ids(io.users, "iokernel.users"), group_ids(io.groups, "iokernel.groups")
    return Access(mode=io.socket_mode | 0o666 if uids or gids else io.socket_mode, uids=uids, gids=gids)


def place(config: Config, machine: Topology | None = None) -> Placement:
    """CPUs of the loops, and those left for applications. On one CPU, the loop shares it by sleeping."""
    machine = machine or Topology.read()
    fixed = () if isinstance(config.iokernel.cores, str) else config.iokernel.cores
    return choose(machine, kthreads=max(1, len(machine.usable) - 1), loops=config.iokernel.loops, fixed_loops=fixed)


def network(config: Config) -> NetworkConfig:
    """[network] as it holds: this machine has an address of its own there only if it is on a tap."""
    own = config.host_address() if config.nic.driver == "tap" else None
    return dataclasses.replace(config.network, host_address=own)


def _managed(config: Config, workers: Sequence[int]) -> bool:
    """Whether cores move: by a policy, and if there are some. ConfigError for what cannot be kept if they do."""
    if config.cores.policy == "none" or not workers:
        return False
    for name, app in (
        *((f"apps.{name}", app) for name, app in config.apps.items()),
        ("app_defaults", config.app_defaults),
    ):
        if app.cores != "auto":
            raise ConfigError(
                f"{name}.cores",
                f"the policy {config.cores.policy} moves cores between applications",
                'leave it out and give guaranteed_cores, or set cores.policy = "none"',
            )
    return True


def make(
    config: Config,
    uplink: Nic | None,
    plan: Placement,
    areas: Areas | None = None,
    tell: Callable[[str, str], None] | None = None,
) -> Iokernel:
    """The Iokernel object that a configuration describes. uplink, areas (`open_storage`): they stay the caller's. tell:
    as Iokernel's."""
    io, workers = config.iokernel, [cpu for cpu in dict.fromkeys(plan.kthreads) if cpu not in plan.iokernel]
    if not workers and io.poll == "spin":
        raise SystemLimit("poll all the time", "no CPU is left for applications", 'set iokernel.poll = "adaptive"')
    for name, app in (*config.apps.items(), ("", config.app_defaults)):
        if app.loop is not None and app.loop >= len(plan.iokernel):
            where = f"apps.{name}.loop" if name else "app_defaults.loop"
            raise ConfigError(where, f"there is no loop {app.loop}", f"{len(plan.iokernel)} run, counted from 0")
    managed = _managed(config, workers)
    cores = config.cores
    linked = config.nic.driver in ("tap", "af_xdp")  # the uplink is a device of this machine
    return Iokernel(
        io.socket or default_socket(listen=True),
        uplinks=[uplink] if uplink is not None else [],
        loop_cpus=plan.iokernel,
        worker_cpus=workers,
        poll=io.poll,
        policy=cores.policy if managed else None,
        apps=config.apps,
        areas=areas,
        network=network(config),
        outside=Outside(
            share_mac=config.nic.share_mac,
            host_macs=(uplink.mac,) if linked and uplink is not None else (),
            host_addresses=local_ipv4 if linked else tuple,
        ),
        batch_memory=config.memory,
        allowance=Allowance(app_defaults=config.app_defaults, users=config.users, user_defaults=config.user_defaults),
        idle=Idle(spin_us=io.spin_us, pause_us=io.pause_us),
        allocation=Allocation(
            params=config.policy,
            interval_us=cores.interval_us,
            doorbell=cores.doorbell,
            cede_us=cores.cede_us,
            interrupt_us=cores.interrupt_us,
        ),
        access=allowed(config),
        memory=AppMemory(max_apps=io.max_apps, max_arena_mib=io.max_arena_mib, huge_pages=io.huge_pages),
        tell=tell,
    )


@contextlib.contextmanager
def open_storage(config: Config, report: Report | None = None) -> Iterator[Areas | None]:
    """The storage areas of [storage], or None; `report` is told of damage and doubts ("storage"), now and later, by any
    thread.

    Raises CorelaneError for a place that cannot hold them.
    """
    storage = config.storage
    if not storage.directory and not storage.device:
        yield None
        return
    from .areas.areas import Areas, DirectoryStore, Store

    store: Store
    tell = functools.partial(report, "storage") if report is not None else None
    if storage.directory:
        store = DirectoryStore(storage.directory, storage.capacity_mib << 20)
        if tell is not None:
            for note in store.notes:
                tell(note)
    else:
        from .areas.device import open_device

        store = open_device(storage.device, trusted=storage.trusted, tell=tell)
    with contextlib.closing(Areas(store, storage.quota_mib << 20, storage.quota_areas)) as areas:
        yield areas


def facts(iokernel: Iokernel, driver: str) -> dict[str, Any]:
    """What programs want to know of an iokernel that has started.

    {"socket", "pid", "cpus": one a loop, "mode", "policy" and "worker_cpus": None if cores do not move, "uplink": None
    or {"driver", "name", "mac"}}
    """
    stats = iokernel.stats()
    uplinks = [{"driver": driver, "name": u["name"], "mac": u["mac"]} for u in stats["uplinks"]]
    cores = stats["cores"]
    return {
        "socket": iokernel.socket_path,
        "pid": os.getpid(),
        "cpus": [loop["cpu"] for loop in stats["loops"]],
        "mode": iokernel.poll,
        "policy": cores["policy"]["name"] if cores is not None else None,
        "worker_cpus": [core["cpu"] for core in cores["cpus"]] if cores is not None else None,
        "uplink": uplinks[0] if uplinks else None,
    }


class Report(Protocol):
    """Takes what happens, and a line for people.

    "tap": what root is to do; "shared": CPUs, with another iokernel; "storage": damage and doubts; "iokernel": it has
    started, with `facts`; "placement": why it runs on which CPU; "gone": the uplink; "unfinished": checksums, over a
    veth; "bound": kthreads, to other CPUs, by somebody else; "evicted": who did not cede; "stopping".
    """

    def __call__(self, event: str, text: str, /, **facts: Any) -> None: ...


def _print(_event: str, text: str, /, **_facts: Any) -> None:
    print(text)


@contextlib.contextmanager
def _cpu_latency_held(wanted: bool) -> Iterator[None]:
    """Idle states stay shallow while this is open (Documentation/power/pm_qos_interface.rst)."""
    if not wanted:
        yield
        return
    try:
        fd = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
    except OSError as error:
        hint = "run as root, or set iokernel.hold_cpu_latency = false"
        raise SystemLimit("hold /dev/cpu_dma_latency", str(error.strerror), hint) from error
    try:
        os.write(fd, (0).to_bytes(4, "little"))
        yield
    finally:
        os.close(fd)


def _tell_recording(uplink: Nic, report: Report) -> None:
    from ..drivers.nic.wrap import recorded

    if told := recorded(uplink):
        report("recording", told.text, **told.facts)


def _is_veth(device: str) -> bool:
    from ..drivers.linux.ethtool import driver

    return driver(device) == "veth"


def _is_unfinished(iokernel: Iokernel, config: Config) -> str:
    """Applications drop for their checksums what came over a veth: the sender left them to its device."""
    values = {app["name"]: (app.get("counters") or {}).get("values", {}) for app in iokernel.stats()["apps"]}
    reasons = ("dropped_udp_checksum", "dropped_tcp_checksum")
    dropping = [name for name, counted in values.items() if any(counted.get(reason) for reason in reasons)]
    if not dropping:
        return ""
    from ..drivers.linux.ethtool import veth_peer

    device = config.nic.device
    other = veth_peer(device) or f"IF (the other end of {device}: `ip -d link show {device}`)"
    text = f"{', '.join(dropping)} drop frames with wrong checksums: their sender left them to its device"
    return f"{text}; run `ethtool -K {other} tx off`"


def _is_bound_elsewhere(iokernel: Iokernel, loops: int) -> str:
    if not bound_elsewhere(iokernel.ptr, loops):
        return ""
    text = "somebody else bound kthreads to other CPUs (taskset, a cpuset); they are bound again"
    return f"{text}, each time: keep it off them; `corelane top` has how often"


class _Evictions:
    """Applications whose kthreads had to be demoted, each told of once, and again when it is ten times as many."""

    def __init__(self, iokernel: Iokernel) -> None:
        self._iokernel = iokernel
        self._next: dict[tuple[int, str], int] = {}  # that is told of

    def __call__(self) -> str:
        found, now = [], self._iokernel.evictions()
        self._next = {key: n for key, n in self._next.items() if key in now}  # the others have gone
        for (app, name), n in now.items():
            if n >= self._next.get((app, name), 1):
                found.append(f"{name} ({n:,} time{'s' * (n > 1)})")
                self._next[app, name] = 10 * n
        if not found:
            return ""
        text = f"demoted for others, since they did not cede when asked and interrupted: {', '.join(found)}"
        return f"{text}; `corelane trace` has when, docs/probes.md how an application cedes in time"


def _once(look: Callable[[], str]) -> Callable[[], str]:
    """`look`, until it has said something."""
    said = False

    def again() -> str:
        nonlocal said
        text = "" if said else look()
        said = said or bool(text)
        return text

    return again


def check_serves(iokernel: Iokernel) -> None:
    """Raises CorelaneError when the control thread has ended by itself: nobody can attach any more."""
    if iokernel.failure:
        raise CorelaneError(
            "keep the control socket", f"its thread ended ({iokernel.failure})", "start the iokernel again"
        )


def _wait_for_signal(iokernel: Iokernel, watched: Mapping[str, Callable[[], str]], report: Report) -> int:
    """Sleep until one of `_STOP_SIGNALS` comes, which this returns. watched: what may happen meanwhile, by event, and
    what to say of it, "" for nothing new; what fails is logged, and not asked again. Raises what `check_serves` does.
    """
    watched = dict(watched)
    while True:
        caught = signal.sigtimedwait(_STOP_SIGNALS, _LOOK_S)
        # One who was stopped and goes on when time is over gets a result of nothing (Python's, after EINTR).
        if caught is not None and caught.si_signo in _STOP_SIGNALS:
            return caught.si_signo
        check_serves(iokernel)
        for event, look in list(watched.items()):
            try:
                text = look()
            except Exception:
                _log.exception("whether to tell of %r cannot be found out any more", event)
                del watched[event]
                continue
            if text:
                report(event, text)


def run(config: Config, report: Report = _print) -> int:
    """Run an iokernel until SIGINT or SIGTERM; `report` gets what happens. Call it in the main thread.

    Raises CorelaneError (Refused, SystemLimit, ConfigError) if it cannot start. Returns 0.
    """
    plan = place(config)
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_cpu_latency_held(config.iokernel.hold_cpu_latency))
            uplink = open_uplink(config, functools.partial(report, "tap"))
            if uplink is not None:
                stack.enter_context(uplink)
                stack.callback(_tell_recording, uplink, report)  # once the loops have stopped
            areas = stack.enter_context(open_storage(config, report))
            iokernel = stack.enter_context(make(config, uplink, plan, areas, report))
            if others := os.sched_getaffinity(0) - set(plan.iokernel):
                os.sched_setaffinity(0, others)  # this thread, after the loops have started, keeps off their CPUs
            where = f"uplink {uplink.name} {uplink.mac}" if uplink is not None else "no uplink"
            polls = f"{iokernel.poll} on CPU {format_cpu_list(plan.iokernel)}"
            text = f"iokernel on {iokernel.socket_path}: {polls}, {where}; ^C stops it"
            told = facts(iokernel, config.nic.driver)
            report("iokernel", text, **told)
            for reason in plan.reasons:  # after what whoever waits for the iokernel looks for
                report("placement", reason)
            watched: dict[str, Callable[[], str]] = {}
            if uplink is not None and config.nic.driver == "af_xdp" and _is_veth(config.nic.device):
                watched["unfinished"] = _once(functools.partial(_is_unfinished, iokernel, config))
            if told["worker_cpus"]:
                watched["bound"] = _once(functools.partial(_is_bound_elsewhere, iokernel, len(told["cpus"])))
                watched["evicted"] = _Evictions(iokernel)
            caught = _wait_for_signal(iokernel, watched, report)
            report("stopping", f"stopping on {signal.Signals(caught).name}")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    return 0

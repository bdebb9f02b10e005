"""What one slot of each arm of `corelane bench raft` does: ours, started anew for it, or a baseline.

A slot gives the latencies that its clients saw; who they are is said in raft.py.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ...apps.raft.service.settings import ELECTION_MS
from ...drivers.linux.netns import Namespace
from ...drivers.nic.loadgen.loadgen import Closed, Limits, Loadgen
from ...drivers.nic.loadgen.loadgen import Memcached as Traffic
from ...runtime.errors import SystemLimit
from ..baseline.peers import Etcd, Libraft, Puts
from ..harness import rest, rig, usage
from ..harness.load import point_of
from ..harness.session import Session
from ..harness.stops import Counts, Evidence, Stop, Watch, stop_of_closed
from .nodes import KV_PORT, Group, address
from .udp import UdpClients, tap_group

KEY_BYTES, VALUE_BYTES, KEYS = 16, 84, 1000
MANY_KEYS = 100_000
CLIENTS = (1, 64)
OPEN_RPS = 5000.0
SLOT_PART, LEAST_SLOT_S, WHOLE_SLOT_S = 0.1, 0.1, 1.0  # a slot's least part of the run, and what is enough of that
WHOLE_S = 3.0  # each slot starts its nodes anew, so a shorter run has one round
SHORT_ELECTION_MS, PATIENCE_S = 10, 3.0
WATCH_US = 100_000  # nodes look at their role as seldom as that: it takes the core that they share
MEMORY, TMPFS, DISK, FLOOR, LIBRAFT, ETCD = "memory", "tmpfs", "disk", "three raw writes", "libraft", "etcd"
BOUND, MAJORITY_BOUND = "three raw writers, one core", "two raw writers, one core"
RELAYS = "three raw relays, one core"
SWITCHED, WRITERS = "three relays on the switch", "two writers on the switch"
MOVED, ONE_CORE, TO_ALL = "disk, cores moved", "libraft, one core", "disk, sent to all"
UDP, MUX, RAW = "disk, kernel's sockets", "disk, one kernel socket", "raw server, one kernel socket"
SLOTS = "disk, in slots"  # of one client, with the default election timeout; `disk` has turns and a longer one
SHORT = f"disk, {SHORT_ELECTION_MS} ms"
# While 64 clients put: a snapshot each 16 384 entries, some seven a second, and none. FULL: of a store with many keys.
OFTEN, NEVER, FULL = "disk, snapshots often", "disk, no snapshots", "disk, snapshots often, 100 000 keys"
SNAPSHOTS = {OFTEN: (1 << 14, KEYS), NEVER: (1 << 20, KEYS), FULL: (1 << 14, MANY_KEYS)}  # entries, keys


@dataclass(frozen=True)
class Slot:
    """What one slot of an arm gave. n: answered puts."""

    p50_us: float
    p99_us: float
    per_s: float
    n: int
    extra: Mapping[str, Any] | None = None

    @property
    def longest_us(self) -> float:
        """The longest put, of ours."""
        return float((self.extra or {})["longest_us"])


Arm = Callable[[float], Slot]
System = TypeVar("System")


def arm_name(system: str, clients: int) -> str:
    """As in the document."""
    return f"{system}, {clients} client{'s' if clients > 1 else ''}"


@contextlib.contextmanager
def group_up(
    cores: tuple[int, int],
    folder: Path | None,
    clients: int,
    *,
    managed: bool = True,
    snapshot_entries: int = 0,
    relays: bool = False,
    election_ms: int = ELECTION_MS,
    replicate: str | None = None,
    keys: int = KEYS,
) -> Iterator[tuple[Group, Loadgen]]:
    """Nodes started anew, on the logs that they have left if there are any, that answer puts. clients 0: open loop.

    managed, snapshot_entries, relays, replicate: see Group. keys: that are put; if they are many, each one once before.
    """
    filled = keys > KEYS
    generator = Loadgen(
        Traffic(keys=keys, key_bytes=KEY_BYTES, value_bytes=VALUE_BYTES, get_fraction=0.0, preload=filled),
        arrivals=Closed(clients) if clients else "poisson",
        server_ip=address(1),
        server_port=KV_PORT,
        checksum=True,
        limits=Limits(drain_s=0.2),
    )
    uplinks = [generator.nic()]
    with (
        contextlib.closing(generator),
        Group(
            cores,
            uplinks=uplinks,
            logs=folder,
            managed=managed,
            snapshot_entries=snapshot_entries,
            relays=relays,
            replicate=replicate,
        ) as group,
    ):
        group.start_all(election_ms=election_ms, prefer=1, watch_us=WATCH_US)
        if filled:  # a put that is refused since nobody leads is not said again
            await_leader(group)
        await_answers(generator)
        yield group, generator


def put_for(generator: Loadgen, seconds: float, warmup_s: float) -> Slot:
    """What its clients saw. refused: puts that were answered with an error."""
    result = generator.run(OPEN_RPS, seconds, warmup_s=warmup_s)
    point = point_of(result)
    extra = {"sent": point.sent, "refused": result.errors, "longest_us": result.latency.max_us}
    if not point.answered:
        return Slot(math.inf, math.inf, 0.0, 0, extra)
    return Slot(point.p50_us, point.p99_us, point.answered / seconds, point.answered, extra)


def ours_slot(cores: tuple[int, int], folder: Path | None, clients: int, seconds: float, **how: Any) -> Slot:
    """Of a group of its own, as `group_up` makes it. terms: that began meanwhile."""
    with group_up(cores, folder, clients, **how) as (group, generator):
        before = group.term()
        slot = put_for(generator, seconds, 0.1 + 0.1 * seconds)
        time.sleep(1.5 * WATCH_US / 1e6)  # the nodes tell of their last terms and snapshots
        extra = {**(slot.extra or {}), "terms": group.term() - before, "leader_at_end": group.leader()}
        if how.get("snapshot_entries"):
            extra["snapshots"] = max(group.snapshots.values(), default=0)
        return replace(slot, extra=extra)


def explained(cores: tuple[int, int], folder: Path | None, managed: bool, seconds: float) -> Stop:
    """What CLIENTS[-1] clients of a group of its own use up: the loop, the disk, and of a group whose core moves the
    time for which its nodes had it and work. Nodes that the kernel's scheduler shares it between look for their disks'
    completions while they wait, so their CPU time says nothing."""
    with group_up(cores, folder, CLIENTS[-1], managed=managed) as (group, generator):

        def counts() -> Counts:
            found = rig.counts_of_iokernel(group.kernel)
            ids = [app["id"] for app in group.kernel.stats()["apps"]] if managed else []
            core_s = sum(float(rig.cores_of(group.kernel, app).core_ns) for app in ids) / 1e9
            disk_s = usage.disk_busy_s(folder) if folder else None
            none = {"looks": 0, "found": 0, "published_s": None}
            return replace(found, worker_s=core_s if managed else None, disk_s=disk_s, **none)  # type: ignore[arg-type]

        generator.begin(OPEN_RPS, 0.9 * seconds, 0.1 * seconds, 1)
        with Watch(counts, seconds) as watch:
            generator.wait()
        generator.result()
    return stop_of_closed(watch.evidence or Evidence())


def await_leader(group: Group) -> None:
    """Until somebody leads; or for so long that it shows in what follows."""
    deadline = time.monotonic() + PATIENCE_S
    while not group.leader() and time.monotonic() < deadline:
        time.sleep(ELECTION_MS / 1e3)


def await_answers(generator: Loadgen) -> None:
    """Until puts are answered, with pauses in which nodes may elect a leader; or for so long that it is a result."""
    deadline = time.monotonic() + PATIENCE_S
    while not generator.run(OPEN_RPS, 0.05, warmup_s=0).answered and time.monotonic() < deadline:
        time.sleep(ELECTION_MS / 1e3)


def puts_slot(puts: Puts) -> Slot:
    """What a baseline's clients saw."""
    latencies = puts.latencies_ns
    p50, p99 = (puts.percentile_us(percent) if latencies else math.inf for percent in (50, 99))
    return Slot(p50, p99, puts.per_s, len(latencies), puts.counts)


def libraft_turn(put: Callable[[float], Puts], warmup_s: float, seconds: float) -> Slot:
    """Of servers that are up, while those of ours do nothing but send heartbeats."""
    rest.demand("libraft")
    put(warmup_s)
    return puts_slot(put(seconds))


def libraft_slot(libraft: Libraft, cores: tuple[int, int], clients: int, seconds: float) -> Slot:
    """Of servers started anew."""
    with libraft.running(clients, KEY_BYTES + VALUE_BYTES, cores) as put:
        return libraft_turn(put, 0.1 + 0.1 * seconds, seconds)


def udp_slot(udp: UdpClients, cores: tuple[int, int], folder: Path, one_socket: bool, seconds: float) -> Slot:
    """Of ours, put to by ordinary clients of the kernel."""
    with tap_group(cores, folder, election_ms=ELECTION_MS, watch_us=WATCH_US) as (_, space):
        return udp_puts(udp, space, one_socket, seconds, cores[:1])


def raw_slot(udp: UdpClients, cores: tuple[int, int], seconds: float) -> Slot:
    """Of a raw server, put to by the same."""
    rest.demand("a raw server")
    with udp.raw(cores) as space:
        return udp_puts(udp, space, True, seconds, cores)


def udp_puts(udp: UdpClients, space: Namespace, one_socket: bool, seconds: float, cpus: Collection[int]) -> Slot:
    """What the kernel's clients saw. cpus: see UdpClients.put."""
    seconds = max(seconds, LEAST_SLOT_S)
    return puts_slot(udp.put(space, CLIENTS[-1], seconds, KEY_BYTES, VALUE_BYTES, cpus, one_socket=one_socket))


def etcd_slot(etcd: Etcd, clients: int, seconds: float) -> Slot:
    """The best of its members, started anew, each asked for so long."""
    rest.demand("etcd")
    with etcd.running():
        return puts_slot(etcd.best(clients, max(seconds, LEAST_SLOT_S), KEY_BYTES, VALUE_BYTES))


def slot_length(run_s: float, rounds: int, arms: int) -> float:
    """Of a run that is to take so long: its share, and if that is too short to say much, more."""
    return max(run_s / rounds / arms, min(run_s * SLOT_PART, WHOLE_SLOT_S), LEAST_SLOT_S)


def baseline(session: Session, system: str, make: Callable[[], System]) -> System | None:
    """A system that may be missing here. None: why it is not measured is said."""
    try:
        if not session.baseline:
            raise SystemLimit(f"measure {system}", "--no-baseline was given")
        return make()
    except SystemLimit as why:
        session.skip(system, str(why))
        return None

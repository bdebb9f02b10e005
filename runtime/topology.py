"""The machine's CPUs as far as they matter for polling: who shares a core, who is quiet, who takes which interrupts.

    machine = Topology.read()
    print(machine.usable, machine.quota_cpus)

All of it comes from files under a root (sysfs, procfs, cgroupfs), so that a test can describe any machine by a folder;
psutil fills in where sysfs is masked. Nothing here changes the machine. placement.py chooses cores from this.

Why interrupts: a direct synchronous write completes in a kernel worker on the CPU that took the disk's interrupt, and a
thread that spins there keeps that worker waiting until the next timer tick (measured: 4 ms instead of 80 us). A NIC's
softirq work suffers in the same way.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

# Names that drivers give to their interrupts, for where sysfs does not tell the device by number.
_DISK_NAME = re.compile(
    r"nvme|ahci|sata|mmc|\bsd[a-z]|virtio\d+-req|blk|xvd|megaraid|mpt\dsas|hpsa|ata_", re.IGNORECASE
)
_NIC_NAME = re.compile(
    r"\beth|\ben[ops]|\bwl|mlx|ixgbe|i40e|\bice-|\bena-|virtio\d+-(input|output)\.|gve|bnx", re.IGNORECASE
)


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's list format: "0-2,5" is (0, 1, 2, 5), "" is (). ValueError for anything else."""
    out: list[int] = []
    for part in text.strip().split(","):
        if not part.strip():
            continue
        low, dash, high = part.strip().partition("-")
        first, last = int(low), int(high if dash else low)
        if first < 0 or last < first:
            raise ValueError(f"{part!r} is no range of CPUs")
        out += range(first, last + 1)
    return tuple(sorted(set(out)))


def format_cpu_list(cpus: tuple[int, ...] | list[int]) -> str:
    """The reverse: (0, 1, 2, 5) is "0-2,5"; nothing is "none"."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


@dataclass(frozen=True)
class IdleState:
    """One way in which a CPU can sleep. latency_us: time to leave it."""

    name: str
    latency_us: int
    disabled: bool


@dataclass(frozen=True)
class Interrupt:
    """A device's interrupt. kind: "disk", "nic" or "other"; cpus: where it is delivered; counts: since boot, by CPU."""

    number: int
    name: str
    kind: str
    cpus: tuple[int, ...]
    counts: dict[int, int]

    @property
    def total(self) -> int:
        """How often it came."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class Cpu:
    """A logical CPU. siblings: the CPUs of the same physical core, itself included."""

    id: int
    core: int
    package: int
    node: int
    siblings: tuple[int, ...]
    isolated: bool
    tickless: bool
    idle_states: tuple[IdleState, ...] = ()

    @property
    def deepest_idle_us(self) -> int:
        """Time to leave the deepest idle state that is enabled; 0 if unknown."""
        return max((s.latency_us for s in self.idle_states if not s.disabled), default=0)


@dataclass(frozen=True)
class Topology:
    """A machine, as one process may use it."""

    cpus: dict[int, Cpu]  # those online
    usable: tuple[int, ...]  # online, in our affinity mask and in our cpuset
    affinity: tuple[int, ...]
    cpuset: tuple[int, ...] | None  # of the cgroup; None: no limit
    quota_cpus: float | None  # CPU time that the cgroup allows, in CPUs; None: no limit
    interrupts: tuple[Interrupt, ...] = ()
    notes: tuple[str, ...] = field(default=())  # what could not be read

    @classmethod
    def read(cls, root: Path | str = "/", affinity: tuple[int, ...] | None = None) -> Topology:
        """Look at the machine under `root`. affinity: CPUs that we may run on; default: this thread's mask."""
        return _Reader(Path(root), affinity).topology()

    @property
    def smt(self) -> bool:
        """Whether any two usable CPUs share a physical core."""
        return any(len(set(self.cpus[c].siblings) & set(self.usable)) > 1 for c in self.usable)

    @property
    def nodes(self) -> tuple[int, ...]:
        """NUMA nodes with usable CPUs."""
        return tuple(sorted({self.cpus[c].node for c in self.usable}))

    def interrupts_on(self, cpu: int, kind: str | None = None) -> tuple[Interrupt, ...]:
        """Interrupts delivered to a CPU that came at least once."""
        return tuple(i for i in self.interrupts if cpu in i.cpus and i.total and kind in (None, i.kind))

    def as_dict(self) -> dict[str, object]:
        """For JSON: the machine section of results."""
        return {
            "online": sorted(self.cpus),
            "usable": list(self.usable),
            "quota_cpus": self.quota_cpus,
            "smt": self.smt,
            "nodes": list(self.nodes),
            "isolated": [c for c in self.usable if self.cpus[c].isolated],
            "tickless": [c for c in self.usable if self.cpus[c].tickless],
            "interrupts": [
                {"number": i.number, "name": i.name, "kind": i.kind, "cpus": list(i.cpus)} for i in self.interrupts
            ],
        }


class _Reader:
    """Reads the files; every answer has a default for when they are missing, and a note says so."""

    def __init__(self, root: Path, affinity: tuple[int, ...] | None) -> None:
        self.root = root
        self.live = root == Path("/")
        self.given_affinity = affinity
        self.notes: list[str] = []

    def text(self, name: str) -> str | None:
        try:
            return (self.root / name.lstrip("/")).read_text(errors="surrogateescape").strip()  # PEP 383, as for paths
        except OSError:
            return None

    def number(self, name: str, default: int) -> int:
        try:
            return int(self.text(name) or default)
        except ValueError:
            return default

    def cpu_list(self, name: str) -> tuple[int, ...] | None:
        text = self.text(name)
        try:
            return None if text is None else parse_cpu_list(text)
        except ValueError:
            self.notes.append(f"{name} holds {text!r}, which is no list of CPUs")
            return None

    def topology(self) -> Topology:
        online = self.online()
        isolated = self.cpu_list("/sys/devices/system/cpu/isolated") or ()
        tickless = self.cpu_list("/sys/devices/system/cpu/nohz_full") or ()
        nodes = self.nodes()
        cpus = {c: self.cpu(c, nodes.get(c, 0), c in isolated, c in tickless) for c in online}
        affinity = self.affinity(online)
        groups = Cgroups(self.root)
        cpuset = groups.cpuset()
        usable = tuple(c for c in online if c in affinity and (cpuset is None or c in cpuset))
        if not usable:  # a cpuset that contradicts the mask: believe the mask, which the kernel enforces
            self.notes.append("no CPU is in both the affinity mask and the cgroup's cpuset")
            usable = tuple(c for c in online if c in affinity) or tuple(online)
        interrupts = self.interrupts(tuple(online))
        return Topology(cpus, usable, affinity, cpuset, groups.quota_cpus(), interrupts, tuple(self.notes))

    def online(self) -> list[int]:
        listed = self.cpu_list("/sys/devices/system/cpu/online")
        if listed:
            return list(listed)
        self.notes.append("/sys/devices/system/cpu/online cannot be read")
        if self.live:
            import psutil

            return list(range(psutil.cpu_count() or 1))
        return [0]

    def affinity(self, online: list[int]) -> tuple[int, ...]:
        if self.given_affinity is not None:
            return tuple(sorted(self.given_affinity))
        return tuple(sorted(os.sched_getaffinity(0))) if self.live else tuple(online)

    def nodes(self) -> dict[int, int]:
        out: dict[int, int] = {}
        for path in sorted((self.root / "sys/devices/system/node").glob("node[0-9]*")):
            for cpu in self.cpu_list(f"/sys/devices/system/node/{path.name}/cpulist") or ():
                out[cpu] = int(path.name[4:])
        return out

    def cpu(self, cpu: int, node: int, isolated: bool, tickless: bool) -> Cpu:
        base = f"/sys/devices/system/cpu/cpu{cpu}"
        siblings = self.cpu_list(f"{base}/topology/thread_siblings_list") or (cpu,)
        core = self.number(f"{base}/topology/core_id", cpu)
        package = self.number(f"{base}/topology/physical_package_id", 0)
        return Cpu(cpu, core, package, node, siblings, isolated, tickless, self.idle_states(base))

    def idle_states(self, base: str) -> tuple[IdleState, ...]:
        out = []
        for path in sorted(
            (self.root / base.lstrip("/") / "cpuidle").glob("state[0-9]*"), key=lambda p: int(p.name[5:])
        ):
            name = f"{base}/cpuidle/{path.name}"
            latency, disabled = self.number(f"{name}/latency", 0), self.number(f"{name}/disable", 0)
            out.append(IdleState(self.text(f"{name}/name") or path.name, latency, bool(disabled)))
        return tuple(out)

    def interrupts(self, online: tuple[int, ...]) -> tuple[Interrupt, ...]:
        lines = (self.text("/proc/interrupts") or "").splitlines()
        if not lines:
            self.notes.append("/proc/interrupts cannot be read: which CPUs take interrupts is not known")
            return ()
        columns = [int(w[3:]) for w in lines[0].split() if re.fullmatch(r"CPU\d+", w)]
        kinds = self.kinds_by_number()
        out = []
        for line in lines[1:]:
            label, _, rest = line.partition(":")
            words = rest.split()
            counts = words[: len(columns)]
            if not label.strip().isdigit() or len(words) <= len(columns) or not all(w.isdigit() for w in counts):
                continue
            number, name = int(label), words[-1]
            by_cpu = dict(zip(columns, map(int, counts), strict=True))
            kind = kinds.get(number) or self.kind_by_name(name)
            out.append(Interrupt(number, name, kind, self.delivered_to(number, by_cpu, online), by_cpu))
        return tuple(out)

    def delivered_to(self, number: int, counts: dict[int, int], online: tuple[int, ...]) -> tuple[int, ...]:
        """Where it goes now (the effective mask); else where it went so far."""
        for name in ("effective_affinity_list", "smp_affinity_list"):
            cpus = self.cpu_list(f"/proc/irq/{number}/{name}")
            if cpus:
                return tuple(c for c in cpus if c in online) or cpus
        most = max(counts.values(), default=0)
        return tuple(c for c, n in counts.items() if n and n * 2 >= most)

    def kinds_by_number(self) -> dict[int, str]:
        """Interrupt numbers of PCI devices that stand behind a block device or a network interface."""
        out: dict[int, str] = {}
        for pattern, kind in (("sys/block/*", "disk"), ("sys/class/net/*/device", "nic")):
            for link in self.root.glob(pattern):
                for folder in [link.resolve(), *link.resolve().parents][:6]:
                    for irq in folder.glob("msi_irqs/*"):
                        out[int(irq.name)] = kind
        return out

    @staticmethod
    def kind_by_name(name: str) -> str:
        if _DISK_NAME.search(name):
            return "disk"
        return "nic" if _NIC_NAME.search(name) else "other"


class Cgroups:
    """CPU limits of the calling process's control group, versions 1 and 2 (also both at once)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mount = root / "sys/fs/cgroup"
        self.v1: dict[str, str] = {}
        self.v2 = ""
        try:
            lines = os.fsdecode((root / "proc/self/cgroup").read_bytes()).splitlines()  # paths are bytes
        except OSError:
            lines = []
        for line in lines:
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if number == "0" and not controllers:
                self.v2 = path
            for controller in controllers.split(","):
                self.v1[controller] = path

    def _chain(self, mount: Path, path: str) -> list[Path]:
        """The group's folder and those above it up to the mount, as far as they can be seen from a container."""
        folder = mount / path.strip("/")
        return [f for f in (folder, *folder.parents) if f.is_relative_to(mount) and f.is_dir()]

    def _folders(self, controller: str) -> list[list[Path]]:
        chains = []
        if self.v2:
            for mount in (self.mount / "unified", self.mount):
                if (mount / "cgroup.controllers").exists():
                    chains.append(self._chain(mount, self.v2))
        for names in (controller, "cpu,cpuacct", "cpuacct,cpu"):
            if controller in self.v1 and (self.mount / names).is_dir() and (names == controller or controller == "cpu"):
                chains.append(self._chain(self.mount / names, self.v1[controller]))
        return chains

    @staticmethod
    def _read(path: Path) -> str | None:
        try:
            return path.read_text().strip()
        except OSError:
            return None

    def quota_cpus(self) -> float | None:
        """The tightest limit on CPU time from the group up to the root, in CPUs; None if there is none."""
        limits: list[float] = []
        for chain in self._folders("cpu"):
            for folder in chain:
                words = (self._read(folder / "cpu.max") or "").split()
                if len(words) == 2 and words[0].isdigit() and int(words[1]):
                    limits.append(int(words[0]) / int(words[1]))
                quota, period = self._read(folder / "cpu.cfs_quota_us"), self._read(folder / "cpu.cfs_period_us")
                if quota and period and int(quota) > 0 and int(period) > 0:
                    limits.append(int(quota) / int(period))
        return min(limits, default=None)

    def cpuset(self) -> tuple[int, ...] | None:
        """The CPUs that the group may use; None if it does not say."""
        for chain in self._folders("cpuset"):
            for folder in chain:
                for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
                    text = self._read(folder / name)
                    if text:
                        return parse_cpu_list(text)
        return None

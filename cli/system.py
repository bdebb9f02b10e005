"""What `corelane doctor` looks at: files under a root, and a few probes of the kernel that a test can replace."""

from __future__ import annotations

import os
import platform
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..runtime.topology import Topology

AF_XDP = 44
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_IPC_LOCK": 14, "CAP_SYS_NICE": 23, "CAP_BPF": 39}


def _afxdp_errno() -> int:
    """0 if this kernel makes AF_XDP sockets for us, else the error."""
    try:
        socket.socket(AF_XDP, socket.SOCK_RAW, 0).close()
    except OSError as e:
        return e.errno or 1
    return 0


def _memlock_bytes() -> int:
    """Soft limit of locked memory; -1 for unlimited."""
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


@dataclass
class System:
    """A machine as doctor sees it. root: where /proc and /sys are. The probes default to this machine's."""

    root: Path = Path("/")
    machine: str = field(default_factory=platform.machine)
    allowed: list[int] = field(default_factory=lambda: sorted(os.sched_getaffinity(0)))
    afxdp_errno: Callable[[], int] = _afxdp_errno
    memlock_bytes: Callable[[], int] = _memlock_bytes
    may_write: Callable[[Path], bool] = lambda path: os.access(path, os.W_OK)

    def path(self, name: str) -> Path:
        """A file by its absolute name."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str | None:
        """Text of a file without surrounding space; None if it cannot be read."""
        try:
            return self.path(name).read_text(errors="surrogateescape").strip()  # names may be any bytes (PEP 383)
        except OSError:
            return None

    def cpuinfo(self, key: str) -> str:
        """First value of a key of /proc/cpuinfo; "" if there is none."""
        for line in (self.read("/proc/cpuinfo") or "").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
        return ""

    def kernel(self) -> tuple[int, int]:
        """Major and minor version; (0, 0) if unknown."""
        words = (self.read("/proc/sys/kernel/osrelease") or "").split(".")
        try:
            return int(words[0]), int("".join(c for c in words[1] if c.isdigit()))
        except (ValueError, IndexError):
            return 0, 0

    def capabilities(self) -> set[str]:
        """Those of CAPABILITIES that are in effect."""
        for line in (self.read("/proc/self/status") or "").splitlines():
            if line.startswith("CapEff:"):
                mask = int(line.split()[1], 16)
                return {name for name, bit in CAPABILITIES.items() if mask >> bit & 1}
        return set()

    def user(self) -> str:
        """The number of the effective user; "" if it is unknown."""
        for line in (self.read("/proc/self/status") or "").splitlines():
            if line.startswith("Uid:"):
                return line.split()[2]
        return ""

    def is_root(self) -> bool:
        """Whether the effective user is root: of the machine, or of a container."""
        return self.user() == "0"

    def own_taps(self) -> list[str]:
        """Taps that root has made for this user."""
        user = self.user()
        nets = [path.parent.name for path in sorted(self.path("/sys/class/net").glob("*/owner"))]
        return [name for name in nets if user and self.read(f"/sys/class/net/{name}/owner") == user]

    def misc_device(self, name: str) -> int | None:
        """The minor number of a "misc" device that the kernel has, whether or not there is a file for it."""
        for line in (self.read("/proc/misc") or "").splitlines():
            number, _, device = line.strip().partition(" ")
            if device == name:
                return int(number)
        return None

    def quota_files(self) -> list[tuple[str, str]]:
        """The cgroup files that limit our CPU time, and what lifts each limit: ("/sys/fs/cgroup/x/cpu.max", "max")."""
        out = []
        for line in (self.read("/proc/self/cgroup") or "").splitlines():
            _, kinds, own = line.split(":", 2)
            if not kinds:
                base, file, lifted = "/sys/fs/cgroup", "cpu.max", "max"
            elif "cpu" in kinds.split(","):
                base, file, lifted = "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "-1"
            else:
                continue
            for folder in (Path(own), *Path(own).parents):
                name = f"{base}{folder if str(folder) != '/' else ''}/{file}"
                limit = (self.read(name) or lifted).split()[0]
                if limit != lifted:
                    out.append((name, lifted))
        return out

    def meminfo_kib(self, key: str) -> int | None:
        """A value of /proc/meminfo."""
        for line in (self.read("/proc/meminfo") or "").splitlines():
            name, _, value = line.partition(":")
            if name == key:
                return int(value.split()[0])
        return None

    @cached_property
    def topology(self) -> Topology:
        """CPUs, who shares a core, idle states, interrupts, cgroup limits."""
        return Topology.read(self.root, tuple(self.allowed))

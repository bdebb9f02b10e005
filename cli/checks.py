"""The checks of `corelane doctor`: one function each, from a System to a Check. Add one by writing it into CHECKS.

A check is `ok`, `warn` (works, but slower or less predictable) or `missing` (a feature cannot be used). A missing check
that is `required` means that even the default path, the software NIC without root, cannot run.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .system import CAPABILITIES, Interrupt, System, parse_cpus

State = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Check:
    """One line of the doctor. found: what is. meaning: what follows from it. mend: a command, "" if there is none."""

    name: str
    state: State
    found: str
    meaning: str = ""
    mend: str = ""
    required: bool = False


def _cpus_text(cpus: list[int]) -> str:
    return ",".join(map(str, cpus)) or "none"


def machine(system: System) -> Check:
    """Architecture and kernel: what nothing works without."""
    major, minor = system.kernel()
    found = f"{system.machine}, Linux {system.read('/proc/sys/kernel/osrelease') or 'of unknown version'}"
    if system.machine not in ("x86_64", "aarch64"):
        meaning = "user-level threads are written for x86-64 and aarch64 only"
        return Check("machine", "missing", found, meaning, "run on an x86-64 or aarch64 machine", required=True)
    if (major, minor) < (5, 1):
        meaning = "sealed read-only memory (F_SEAL_FUTURE_WRITE) came with Linux 5.1"
        return Check("machine", "missing", found, meaning, "sudo apt-get install linux-image-amd64", required=True)
    if (major, minor) < (5, 11):
        meaning = "AF_XDP without memlock limits and with busy polling came with Linux 5.11"
        return Check("machine", "warn", found, meaning, "sudo apt-get install linux-image-amd64")
    return Check("machine", "ok", found)


def cpus(system: System) -> Check:
    """How many CPUs this process may use."""
    n = len(system.allowed)
    found = f"{n} usable: {_cpus_text(system.allowed)}"
    if n == 0:
        return Check("cpus", "missing", found, "no CPU may be used", "taskset -pc 0-1 $$", required=True)
    if n == 1:
        meaning = "iokernel and application share one core, by blocking: use embedded mode, or allow a second core"
        return Check("cpus", "warn", found, meaning, "taskset -pc 0-1 $$")
    return Check("cpus", "ok", found, "one for the iokernel, the others for applications")


def smt(system: System) -> Check:
    """Hyper-threads: two spinning threads on one core take each other's half."""
    shared = sorted({tuple(system.siblings(c)) for c in system.allowed if len(system.siblings(c)) > 1})
    if not shared:
        return Check("smt", "ok", "no core is shared by two usable CPUs")
    found = "CPUs that share a core: " + " ".join(_cpus_text(list(s)) for s in shared)
    cores = list(dict.fromkeys(min(system.siblings(c)) for c in system.allowed))
    meaning = "a polled CPU slows its sibling down: give corelane one CPU of each core"
    mend = (
        f"corelane up --cores {cores[0]}"
        if len(cores) > 1
        else "echo off | sudo tee /sys/devices/system/cpu/smt/control"
    )
    return Check("smt", "warn", found, meaning, mend)


def isolation(system: System) -> Check:
    """isolcpus and nohz_full."""
    isolated = parse_cpus(system.read("/sys/devices/system/cpu/isolated") or "")
    tickless = parse_cpus(system.read("/sys/devices/system/cpu/nohz_full") or "")
    if isolated and set(isolated) <= set(tickless):
        return Check("isolation", "ok", f"isolated and without tick: {_cpus_text(isolated)}")
    found = f"isolated: {_cpus_text(isolated)}; without tick: {_cpus_text(tickless)}"
    meaning = "other threads and the timer tick interrupt polled cores: tens of microseconds, from p99.5 on"
    wanted = system.allowed[1:] or system.allowed
    cores = _cpus_text(wanted)
    options = f"isolcpus={cores} nohz_full={cores} rcu_nocbs={cores}"
    mend = f"sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{options} /' /etc/default/grub && sudo update-grub && sudo reboot"
    return Check("isolation", "warn", found, meaning, mend)


def idle(system: System) -> Check:
    """Deep idle states, and whether /dev/cpu_dma_latency may be held at 0."""
    driver = system.read("/sys/devices/system/cpu/cpuidle/current_driver") or "none"
    first = system.allowed[0] if system.allowed else 0
    states = sorted(system.path(f"/sys/devices/system/cpu/cpu{first}/cpuidle").glob("state[0-9]*/latency"))
    deepest = max((int(p.read_text()) for p in states), default=0)
    device = system.path("/dev/cpu_dma_latency")
    found = f"driver {driver}, deepest state takes {deepest} us to leave" if states else f"driver {driver}"
    if system.may_write(device):
        return Check("idle states", "ok", f"{found}; /dev/cpu_dma_latency may be held at 0")
    if not device.exists():
        return Check("idle states", "warn", f"{found}; no /dev/cpu_dma_latency", "waking a sleeping core takes longer")
    meaning = "waking a sleeping core takes up to tens of microseconds: matters for adaptive and blocking mode"
    return Check(
        "idle states", "warn", f"{found}; /dev/cpu_dma_latency not writable", meaning, f"sudo chmod o+w {device}"
    )


def governor(system: System) -> Check:
    """Frequency governors."""
    found: dict[str, list[int]] = {}
    for cpu in system.allowed:
        name = system.read(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")
        if name:
            found.setdefault(name, []).append(cpu)
    if not found:
        return Check("governor", "ok", "no frequency scaling that this system can see")
    text = ", ".join(f"{name}: CPUs {_cpus_text(cpus)}" for name, cpus in found.items())
    if set(found) == {"performance"}:
        return Check("governor", "ok", text)
    mend = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    return Check("governor", "warn", text, "cores start slow after each idle period", mend)


def hugepages(system: System) -> Check:
    """Reserved huge pages."""
    total, free = system.meminfo_kib("HugePages_Total") or 0, system.meminfo_kib("HugePages_Free") or 0
    size = (system.meminfo_kib("Hugepagesize") or 2048) // 1024
    found = f"{free} of {total} free, {size} MiB each"
    if free >= 8:
        return Check("huge pages", "ok", found)
    meaning = "arenas use ordinary pages: more TLB misses with many buffers"
    return Check("huge pages", "warn", found, meaning, "echo 64 | sudo tee /proc/sys/vm/nr_hugepages")


def thp(system: System) -> Check:
    """Transparent huge pages for shared memory, where arenas live."""
    text = system.read("/sys/kernel/mm/transparent_hugepage/shmem_enabled") or ""
    chosen = text.partition("[")[2].partition("]")[0] or "unknown"
    if chosen in ("always", "within_size", "advise", "force"):
        return Check("transparent huge pages", "ok", f"for shared memory: {chosen}")
    mend = "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled"
    return Check(
        "transparent huge pages", "warn", f"for shared memory: {chosen}", "arenas get no huge pages unasked", mend
    )


def memlock(system: System) -> Check:
    """RLIMIT_MEMLOCK."""
    limit = system.memlock_bytes()
    if limit < 0 or limit >= 64 << 20:
        return Check("memlock", "ok", "unlimited" if limit < 0 else f"{limit >> 20} MiB")
    if "CAP_IPC_LOCK" in system.capabilities():
        return Check("memlock", "ok", f"{limit >> 10} KiB, and CAP_IPC_LOCK lifts it")
    mend = "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/corelane.conf  # then log in again"
    return Check(
        "memlock", "warn", f"{limit >> 10} KiB", "buffers may be swapped, and AF_XDP may be refused memory", mend
    )


def capabilities(system: System) -> Check:
    """What needs root."""
    have = system.capabilities()
    missing = [name for name in CAPABILITIES if name not in have]
    if not missing:
        return Check("capabilities", "ok", "all that any driver needs")
    meaning = "AF_XDP and tap cannot be set up; the software NIC needs none of them"
    return Check("capabilities", "missing", f"without {', '.join(missing)}", meaning, "sudo corelane up")


def afxdp(system: System) -> Check:
    """AF_XDP sockets."""
    code = system.afxdp_errno()
    if code == 0:
        btf = system.path("/sys/kernel/btf/vmlinux").exists()
        return Check("AF_XDP", "ok", "sockets can be made" + ("" if btf else "; the kernel carries no BTF"))
    if code in (errno.EPERM, errno.EACCES):
        return Check(
            "AF_XDP", "missing", "not permitted", "real NICs need CAP_NET_RAW", "sudo corelane up --nic af_xdp:IF"
        )
    if code == errno.EAFNOSUPPORT:
        meaning = "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): use --nic tap:IF, or the software NIC"
        return Check("AF_XDP", "missing", "not in this kernel", meaning, "sudo apt-get install linux-image-amd64")
    return Check("AF_XDP", "missing", errno.errorcode.get(code, str(code)), "use --nic tap:IF, or the software NIC")


def tun(system: System) -> Check:
    """/dev/net/tun."""
    device = system.path("/dev/net/tun")
    if not device.exists():
        mend = "sudo mkdir -p /dev/net && sudo mknod /dev/net/tun c 10 200 && sudo chmod 666 /dev/net/tun"
        return Check("tap", "missing", "no /dev/net/tun", "tap devices cannot be made", mend)
    if not system.may_write(device):
        return Check(
            "tap", "missing", "/dev/net/tun is not writable", "tap devices cannot be made", f"sudo chmod 666 {device}"
        )
    return Check("tap", "ok", "/dev/net/tun may be opened")


def clock(system: System) -> Check:
    """Clock source and TSC."""
    source = system.read("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    flags = set(system.cpuinfo("flags").split())
    if system.machine == "aarch64":
        return Check("clock", "ok", f"clock source {source}; the generic timer is invariant")
    invariant = {"constant_tsc", "nonstop_tsc"} <= flags
    found = f"clock source {source}, TSC {'invariant' if invariant else 'not invariant'}"
    if source == "tsc" and invariant:
        return Check("clock", "ok", found)
    if invariant and source in ("kvm-clock", "hyperv_clocksource_tsc_page", "xen"):
        return Check("clock", "ok", found, "timestamps are taken from the TSC all the same")
    mend = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
    return Check("clock", "warn", found, "timestamps come from clock_gettime: tens of nanoseconds each, or more", mend)


def _of_device(interrupt: Interrupt) -> bool:
    """Whether an interrupt is a disk's or a NIC's data queue, judged by its name."""
    name = interrupt.name.lower()
    quiet = ("config", "stats", "balloon", "inflate", "deflate", "reporting", "ttys", "rtc", "acpi")
    if any(word in name for word in quiet):
        return False
    return any(
        word in name for word in ("req", "nvme", "ahci", "scsi", "input", "output", "rx", "tx", "eth", "en", "mlx")
    )


def interrupts(system: System) -> Check:
    """Which CPU takes the interrupts of disks and NICs: the worst place for a thread that spins."""
    busy: dict[int, list[Interrupt]] = {}
    for interrupt in system.interrupts():
        if _of_device(interrupt) and interrupt.total >= 1000:
            cpu = max(interrupt.by_cpu, key=lambda c: interrupt.by_cpu[c])
            if cpu in system.allowed:
                busy.setdefault(cpu, []).append(interrupt)
    if not busy:
        return Check("interrupts", "ok", "no busy device interrupt on a usable CPU")
    names = "; ".join(f"CPU {cpu}: {', '.join(i.name for i in found)}" for cpu, found in sorted(busy.items()))
    weight = {cpu: sum(i.total for i in busy.get(cpu, [])) for cpu in system.allowed}
    quiet = min(weight, key=lambda c: weight[c])
    worst = max((i for found in busy.values() for i in found), key=lambda i: i.total)
    meaning = (
        "a disk write completes in a kernel thread on that CPU: a thread that spins there delays it to the next tick, "
        f"up to 4 ms; poll on CPU {quiet}"
    )
    mend = (
        f"echo {quiet} | sudo tee /proc/irq/{worst.number}/smp_affinity_list  # then poll on another CPU than {quiet}"
    )
    if len(system.allowed) > 1:
        mend = f"corelane up --cores {quiet}"
    return Check("interrupts", "warn", names, meaning, mend)


def memory(system: System) -> Check:
    """Free memory for the default arenas."""
    free = system.meminfo_kib("MemAvailable")
    if free is None:
        return Check("memory", "warn", "unknown", "/proc/meminfo cannot be read")
    if free < 128 << 10:
        meaning = "an iokernel and one application take up to 128 MiB"
        return Check("memory", "missing", f"{free >> 10} MiB available", meaning, "free some memory", required=True)
    return Check("memory", "ok", f"{free >> 10} MiB available")


def _quota(system: System) -> float | None:
    """CPUs that the cgroup allows this process, v2 or v1; None for no limit."""
    for line in (system.read("/proc/self/cgroup") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            base = f"/sys/fs/cgroup{path}"
            while True:
                words = (system.read(f"{base}/cpu.max") or "max").split()
                if words[0] != "max" and len(words) == 2:
                    return int(words[0]) / int(words[1])
                if base.rstrip("/") in ("/sys/fs/cgroup", ""):
                    break
                base = base.rstrip("/").rpartition("/")[0]
        elif "cpu" in controllers.split(","):
            quota = system.read(f"/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us")
            period = system.read(f"/sys/fs/cgroup/cpu{path}/cpu.cfs_period_us")
            if quota and period and int(quota) > 0:
                return int(quota) / int(period)
    return None


def container(system: System) -> Check:
    """CPU limits of a container: throttling stops a polling thread for tens of milliseconds."""
    quota = _quota(system)
    inside = system.path("/.dockerenv").exists() or system.path("/run/.containerenv").exists()
    where = "in a container" if inside else "no container that this system can see"
    if quota is None:
        return Check("cgroup", "ok", f"{where}; no CPU limit")
    meaning = "threads that spin use the quota up and are then stopped for the rest of each period"
    if quota >= len(system.allowed):
        return Check("cgroup", "ok", f"{where}; limit {quota:g} CPUs, no less than may be used")
    mend = "docker run --cpuset-cpus 0,1 ...  # cores instead of a quota; or: corelane up --poll adaptive"
    return Check("cgroup", "warn", f"{where}; limit {quota:g} of {len(system.allowed)} CPUs", meaning, mend)


def virtual(system: System) -> Check:
    """Virtualisation and stolen time."""
    words = (system.read("/proc/stat") or "").splitlines()[:1]
    ticks = [int(w) for w in words[0].split()[1:]] if words else []
    total = sum(ticks[:8])
    stolen = ticks[7] / total if len(ticks) > 7 and total else 0.0
    inside = "hypervisor" in system.cpuinfo("flags").split()
    found = (
        f"{'virtual machine' if inside else 'no hypervisor seen'}, {100 * stolen:.2g} % of CPU time stolen since boot"
    )
    if stolen >= 0.01:
        meaning = "the host runs others on these CPUs: tails are its, see corelane bench canary"
        return Check("virtualisation", "warn", found, meaning, "corelane bench canary")
    return Check("virtualisation", "ok", found)


CHECKS: tuple[Callable[[System], Check], ...] = (
    machine,
    cpus,
    memory,
    smt,
    isolation,
    interrupts,
    idle,
    governor,
    clock,
    virtual,
    container,
    hugepages,
    thp,
    memlock,
    capabilities,
    afxdp,
    tun,
)


def examine(system: System) -> list[Check]:
    """All checks, in the order in which they are shown."""
    return [check(system) for check in CHECKS]

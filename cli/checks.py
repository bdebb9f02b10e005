"""The checks of `corelane doctor`: one function each, from a System to a Check. Add one by writing it into CHECKS.

A check is `ok`, `warn` (works, but slower or less predictable) or `missing` (a feature cannot be used). A missing check
that is `required` means that even the default path, the software NIC without root, cannot run. What is not ok has a
command that mends it, or the reason why none does here; never neither, never both.
"""

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..runtime.placement import choose
from ..runtime.topology import format_cpu_list
from .system import CAPABILITIES, System

State = Literal["ok", "warn", "missing"]
BUSY_INTERRUPTS = 1000  # since boot; fewer are set-up and do not matter


@dataclass(frozen=True)
class Check:
    """One line of the doctor.

    found: what is. meaning: what follows from it. mend: a command to type as it stands, "" if there is none; stuck: why
    there is none.
    """

    name: str
    state: State
    found: str
    meaning: str = ""
    mend: str = ""
    required: bool = False
    stuck: str = ""


def kernel_option(options: str) -> str:
    """A command that adds options to the kernel's command line and starts the machine anew."""
    return f"sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{options} /' /etc/default/grub && sudo update-grub && sudo reboot"


def newer_kernel(system: System) -> str:
    """A command that installs the distribution's current kernel."""
    kind = {"aarch64": "arm64"}.get(system.machine, "amd64")
    return f"sudo apt-get install linux-image-{kind} && sudo reboot"


def machine(system: System) -> Check:
    """Architecture and kernel: what nothing works without."""
    major, minor = system.kernel()
    found = f"{system.machine}, Linux {system.read('/proc/sys/kernel/osrelease') or 'of unknown version'}"
    if system.machine not in ("x86_64", "aarch64"):
        meaning = "user-level threads are written for x86-64 and aarch64 only"
        return Check("machine", "missing", found, meaning, required=True, stuck="it needs another machine")
    if (major, minor) < (5, 1):
        meaning = "sealed read-only memory (F_SEAL_FUTURE_WRITE) came with Linux 5.1"
        return Check("machine", "missing", found, meaning, newer_kernel(system), required=True)
    if (major, minor) < (5, 11):
        meaning = "AF_XDP without memlock limits and with busy polling came with Linux 5.11"
        return Check("machine", "warn", found, meaning, newer_kernel(system))
    return Check("machine", "ok", found)


def cpus(system: System) -> Check:
    """How many CPUs this process may use, and how they would be shared out."""
    usable = system.topology.usable
    found = f"{len(usable)} usable: {format_cpu_list(usable)}"
    if len(usable) == 1:
        meaning = "iokernel and application share one core, by blocking: use embedded mode, or allow a second core"
        if len(system.topology.cpus) == 1:
            return Check("cpus", "warn", found, meaning, stuck="the machine has one CPU")
        wide = format_cpu_list(sorted(system.topology.cpus))
        cpuset = system.topology.cpuset
        if cpuset is not None and len(cpuset) == 1:
            why = "the cgroup's cpuset allows one CPU: whoever started the container sets it"
            return Check("cpus", "warn", found, meaning, stuck=why)
        return Check("cpus", "warn", found, meaning, f"taskset -pc {wide} $$")
    plan = choose(system.topology, kthreads=len(usable) - 1)
    return Check("cpus", "ok", f"{found}; `corelane up` polls on CPU {format_cpu_list(plan.iokernel)}")


def smt(system: System) -> Check:
    """Hyper-threads: two spinning threads on one core take each other's half."""
    machine_, usable = system.topology, set(system.topology.usable)
    shared = sorted({tuple(sorted(set(machine_.cpus[c].siblings) & usable)) for c in usable})
    shared = [s for s in shared if len(s) > 1]
    if not shared:
        return Check("smt", "ok", "no core is shared by two usable CPUs")
    found = "CPUs that share a core: " + " ".join(format_cpu_list(s) for s in shared)
    meaning = "a polled CPU slows its sibling down: corelane takes whole cores first, and then has fewer CPUs"
    return Check("smt", "warn", found, meaning, "echo off | sudo tee /sys/devices/system/cpu/smt/control")


def isolation(system: System) -> Check:
    """isolcpus and nohz_full."""
    usable = system.topology.usable
    isolated = [c for c in usable if system.topology.cpus[c].isolated]
    tickless = [c for c in usable if system.topology.cpus[c].tickless]
    if isolated and set(isolated) <= set(tickless):
        return Check("isolation", "ok", f"isolated and without tick: {format_cpu_list(isolated)}")
    found = f"isolated: {format_cpu_list(isolated)}; without tick: {format_cpu_list(tickless)}"
    meaning = "other threads and the timer tick interrupt polled cores: tens of microseconds, from p99.5 on"
    cores = format_cpu_list(list(usable[1:] or usable))
    mend = kernel_option(f"isolcpus={cores} nohz_full={cores} rcu_nocbs={cores}")
    return Check("isolation", "warn", found, meaning, mend)


def sessions(system: System) -> Check:
    """Whether the kernel shares out CPUs between sessions (sched(7), autogroup)."""
    if (system.read("/proc/sys/kernel/sched_autogroup_enabled") or "0") == "0":
        return Check("sessions", "ok", "threads share a CPU whatever session they are of")
    found = "each session (terminal, setsid) is one group, and groups share a CPU"
    meaning = "beside programs of other sessions a loop or kthread has its group's part; seconds without any were seen"
    mend = "echo 0 | sudo tee /proc/sys/kernel/sched_autogroup_enabled"
    return Check("sessions", "warn", found, meaning, mend)


def allow(system: System, device: str, rights: str) -> str:
    """The command that lets this user, and nobody else, use a device. A small Debian comes without setfacl."""
    install = "" if system.path("/usr/bin/setfacl").exists() else "sudo apt-get install acl && "
    return f"{install}sudo setfacl -m u:$(id -un):{rights} {device}"


def idle(system: System) -> Check:
    """Deep idle states, and whether /dev/cpu_dma_latency may be held at 0."""
    driver = system.read("/sys/devices/system/cpu/cpuidle/current_driver") or "none"
    machine_ = system.topology
    states = any(machine_.cpus[c].idle_states for c in machine_.usable)
    deepest = max((machine_.cpus[c].deepest_idle_us for c in machine_.usable), default=0)
    device = system.path("/dev/cpu_dma_latency")
    found = f"driver {driver}, deepest state takes {deepest} us to leave" if states else f"driver {driver}"
    if system.may_write(device):
        return Check("idle states", "ok", f"{found}; /dev/cpu_dma_latency may be held at 0")
    meaning = "waking a sleeping core takes up to tens of microseconds: matters for adaptive and blocking mode"
    if device.exists():
        mend = allow(system, "/dev/cpu_dma_latency", "w")
        return Check("idle states", "warn", f"{found}; /dev/cpu_dma_latency not writable", meaning, mend)
    found += "; no /dev/cpu_dma_latency"
    if number := system.misc_device("cpu_dma_latency"):
        mend = f"sudo mknod -m 600 /dev/cpu_dma_latency c 10 {number} && {allow(system, '/dev/cpu_dma_latency', 'w')}"
        return Check("idle states", "warn", found, meaning, mend)
    if states:
        mend = "echo 1 | sudo tee /sys/devices/system/cpu/cpu*/cpuidle/state[1-9]*/disable"
        return Check("idle states", "warn", found, meaning, mend)
    return Check("idle states", "warn", found, meaning, stuck="the host, not this system, puts the cores to sleep")


def governor(system: System) -> Check:
    """Frequency governors."""
    found: dict[str, list[int]] = {}
    for cpu in system.topology.usable:
        name = system.read(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")
        if name:
            found.setdefault(name, []).append(cpu)
    if not found:
        return Check("governor", "ok", "no frequency scaling that this system can see")
    text = ", ".join(f"{name}: CPUs {format_cpu_list(cpus)}" for name, cpus in found.items())
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
    meaning = "arenas get no huge pages unasked"
    if not text:
        why = "this kernel has none (CONFIG_TRANSPARENT_HUGEPAGE)"
        return Check("transparent huge pages", "warn", f"for shared memory: {chosen}", meaning, stuck=why)
    mend = "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled"
    return Check("transparent huge pages", "warn", f"for shared memory: {chosen}", meaning, mend)


def memlock(system: System) -> Check:
    """RLIMIT_MEMLOCK."""
    limit = system.memlock_bytes()
    if limit < 0 or limit >= 64 << 20:
        return Check("memlock", "ok", "unlimited" if limit < 0 else f"{limit >> 20} MiB")
    if "CAP_IPC_LOCK" in system.capabilities():
        return Check("memlock", "ok", f"{limit >> 10} KiB, and CAP_IPC_LOCK lifts it")
    line = 'echo "$(id -un) - memlock unlimited"'
    mend = f"{line} | sudo tee /etc/security/limits.d/corelane.conf  # then log in again"
    return Check(
        "memlock", "warn", f"{limit >> 10} KiB", "buffers may be swapped, and AF_XDP may be refused memory", mend
    )


def this_command() -> str:
    """This very command, for root, on whose path it may not be."""
    path = Path(sys.executable).with_name("corelane")
    return shlex.quote(str(path)) if path.exists() else '"$(command -v corelane)"'


def capabilities(system: System) -> Check:
    """What needs root."""
    have = system.capabilities()
    missing = [name for name in CAPABILITIES if name not in have]
    if not missing:
        return Check("capabilities", "ok", "all that any driver needs")
    meaning = "AF_XDP and tap cannot be set up; the software NIC needs none of them"
    found = f"without {', '.join(missing)}"
    if system.is_root():
        flags = " ".join(f"--cap-add={name.removeprefix('CAP_')}" for name in missing)
        why = f"this root is a container's, and is given capabilities only when it is started (docker run {flags})"
        return Check("capabilities", "missing", found, meaning, stuck=why)
    return Check("capabilities", "missing", found, meaning, f"sudo {this_command()} up")


def afxdp(system: System) -> Check:
    """AF_XDP sockets."""
    code = system.afxdp_errno()
    if code == 0:
        btf = system.path("/sys/kernel/btf/vmlinux").exists()
        return Check("AF_XDP", "ok", "sockets can be made" + ("" if btf else "; the kernel carries no BTF"))
    if code in (errno.EPERM, errno.EACCES):
        meaning = "real NICs need CAP_NET_RAW: use the software NIC"
        if "CAP_NET_RAW" in system.capabilities():
            why = "CAP_NET_RAW is there, so a filter of system calls refuses (docker run --security-opt seccomp=FILE)"
            return Check("AF_XDP", "missing", "not permitted", meaning, stuck=why)
        if system.is_root():
            why = "a container is given CAP_NET_RAW only when it is started (docker run --cap-add=NET_RAW)"
            return Check("AF_XDP", "missing", "not permitted", meaning, stuck=why)
        return Check("AF_XDP", "missing", "not permitted", meaning, f"sudo {this_command()} doctor")
    if code == errno.EAFNOSUPPORT:
        meaning = "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): use --nic tap:IF, or the software NIC"
        return Check("AF_XDP", "missing", "not in this kernel", meaning, newer_kernel(system))
    found, meaning = errno.errorcode.get(code, str(code)), "use --nic tap:IF, or the software NIC"
    if code in (errno.EMFILE, errno.ENFILE):
        mend = "ulimit -n 65536" if code == errno.EMFILE else "sudo sysctl -w fs.file-max=1000000"
        return Check("AF_XDP", "missing", f"{found}: too many open files", meaning, mend)
    if code in (errno.ENOMEM, errno.ENOBUFS):
        return Check(
            "AF_XDP", "missing", f"{found}: no memory for it", meaning, "sudo prlimit --pid $$ --memlock=unlimited"
        )
    why = f"making a socket of family AF_XDP fails with {found}, which no setting of this system explains"
    return Check("AF_XDP", "missing", found, meaning, stuck=why)


TAP_FOR_USER = (
    "sudo ip tuntap add dev cl0 mode tap user $(id -un) && sudo ip address add 10.77.0.1/16 dev cl0 && "
    "sudo ip link set cl0 up"
)
"""Makes a tap that this user may open without root: `corelane up --nic tap:cl0`."""


def tun(system: System) -> Check:
    """/dev/net/tun, and who may make taps."""
    device, meaning = system.path("/dev/net/tun"), "tap devices cannot be made"
    open_ = allow(system, "/dev/net/tun", "rw")
    if not device.exists():
        mend = f"sudo mkdir -p /dev/net && sudo mknod -m 600 /dev/net/tun c 10 200 && {open_}"
        return Check("tap", "missing", "no /dev/net/tun", meaning, mend)
    if not system.may_write(device):
        mend = f"{open_} && {TAP_FOR_USER}"
        return Check("tap", "missing", "/dev/net/tun is not writable", meaning, mend)
    if "CAP_NET_ADMIN" in system.capabilities():
        return Check("tap", "ok", "/dev/net/tun may be opened, and taps made")
    if taps := system.own_taps():
        return Check("tap", "ok", f"made for this user: {', '.join(taps)}")
    found = "without CAP_NET_ADMIN, and none is made for this user"
    return Check("tap", "missing", found, "without root only a tap that root has made for this user", TAP_FOR_USER)


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
    meaning = "timestamps come from clock_gettime: tens of nanoseconds each, or more"
    if not invariant:
        return Check("clock", "warn", found, meaning, stuck="the processor's counter changes its rate, or stops")
    choice = system.read("/sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    if "tsc" in choice.split():
        mend = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
        return Check("clock", "warn", found, meaning, mend)
    return Check("clock", "warn", found, meaning, kernel_option("tsc=reliable"))


def interrupts(system: System) -> Check:
    """Which CPUs take the interrupts of disks and NICs: the worst places for a thread that spins."""
    machine_ = system.topology
    busy = [i for i in machine_.interrupts if i.kind in ("disk", "nic") and i.total >= BUSY_INTERRUPTS]
    by_cpu = {cpu: [i for i in busy if cpu in i.cpus] for cpu in machine_.usable}
    if not any(by_cpu.values()):
        return Check("interrupts", "ok", "no busy disk or NIC interrupt on a usable CPU")
    found = "; ".join(f"CPU {cpu}: {', '.join(i.name for i in on)}" for cpu, on in by_cpu.items() if on)
    polled = choose(machine_, kthreads=max(len(machine_.usable) - 1, 1)).iokernel
    disks = [cpu for cpu, on in by_cpu.items() if any(i.kind == "disk" for i in on)]
    if not disks:
        meaning = "the kernel's work for these NICs is done on the same CPU, between the turns of a thread that spins"
        return Check("interrupts", "ok", found, meaning)
    meaning = (
        f"a disk write completes in a kernel thread on CPU {format_cpu_list(disks)}: a thread that spins there delays "
        f"it to the next tick, up to 4 ms; `corelane up` polls on CPU {format_cpu_list(polled)}"
    )
    others = [cpu for cpu in machine_.usable if cpu not in disks]
    if not others:
        return Check("interrupts", "warn", found, meaning, "corelane up --poll adaptive")
    worst = max((i for i in busy if i.kind == "disk"), key=lambda i: i.total)
    mend = f"echo {format_cpu_list(polled)} | sudo tee /proc/irq/{worst.number}/smp_affinity_list"
    mend += "  # if applications shall spin on the others; else leave it"
    return Check("interrupts", "warn", found, meaning, mend)


def memory(system: System) -> Check:
    """Free memory for the default arenas."""
    free = system.meminfo_kib("MemAvailable")
    if free is None:
        mend = "sudo mount -t proc proc /proc"
        return Check("memory", "warn", "unknown", "/proc/meminfo cannot be read", mend)
    if free < 128 << 10:
        meaning = "an iokernel and one application take up to 128 MiB"
        if system.meminfo_kib("HugePages_Free"):
            mend = "echo 0 | sudo tee /proc/sys/vm/nr_hugepages"
        else:
            swap = "/var/corelane-swap"
            mend = f"sudo fallocate -l 1G {swap} && sudo chmod 600 {swap} && sudo mkswap {swap} && sudo swapon {swap}"
        return Check("memory", "missing", f"{free >> 10} MiB available", meaning, mend, required=True)
    return Check("memory", "ok", f"{free >> 10} MiB available")


def container(system: System) -> Check:
    """CPU limits of a container: throttling stops a polling thread for tens of milliseconds."""
    quota = system.topology.quota_cpus
    inside = system.path("/.dockerenv").exists() or system.path("/run/.containerenv").exists()
    where = "in a container" if inside else "no container that this system can see"
    if quota is None:
        return Check("cgroup", "ok", f"{where}; no CPU limit")
    meaning = "threads that spin use the quota up and are then stopped for the rest of each period"
    if quota >= len(system.topology.usable):
        return Check("cgroup", "ok", f"{where}; limit {quota:g} CPUs, no less than may be used")
    found = f"{where}; limit {quota:g} of {len(system.topology.usable)} CPUs"
    name = system.read("/proc/sys/kernel/hostname")
    if inside:
        if not name:
            return Check("cgroup", "warn", found, meaning, stuck="whoever started the container set the limit")
        mend = f"docker update --cpu-quota=-1 {name}  # on the host"
        return Check("cgroup", "warn", found, meaning, mend)
    limits = " && ".join(f"echo {word} | sudo tee {path}" for path, word in system.quota_files())
    return Check("cgroup", "warn", found, meaning, limits or "corelane up --poll adaptive")


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
        meaning = "the host runs others on these CPUs: tails are its (corelane bench canary shows them)"
        return Check("virtualisation", "warn", found, meaning, stuck="only the host can give these CPUs to it alone")
    return Check("virtualisation", "ok", found)


CHECKS: tuple[Callable[[System], Check], ...] = (
    machine,
    cpus,
    memory,
    smt,
    isolation,
    interrupts,
    sessions,
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

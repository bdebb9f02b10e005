"""The doctor, on trees of files that look like machines."""

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from corelane.cli import checks
from corelane.cli.checks import Check, examine
from corelane.cli.doctor import can_run, render, verdict
from corelane.cli.main import main
from corelane.cli.system import System

GOOD_FILES = {
    "/proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "/proc/cpuinfo": "processor : 0\nflags : fpu tsc constant_tsc nonstop_tsc\n",
    "/proc/meminfo": "MemAvailable: 8000000 kB\nHugePages_Total: 64\nHugePages_Free: 64\nHugepagesize: 2048 kB\n",
    "/proc/self/status": "CapEff:\t000001ffffffffff\n",
    "/proc/self/cgroup": "0::/\n",
    "/proc/stat": "cpu  100 0 100 1000 0 0 0 0 0 0\n",
    "/proc/interrupts": "      CPU0  CPU1\n 36:  1  2  PCI-MSIX 1-edge  virtio1-req.0\nLOC: 9 9 Local timer\n",
    "/sys/devices/system/cpu/online": "0-1",
    "/sys/devices/system/cpu/isolated": "1",
    "/sys/devices/system/cpu/nohz_full": "1",
    "/sys/devices/system/cpu/cpuidle/current_driver": "intel_idle",
    "/sys/devices/system/cpu/cpu0/cpuidle/state0/latency": "0",
    "/sys/devices/system/cpu/cpu0/cpuidle/state3/latency": "133",
    "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0",
    "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled": "always within_size [advise] never deny force",
    "/sys/kernel/btf/vmlinux": "",
    "/dev/cpu_dma_latency": "",
    "/dev/net/tun": "",
}

Make = Callable[..., System]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A System on a fake tree: the good machine with `files` changed (None: without that file)."""

    def build(
        files: dict[str, str | None] | None = None,
        *,
        allowed: tuple[int, ...] = (0, 1),
        machine: str = "x86_64",
        afxdp: int = 0,
        memlock: int = -1,
        writable: bool = True,
    ) -> System:
        for name, text in (GOOD_FILES | (files or {})).items():
            if text is not None:
                path = tmp_path / name.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return System(
            tmp_path, machine, list(allowed), lambda: afxdp, lambda: memlock, lambda p: writable and p.exists()
        )

    return build


def test_a_good_machine_has_nothing_to_mend(make: Make) -> None:
    found = examine(make())
    assert [c.name for c in found if c.state != "ok"] == []
    assert can_run(found)
    assert verdict(found) == "corelane runs here"


def test_an_empty_machine_is_described_and_not_crashed_on(tmp_path: Path) -> None:
    system = System(tmp_path, "x86_64", [0], lambda: errno.EAFNOSUPPORT, lambda: 0, lambda p: False)
    found = examine(system)
    assert len(found) == len(checks.CHECKS)
    assert not can_run(found)


@pytest.mark.parametrize(
    ("check", "files", "options", "state", "finding", "mend"),
    [
        (checks.machine, {"/proc/sys/kernel/osrelease": "4.19.0"}, {}, "missing", "4.19", "apt-get"),
        (checks.machine, {"/proc/sys/kernel/osrelease": "5.4.0"}, {}, "warn", "5.4", "apt-get"),
        (checks.machine, {}, {"machine": "riscv64"}, "missing", "riscv64", "x86-64"),
        (checks.cpus, {}, {"allowed": (1,)}, "warn", "1 usable: 1", "taskset"),
        (
            checks.smt,
            {
                "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0-1",
                "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "0-1",
            },
            {},
            "warn",
            "share a core: 0-1",
            "smt/control",
        ),
        (
            checks.isolation,
            {"/sys/devices/system/cpu/isolated": ""},
            {},
            "warn",
            "isolated: none",
            "isolcpus=1 nohz_full=1",
        ),
        (checks.idle, {}, {"writable": False}, "warn", "133 us", "chmod"),
        (checks.idle, {"/dev/cpu_dma_latency": None}, {}, "warn", "no /dev/cpu_dma_latency", ""),
        (
            checks.governor,
            {"/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave"},
            {},
            "warn",
            "powersave: CPUs 1",
            "echo performance",
        ),
        (
            checks.hugepages,
            {"/proc/meminfo": "HugePages_Total: 0\nHugePages_Free: 0\n"},
            {},
            "warn",
            "0 of 0",
            "nr_hugepages",
        ),
        (
            checks.thp,
            {"/sys/kernel/mm/transparent_hugepage/shmem_enabled": "always advise [never]"},
            {},
            "warn",
            "never",
            "echo advise",
        ),
        (
            checks.memlock,
            {"/proc/self/status": "CapEff:\t0000000000000000\n"},
            {"memlock": 8 << 20},
            "warn",
            "8192 KiB",
            "limits.d",
        ),
        (checks.memlock, {}, {"memlock": 8 << 20}, "ok", "CAP_IPC_LOCK", ""),
        (
            checks.capabilities,
            {"/proc/self/status": "CapEff:\t0000000000002000\n"},
            {},
            "missing",
            "without CAP_NET_ADMIN, CAP_IPC_LOCK",
            "sudo",
        ),
        (checks.afxdp, {}, {"afxdp": errno.EPERM}, "missing", "not permitted", "sudo"),
        (checks.afxdp, {}, {"afxdp": errno.EAFNOSUPPORT}, "missing", "not in this kernel", "apt-get"),
        (checks.tun, {"/dev/net/tun": None}, {}, "missing", "no /dev/net/tun", "mknod"),
        (checks.tun, {}, {"writable": False}, "missing", "not writable", "chmod"),
        (
            checks.clock,
            {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
            {},
            "warn",
            "hpet",
            "echo tsc",
        ),
        (
            checks.interrupts,
            {"/proc/interrupts": "      CPU0  CPU1\n 36:  3  90000  PCI-MSIX 1-edge  virtio1-req.0\n"},
            {},
            "warn",
            "CPU 1: virtio1-req.0",
            "/proc/irq/36/smp_affinity_list",
        ),
        (checks.virtual, {"/proc/stat": "cpu 100 0 100 1000 0 0 0 300 0 0\n"}, {}, "warn", "20 %", "bench canary"),
        (checks.memory, {"/proc/meminfo": "MemAvailable: 1000 kB\n"}, {}, "missing", "0 MiB", "free"),
        (
            checks.container,
            {
                "/proc/self/cgroup": "0::/x/y\n",
                "/sys/fs/cgroup/cgroup.controllers": "cpu",
                "/sys/fs/cgroup/x/cpu.max": "150000 100000",
            },
            {},
            "warn",
            "1.5 of 2 CPUs",
            "cpuset",
        ),
        (
            checks.container,
            {
                "/proc/self/cgroup": "4:cpu,cpuacct:/d\n",
                "/sys/fs/cgroup/cpu/d/cpu.cfs_quota_us": "50000",
                "/sys/fs/cgroup/cpu/d/cpu.cfs_period_us": "100000",
            },
            {},
            "warn",
            "0.5 of 2 CPUs",
            "cpuset",
        ),
    ],
)
def test_each_fault_is_found_and_mended(
    make: Make,
    check: Callable[[System], Check],
    files: dict[str, str | None],
    options: dict[str, object],
    state: str,
    finding: str,
    mend: str,
) -> None:
    got = check(make(files, **options))
    assert got.state == state
    assert finding in got.found
    assert mend in got.mend
    if state != "ok":
        assert got.meaning


def test_the_disk_interrupt_decides_the_polled_core(make: Make) -> None:
    """The 4 ms trap: a thread that spins where a disk's interrupt lands delays every synchronous write."""
    table = "      CPU0  CPU1\n 36:  90000  3  PCI-MSIX 1-edge  nvme0q1\n 37: 5 5 IO-APIC 4-edge ttyS0\n"
    got = checks.interrupts(make({"/proc/interrupts": table}))
    assert "4 ms" in got.meaning
    assert "polls on CPU 1" in got.meaning
    both = "      CPU0  CPU1\n 36:  90000  90000  PCI-MSIX 1-edge  nvme0q1\n"
    assert checks.interrupts(make({"/proc/interrupts": both})).mend == "corelane up --poll adaptive"


def test_only_nic_interrupts_are_no_warning(make: Make) -> None:
    table = "      CPU0  CPU1\n 36:  90000  3  PCI-MSIX 1-edge  eth0-rx-0\n"
    got = checks.interrupts(make({"/proc/interrupts": table}))
    assert got.state == "ok"
    assert "eth0-rx-0" in got.found


def test_rendering_says_what_and_how(make: Make) -> None:
    found = examine(make({"/dev/net/tun": None, "/sys/devices/system/cpu/isolated": ""}))
    text = render(found)
    assert "missing  tap" in text
    assert "$ sudo mkdir -p /dev/net" in text
    assert text.endswith("corelane runs here, without tap; 1 thing(s) would make it faster or steadier")
    assert "machine" not in render(found, brief=True)
    assert "\x1b[33m" in render(found, colour=True)


def test_this_machine_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["can_run"] is (code == 0)
    assert {c["name"] for c in document["checks"]} >= {"cpus", "AF_XDP", "clock", "interrupts"}
    assert all(set(c) == {"name", "state", "found", "meaning", "mend", "required"} for c in document["checks"])

"""The doctor, on trees of files that look like machines."""

import errno
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corelane.cli import checks
from corelane.cli.checks import Check, examine
from corelane.cli.doctor import can_run, render, verdict
from corelane.cli.main import main
from corelane.cli.system import System
from corelane.cli.values import wrapped_command

GOOD_FILES = {
    "/proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "/proc/cpuinfo": "processor : 0\nflags : fpu tsc constant_tsc nonstop_tsc\n",
    "/proc/meminfo": "MemAvailable: 8000000 kB\nHugePages_Total: 64\nHugePages_Free: 64\nHugepagesize: 2048 kB\n",
    "/proc/self/status": "CapEff:\t000001ffffffffff\n",
    "/proc/self/cgroup": "0::/\n",
    "/proc/stat": "cpu  100 0 100 1000 0 0 0 0 0 0\n",
    "/proc/interrupts": "      CPU0  CPU1\n 36:  1  2  PCI-MSIX 1-edge  virtio1-req.0\nLOC: 9 9 Local timer\n",
    "/proc/sys/kernel/sched_autogroup_enabled": "0",
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
    "/usr/bin/setfacl": "",
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


def test_users_are_known_whatever_the_process_is_called(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_bytes(b"Name:\t\xff\nUid:\t5\t6\t7\t8\n")
    assert System(tmp_path, "x86_64", [0]).user() == "6"


def test_an_empty_machine_is_described_and_not_crashed_on(tmp_path: Path) -> None:
    system = System(tmp_path, "x86_64", [0], lambda: errno.EAFNOSUPPORT, lambda: 0, lambda p: False)
    found = examine(system)
    assert len(found) == len(checks.CHECKS)
    assert not can_run(found)
    assert [c.name for c in found if c.state != "ok" and bool(c.mend) == bool(c.stuck)] == []


@pytest.mark.parametrize(
    ("check", "files", "options", "state", "finding", "mend"),
    [
        (checks.machine, {"/proc/sys/kernel/osrelease": "4.19.0"}, {}, "missing", "4.19", "apt-get"),
        (checks.machine, {"/proc/sys/kernel/osrelease": "5.4.0"}, {}, "warn", "5.4", "apt-get"),
        (checks.machine, {}, {"machine": "riscv64"}, "missing", "riscv64", "STUCK another machine"),
        (
            checks.machine,
            {"/proc/sys/kernel/osrelease": "4.9.0"},
            {"machine": "aarch64"},
            "missing",
            "4.9",
            "image-arm64",
        ),
        (checks.cpus, {}, {"allowed": (1,)}, "warn", "1 usable: 1", "taskset -pc 0-1 $$"),
        (
            checks.cpus,
            {"/sys/devices/system/cpu/online": "0"},
            {"allowed": (0,)},
            "warn",
            "1 usable: 0",
            "STUCK the machine has one CPU",
        ),
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
        (checks.idle, {}, {"writable": False}, "warn", "133 us", "setfacl"),
        (
            checks.idle,
            {"/dev/cpu_dma_latency": None, "/proc/misc": "234 btrfs-control\n 59 cpu_dma_latency\n"},
            {},
            "warn",
            "no /dev/cpu_dma_latency",
            "mknod -m 600 /dev/cpu_dma_latency c 10 59",
        ),
        (checks.idle, {"/dev/cpu_dma_latency": None}, {}, "warn", "no /dev/cpu", "cpuidle/state[1-9]*/disable"),
        (
            checks.idle,
            {
                "/dev/cpu_dma_latency": None,
                "/sys/devices/system/cpu/cpu0/cpuidle/state0/latency": None,
                "/sys/devices/system/cpu/cpu0/cpuidle/state3/latency": None,
            },
            {},
            "warn",
            "no /dev/cpu_dma_latency",
            "STUCK the host",
        ),
        (
            checks.sessions,
            {"/proc/sys/kernel/sched_autogroup_enabled": "1"},
            {},
            "warn",
            "each session",
            "echo 0",
        ),
        (checks.sessions, {"/proc/sys/kernel/sched_autogroup_enabled": None}, {}, "ok", "whatever session", ""),
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
            checks.thp,
            {"/sys/kernel/mm/transparent_hugepage/shmem_enabled": None},
            {},
            "warn",
            "unknown",
            "STUCK CONFIG_TRANSPARENT_HUGEPAGE",
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
            f"sudo {checks.this_command()} up",
        ),
        (
            checks.capabilities,
            {"/proc/self/status": "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n"},
            {},
            "missing",
            "without CAP_NET_ADMIN",
            "STUCK --cap-add=NET_ADMIN",
        ),
        (
            checks.afxdp,
            {"/proc/self/status": "CapEff: 0\n"},
            {"afxdp": errno.EPERM},
            "missing",
            "not permitted",
            "sudo",
        ),
        (checks.afxdp, {}, {"afxdp": errno.EPERM}, "missing", "not permitted", "STUCK filter of system calls"),
        (
            checks.afxdp,
            {"/proc/self/status": "Uid: 0 0 0 0\nCapEff: 0\n"},
            {"afxdp": errno.EACCES},
            "missing",
            "not permitted",
            "STUCK --cap-add=NET_RAW",
        ),
        (checks.afxdp, {}, {"afxdp": errno.EMFILE}, "missing", "EMFILE", "ulimit -n"),
        (checks.afxdp, {}, {"afxdp": errno.ENFILE}, "missing", "ENFILE", "sysctl -w fs.file-max"),
        (checks.afxdp, {}, {"afxdp": errno.ENOBUFS}, "missing", "ENOBUFS", "--memlock=unlimited"),
        (checks.afxdp, {}, {"afxdp": errno.EPROTO}, "missing", "EPROTO", "STUCK no setting"),
        (checks.afxdp, {}, {"afxdp": errno.EAFNOSUPPORT}, "missing", "not in this kernel", "apt-get"),
        (checks.tun, {"/dev/net/tun": None}, {}, "missing", "no /dev/net/tun", "mknod"),
        (checks.tun, {}, {"writable": False}, "missing", "not writable", "setfacl"),
        (
            checks.clock,
            {
                "/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
                "/sys/devices/system/clocksource/clocksource0/available_clocksource": "hpet tsc acpi_pm",
            },
            {},
            "warn",
            "hpet",
            "echo tsc",
        ),
        (
            checks.clock,
            {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
            {},
            "warn",
            "hpet",
            "&tsc=reliable /",
        ),
        (checks.clock, {"/proc/cpuinfo": "flags : fpu tsc\n"}, {}, "warn", "not invariant", "STUCK the processor"),
        (
            checks.interrupts,
            {"/proc/interrupts": "      CPU0  CPU1\n 36:  3  90000  PCI-MSIX 1-edge  virtio1-req.0\n"},
            {},
            "warn",
            "CPU 1: virtio1-req.0",
            "/proc/irq/36/smp_affinity_list",
        ),
        (checks.virtual, {"/proc/stat": "cpu 100 0 100 1000 0 0 0 300 0 0\n"}, {}, "warn", "20 %", "STUCK host"),
        (checks.memory, {"/proc/meminfo": None}, {}, "warn", "unknown", "mount -t proc"),
        (checks.memory, {"/proc/meminfo": "MemAvailable: 1000 kB\n"}, {}, "missing", "0 MiB", "swapon"),
        (
            checks.memory,
            {"/proc/meminfo": "MemAvailable: 1000 kB\nHugePages_Free: 9\n"},
            {},
            "missing",
            "0 MiB",
            "echo 0 | sudo tee /proc/sys/vm/nr_hugepages",
        ),
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
            "echo max | sudo tee /sys/fs/cgroup/x/cpu.max",
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
            "echo -1 | sudo tee /sys/fs/cgroup/cpu/d/cpu.cfs_quota_us",
        ),
        (
            checks.container,
            {
                "/.dockerenv": "",
                "/proc/sys/kernel/hostname": "0123abcd",
                "/proc/self/cgroup": "0::/\n",
                "/sys/fs/cgroup/cgroup.controllers": "cpu",
                "/sys/fs/cgroup/cpu.max": "50000 100000",
            },
            {},
            "warn",
            "0.5 of 2 CPUs",
            "docker update --cpu-quota=-1 0123abcd",
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
    if mend.startswith("STUCK "):
        assert mend.removeprefix("STUCK ") in got.stuck
    else:
        assert mend in got.mend
    if state != "ok":
        assert got.meaning
        assert bool(got.mend) != bool(got.stuck)
    if got.mend:
        # A command to type as it stands: no holes to fill in, and the shell's grammar.
        assert not re.search(r"\.\.\.|<\w+>|\bIF\b", got.mend)
        subprocess.run(["sh", "-n", "-c", got.mend], check=True)
        # Rights are given to who asked, and not to everybody.
        assert not re.search(r"o\+\w|\b0?66[67]\b|\b0?777\b|a\+\w|\* - ", got.mend)


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


USER = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n"


def test_without_root_a_tap_is_one_that_was_made_for_the_user(make: Make) -> None:
    found = checks.tun(make({"/proc/self/status": USER, "/sys/class/net/cl1/owner": "1001\n"}))
    assert found.state == "missing"
    assert "ip tuntap add dev cl0 mode tap user $(id -un)" in found.mend
    found = checks.tun(make({"/proc/self/status": USER, "/sys/class/net/cl0/owner": "1000\n"}))
    assert (found.state, found.found) == ("ok", "made for this user: cl0")
    found = checks.tun(make({"/proc/self/status": USER}, writable=False))
    assert "ip tuntap add" in found.mend
    assert "666" not in found.mend


@pytest.mark.parametrize("check", [checks.tun, checks.idle])
def test_a_tool_that_a_small_system_lacks_is_installed_first(
    make: Make, tmp_path: Path, check: Callable[[System], Check]
) -> None:
    assert "apt-get" not in check(make(writable=False)).mend
    (tmp_path / "usr/bin/setfacl").unlink()
    assert check(make({"/usr/bin/setfacl": None}, writable=False)).mend.startswith("sudo apt-get install acl && ")


def test_rendering_says_what_and_how(make: Make) -> None:
    found = examine(make({"/dev/net/tun": None, "/sys/devices/system/cpu/isolated": ""}))
    text = render(found)
    assert "missing  tap" in text
    assert "$ sudo mkdir -p /dev/net" in text
    assert text.endswith("corelane runs here, without tap; 1 thing(s) would make it faster or steadier")
    assert "machine" not in render(found, brief=True)
    assert "nothing mends it here: only the host" in render(
        examine(make({"/proc/stat": "cpu 100 0 100 1000 0 0 0 300 0 0\n"}))
    )
    assert "\x1b[33m" in render(found, colour=True)


@pytest.mark.parametrize("columns", [80, 100])
def test_lines_fit_and_commands_stay_commands(make: Make, columns: int) -> None:
    found = examine(make({"/dev/net/tun": None, "/sys/devices/system/cpu/isolated": ""}))
    lines = render(found, columns=columns).splitlines()
    assert max(map(len, lines)) <= columns
    joined = " ".join(" ".join(line.removesuffix(" \\").split()) for line in lines)
    for check in found:
        assert f"$ {' '.join(check.mend.partition('  # ')[0].split())}" in joined or not check.mend
        assert " ".join(check.found.split()) in joined


def test_a_command_in_pieces_is_the_same_command() -> None:
    command = "printf '%s|' 'a  b   c d' \"e f\" g h | tr a-z A-Z  # as loud as it may be said"
    for columns in range(8, 60):
        text = "\n".join(wrapped_command(command, columns))
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
        assert done.stdout == "A  B   C D|E F|G|H|", text


def test_this_machine_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["can_run"] is (code == 0)
    assert {c["name"] for c in document["checks"]} >= {"cpus", "AF_XDP", "clock", "interrupts"}
    assert all(set(c) == {"name", "state", "found", "meaning", "mend", "required", "stuck"} for c in document["checks"])


def test_commands_for_root_name_this_very_command() -> None:
    path = Path(sys.executable).with_name("corelane")
    assert checks.this_command() == (shlex.quote(str(path)) if path.exists() else '"$(command -v corelane)"')

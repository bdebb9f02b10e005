"""Machines made of files: /proc and /sys trees for code that takes a root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write(root: Path, name: str, text: str) -> None:
    """Make a file with its folders."""
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def make_machine(
    root: Path,
    siblings: Sequence[str],
    nodes: Sequence[str] = (),
    isolated: str = "",
    tickless: str = "",
    interrupts: Sequence[tuple[str, Sequence[int]]] = (),
) -> Path:
    """A machine with one CPU for each entry of `siblings` (its thread_siblings_list); returns `root`.

    nodes: CPU list of each NUMA node; interrupts: (name, count on each CPU), numbered from 10, delivered where they
    came most often.
    """
    n = len(siblings)
    write(root, "/sys/devices/system/cpu/online", f"0-{n - 1}" if n > 1 else "0")
    write(root, "/sys/devices/system/cpu/isolated", isolated)
    write(root, "/sys/devices/system/cpu/nohz_full", tickless)
    for cpu, list_ in enumerate(siblings):
        base = f"/sys/devices/system/cpu/cpu{cpu}"
        write(root, f"{base}/topology/thread_siblings_list", list_)
        write(root, f"{base}/topology/core_id", list_.split(",")[0].split("-")[0])
        write(root, f"{base}/topology/physical_package_id", "0")
        for state, latency in enumerate((0, 2, 133)):
            write(root, f"{base}/cpuidle/state{state}/name", f"C{state}")
            write(root, f"{base}/cpuidle/state{state}/latency", str(latency))
            write(root, f"{base}/cpuidle/state{state}/disable", "0")
    for node, list_ in enumerate(nodes):
        write(root, f"/sys/devices/system/node/node{node}/cpulist", list_)
    lines = ["     " + " ".join(f"CPU{c}" for c in range(n))]
    for number, (name, counts) in enumerate(interrupts, 10):
        lines.append(f"{number}: {' '.join(map(str, counts))} PCI-MSIX 0-edge {name}")
        write(root, f"/proc/irq/{number}/effective_affinity_list", str(max(range(n), key=lambda c: counts[c])))
    lines.append("LOC: " + " ".join(["5"] * n) + " Local timer interrupts")
    write(root, "/proc/interrupts", "\n".join(lines))
    return root

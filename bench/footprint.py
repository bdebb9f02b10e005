"""Footprint: what an iokernel and an idle C application take while nothing happens, in memory and in time.

Both run as a user would run them: `corelane up` with all defaults (adaptive polling) and a C program that serves UDP
with one kthread, adaptive too. Memory is the proportional set size of both processes (smaps_rollup), needed is what the
application's rings and buffers were configured to; they are mapped in full and touched only as far as they are used, so
what was touched of them stands beside what was reserved.
Time is what the kernel charged to all threads of a process.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .. import runtime
from ..drivers.port.port import PortMemory, open_port
from ..runtime.control import statistics
from ..runtime.errors import CorelaneError
from .harness import usage
from .harness.child import told
from .harness.plot import Canvas
from .harness.session import Session

SUMMARY = "memory and time that an iokernel and an idle C application take"
FIGURES = ("memory.used_over_needed", "memory.c_app_mib", "idle.busy_fraction")

SERVER = r"""
#include <corelane/libos/libos.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)arg;
    int64_t n = len < room ? len : room;
    memcpy(reply, request, (size_t)n);
    return n;
}

int main(int argc, char **argv)
{
    char err[256] = "usage";
    struct cl_runtime_config config = {.socket_path = argv[argc - 1], .name = "idle"};
    struct cl_runtime *rt;
    if (argc != 2 || cl_runtime_new(&config, &rt, err) < 0 || cl_runtime_bind_udp(rt, 9000, echo, NULL) < 0 ||
        cl_runtime_start(rt, err) < 0) {
        fprintf(stderr, "%s\n", err);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
"""


def run(session: Session) -> None:
    """Start both, let them settle, watch them for session.seconds."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        session.skip("idle C application", "no C compiler: apt-get install gcc libc6-dev")
        return
    with tempfile.TemporaryDirectory(prefix="corelane-bench-") as folder, contextlib.ExitStack() as stack:
        program = _compile(compiler, Path(folder))
        path = f"{folder}/io.sock"
        up = [sys.executable, "-m", "corelane.cli.main", "up", "--socket", path, "--json"]
        pids = {"iokernel": stack.enter_context(told(up, '"event"'))}
        pids["application"] = stack.enter_context(told([str(program), path], "ready"))
        _warm(path)
        time.sleep(0.5)
        _measure(session, path, pids)


def _measure(session: Session, path: str, pids: dict[str, int]) -> None:
    before = {name: usage.of_process(pid) for name, pid in pids.items()}
    started = time.monotonic()
    session.say(f"watching both for {session.seconds:g} s")
    time.sleep(session.seconds)
    passed = time.monotonic() - started
    layout = next(a["arena"] for a in statistics(path)["apps"] if a["name"] == "idle")
    needed = layout["total_bytes"] - layout["rx_offset"]
    pss, busy = {}, {}
    for name, pid in pids.items():
        cost = usage.of_process(pid) - before[name]
        pss[name], busy[name] = pss_bytes(pid), cost.busy_s / passed
        session.arm(name, pss_mib=pss[name] / 2**20, busy_fraction=busy[name], switches_per_s=cost.switches / passed)
    used = sum(pss.values())
    touched = sum(pss_bytes(pid, "memfd:") for pid in pids.values())
    session.arm("rings and buffers", reserved_mib=layout["total_bytes"] / 2**20, touched_mib=touched / 2**20)
    session.note(f"{touched / 2**20:.1f} MiB of the {layout['total_bytes'] / 2**20:.1f} MiB reserved were ever touched")
    session.settings |= {"message": "none: both are idle", "needed_mib": needed / 2**20, "used_mib": used / 2**20}
    session.figure("memory.used_over_needed", used / needed)
    session.figure("memory.c_app_mib", used / 2**20)
    session.figure("idle.busy_fraction", max(busy.values()))


def pss_bytes(pid: int, mapping: str = "") -> int:
    """Proportional set size of a process: its own pages, and its share of those that it shares.

    mapping: only of the mappings whose name has this in it; over all processes that map them, the sum of these is what
    was ever touched.
    """
    total, wanted, seen = 0, not mapping, False
    for line in Path(f"/proc/{pid}/{'smaps' if mapping else 'smaps_rollup'}").read_text(errors="replace").splitlines():
        if mapping and "-" in line.split(" ", 1)[0]:
            wanted = mapping in line
        elif wanted and line.startswith("Pss:"):
            total, seen = total + int(line.split()[1]) * 1024, True
    if seen or mapping:
        return total
    raise CorelaneError("read a process's memory", f"/proc/{pid}/smaps_rollup has no Pss", "Linux 4.14 or newer has it")


def _compile(compiler: str, folder: Path) -> Path:
    base = Path(runtime.__file__).resolve().parent
    source, program = folder / "idle.c", folder / "idle"
    source.write_text(SERVER)
    flags = ["-O2", "-D_GNU_SOURCE", "-pthread", f"-I{base / '_include'}"]
    libs = [f"-L{base / '_lib'}", f"-Wl,-rpath,{base / '_lib'}", "-lcorelane"]
    done = subprocess.run([compiler, *flags, str(source), "-o", str(program), *libs], capture_output=True, text=True)
    if done.returncode:
        raise CorelaneError("compile the idle application", (done.stderr.strip().splitlines() or ["no reason"])[0])
    return program


def _warm(path: str) -> None:
    """Some traffic, so that both have touched what they touch: a second application asks the first one's address."""
    small = PortMemory(rx_buffers=64, tx_buffers=64, rx_slots=64, tx_slots=64)
    with open_port(path, name="warm", memory=small) as port:
        mac = bytes.fromhex(port.mac.replace(":", ""))
        for _ in range(20):
            port.send(b"\xff" * 6 + mac + b"\x88\xb5" + bytes(50))
            port.recv(timeout_s=0.01)


def plot(document: dict[str, Any]) -> Canvas:
    """Memory of both processes beside what was configured."""
    title = "footprint: an idle iokernel and an idle C application"
    canvas = Canvas(title, message="nothing here: both are idle", n=len(document["arms"]))
    processes = [a for a in document["arms"] if "pss_mib" in a]
    labels = [str(a["name"]) for a in processes] + ["rings and buffers"]
    values = [float(a["pss_mib"]) for a in processes] + [float(document["settings"]["needed_mib"])]
    canvas.bars(labels, values, ylabel="memory (MiB)")
    for arm in processes:
        canvas.caption(f"{arm['name']}: {100 * float(arm['busy_fraction']):.2g} % of a core while idle.")
    return canvas

"""Who had a CPU (switches.py): by the kernel's switches, where it lets them be seen, and by what threads have used."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time

import pytest

from corelane.runtime import perf, switches
from corelane.runtime.errors import SystemLimit

BURNS = "import os\nos.sched_setaffinity(0, {%d})\nend = os.times().user + 0.2\nwhile os.times().user < end: pass\n"


def burn(cpu: int, seen: switches.Switches) -> tuple[int, list[switches.Switch]]:
    """A process that uses 0.2 s of a CPU: its id, and what was seen until it had ended."""
    found: list[switches.Switch] = []
    with subprocess.Popen([sys.executable, "-c", BURNS % cpu]) as child:
        while child.poll() is None:
            found += seen.read()
            time.sleep(0.001)
    return child.pid, found + seen.read()


def test_who_runs_on_a_cpu_is_seen() -> None:
    """Threads that switch often may fill what is read: only a run in which a record was lost is done again."""
    cpu = max(os.sched_getaffinity(0))
    try:
        seen = switches.Switches({cpu})
    except SystemLimit as error:
        pytest.skip(str(error))
    with seen:
        pid, found = burn(cpu, seen)
        while seen.lost and pid not in {one.new for one in found}:
            seen.lost = 0
            pid, found = burn(cpu, seen)
    assert pid in {one.new for one in found}
    assert {one.cpu for one in found} == {cpu}
    assert [one.ns for one in found] == sorted(one.ns for one in found)


def test_records_are_switches_or_nothing() -> None:
    ring, seen = object.__new__(perf.Ring), object.__new__(switches.Switches)
    memory = bytearray(perf.mmap.PAGESIZE * (1 + perf.PAGES))
    out = struct.pack("<IHHIIIIQ", 15, 1 << 13, 32, 7, 70, 8, 80, 5)
    others = struct.pack("<IHHIIIIQ", 15, 0, 32, 7, 70, 8, 80, 6) + struct.pack("<IHHQQ", 2, 0, 24, 1, 9)
    data = out + others + struct.pack("<IHHII", 15, 1 << 13, 16, 1, 1)
    memory[perf.mmap.PAGESIZE : perf.mmap.PAGESIZE + len(data)] = data
    struct.pack_into("<QQ", memory, 1024, len(data), 0)
    ring._fd, ring._memory = -1, memory  # type: ignore[assignment]
    seen.lost, seen._rings = 0, [(3, ring)]
    assert seen.read() == [switches.Switch(3, 5, 80, 70)]
    assert seen.lost == 9


def test_what_threads_have_used_rises_where_they_run() -> None:
    me, before = threading.get_native_id(), switches.used()
    assert sum(i * i for i in range(10**5))
    after = switches.used()
    assert after[me].ns > before[me].ns > 0
    assert after[me].cpu in os.sched_getaffinity(0)
    assert switches.name_of(me).endswith(f"(process {os.getpid()})")
    assert switches.name_of(2**22 + 1) == f"thread {2**22 + 1}"


def test_a_name_is_a_line_of_text() -> None:
    told = []

    def run() -> None:
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "wb") as file:
            file.write(b"\x1b[2J\xff\n.")
        told.append(switches.name_of(threading.get_native_id()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert told == [f"?[2J\ufffd?. (process {os.getpid()})"]

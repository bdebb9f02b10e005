"""Applications that fight for cores (tests/iokernel/cores/c/app.c), and the iokernel that they fight on."""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from corelane.drivers.nic.loadgen.loadgen import Echo, Limits, Loadgen
from corelane.iokernel import AppConfig, Iokernel

from .cbuild import ROOT, CBuild
from .children import die_with_parent
from .waiting import wait_until

LATENCY_IP = "10.77.0.2"
RUNS = 65536  # as in tests/iokernel/cores/c/app.c
DEEP = 8192  # more than any run has requests: what waits while the loop or the server is kept from running is not lost
FIRST = -15  # priority
TRACED = "traced"  # the kind "blocking", with probes by the compiler (corelane/libos/trace_pc.h)
TRACE_PC = ("-fsanitize-coverage=trace-pc", "-include", str(ROOT / "include" / "corelane" / "libos" / "trace_pc.h"))
RINGING = "ringing"  # the kind "probed", with calls for help and garbage in its doorbell words
LIARS = ("cedes", "relapsing")  # kinds that say what is not so, and run where they may not
_RUN = np.dtype([("begin", "u8"), ("end", "u8"), ("stamps", "u8"), ("cpu", "u8")])
_HEAD = np.dtype([("slot", "u8"), ("gap_ticks", "u8"), ("work", "u8"), ("n", "u8"), ("open", _RUN)])
_BYTES = _HEAD.itemsize + RUNS * _RUN.itemsize


def _set_nice(nice: int) -> None:
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)


def _prepare(nice: int) -> None:
    die_with_parent()
    _set_nice(nice)


def _set_group_nice(nice: int) -> None:
    """Of our session's group: where the kernel makes groups of sessions, a thread's own counts only within it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


@contextlib.contextmanager
def before_others() -> Iterator[None]:
    """Threads that this thread starts, and itself, come before what else the machine does, as far as we may (root)."""
    was = os.getpriority(os.PRIO_PROCESS, 0)
    _set_nice(FIRST)
    _set_group_nice(FIRST)
    try:
        yield
    finally:
        _set_group_nice(0)
        _set_nice(was)


class Notes:
    """What a kthread notes of itself (struct notes of tests/iokernel/cores/c/app.c) in a file that both map, as the
    k-th of it."""

    def __init__(self, path: Path, k: int = 0) -> None:
        path.touch()
        with path.open("r+b") as file:
            file.truncate((k + 1) * _BYTES)
            self._map = mmap.mmap(file.fileno(), (k + 1) * _BYTES)
        self.head = np.frombuffer(self._map, _HEAD, 1, k * _BYTES)
        self._runs = np.frombuffer(self._map, _RUN, RUNS, k * _BYTES + _HEAD.itemsize)
        self._read = 0
        self.lost = 0  # runs that were written over before they were read

    def runs(self) -> np.ndarray:
        """When it ran, as far as it noted that since the last call: begin, end, stamps, cpu."""
        n = int(self.head["n"][0])
        first = max(self._read, n - RUNS + RUNS // 16)  # what is being written over meanwhile is not read
        self.lost += first - self._read
        self._read = n
        out: np.ndarray = self._runs[np.arange(first, n) % RUNS].copy()
        return out

    def last_runs(self) -> np.ndarray:
        """The same of one that is gone: with the run in which it went."""
        last = self.head["open"].copy()
        last["end"] = np.maximum(last["begin"], last["end"])  # it may have gone between the two stores
        out: np.ndarray = np.concatenate([self.runs(), last[last["begin"] > 0]])
        return out


@functools.cache
def _program(traced: bool) -> Path:
    """Of all of them: looking whether its objects are still of today takes longer than starting it."""
    return CBuild("plain").build("tests/iokernel/cores/c/app.c", cflags=TRACE_PC if traced else ())


class FightingApp:
    """One such process. kind: "latency", "probed", "unprobed", "preemptible", "blocking", TRACED, RINGING, or one of
    LIARS. nice: its priority, below 0 as far as we may (root)."""

    def __init__(self, socket_path: str, name: str, kind: str, folder: Path, nice: int = 0, kthreads: int = 1) -> None:
        self.name, self.kind = name, kind
        self.path = folder / f"{name}.notes"
        self.notes = [Notes(self.path, k) for k in range(kthreads)]
        traced = kind == TRACED
        self.process = subprocess.Popen(
            [str(_program(traced)), socket_path, name, str(self.path), "blocking" if traced else kind, str(kthreads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: _prepare(nice),
        )

    def await_ready(self, deadline_s: float = 60.0) -> None:
        """Wait until it has registered and its kthread runs."""
        wait_until(lambda: self.slot or self.process.poll() is not None, deadline_s, f"{self.name} to attach")
        assert self.process.poll() is None, f"{self.name} ended with {self.process.poll()}"

    @property
    def slot(self) -> int:
        """The iokernel's number of its first kthread, plus 1, as the log has it; 0: not attached yet."""
        return int(self.notes[0].head["slot"][0])

    @property
    def gap_ticks(self) -> int:
        """Longest time between two stamps of one run."""
        return int(self.notes[0].head["gap_ticks"][0])

    @property
    def work(self) -> int:
        """How often it has computed."""
        return int(sum(notes.head["work"][0] for notes in self.notes))

    def await_work(self, deadline_s: float = 60.0) -> None:
        """Wait until it has computed more than up to now."""
        before = self.work
        wait_until(lambda: self.work > before, deadline_s, f"{self.name} to get the core")

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command)
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and its file with it."""
        self.process.kill()
        self.reap()

    def reap(self, deadline_s: float = 60.0) -> None:
        """Wait for its end."""
        self.process.wait(deadline_s)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.path.unlink(missing_ok=True)


@contextlib.contextmanager
def fighting_ground(
    socket_path: str, wait_s: float, loops: int = 1, cores: int = 1
) -> Iterator[tuple[Iokernel, Loadgen]]:
    """An iokernel with so many worker cores, and a generator of requests for "echo".

    With more than one core loops have no CPU of their own. Skips where there are fewer than two CPUs.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip(
            "needs two CPUs that this process may use, one for the iokernel, one to fight for: taskset -pc 0-1 $$"
        )
    with (
        Loadgen(
            Echo(), seed=1, server_ip=LATENCY_IP, checksum=True, limits=Limits(drain_s=wait_s, give_up_s=wait_s)
        ) as generator,
        Iokernel(
            socket_path,
            uplinks=[generator.nic()],
            loop_cpus=[cpus[0]] if cores == 1 else [-1] * loops,
            worker_cpus=cpus[1:2] if cores == 1 else cpus[:cores],
            policy="delay",
            apps={"echo": AppConfig(ip=LATENCY_IP, rx_slots=DEEP, tx_slots=DEEP, rx_buffers=DEEP, tx_buffers=DEEP)},
        ) as io,
    ):
        yield io, generator

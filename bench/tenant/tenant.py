"""Applications that share a core in the benchmarks, each in a process of its own, and the handle of who measures them.

    with Tenant("batch", socket=path, looks="probes") as job:      # attached to an iokernel, a uthread
    with Tenant("batch", cpu=1, policy="idle") as job:             # a plain thread on Linux
        before = job.work
        ...
        done = job.work - before                                   # products of matrices

A tenant counts in a page of shared memory (loops.h). It ends with its stdin, and so with who started it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.child import Child

LOOKS = {"probes": lib.CL_TENANT_PROBES, "plain": lib.CL_TENANT_PLAIN, "deaf": lib.CL_TENANT_DEAF}
POLICIES = ("other", "nice 19", "idle")
PAGE_BYTES = int(ffi.sizeof("struct cl_tenant_page"))


class Tenant(Child):
    """A tenant's process, running from construction to `close`.

    role: "batch", the job; "witness", a UDP echo on port 9000 that notes when its handler was called; or "crowd",
    as many idle applications as `crowd` says, in one process; or "jobs", as many with a job in C each. paused: the
    job begins when that is set to False. socket: the iokernel that it attaches to as `name`; None: no iokernel, a
    thread pinned to `cpu` ("batch" only). code: "c" or "numba". looks: "probes", "plain" (none) or "deaf" (none,
    and all signals blocked); with numba on an iokernel always "probes". policy: of a plain thread, "other", "nice
    19" or "idle" (SCHED_IDLE). weight, guaranteed: what it wishes of the cores of an iokernel. Raises CorelaneError
    with its reason if it does not come up.
    """

    def __init__(
        self,
        role: str,
        *,
        socket: str | None = None,
        name: str | None = None,
        cpu: int = -1,
        code: str = "c",
        looks: str = "probes",
        policy: str = "other",
        crowd: int = 1,
        weight: int = 1,
        guaranteed: int = 0,
        paused: bool = False,
        timeout_s: float = 60.0,
    ) -> None:
        self._fd = os.memfd_create("corelane-tenant")
        os.ftruncate(self._fd, PAGE_BYTES)
        self._map = mmap.mmap(self._fd, PAGE_BYTES)
        self._page = ffi.cast("struct cl_tenant_page *", ffi.from_buffer(self._map))
        self._page.turn = 0 if paused else 1
        self._takes_turns = role == "batch"
        words = {"fd": self._fd, "socket": socket or "", "name": name or role, "cpu": cpu, "code": code}
        words |= {"looks": looks, "policy": policy, "crowd": crowd}
        words |= {"weight": weight, "guaranteed": guaranteed}
        arguments = [role, *(word for key, value in words.items() for word in (f"--{key}", str(value)))]
        try:
            super().__init__("corelane.bench.tenant.tenant", arguments, pass_fds=(self._fd,), timeout_s=timeout_s)
        except BaseException:
            self._forget_page()
            raise

    def _forget_page(self) -> None:
        if self._fd >= 0:
            del self._page
            os.close(self._fd)
            self._fd = -1

    @property
    def work(self) -> int:
        """Units done so far."""
        return int(self._page.work)

    @property
    def paused(self) -> bool:
        """Whether the job is to do nothing. It notices at once when it is, and sleeps until it is not."""
        return int(self._page.turn) % 2 == 0

    @paused.setter
    def paused(self, value: bool) -> None:
        if value == self.paused:
            return
        self._page.turn += 1
        if not value and self._takes_turns:
            self.tell("turn")

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """The job's turn: not paused. Begins when it works, or after a second."""
        before, deadline = self.work, time.monotonic() + 1
        self.paused = False
        try:
            while self.work == before and time.monotonic() < deadline:
                time.sleep(0.001)
            yield
        finally:
            self.paused = True

    @property
    def is_stopped(self) -> bool:
        """Whether all of its threads are, by a signal."""
        states = [
            one.read_bytes().rpartition(b")")[2].split()[0] for one in Path(f"/proc/{self.pid}/task").glob("*/stat")
        ]
        return set(states) == {b"T"}

    @property
    def calls(self) -> int:
        """Calls of the witness's handler so far."""
        return int(self._page.calls)

    def stamps(self, first: int) -> list[int]:
        """cl_tsc() at the beginning of each call from number `first` on, of the last CL_TENANT_STAMPS at most."""
        calls, most = self.calls, int(lib.CL_TENANT_STAMPS)
        return [int(self._page.stamps[n % most]) for n in range(max(first, calls - most), calls)]

    def close(self) -> None:
        """End it and wait. Closing twice is allowed."""
        super().close()
        self._forget_page()


# The tenant's process.

_crowd: list[Any] = []


def _demote(policy: str) -> None:
    """The calling thread's scheduling, and of those that it will start."""
    if policy == "idle":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    elif policy == "nice 19":
        os.nice(19)


def _in_a_thread(options: argparse.Namespace, page: Any) -> tuple[threading.Thread, Callable[[], None]]:
    """The job on a pinned thread of the kernel's, and what begins a turn of it; the others of this process stay where
    they are. Between turns it sleeps and does not look: looks would be in the tail of whoever is measured then."""

    work, turn = lib.cl_tenant_run, threading.Semaphore(0)
    if options.code == "numba":
        from .numba import in_a_thread

        work = in_a_thread(page)  # before the thread is below everybody else

    def body() -> None:
        os.sched_setaffinity(0, {options.cpu})
        _demote(options.policy)
        while page.turn != lib.CL_TENANT_END:
            work(page)
            turn.acquire()

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread, turn.release


def _attach(options: argparse.Namespace, page: Any) -> tuple[Any, Callable[[], None]]:
    """The runtime of the job, the witness or the last of a crowd, and what begins a turn of the job; the others of a
    crowd go with the process."""
    from ...libos import CoreShare, Runtime

    for number in range(1, options.crowd):
        _crowd.append(Runtime(options.socket, name=f"{options.name}-{number}", kthreads=1).start())
        if options.role == "jobs":
            lib.cl_tenant_spawn(_crowd[-1].ptr, page, LOOKS[options.looks])
    share = CoreShare(weight=options.weight, guaranteed=options.guaranteed)
    runtime = Runtime(options.socket, name=options.name, kthreads=1, poll="adaptive", share=share)
    if options.role == "witness":
        lib.cl_runtime_bind_udp(runtime.ptr, 9000, ffi.addressof(lib, "cl_tenant_handler"), page)
    runtime.start()
    if options.role == "jobs":
        lib.cl_tenant_spawn(runtime.ptr, page, LOOKS[options.looks])
    if options.role != "batch":
        return runtime, lambda: None
    if options.code == "numba":
        from .numba import OnRuntime

        spawn = OnRuntime(runtime, page).spawn
    else:

        def spawn() -> None:
            if lib.cl_tenant_spawn(runtime.ptr, page, LOOKS[options.looks]) < 0:
                raise CorelaneError("start the batch job", "out of memory")

    spawn()
    return runtime, spawn


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until stdin ends."""
    parser = argparse.ArgumentParser(description="an application of the benchmarks, until stdin ends")
    parser.add_argument("role", choices=("batch", "witness", "crowd", "jobs"))
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--socket", default="")
    parser.add_argument("--name", default="batch")
    parser.add_argument("--cpu", type=int, default=-1)
    parser.add_argument("--code", choices=("c", "numba"), default="c")
    parser.add_argument("--looks", choices=sorted(LOOKS), default="probes")
    parser.add_argument("--policy", choices=POLICIES, default="other")
    parser.add_argument("--crowd", type=int, default=1)
    parser.add_argument("--weight", type=int, default=1)
    parser.add_argument("--guaranteed", type=int, default=0)
    options = parser.parse_args(arguments)
    mapped = mmap.mmap(options.fd, PAGE_BYTES)
    page = ffi.cast("struct cl_tenant_page *", ffi.from_buffer(mapped))
    runtime = thread = None
    spawn: Callable[[], None] = lambda: None  # noqa: E731
    try:
        if options.socket:
            runtime, spawn = _attach(options, page)
        else:
            thread, spawn = _in_a_thread(options, page)
    except CorelaneError as error:
        sys.exit(str(error))
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:  # a line a turn
        spawn()
    page.turn = lib.CL_TENANT_END
    for one in (runtime, *_crowd):
        if one is not None:
            one.close()
    if thread is not None:
        spawn()
        thread.join(2)


if __name__ == "__main__":
    main()

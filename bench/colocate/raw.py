"""The floor under a core that changes hands, as arms of `corelane bench colocate`: raw hand-overs.

Two processes have the worker core between them and a third one decides, on the core that an iokernel has
(raw.h): a server that spends on each request what a request takes kv, and the batch job, the very function
and its probes. No packets, no iokernel, no policy, no uthreads. What the arm does not reach nothing reaches that moves
a core between two processes; what it reaches and ours does not is ours.

The two wait by sched_yield, under the kernel's ordinary scheduling, as libos' kthreads do and as all arms have it. That
of real-time threads is shorter (1.4 us for 2.2), but the kernel takes the core from both for milliseconds where others
want it. kv's time of a request is the least of the rounds' last slots at half of its peak, since whatever else ran
meanwhile only made it longer: its core time, less a raw hand-over for each turn.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import mmap
import os
import random
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...apps.kv import Store
from ...runtime.clock import default_clock
from ...runtime.closing import Closing
from ...runtime.errors import CorelaneError, check
from ...runtime.hist import Hist
from .._native import ffi, lib
from ..harness import rig
from ..harness.child import Child
from ..harness.load import WARM_FRACTION, WARM_MOST_S
from ..harness.numbers import plain
from ..harness.openloop import Point
from ..harness.session import Session
from ..harness.stops import Evidence
from .arms import KEYS, MEMORY_BYTES, WINDOW_S, Arm, Beside

RAW, RAW_ALONE = "raw hand-overs", "raw server alone"
RAW_KV, RAW_KV_ALONE = "raw hand-overs, kv's handler", "raw server alone, kv's handler"
STEPS = ("due until decided", "decided until the job sees it", "until the server begins", "until its first answer")
MOST = int(lib.CL_RAW_MOST)  # requests a turn
BOARD_BYTES = int(ffi.sizeof("struct cl_raw_board"))
ASLEEP_S = 2e-6 * rig.SPIN_US  # after which no loop and no kthread of the other arms polls any more
DRAIN_NS = 50_000_000
BEGUN_S, LOOK_S = 2.0, 2e-4
FIRST_RPS, FIRST_S = 500_000.0, 0.03  # of kv, to learn its time of a request before the first round
KEPT = 5  # slots that it is learnt from
REQUESTS = 4096  # datagrams that the server's turn has, of random keys
REPLY_BYTES = 1400
PDEATHSIG = 1  # of prctl


@dataclass(frozen=True)
class Turn:
    """What a turn is of: us that the oldest request may get old (0: none waits), whether the server has the core to
    itself, whether it spends time on a request, and whether it does so by kv's handler."""

    target_us: float
    alone: bool = False
    serves: bool = True
    computes: bool = False


class Raw(Closing):
    """The two processes, from construction to `close`. Between turns they sleep."""

    def __init__(self, cores: tuple[int, int]) -> None:
        self._cpu, self._turns = cores[0], 0
        self._fd = os.memfd_create("corelane-raw")
        self._children: list[Child] = []
        self._service_ns: deque[float] = deque(maxlen=KEPT)
        self._handover_ns: deque[float] = deque(maxlen=KEPT)
        self._steps = ffi.new("struct cl_raw_step[]", int(lib.CL_RAW_STEPS))
        try:
            os.ftruncate(self._fd, BOARD_BYTES)
            self._map = mmap.mmap(self._fd, BOARD_BYTES, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
            self._board = ffi.cast("struct cl_raw_board *", ffi.from_buffer(self._map))
            for role in ROLES:
                words = [role, "--fd", str(self._fd), "--cpu", str(cores[1])]
                self._children.append(Child("corelane.bench.colocate.raw", words, pass_fds=(self._fd,)))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End both and wait. Closing twice is allowed."""
        for child in self._children:
            child.close()
        self._children = []
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # What a request takes kv.

    def taught_by(self, arm: Arm) -> Arm:
        """The same arm of ours; what a request took kv in its slots is what it takes the server from then on."""

        def run(rate: float, seconds: float) -> Beside:
            slot = arm(rate, seconds)
            self.learn(slot)
            return slot

        return run

    def learn(self, slot: Beside) -> None:
        """Take kv's time of a request from a slot of ours beside the job."""
        turns_s = float(slot.point.extra["moves_per_s"]) / 2
        busy = float(slot.point.extra["kv_core_share"]) - 1e-9 * turns_s * min(self._handover_ns, default=0.0)
        if slot.point.achieved_rps > 0 and busy > 0:
            self._service_ns.append(1e9 * busy / slot.point.achieved_rps)

    @property
    def service_ns(self) -> float:
        """Of a request."""
        return min(self._service_ns, default=0.0)

    def prepare(self, session: Session, kv: Arm) -> None:
        """Learn from kv what a request takes. kv: beside the job."""
        session.say("what a request takes kv")
        for _ in range(KEPT):
            self.learn(kv(FIRST_RPS, FIRST_S))

    # Turns.

    def beside(self, target_us: float, rate: float, seconds: float, *, counted: bool = False) -> Beside:
        """The server and the job, which has the core until a request is that old. counted: for wall.py; they are read
        in any case, after the slot."""
        return self.slot(Turn(target_us), rate, seconds)

    def alone(self, rate: float, seconds: float) -> Beside:
        """The server without the job."""
        return self.slot(Turn(0.0, alone=True), rate, seconds)

    def beside_kv(self, target_us: float, rate: float, seconds: float) -> Beside:
        """As `beside`, with kv's handler."""
        return self.slot(Turn(target_us, computes=True), rate, seconds)

    def alone_kv(self, rate: float, seconds: float) -> Beside:
        """As `alone`, with kv's handler."""
        return self.slot(Turn(0.0, alone=True, computes=True), rate, seconds)

    def pairs(self, rate: float, seconds: float) -> Beside:
        """Hand-overs there and back at once, for requests that take the server no time (bound.py)."""
        return self.slot(Turn(0.0, serves=False), rate, seconds)

    def slot(self, turn: Turn, rate: float, seconds: float) -> Beside:
        """A load, of as long as the log of requests lasts at most."""
        if not self._children:
            raise CorelaneError("raw hand-overs", "they are closed", "make new ones")
        time.sleep(ASLEEP_S)
        seconds = min(seconds, 0.9 * MOST / rate)
        board, out, err = self._board, ffi.new("struct cl_raw_result *"), ffi.new("char[256]")
        load = {"rate": rate, "duration_ns": int(seconds * 1e9), "target_ns": int(turn.target_us * 1e3)}
        load |= {"drain_ns": DRAIN_NS, "seed": self._turns, "cpu": self._cpu, "steps": self._steps}
        lib.cl_raw_reset(board, turn.alone)
        spins = turn.serves and not turn.computes
        board.service_ticks = default_clock().ns_to_ticks(round(self.service_ns)) if spins else 0
        board.computes = turn.computes
        self._begin(turn.alone)
        try:
            check(lib.cl_raw_offer(board, ffi.new("struct cl_raw_load *", load), out, err), "raw hand-overs", err)
        finally:
            board.turn += 1
            self._until(lambda: board.ready == 0, "end")
        return self._judge(turn, rate, seconds, out)

    def _begin(self, alone: bool) -> None:
        """Both are in a turn when this returns, and the core is the job's, or the server's alone."""
        board = self._board
        board.turn += 1
        self._turns = int(board.turn)
        self._children[0].tell("turn")
        self._until(lambda: board.ready == self._turns, "begin")
        if not alone:
            before = board.work
            self._children[1].tell("turn")
            self._until(lambda: board.work != before, "begin")

    @staticmethod
    def _until(so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + BEGUN_S
        while not so():
            if time.monotonic() > deadline:
                raise CorelaneError(
                    "raw hand-overs",
                    f"the processes did not {what} a turn in {BEGUN_S:g} s",
                    "is the machine overloaded?",
                )
            time.sleep(LOOK_S)

    def _judge(self, turn: Turn, rate: float, seconds: float, out: Any) -> Beside:
        """The slot, by the same windows as other arms, behind the same warm-up."""
        ticks = out.end_tsc - out.start_tsc
        warm = min(WARM_FRACTION, WARM_MOST_S / seconds)
        windows = max(1, round((1 - warm) * seconds / WINDOW_S))
        edges = [out.start_tsc + int(ticks * (warm + (1 - warm) * n / windows)) for n in range(windows + 1)]
        whole, p99_us, sent = Hist(), [], 0
        for begin, end in itertools.pairwise(edges):
            window = Hist()
            sent += lib.cl_raw_latencies(self._board, out.requests, begin, end, window.ptr)
            p99_us.append(window.percentile(99) / 1e3)
            whole.merge(window)
        measured_s = (1 - warm) * seconds
        answered = sent - whole.infinite
        took_s = max(measured_s, self._answering_s(out.requests, edges[0], edges[-1]))
        point = Point(rate, answered / took_s, sent, answered, seconds=measured_s, hist=whole)
        point.set_percentiles(whole)
        point.window_p99_us = tuple(p99_us)
        if not turn.computes:
            point.extra |= {"service_ns": round(self.service_ns) if turn.serves else 0}
        if turn.alone:
            return Beside(point, float("nan"))
        work = out.work / seconds
        point.extra |= {"work_per_s": plain(work), "kv_core_share": out.server_ticks / ticks}
        point.extra |= {"moves_per_s": out.moves / seconds}
        point.evidence = Evidence(worker=out.server_ticks / ticks)
        pieces = self._pieces(int(out.steps))
        if out.moves and turn.serves and not turn.computes:
            self._handover_ns.append(1e9 * out.first_ticks / default_clock().hz - self.service_ns)
        return Beside(point, work, pieces=pieces)

    def _pieces(self, n: int) -> dict[str, Any]:
        """us of each of STEPS, of the hand-overs of the turn, as arrays."""
        import numpy as np

        names = [name for name, _ in ffi.typeof("struct cl_raw_step").fields]
        words = np.frombuffer(ffi.buffer(self._steps, n * ffi.sizeof("struct cl_raw_step")), np.int64)
        stamps = words.reshape(n, len(names))
        us = np.diff(stamps, axis=1) * 1e6 / default_clock().hz
        return {name: us[:, i].clip(0).tolist() for i, name in enumerate(STEPS)}

    def _answering_s(self, requests: int, from_tsc: int, to_tsc: int) -> float:
        """From the first answer to the last, of the requests due in that time: a backlog that is worked off after the
        end of a load is not carried."""
        import numpy as np  # the two processes need none

        if not requests:
            return 0.0
        due, answered = (
            np.frombuffer(ffi.buffer(times, requests * ffi.sizeof("uint64_t")), np.uint64)
            for times in (self._board.due, self._board.answered)
        )
        answers = answered[(due >= from_tsc) & (due < to_tsc) & (answered > 0)]
        return float(np.ptp(answers)) / default_clock().hz if len(answers) else 0.0


# The processes.


def serve(board: Any) -> Callable[[], None]:
    """The server's turn."""
    requests, kept = kv_requests()

    def run() -> None:
        lib.cl_raw_serve(board, board.turn, requests)

    return partial(_while_kept, run, kept)


def _while_kept(run: Callable[[], None], _: object) -> None:
    run()


def kv_requests() -> tuple[Any, Any]:
    """`struct cl_raw_requests` with GETs of random keys, of a store that has them all; and what must live as long."""
    rng, store = random.Random(1), Store(MEMORY_BYTES)
    keys = [f"key{number:013d}".encode() for number in range(KEYS)]
    for key in keys:
        store.store(key, bytes(64))
    server = ffi.new("struct cl_kv_server **")
    more = ffi.addressof(lib, "cl_linux_udp_reply_more")  # a reply of one item needs no second datagram
    check(lib.cl_kv_server_new(store.ptr, more, server), "serve a store")
    each, reply = ffi.new("struct cl_udp_req[]", REQUESTS), ffi.new("uint8_t[]", REPLY_BYTES)
    datagrams = []
    for number in range(REQUESTS):
        words = struct.pack(">HHHH", number, 0, 1, 0) + b"get " + rng.choice(keys) + b"\r\n"
        datagrams.append(ffi.new("uint8_t[]", words))
        each[number].data, each[number].len = datagrams[-1], len(words)
        each[number].reply, each[number].room = reply, REPLY_BYTES
    handler = ffi.addressof(lib, "cl_kv_udp_handler")
    fields = {"each": each, "n": REQUESTS, "handler": handler, "arg": lib.cl_kv_server_udp(server[0], 0)}
    return ffi.new("struct cl_raw_requests *", fields), (store, each, reply, datagrams)


def compute(board: Any) -> Callable[[], None]:
    """The job's, compiled when this returns. Raises CorelaneError if it cannot have probes."""
    from ..tenant.numba import handing_over

    run = handing_over(board)
    lib.cl_raw_bind(board)
    return run


ROLES = {"server": serve, "batch": compute}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until stdin ends, a line a turn."""
    parser = argparse.ArgumentParser(description="one of two raw processes that hand over a core, until stdin ends")
    parser.add_argument("role", choices=tuple(ROLES))
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--cpu", type=int, required=True)
    options = parser.parse_args(arguments)
    ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)  # who measures may die in a turn, which then has no end
    mapped = mmap.mmap(options.fd, BOARD_BYTES, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    try:
        run = ROLES[options.role](ffi.cast("struct cl_raw_board *", ffi.from_buffer(mapped)))
        os.sched_setaffinity(0, {options.cpu})
    except (CorelaneError, OSError) as error:
        sys.exit(str(error))
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        run()


if __name__ == "__main__":
    main()

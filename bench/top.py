"""What it costs a server that somebody watches it: `corelane top` once a second, beside nobody.

An echo server behind an iokernel, in its own process, writes down a sample of its requests, which is the default.
`top` runs as it does for people who look on, in a process of its own that may use any CPU of the machine: it asks the
iokernel for its statistics, and reads what the server writes down. On two CPUs, which are both polled on, it has to
take from one of them what it needs: its share of a CPU stands beside the figure. While that is below 1 % the p99 need
not see it.

One `top` runs all the time, and is stopped while nobody looks. When it goes on it makes up for one look. A turn begins
in the middle between two of the next ones, and is as long as some of them are apart: it has as many looks as it should.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import IO, Any

from ..runtime.errors import CorelaneError
from .harness import rig, tails, usage
from .harness.openloop import Point, guess_peak, search_peak
from .harness.plot import Canvas
from .harness.session import Session

SUMMARY = "what corelane top costs those whom it watches"
FIGURES = ("top.cost",)

ALONE, WATCHED = "nobody looks", "top looks on"
AGAIN = "nobody looks, once more"  # what the machine makes of two arms that are alike
HALF = 0.5  # of what it carries; but no more than
MODEST_RPS = 100_000.0  # ... so much: what comes in 20 ms, in which the machine stands still, fits into the rings
PEAK, TURNS = 0.15, 0.75  # of the time
DELAY_S = 1.0  # top's default
TURN_S = 2 * DELAY_S
SHORT_S = 3.0  # a run; its turns are a slot, and most have no look
STARTS_S = 60.0


def run(session: Session) -> None:
    """The peak, then the arms by turns at half of it, or a modest load."""
    session.settings |= {
        "message": "one request of 22 bytes and its reply",
        "handler": "C, behind an iokernel",
        "checksums": rig.CHECKSUMS,
        "top": f"corelane top --plain, every {DELAY_S:g} s",
    }
    before = usage.threads()
    with rig.iokernel(["echo", "--port", "9000"], session.two_cores) as made:
        assert made.iokernel is not None
        session.say("peak")
        guessed = guess_peak(made.load.measure, seconds=0.3 * PEAK * session.seconds)
        found = search_peak(made.load.measure, start_rps=0.8 * guessed, step=1.1, seconds=0.7 * PEAK * session.seconds)
        peak = found.peak_rps or max((point.achieved_rps for point in found.points), default=0.0)
        if not peak:
            session.skip("echo", "nothing was answered while the peak was measured: give more --seconds")
            return
        session.settings["peak_rps"] = round(peak)
        rate = min(HALF * peak, MODEST_RPS)
        session.settings["rate_rps"] = round(rate)
        seconds, turn_s = TURNS * session.seconds, TURN_S if session.seconds >= SHORT_S else 0.0
        assert made.process is not None
        tids = tails.since(before) | set(usage.threads(made.process.pid))
        with looking_on(made.iokernel.socket_path) as top:

            def slot(meanwhile: AbstractContextManager[object]) -> Point:
                return made.load.measure(rate, tails.slot_s(seconds), meanwhile=meanwhile)

            sides: dict[str, Any] = {ALONE: {}, WATCHED: {"within": top.looking, "own": top.threads}, AGAIN: {}}
            arms = {name: tails.Arm(slot, turn_s, threads=lambda: tids, **side) for name, side in sides.items()}
            done = tails.compare(session, "top.cost", arms, {WATCHED: ALONE}, seconds)
    tails.rows(session, done)
    share = statistics.median(top.shares)
    alike = tails.compared(done, AGAIN, ALONE)
    tails.judge(session, "top.cost", done, beside={"top's share of a CPU": share}, alike=alike)


class Top:
    """`corelane top`, stopped but while it looks on. said: the file that it writes to. shares: of a CPU, which it has
    had while it looked on."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        self._process, self._said = process, said
        self.shares: list[float] = []
        self._await_look()
        process.send_signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """From the middle between two looks on, until the block ends."""
        self._process.send_signal(signal.SIGCONT)
        try:
            self._await_look()
            self._await_look()
            time.sleep(DELAY_S / 2)
            before, begun = usage.of_process(self._process.pid), time.monotonic()
            yield
            used = (usage.of_process(self._process.pid) - before).busy_s
            self.shares.append(used / (time.monotonic() - begun))
        finally:
            self._process.send_signal(signal.SIGSTOP)

    def threads(self) -> Collection[int]:
        """Its own, whose turns are what it costs."""
        return usage.threads(self._process.pid)

    def _await_look(self) -> None:
        had, deadline = os.fstat(self._said.fileno()).st_size, time.monotonic() + STARTS_S
        while os.fstat(self._said.fileno()).st_size == had:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise CorelaneError("run corelane top", f"it said nothing within {STARTS_S:.0f} s, or ended")
            time.sleep(0.01)


@contextlib.contextmanager
def looking_on(socket: str) -> Iterator[Top]:
    """`corelane top` until the block ends. What it says goes into a file: nobody else wakes."""
    words = ["top", "--socket", socket, "--plain", "--delay", f"{DELAY_S:g}"]
    command = [sys.executable, "-m", "corelane.cli.main", *words]
    with tempfile.TemporaryFile() as said:
        top = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said)
        try:
            yield Top(top, said)
        finally:
            top.kill()
            top.wait()


def plot(document: dict[str, Any]) -> Canvas:
    """The tail of each."""
    rows = document["arms"]
    canvas = Canvas(
        f"watching an echo server at {document['settings'].get('rate_rps', 0):,} requests/s: p99",
        message=document["settings"]["message"],
        n=sum(int(row["sent"]) for row in rows),
        size=(9, 5),
    )
    canvas.bars([row["name"] for row in rows], [float(row["p99_us"]) for row in rows], ylabel="p99 (us)")
    return canvas

"""An arm of bimodal: the spin application behind an iokernel that tells what has run for a quantum.

The application runs in this process, so that its counters can be read at any time; its kthread runs C only.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...apps import spin
from ...drivers.nic.loadgen.loadgen import Echo
from ...drivers.nic.loadgen.runs import Result
from ...libos import Runtime
from ...runtime.clock import default_clock
from ..harness import usage
from ..harness.load import WARM_FRACTION, WARM_MOST_S, point_of
from ..harness.numbers import PERCENTILES
from ..harness.openloop import Point
from ..tenant import shared

SHORT_US, LONG_US, LONG_FRACTION = 1.0, 500.0, 0.005
MEAN_US = (1 - LONG_FRACTION) * SHORT_US + LONG_FRACTION * LONG_US
TARGETS_US = (10, 1000)  # of the short and of the long: how long they should wait at most
WINDOW_S = 0.02
PORT = 9001
BACKLOG_S, BACKLOG_LOOK_S = 3.0, 0.002  # for what a load has left


@dataclass(frozen=True)
class How:
    """What an arm does. quantum_us: 0, run to completion. typed: short and long ones wait in queues of their own.
    signal: requests have no probes, and are preempted by the signal."""

    quantum_us: int = 0
    typed: bool = False
    signal: bool = False


@dataclass
class Server:
    """A running arm. unanswered: requests of all points, without warm-up; dropped: packets by reason, of its iokernel
    and its application, known once that has ended, with warm-up."""

    made: shared.Shared
    runtime: Runtime
    service: spin.Spin
    unanswered: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    how: How = How()
    tids: tuple[int, ...] = ()  # of the kthread

    def explain(self, rate_rps: float, seconds: float) -> Point:
        """A load, with the counters read meanwhile (harness/stops.py)."""
        self.made.load.counts = partial(self.made.counts_of, "spin")
        return self.made.load.explain(rate_rps, seconds)

    def measure(self, load: float, seconds: float) -> Point:
        """A point whose extra values tell short and long requests apart, and what the whole of it took, the warm-up
        included.

        cpu_s: of the kthread. service_s: what the handled requests asked for. handled, preempted: requests, and times
        that one was. By signal: signals_late, that came when something else ran; signals_held, that found code which
        may not be interrupted.
        """
        warm_s = min(WARM_FRACTION * seconds, WARM_MOST_S)
        windows = max(1, round((seconds - warm_s) / WINDOW_S))
        before = self.used()
        result = self.made.generator.run(load / MEAN_US * 1e6, seconds - warm_s, warmup_s=warm_s, windows=windows)
        over = self.settle()
        after = self.used()
        point = point_of(result)
        point.extra |= by_kind(result)
        if over:
            point.extra |= {name: after[name] - before[name] for name in after}
        self.unanswered += point.sent - point.answered
        return point

    def used(self) -> dict[str, float]:
        """So far. Exact while nothing is under way."""
        stats, spent = self.runtime.stats(), self.service.stats()
        signals = {f"signals_{end}": stats.sched[f"quantum_{end}"] for end in ("late", "held") if self.how.signal}
        return {
            "cpu_s": sum(usage.of_thread(tid).busy_s for tid in self.tids),
            "service_s": spent["ticks"] / default_clock().hz,
            "handled": stats.net["handled"],
            "preempted": stats.sched["preempted"],
            **signals,
        }

    def settle(self) -> bool:
        """Wait until what a load has left is done, and the core was given up. False: it was not in time."""
        deadline, last = time.monotonic() + BACKLOG_S, -1
        while time.monotonic() < deadline:
            net = self.runtime.stats().net
            ended = net["replied"] + net["unanswered"] + net["handler_errors"]
            if ended == net["handled"] == net["delivered"] - net["learned"] == last:
                return True
            last = net["handled"]
            time.sleep(BACKLOG_LOOK_S)
        return False


@contextlib.contextmanager
def server(cores: tuple[int, int], how: How) -> Iterator[Server]:
    """The arm, until the end of the context."""
    apps = {"spin": shared.latency(quantum_us=how.quantum_us, quantum_signal=how.signal)}
    traffic = Echo(service_us=SHORT_US, long_us=LONG_US, long_fraction=LONG_FRACTION)
    types = {"short_most_us": SHORT_US, "short_target_us": TARGETS_US[0], "long_target_us": TARGETS_US[1]}
    options: dict[str, Any] = types if how.typed else {}
    with shared.shared(cores, apps=apps, traffic=traffic, port=PORT) as made:
        runtime = Runtime(made.kernel.socket_path, name="spin", kthreads=1)
        with contextlib.ExitStack() as stack:
            stack.callback(runtime.close)
            service = spin.setup(runtime, spin.Options(distribution="request", probes=not how.signal, **options))
            stack.callback(service.close)  # handlers point into it: after the runtime, whose close may be called twice
            stack.callback(runtime.close)
            before = set(usage.threads())
            runtime.start()
            tids = tuple(sorted(set(usage.threads()) - before))
            arm = Server(made, runtime, service, how=how, tids=tids)
            yield arm
            arm.dropped = made.drops()  # before it is closed: what was for it goes with it
            runtime.stop()
            arm.dropped += Counter(runtime.stats().dropped)


def by_kind(result: Result) -> dict[str, Any]:
    """Counts and percentiles of the short and of the long requests, and the p99 of each window that had some;
    percentiles may be infinite."""
    out: dict[str, Any] = {}
    for kind in ("short", "long"):
        latency = getattr(result, kind)
        assert latency is not None  # the traffic has long requests
        parts = [getattr(window, kind) for window in result.windows]
        out[f"{kind}_requests"] = latency.count
        out |= {f"{kind}_{name}_us": latency.percentile_us(100 * q) for name, q in PERCENTILES}
        out[f"{kind}_p99_windows_us"] = [part.percentile_us(99) for part in parts if part.count]
    return out

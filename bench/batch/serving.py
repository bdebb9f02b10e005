"""The service behind an iokernel of its own, and what became of a load under a rule."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...drivers.nic.loadgen.loadgen import Echo, Replay
from ...libos import Runtime
from ...libos.handlers.batching import BatchProfile
from ..harness import usage
from ..harness.rig import counts_of_iokernel, counts_of_runtime
from ..harness.stops import Counts, Evidence, Stop, Watch, stop_of_missed
from ..tenant import shared
from . import model
from .loads import Load
from .rules import Rule

PORT = 9010
SETTLE_S, SETTLE_LOOK_S = 3.0, 0.001  # for what a load has left
BEFORE_S = 0.1  # part of a slot that is not judged: until the profile is known and the queue is as it will be


@dataclass(frozen=True)
class Slot:
    """What became of a load, of the requests that are judged.

    offered_rps, good_rps: requests a second that came, and that were answered in time. batch: requests handled
    together, on average. late: dropped early; full: dropped at the queue.
    """

    offered_rps: float
    good_rps: float
    sent: int
    answered: int
    p50_us: float
    p99_us: float
    batch: float
    late: int
    full: int

    @property
    def good(self) -> float:
        """The part that was answered in time."""
        return self.good_rps / self.offered_rps if self.offered_rps else 0.0


class Service:
    """Made by `serving`."""

    def __init__(self, made: shared.Shared, runtime: Runtime, tids: Collection[int], state: Any) -> None:
        """tids: of the runtime's threads."""
        self._made = made
        self._runtime = runtime
        self._tids = tids
        self.state = state

    def profile(self) -> BatchProfile:
        """What batches take, as the runtime has measured it."""
        return self._runtime.batch_profile(PORT)

    def slot(
        self,
        rule: Rule,
        load: Load,
        limit_us: float,
        seconds: float,
        seed: int,
        meanwhile: contextlib.AbstractContextManager[object] | None = None,
    ) -> Slot:
        """The load under the rule. meanwhile: a context around its time."""
        self._settle()
        self._runtime.set_batching(PORT, **rule.how)
        at_ns = load.at_ns(seconds, seed)
        replay = Replay(at_ns, np.ones(len(at_ns), np.uint32))
        before = self._counts()
        self._made.generator.replay(replay)
        with meanwhile or contextlib.nullcontext():
            self._made.generator.wait()
        self._settle()
        counts = {name: n - before[name] for name, n in self._counts().items()}
        judged = at_ns >= min(BEFORE_S, seconds / 4) * 1e9
        answered = replay.answered_ns[judged].astype(np.float64)
        latency_us = np.where(answered > 0, answered - at_ns[judged], np.inf) / 1e3
        took_s = seconds - min(BEFORE_S, seconds / 4)
        return Slot(
            offered_rps=len(latency_us) / took_s,
            good_rps=float(np.count_nonzero(latency_us <= limit_us)) / took_s,
            sent=len(latency_us),
            answered=int(np.count_nonzero(np.isfinite(latency_us))),
            p50_us=_percentile(latency_us, 50),
            p99_us=_percentile(latency_us, 99),
            batch=counts["batched"] / max(counts["batches"], 1),
            late=counts["late"],
            full=counts["full"],
        )

    def explain(self, rule: Rule, load: Load, limit_us: float, seconds: float, seed: int) -> tuple[Slot, Stop]:
        """The load once more, and which resource is used up by counters. Those of the runtime's worker and of the
        iokernel's loop are read."""
        watch = Watch(self._read, seconds)
        slot = self.slot(rule, load, limit_us, seconds, seed, meanwhile=watch)
        return slot, stop_of_missed(watch.evidence or Evidence())

    def _read(self) -> Counts:
        used = usage.of_threads(self._tids)
        inside = counts_of_runtime(self._runtime, None, used)  # of this moment; an iokernel has those of a while ago
        return replace(inside, loop_s=counts_of_iokernel(self._made.kernel).loop_s)

    def _counts(self) -> dict[str, int]:
        stats = self._runtime.stats()
        dropped = {"late": stats.dropped["batch_late"], "full": stats.dropped["batch_queue_full"]}
        return {name: stats.net[name] for name in ("batches", "batched")} | dropped

    def _settle(self) -> None:
        """Wait until nothing waits, and what was taken is handled."""
        deadline, last = time.monotonic() + SETTLE_S, -1
        while time.monotonic() < deadline:
            net = self._runtime.stats().net
            ended = net["replied"] + net["unanswered"] + net["handler_errors"]
            if net["handled"] == last == ended and self.profile().waiting == 0:
                return
            last = net["handled"]
            time.sleep(SETTLE_LOOK_S)


def _percentile(latency_us: Any, percent: float) -> float:
    return float(np.percentile(latency_us, percent, method="higher")) if len(latency_us) else float("nan")


@contextlib.contextmanager
def serving(cores: tuple[int, int]) -> Iterator[Service]:
    """The service on cores[1], the iokernel and its load generator on cores[0]."""
    traffic = Echo(payload_bytes=model.PAYLOAD_BYTES, service_us=1.0)
    with shared.shared(cores, apps={"model": shared.latency()}, traffic=traffic, port=PORT) as made:
        state, before = model.words(), usage.threads()
        with Runtime(made.kernel.socket_path, name="model", kthreads=1) as runtime:
            runtime.bind(model.service(state, PORT))
            runtime.start()
            yield Service(made, runtime, usage.threads().keys() - before.keys(), state)
            runtime.stop()

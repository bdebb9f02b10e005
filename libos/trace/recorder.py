"""The flight recorder: reads a runtime's own trace, and keeps it on disk where a limit of latency was broken.

A thread of Python's, which kthreads know nothing of: it reads the rings as any other process does. What was read last
is held in memory (HELD records, or what one look has brought). Where a limit is broken, that and what follows for
AFTER_S becomes a file (kept.py). Then nothing is kept for a pause, which doubles while limits are broken on and on,
so that a service that is always slow fills no disk; what is broken meanwhile is counted.

A trace changes who is slow if its reader is too busy: it looks as seldom as the fullest ring allows.

Program counters of the kthreads are sampled, too, PROFILE_HZ a second: by the kernel (runtime/perf.py), or where that
refuses it by a signal (sampled.c). Those of the last seconds are kept with the trace.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from ...runtime import perf
from ...runtime.errors import CorelaneError
from ...runtime.trace import Records, Segment
from ...runtime.tracing import Trace
from . import kept
from .pieces import joined, number
from .profile import samples_of
from .slo import Broken, Watch

HELD = 24_576  # records before it was broken, and at most ...
AFTER = 8_192  # ... behind: 2 MiB
AFTER_S = 0.5
PAUSE_S, MOST_PAUSE_S = 10.0, 640.0
LOOKS_S = (0.01, 0.5)  # between two looks
PROFILE_HZ = 199  # in step with nothing
SAMPLES = 2000
ASKED_S = 60.0  # for so long samples are asked for at a time

Tell = Callable[[str, str], object]
"""("recorded" | "unrecorded", text), on the recorder's thread."""


class Recorder:
    """Of one runtime. segment: its own; it is closed at the end. counts: "broken" limits; "kept" traces; "not_kept":
    broken in a pause, or while another one was recorded; "failed": could not be written; "lost" records."""

    def __init__(self, segment: Segment, trace: Trace, folder: Path, tell: Tell) -> None:
        self.segment, self.folder, self.counts = segment, folder, Counter[str]()
        self._trace, self._tell = trace, tell
        self._watches = [Watch(limit) for limit in trace.limits]
        self._held: deque[Records] = deque()
        self._n_held = 0
        self._after: list[Records] = []
        self._broken: tuple[Broken, float, float] | None = None  # when: monotonic, and of the calendar
        self._more = 0
        self._quiet_until = float("-inf")
        self._pause_s = PAUSE_S
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._sampler: perf.Sampler | None = None
        self._samples: deque[perf.Sample] = deque(maxlen=SAMPLES)
        self._ask_at = float("inf")
        self.look_s = LOOKS_S[0]

    def start(self) -> None:
        """Begin to look. Once."""
        self._thread = threading.Thread(target=self._run, name="corelane-recorder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look once more, keep what is to be kept, and end. May be called twice, and by `tell`."""
        self._over.set()
        if self._thread is threading.current_thread():
            return
        if self._thread is not None:
            self._thread.join()
        self.segment.close()

    def _run(self) -> None:
        try:
            self._sampler = perf.Sampler(perf.kthreads_of(os.getpid()), PROFILE_HZ)
        except CorelaneError:  # the kernel refuses it; a trace without it is one, too
            self._ask_at = time.monotonic()
        try:
            self._look_on()
        except Exception as error:  # a fault of ours: the service goes on without a recorder, and that is said
            self.counts["failed"] += 1
            self._say("unrecorded", f"nothing is recorded any more: {error!r}")
        finally:
            if self._sampler is not None:
                self._sampler.close()

    def _look_on(self) -> None:
        while not self._over.wait(self.look_s):
            self.look(time.monotonic())
        self.look(time.monotonic())
        self.flush()

    def look(self, now: float) -> None:
        """One look, at a time of the monotonic clock."""
        records = self.segment.read()
        self.counts["lost"] += records.lost
        self._pace(records)
        self._sample(records, now)
        broken = self._judge(records)
        if self._broken is None:
            self._hold(records)
        else:
            self._after.append(records)
        if broken is not None:
            self._note(broken, now)
        if self._broken is not None and (now >= self._broken[1] + AFTER_S or sum(map(number, self._after)) >= AFTER):
            self._keep(now)

    def _sample(self, records: Records, now: float) -> None:
        """Those that have come, with stamps of the segment's clock in place of times."""
        if self._sampler is not None:
            stamp = self.segment.tsc_of
            self._samples.extend(dataclasses.replace(one, ns=stamp(one.ns)) for one in self._sampler.read())
        elif now >= self._ask_at:
            asked = self.segment.ask_samples(PROFILE_HZ, ASKED_S)
            self._ask_at = now + ASKED_S if asked else float("inf")
        self._samples.extend(samples_of(records))

    def flush(self) -> None:
        """Keep what was to be recorded on, as it is."""
        if self._broken is not None:
            self._keep(time.monotonic())

    def _pace(self, records: Records) -> None:
        """Look so often that no ring is written over in between."""
        import numpy

        fullest = int(numpy.bincount(records.messages["kthread"]).max()) if len(records.messages) else 0
        if records.lost or fullest > self._trace.records // 2:
            self.look_s = max(self.look_s / 2, LOOKS_S[0])
        elif fullest < self._trace.records // 8:
            self.look_s = min(self.look_s * 1.5, LOOKS_S[1])

    def _judge(self, records: Records) -> Broken | None:
        if not len(records.messages):
            return None
        names, hz = self.segment.services(), self.segment.hz
        found = [watch.judge(records.messages, names, hz) for watch in self._watches]
        return next((broken for broken in found if broken is not None), None)

    def _hold(self, records: Records) -> None:
        if not number(records):
            return
        self._held.append(records)
        self._n_held += number(records)
        while self._n_held - number(self._held[0]) >= HELD:
            self._n_held -= number(self._held.popleft())

    def _note(self, broken: Broken, now: float) -> None:
        self.counts["broken"] += 1
        if self._broken is not None or now < self._quiet_until:
            self.counts["not_kept"] += 1
            self._more += 1
            return
        self._broken = (broken, now, time.time())

    def _keep(self, now: float) -> None:
        assert self._broken is not None
        broken, _, at = self._broken
        records = joined([*self._held, *self._after])
        segment = self.segment
        head = kept.Head(
            segment.pid,
            segment.name,
            segment.hz,
            segment.mode,
            segment.one_in,
            tuple(segment.services()),
            broken,
            at,
            self._more,
            records.lost,
        )
        self._held.clear()
        self._after.clear()
        self._n_held = self._more = 0
        self._broken = None
        # Broken again soon after the pause: it goes on and on.
        self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S) if now < self._quiet_until + self._pause_s else PAUSE_S
        self._quiet_until = now + self._pause_s
        try:
            budget, files = self._trace.folder_mib << 20, self._trace.folder_files
            path = kept.keep(self.folder, head, records, budget, files, self._ran())
        except CorelaneError as error:
            self.counts["failed"] += 1
            self._say("unrecorded", f"{broken}: its trace is lost: {error}")
            return
        self.counts["kept"] += 1
        self._say("recorded", f"{broken}: the trace is kept; corelane trace last {path.stem} explains it")

    def _ran(self) -> kept.Ran | None:
        if self._sampler is None and not self._samples:
            return None
        with contextlib.suppress(OSError):
            return kept.Ran(PROFILE_HZ, tuple(self._samples), tuple(perf.mapped_code(self.segment.pid)))
        return None

    def _say(self, event: str, text: str) -> None:
        with contextlib.suppress(Exception):  # of who is told: there is nobody to raise it to
            self._tell(event, text)

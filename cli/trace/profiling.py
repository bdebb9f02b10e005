"""corelane trace --profile: program counters of kthreads beside what they write down of their requests."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ...libos.trace.profile import Profile, Sampled, lines_of, of_table, samples_of
from ...libos.trace.stages import Table
from ...libos.trace.symbols import Symbols
from ...runtime import codes, perf
from ...runtime.errors import CorelaneError, SystemLimit
from ...runtime.files import write_whole
from ...runtime.trace import Records, Segment

HZ = 4000
SIGNAL_HZ = 997  # its kernel's tick is less, as a rule


class Profiling:
    """Samples of the process of a segment, from construction on; `lines` once `document` was asked for."""

    def __init__(self, segment: Segment, kthreads: dict[int, int], seconds: float, hz: int = HZ) -> None:
        """kthreads: as perf.kthreads_of tells them. seconds: for how long. Raises SystemLimit: the kernel refuses it,
        and the process does not sample itself."""
        self._segment, self._hz = segment, hz
        self._sampler: perf.Sampler | None = None
        try:
            self._sampler = perf.Sampler(kthreads, hz)
        except SystemLimit:
            self._hz = SIGNAL_HZ
            if not segment.ask_samples(SIGNAL_HZ, seconds):
                raise
        self._samples: list[perf.Sample] = []
        self._mapped: list[perf.Mapped] = []
        self._told: list[codes.Code] = []
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._sampler is not None:
            self._sampler.close()

    def read(self) -> None:
        """What has come since the last time."""
        if self._sampler is not None:
            self._samples += self._sampler.read()

    def end(self) -> None:
        """The rest, and what the process has mapped."""
        self.read()
        try:
            self._mapped = perf.mapped_code(self._segment.pid)
            self._told = codes.of_process(self._segment.pid)
        except OSError as error:
            what = f"name what process {self._segment.pid} runs"
            raise CorelaneError(what, error.strerror or str(error), "profile it while it runs") from error

    def document(self, seen: Table, records: Records, flame: Path | None) -> dict[str, Any]:
        """What `--json` has of it. records: read meanwhile. flame: the page is written there."""
        segment, name_of = self._segment, Symbols(self._mapped, self._told).name_of
        lost = 0 if self._sampler is None else self._sampler.lost
        if self._sampler is None:  # stamps, not times
            self._samples = samples_of(records)
            sampled = Sampled(self._samples, self._hz, int, name_of)
        else:
            sampled = Sampled(self._samples, self._hz, segment.tsc_of, name_of)
        title = f"Slow requests of process {segment.pid} ({segment.name})"
        document, lines = told(seen, sampled, title, flame)
        self.lines = ["", f"{len(self._samples):,} samples, {lost:,} more had no room", *lines]
        return document | {"samples_lost": lost}


def told(seen: Table, sampled: Sampled, title: str, flame: Path | None) -> tuple[dict[str, Any], list[str]]:
    """What is said of samples as JSON, and to people. flame: the page is written there."""
    profiles = of_table(seen, sampled)
    lines = [line for one in profiles for line in lines_of(one)]
    if not profiles:
        lines.append("too few requests were written down for a profile: record for longer, or trace in full")
    document: dict[str, Any] = {"samples": len(sampled.samples), "profile": [_document(one) for one in profiles]}
    if flame is not None:
        from .flame import page_of

        write_whole(flame, page_of(profiles, title).encode())
        lines.append(f"wrote {flame}")
        document["flame"] = str(flame)
    return document, lines


def _document(one: Profile) -> dict[str, Any]:
    parts = {"slow": one.slow, "ordinary": one.ordinary}
    return {
        "service": one.service,
        "value_us": round(one.value_us, 3),
        **{kind: {"n": p.n, "samples": p.samples, "us": round(p.total_us, 3)} for kind, p in parts.items()},
    }

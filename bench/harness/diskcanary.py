"""The canary beside a disk that writes: what the machine takes from its cores for that.

A virtual machine's writes are done by threads of its host, often on the same allowance of processor time as its cores.
Where both are spent, all of it stands still until the next period begins (cgroup v2, cpu.max), and latencies on the
disk have holes that the canary of an idle disk never sees.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...drivers.blk import file as blk_file
from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from .jitter import Gaps, watch
from .session import Session

FILE_BYTES = 8 << 20
LONG_NS = 1e6


@dataclass(frozen=True)
class Beside:
    """gaps: of a core that spins. writes: durable ones of 4 KiB that another core had done meanwhile."""

    gaps: Gaps
    writes: int

    @property
    def long_gaps(self) -> int:
        """Of a millisecond or more."""
        return sum(n for start, (n, _) in self.gaps.buckets.items() if start >= LONG_NS)

    def __str__(self) -> str:
        return (
            f"while a core does nothing but write to this disk ({self.writes / self.gaps.seconds:,.0f} writes/s), the "
            f"other one loses {100 * self.gaps.lost_fraction:.2g} % ({self.long_gaps} gaps of 1 ms or more in "
            f"{self.gaps.seconds:.2g} s, the longest {self.gaps.max_ns / 1e6:.3g} ms): all arms on the disk have that"
        )


def beside_writes(folder: Path, cores: Sequence[int], seconds: float) -> Beside:
    """Watch cores[0] for so long while cores[1] writes durably to a file in `folder`. CorelaneError if one cannot."""
    err = ffi.new("char[256]")
    out = ffi.new("struct cl_bench_log_result *")
    results: list[int] = []
    with tempfile.TemporaryDirectory(prefix="corelane-disk-", dir=folder) as made:
        path = Path(made) / "file"
        blk_file.create(path, FILE_BYTES)

        def write() -> None:
            length_ns = int(seconds * 1e9)
            results.append(
                lib.cl_bench_log_raw(lib.CL_BENCH_LOG_DSYNC, str(path).encode(), cores[1], length_ns, out, err)
            )

        writer = threading.Thread(target=write)
        writer.start()
        try:
            (gaps,) = watch(cores[:1], seconds)
        finally:
            writer.join()
    if results[0]:
        raise CorelaneError("write beside the canary", ffi.string(err).decode(errors="replace"))
    return Beside(gaps, int(out.operations))


def note_disk(session: Session, folder: Path) -> None:
    """Have the document say what the disk of its arms takes from the cores."""
    if len(session.cores) < 2:
        session.skip("the canary beside a disk that writes", "it takes a core beside the one that writes")
        return
    session.say("the canary beside a disk that writes")
    found = beside_writes(folder, session.two_cores, min(max(session.seconds / 20, 0.01), 1.0))
    session.settings["beside_disk_writes"] = {
        "core_lost_percent": 100 * found.gaps.lost_fraction,
        "gaps_over_1ms": found.long_gaps,
        "longest_us": found.gaps.max_ns / 1e3,
        "seconds": found.gaps.seconds,
        "writes": found.writes,
    }
    session.note(str(found))

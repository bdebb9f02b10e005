"""The batch application: `corelane run batch`. Numeric work on every core that it gets, and how much of it per second.

It serves nothing; it is what one runs beside a server to see cores move (docs/guide.md).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ..runtime.errors import CorelaneError
from .registry import App, option


@dataclass(frozen=True)
class Options:
    """What `corelane run batch` takes."""

    kernel: str = option("matmul", "matmul, stencil or hash")
    size: int = option(128, "of its square matrices, rows")
    jobs: int = option(0, "kernels at a time; 0: one a kthread")
    seed: int = option(1, "of what the matrices hold")


class Batch:
    """Kernels at work on uthreads of a runtime. They end at `end`, or with the process."""

    def __init__(self, runtime: Any, options: Options) -> None:
        import numpy as np

        from .batch_kernels import KERNELS, STRIDE

        if options.kernel not in KERNELS:
            raise CorelaneError("run batch", f"there is no kernel {options.kernel!r}", f"one of {', '.join(KERNELS)}")
        if not 4 <= options.size <= 4096 or not 0 <= options.jobs <= 1024:
            raise CorelaneError(
                "run batch", f"size {options.size}, jobs {options.jobs}", "sizes 4 to 4096, jobs to 1024"
            )
        self._stride = STRIDE
        jobs = options.jobs or runtime.kthreads
        rng = np.random.default_rng(options.seed)
        self.words = np.zeros((jobs + 1) * STRIDE, np.uint64)
        self.arrays = []
        self._kernel, self._begun, self._last = options.kernel, time.monotonic(), (time.monotonic(), 0)
        self.jobs = []
        for job in range(jobs):
            a, b = (rng.random((options.size, options.size)) for _ in range(2))
            self.arrays.append((a, b, np.zeros_like(a)))
            at = np.int64((job + 1) * STRIDE)
            self.jobs.append(runtime.batch(KERNELS[options.kernel], self.words, at, *self.arrays[-1]))

    @property
    def ports(self) -> tuple[int, ...]:
        """None: it serves nothing."""
        return ()

    def units(self, job: int) -> int:
        """Units of work that one of the jobs has done."""
        return int(self.words[(job + 1) * self._stride])

    def stats(self) -> dict[str, int]:
        """units: of work done so far; jobs: kernels at work."""
        return {"units": sum(self.units(job) for job in range(len(self.jobs))), "jobs": len(self.jobs)}

    def progress(self) -> tuple[str, dict[str, Any]]:
        """What was done since the last call, in a line and in numbers: units, per_s, and the same since the start."""
        now, units = time.monotonic(), self.stats()["units"]
        (then, before), self._last = self._last, (now, units)
        per_s, mean = (units - before) / max(now - then, 1e-9), units / max(now - self._begun, 1e-9)
        numbers = {"kernel": self._kernel, "units": units, "per_s": per_s, "mean_per_s": mean}
        return f"{per_s:,.0f} {self._kernel}/s, {mean:,.0f} on average", numbers

    def end(self) -> None:
        """Have the kernels return after the unit that they are at."""
        self.words[0] = 1

    def close(self) -> None:
        """Its arrays go with the last kernel that works on them."""
        self.end()


def setup(runtime: Any, options: Options) -> Batch:
    """Compile the kernel and start it on each kthread of a libos Runtime."""
    return Batch(runtime, options)


APP = App(
    "batch", "numeric work on spare cores: matmul, stencil or hash, and how much per second", Options, setup, "batch"
)

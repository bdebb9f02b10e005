"""What the preloaded library costs calls on descriptors that are not its own."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from ...runtime.errors import CorelaneError
from ..baseline.compiled import build
from .servers import by_posix

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Cost:
    """Of a call, in ns: by the name that programs use, by libc's function, and by one that only goes on to that."""

    through_ns: float
    direct_ns: float
    empty_ns: float

    @property
    def added_ns(self) -> float:
        return self.through_ns - self.direct_ns

    @property
    def bound_ns(self) -> float:
        """What anything that stands before libc adds."""
        return self.empty_ns - self.direct_ns


def compile_into(folder: Path) -> Path:
    """The program that calls. Raises SystemLimit if it cannot be compiled."""
    return build("foreign_calls", "CORELANE_FOREIGN", ["dl"], folder)


def measure(program: Path, cpu: int, seconds: float) -> Cost:
    """Run it under the library, which makes no runtime for it."""
    through = by_posix("--nic", "tap:none", "--address", "10.0.0.1/24")
    command = ["taskset", "-c", str(cpu), *through, str(program), f"{seconds:.3f}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + PATIENCE_S, check=False)
    if done.returncode:
        raise CorelaneError("measure calls on descriptors of Linux", done.stderr.strip() or "it ended with an error")
    return Cost(*map(float, done.stdout.split()))

"""corelane trace --system-calls: those of kthreads beside what they write down of their requests."""

from __future__ import annotations

from ...runtime.syscalls import Call, SystemCalls


class Calling(SystemCalls):
    """What a recording reads beside the records. found: all calls until now."""

    def __init__(self, kthreads: dict[int, int]) -> None:
        """kthreads: as perf.kthreads_of tells them. Raises SystemLimit: the kernel refuses it."""
        self.found: list[Call] = []
        super().__init__(kthreads)

    def read(self) -> list[Call]:
        """What has come since the last time."""
        new = super().read()
        self.found += new
        return new

    def end(self) -> None:
        """The rest."""
        self.read()

    @property
    def line(self) -> str:
        """How much was seen, for people."""
        return f"{len(self.found):,} system calls were seen; {self.lost:,} of their records had no room"

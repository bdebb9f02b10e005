"""Records of requests that are made up, with known causes."""

from __future__ import annotations

from typing import Any

import numpy

from corelane.runtime._native import ffi, lib
from corelane.runtime.layout import dtype
from corelane.runtime.trace import Records

HZ = 2_000_000_000
NAMES = ["others", "UDP 9000", "TCP 80"]


def ticks(us: Any) -> Any:
    """Of the stamps' clock."""
    return numpy.asarray(us) * (HZ / 1e6)


class Made:
    """n messages of a service whose stages take what `us` says; `at` changes some of them."""

    def __init__(self, n: int, seed: int, service: int = 1) -> None:
        self.random = numpy.random.default_rng(seed)
        self.n, self.service = n, service
        draw = self.random.exponential
        self.us = {"ring": draw(0.4, n), "inbox": draw(0.5, n), "runs": 1 + draw(0.2, n), "reply": draw(0.3, n)}
        self.us |= {name: numpy.zeros(n) for name in ("blocked", "ready", "TX ring", "to the NIC")}
        self.what = numpy.zeros(n, int)
        self.flags = numpy.full(n, lib.CL_TRACE_DRAWN | lib.CL_TRACE_ANSWERED)
        self.kthread = self.random.integers(0, 2, n)
        self.gone: list[tuple[int, int, int]] = []

    def some(self, share: float) -> numpy.ndarray[Any, Any]:
        """A part of the messages, at random."""
        return self.random.random(self.n) < share

    def records(self) -> Records:
        """As a reader gets them."""
        messages = numpy.zeros(self.n, dtype(ffi, "struct cl_trace_message"))
        messages["kind"], messages["service"], messages["shared"] = lib.CL_TRACE_MESSAGE, self.service, 1
        messages["kthread"], messages["flags"] = self.kthread, self.flags
        messages["id"] = self.service * 10**6 + 1 + numpy.arange(self.n)
        messages["begin"] = 10**9 + numpy.arange(self.n, dtype=numpy.uint64) * int(ticks(20))
        messages["pickup"] = ticks(self.us["ring"])
        messages["start"] = messages["pickup"] + ticks(self.us["inbox"]).astype(numpy.uint32)
        inside = self.us["runs"] + self.us["blocked"] + self.us["ready"]
        messages["end"] = messages["start"] + ticks(inside).astype(numpy.uint32)
        messages["sent"] = messages["end"] + ticks(self.us["reply"]).astype(numpy.uint32)
        messages["blocked"], messages["ready"] = ticks(self.us["blocked"]), ticks(self.us["ready"])
        waited = self.us["blocked"] + self.us["ready"] > 0
        waits = numpy.zeros(int(waited.sum()), dtype(ffi, "struct cl_trace_wait"))
        waits["kind"], waits["n"], waits["what"] = lib.CL_TRACE_WAIT, 1, self.what[waited]
        for field in ("id", "kthread", "blocked", "ready"):
            waits[field] = messages[field][waited]
        waits["begin"] = messages["begin"][waited] + messages["start"][waited]
        waits["object"], waits["holder"] = 0x1000, 0x2000
        cores = numpy.zeros(len(self.gone), dtype(ffi, "struct cl_trace_core"))
        cores["kind"], cores["n"] = lib.CL_TRACE_CORE, 1
        for row, (kthread, begin, end) in zip(cores, self.gone, strict=True):
            row["kthread"], row["begin"], row["end"] = kthread, begin, end
        return Records(messages, waits, cores, 0, 0, bursts=self._bursts(messages))

    def _bursts(self, messages: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
        """Of an attached application, if there is something in these stages: one a message, and others."""
        passed = self.us["TX ring"] + self.us["to the NIC"]
        n = self.n if passed.any() else 0
        bursts = numpy.zeros(2 * n, dtype(ffi, "struct cl_trace_burst"))
        bursts["kind"], bursts["kthread"] = lib.CL_TRACE_BURST, numpy.tile(messages["kthread"][:n], 2)
        bursts["begin"][:n] = messages["begin"][:n] + messages["sent"][:n]
        bursts["begin"][n:] = bursts["begin"][:n] + 1
        bursts["taken"][:n], bursts["given"][:n] = ticks(self.us["TX ring"][:n]), ticks(passed[:n])
        return bursts[self.random.permutation(2 * n)]

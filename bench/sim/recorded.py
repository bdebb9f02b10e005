"""A recorded load: when requests came, how long each takes, and which kind it is of.

    load = Recorded(at_ns, service_ns)          # or Recorded.read("load.npz")
    world = Simulation([App("kv", recorded=load)], cores=4)
    world.run(until_ns=load.until_ns)
    at_ns, latency_ns = world.latencies_ns("kv")

The simulator replays it (`model.App`), and so do the machine's two sides: the scheduler of libos (box.py), and an
iokernel through the load generator (managed.py). So no sampling error is between them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np

from ...runtime.errors import CorelaneError

AFTER_NS = 50_000_000  # for the last requests' answers


class Recorded:
    """Requests in the order in which they come: at_ns, from 1 on; service_ns, each 1 or more; kind, a small number
    (none given: 0). Three arrays of one length; CorelaneError if they cannot be a load. Not to be changed."""

    def __init__(self, at_ns: Any, service_ns: Any, kind: Any = None) -> None:
        self.at_ns = np.array(at_ns, np.int64)
        self.service_ns = np.array(service_ns, np.int64)
        self.kind = np.zeros(len(self.at_ns), np.uint8) if kind is None else np.array(kind, np.uint8)
        if not len(self.at_ns) == len(self.service_ns) == len(self.kind):
            raise CorelaneError("use a recorded load", "its arrays differ in length", "give one entry a request")
        if (np.diff(self.at_ns) < 0).any() or (self.at_ns < 1).any() or (self.service_ns < 1).any():
            why = "its times are not ascending from 1 ns on, or a service time is less than 1 ns"
            raise CorelaneError("use a recorded load", why, "sort it by arrival")

    def __len__(self) -> int:
        return len(self.at_ns)

    @property
    def until_ns(self) -> int:
        """When all of it should be answered, unless it is more than the cores can carry."""
        return int(self.at_ns[-1] + AFTER_NS) if len(self) else 0

    def longer(self, ns: float) -> Self:
        """The same with so much added to each service time."""
        return type(self)(self.at_ns, np.maximum(self.service_ns + round(ns), 1), self.kind)

    def write(self, path: Path | str) -> None:
        """As an .npz file."""
        np.savez_compressed(path, at_ns=self.at_ns, service_ns=self.service_ns, kind=self.kind)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """What `write` wrote."""
        with np.load(path, allow_pickle=False) as file:
            return cls(file["at_ns"], file["service_ns"], file["kind"])

"""A bad wire around any NIC: seeded loss, duplication, reordering, delay, corruption. drivers/nic/fault.h says how."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any, Literal

from ...runtime.errors import CorelaneError
from ...runtime.typed import typed, typed_class
from .._native import ffi, lib
from ..device import check
from .nic import Nic


@typed_class("make faults of a NIC")
@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities, 0..1, of what befalls a frame in one direction."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    corrupt: float = 0.0
    ipv4: str = field(default="", kw_only=True)
    """Not empty: of frames received from, or sent to, that address only."""


@dataclass(frozen=True, slots=True)
class FaultCounts:
    """What befell the frames of a direction: seen + duplicated = passed + lost + held."""

    seen: int
    passed: int
    lost: int
    duplicated: int
    reordered: int
    delayed: int
    corrupted: int
    not_duplicated: int
    not_held: int
    held: int


def _fill(rates: Any, rx: Faults | None, tx: Faults | None) -> None:
    for made, faults in zip(rates, (rx or Faults(), tx or Faults()), strict=True):
        made.loss, made.duplicate, made.reorder = faults.loss, faults.duplicate, faults.reorder
        made.delay, made.corrupt = faults.delay, faults.corrupt
        try:
            made.ipv4 = int(ipaddress.IPv4Address(faults.ipv4)) if faults.ipv4 else 0
        except ValueError as error:
            raise CorelaneError("make faults of a NIC", str(error), "give ipv4 as in '10.77.0.9', or \"\"") from error


class FaultNic(Nic):
    """A NIC with faults. It owns the NIC that it wraps, and closes it."""

    @typed("make a NIC with faults")
    def __init__(
        self,
        nic: Nic,
        *,
        rx: Faults | None = None,
        tx: Faults | None = None,
        seed: int = 1,
        delay_us: tuple[float, float] = (0.0, 0.0),
        reorder_by: int = 3,
        adjustable: bool = False,
    ) -> None:
        """Wrap `nic`. rx, tx: faults of received and of sent frames; seed: of all choices.

        delay_us: least and longest delay of a delayed frame. reorder_by: how many later frames overtake a reordered
        one, 1..64. adjustable: `set` will be called. Raises CorelaneError for a value outside its limits; `nic` then
        remains the caller's.
        """
        config = ffi.new("struct cl_fault_config *")
        _fill(config.rates, rx, tx)
        config.seed = seed & (2**64 - 1)
        if not all(us >= 0 for us in delay_us) or reorder_by < 1:
            raise CorelaneError("fault NIC: delays are not negative, and reorder_by is at least 1")
        config.delay_min_ns, config.delay_max_ns = (int(us * 1000) for us in delay_us)
        config.reorder_by, config.adjustable = reorder_by, adjustable
        out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
        check(lib.cl_fault_nic_new(nic.ptr, config, out, err), err, "fault NIC")
        super().__init__(out[0], keep=(nic,))
        nic.release()

    def set(self, rx: Faults | None = None, tx: Faults | None = None) -> None:
        """Other faults from now on; None: no faults. From any thread. Raises CorelaneError if it is not adjustable."""
        rates, err = ffi.new("struct cl_fault_rates[2]"), ffi.new("char[256]")
        _fill(rates, rx, tx)
        check(lib.cl_fault_nic_set(self.ptr, rates, err), err, "fault NIC")

    @typed("count the faults of a NIC")
    def faults(self, direction: Literal["rx", "tx"], queue: int | None = None) -> FaultCounts:
        """Counts of "rx" or "tx", of one queue or of all."""
        which = {"rx": lib.CL_FAULT_RX, "tx": lib.CL_FAULT_TX}[direction]
        names = FaultCounts.__dataclass_fields__
        total = dict.fromkeys(names, 0)
        for q in range(self.queues) if queue is None else (self._queue(queue),):
            out = ffi.new("struct cl_fault_counts *")
            lib.cl_fault_counts(self.ptr, q, which, out)
            for name in names:
                total[name] += int(getattr(out, name))
        return FaultCounts(**total)

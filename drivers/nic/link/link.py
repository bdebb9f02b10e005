"""A NIC behind a link with a rate, a queue, losses and delays. drivers/nic/link/link.h says how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ....runtime.errors import CorelaneError
from ....runtime.typed import typed, typed_class
from ..._native import ffi, lib
from ...device import check
from ..nic import Nic

ETHERNET_OVERHEAD_BYTES = 24
"""What Ethernet sends around a frame: preamble 8, FCS 4, gap 12."""


@typed_class("make a link")
@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a link. The defaults pass every frame on at once.

    rate_bps: bits a second of frames and overhead_bytes, which each frame takes on the line besides; 0: no limit.
    priorities: 1..8, the highest first; a frame's follows from its VLAN tag or the class selector of its IP header.
    queue_bytes: longest queue of each priority, behind which frames are dropped. ecn_bytes: a frame that finds its
    queue so long is marked, if it may be; 0: never. loss: mean share of frames that are lost on the line; burst: how
    many in a row on average, 1: each by itself. delay_us, jitter_us: a frame takes delay_us and up to jitter_us more,
    uniformly. reorder: probability that a frame is passed by the next reorder_by; nothing else changes the order.
    frames: room for so many.
    """

    rate_bps: float = 0.0
    overhead_bytes: int = 0
    priorities: int = 1
    queue_bytes: int = 1 << 20
    ecn_bytes: int = 0
    loss: float = 0.0
    burst: float = 1.0
    delay_us: float = 0.0
    jitter_us: float = 0.0
    reorder: float = 0.0
    reorder_by: int = 3
    frames: int = 16384

    def _losses(self) -> dict[str, float]:
        """The four probabilities of C: to bad, to good, loss in either. Bursts: all is lost while it is bad."""
        if not 0 <= self.loss <= 1 or not self.burst >= 1:
            raise CorelaneError("make a link", f"loss {self.loss}, burst {self.burst}", "loss 0..1, burst 1 or more")
        if self.burst == 1 or self.loss in (0, 1):
            return {"loss_good": self.loss}
        to_good = 1 / self.burst
        to_bad = to_good * self.loss / (1 - self.loss)
        if to_bad > 1:
            why = f"loss {self.loss} in bursts of {self.burst}: there is less than one frame between two of them"
            raise CorelaneError("make a link", why, "give longer bursts, or less loss")
        return {"to_bad": to_bad, "to_good": to_good, "loss_bad": 1.0}

    def config(self, seed: int) -> Any:
        """It as a `struct cl_link_config *`. Raises CorelaneError for what no link can be."""
        for name in ("rate_bps", "overhead_bytes", "ecn_bytes", "delay_us", "jitter_us"):
            if not getattr(self, name) >= 0:
                raise CorelaneError("make a link", f"{name} is {getattr(self, name)}", "give 0 or more")
        for name in ("priorities", "queue_bytes", "reorder_by", "frames"):
            if getattr(self, name) < 1:
                raise CorelaneError("make a link", f"{name} is {getattr(self, name)}", "give 1 or more")
        c = ffi.new("struct cl_link_config *", self._losses())
        c.seed, c.rate_bps, c.overhead_bytes = seed & (2**64 - 1), int(self.rate_bps), self.overhead_bytes
        c.priorities, c.queue_bytes, c.ecn_bytes = self.priorities, self.queue_bytes, self.ecn_bytes
        c.delay_ns, c.jitter_ns = int(self.delay_us * 1000), int(self.jitter_us * 1000)
        c.reorder, c.reorder_by, c.frames = self.reorder, self.reorder_by, self.frames
        return c


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """What became of the frames of a direction: offered = delivered + the four dropped_... + held.

    dropped_tail: the queue was full; dropped_lost: on the line; dropped_store: the path had no room; dropped_long:
    longer than the NIC behind it takes. marked: by ECN. reordered: held back. sent_of, tail_of: over the line, and
    dropped_tail, by priority.
    """

    offered: int
    delivered: int
    delivered_bytes: int
    dropped_tail: int
    dropped_lost: int
    dropped_store: int
    dropped_long: int
    marked: int
    reordered: int
    held: int
    sent_of: tuple[int, ...]
    tail_of: tuple[int, ...]

    @property
    def dropped(self) -> int:
        """Frames dropped for any reason."""
        return self.dropped_tail + self.dropped_lost + self.dropped_store + self.dropped_long

    @classmethod
    def of(cls, counts: Any) -> LinkCounts:
        """Of a `struct cl_link_counts`."""
        made: dict[str, Any] = {name: getattr(counts, name) for name in cls.__dataclass_fields__}
        made |= {k: tuple(v) for k, v in made.items() if k.endswith("_of")}
        return cls(**made)


def linked(nic: Nic, fields: Mapping[str, Any] | None, seed: int = 1) -> Nic:
    """`nic` behind a link of those fields (`Link`) in each direction; without any, `nic` itself.

    By what a configuration or a command line says. Raises CorelaneError; `nic` is then closed.
    """
    if not fields:
        return nic
    try:
        link = Link(**fields)
        return LinkNic(nic, rx=link, tx=link, seed=seed)
    except CorelaneError:
        nic.close()
        raise


class LinkNic(Nic):
    """A NIC behind a link. It owns the NIC that it wraps, and closes it."""

    @typed("make a NIC behind a link")
    def __init__(self, nic: Nic, *, rx: Link | None = None, tx: Link | None = None, seed: int = 1) -> None:
        """Wrap `nic`. rx, tx: the link for what it receives and sends, None: passed through; seed: of all choices.

        Raises CorelaneError for a value outside its limits; `nic` then remains the caller's.
        """
        owned = [link.config(seed) if link else ffi.NULL for link in (rx, tx)]
        paths = ffi.new("struct cl_link_config *[2]", owned)
        out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
        check(lib.cl_link_nic_new(nic.ptr, paths, out, err), err, "link NIC")
        super().__init__(out[0], keep=(nic,))
        nic.release()

    @typed("count the frames of a link")
    def link(self, direction: Literal["rx", "tx"]) -> LinkCounts:
        """Counts of "rx" or "tx"; all 0 for a direction that is passed through."""
        out = ffi.new("struct cl_link_counts *")
        lib.cl_link_nic_counts(self.ptr, {"rx": lib.CL_LINK_RX, "tx": lib.CL_LINK_TX}[direction], out)
        return LinkCounts.of(out)

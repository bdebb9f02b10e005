"""A wire between two NICs, in user space. drivers/nic/link/link.h says how."""

from __future__ import annotations

from typing import Any, Literal

from ....runtime.closing import Closing
from ....runtime.errors import CorelaneError
from ....runtime.typed import typed
from ..._native import ffi, lib
from ...device import check
from ..nic import Nic
from .link import Link, LinkCounts


class Wire(Closing):
    """What one NIC receives the other sends, over a link each way. It owns both NICs, and closes them."""

    @typed("make a wire")
    def __init__(self, a: Nic, b: Nic, *, there: Link | None = None, back: Link | None = None, seed: int = 1) -> None:
        """Join a and b. there: the link from a to b; back: from b to a; None: everything passes at once.

        Start it (`start`), or step it: by hand, or by a libos.Stepper, as it has to be by a virtual clock. Raises
        CorelaneError for a value outside its limits, or for NICs of two clocks; they then remain the caller's.
        """
        self._ptr: Any = None
        self._started = False
        if a is b:
            raise CorelaneError("make a wire", "both ends are the same NIC", "give two")
        owned = [(link or Link()).config(seed) for link in (there, back)]
        out, err = ffi.new("struct cl_wire **"), ffi.new("char[256]")
        nics = ffi.new("struct cl_nic *[2]", [a.ptr, b.ptr])
        check(lib.cl_wire_new(nics, ffi.new("struct cl_link_config *[2]", owned), out, err), err, "wire")
        self._ptr = out[0]
        self._nics = (a, b)
        for nic in self._nics:
            nic.release()

    @property
    def ptr(self) -> Any:
        """The `struct cl_wire *`. Raises CorelaneError once closed."""
        if self._ptr is None:
            raise CorelaneError("use a wire", "it is closed", "make a new one")
        return self._ptr

    def start(self) -> Wire:
        """Have a thread move it until it is closed. Once. Raises CorelaneError by a virtual clock or without thread."""
        err = ffi.new("char[256]")
        check(lib.cl_wire_start(self.ptr, err), err, "start a wire")
        self._started = True
        return self

    def step(self) -> int:
        """Move what can be moved now; returns how many frames a NIC gave or took. CorelaneError if a thread does."""
        ptr = self.ptr
        if self._started:
            raise CorelaneError("step a wire", "a thread moves it", "start it, or step it")
        return int(lib.cl_wire_step(ptr))

    @typed("count the frames of a wire")
    def counts(self, direction: Literal["there", "back"]) -> LinkCounts:
        """Counts of the way "there" or "back"."""
        out = ffi.new("struct cl_link_counts *")
        lib.cl_wire_counts(self.ptr, ("there", "back").index(direction), out)
        return LinkCounts.of(out)

    def close(self) -> None:
        """End its thread, and close both NICs. May be called twice."""
        if self._ptr is not None:
            ptr, self._ptr = self._ptr, None
            lib.cl_wire_close(ptr)
            for nic in self._nics:
                nic.close()

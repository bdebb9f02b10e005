"""Logs for Raft nodes on devices that misbehave: power cuts that tear and lose, processes that end alone, errors.

In memory.
"""

from __future__ import annotations

from typing import Any

from corelane.apps._native import ffi, lib
from corelane.runtime.errors import check


class Disk:
    """A device of `bytes` and the log on it. faults: fields of struct cl_blk_fault_config."""

    def __init__(self, seed: int, size: int = 1 << 20, snapshot_bytes: int = 256 << 10, **faults: Any) -> None:
        err = ffi.new("char[256]")
        inner, outer = ffi.new("struct cl_blk **"), ffi.new("struct cl_blk **")
        check(lib.cl_blk_memory_new(ffi.new("struct cl_blk_memory_config *", {"bytes": size}), inner, err), "disk", err)
        self._clock = ffi.new("uint64_t *", 1)
        self._base = {
            "seed": seed,
            "survive": 0.5,
            "torn": 0.5,
            "clock": ffi.addressof(lib, "cl_blk_fault_clock_word"),
            "clock_arg": self._clock,
        }
        config = ffi.new("struct cl_blk_fault_config *", {**self._base, **faults})
        check(lib.cl_blk_fault_new(inner[0], config, outer, err), "disk", err)
        self.blk = outer[0]
        layout = ffi.new("struct cl_log_layout *", {"area_id": seed, "snapshot_bytes": snapshot_bytes})
        check(lib.cl_log_format(self.blk, 0, layout, err), "format a log", err)
        self.log: Any = None

    def faults(self, **faults: Any) -> None:
        """Other faults from now on."""
        err = ffi.new("char[256]")
        config = ffi.new("struct cl_blk_fault_config *", {**self._base, **faults})
        check(lib.cl_blk_fault_set(self.blk, config, err), "set faults", err)

    def open(self) -> Any:
        """Open the log (again): a `struct cl_log *`."""
        out, err = ffi.new("struct cl_log **"), ffi.new("char[256]")
        config = ffi.new("struct cl_log_config *", {"blk": self.blk})
        check(lib.cl_log_open_wait(config, out, ffi.NULL, err), "open the log", err)
        self.log = out[0]
        return self.log

    def crash(self, power: bool = True) -> None:
        """Cut the power: what was not durable may be there, torn, or not. Or end the process alone: it is there."""
        if power:
            lib.cl_blk_fault_crash(self.blk)
        else:
            lib.cl_blk_fault_kill(self.blk)
        lib.cl_log_discard(self.log)
        self.log = None

    def close(self) -> None:
        """End it all."""
        if self.log is not None:
            self.crash()
        lib.cl_blk_close(self.blk)

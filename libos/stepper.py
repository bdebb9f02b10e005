"""Runtimes and wires driven by one thread on a virtual clock: tests of minutes in milliseconds, the same in each run.

    clock = VirtualClock()
    a, b = memory_link(clock=clock, ipv4=("10.0.0.1", "10.0.0.2"), ipv4_prefix=24)
    with Runtime(nic=LinkNic(a, tx=Link(loss=0.01))) as one, Runtime(nic=b) as other, Stepper(clock) as stepper:
        stepper.add(one)
        stepper.add(other)
        stepper.run(60.0)

corelane/libos/stepper.h says what is equal in equal runs, and what cannot be.
"""

from __future__ import annotations

from typing import Any

from ..drivers.nic.link.wire import Wire
from ..runtime.clock import VirtualClock
from ..runtime.closing import Closing
from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib
from .runtime import Runtime

_MOST_S = 1e9


class Stepper(Closing):
    """Drives what is added to it, in that order, and moves the clock to the next instant when nothing is left to do.

    One thread at a time uses it. Close what it drives before or after it; closed runtimes and wires are to be removed
    before it runs again. Public attribute: clock.
    """

    @typed("make a stepper")
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        out = ffi.new("struct cl_stepper **")
        check(lib.cl_stepper_new(clock.word, out), "make a stepper")
        self._ptr: Any = out[0]
        self._parts: list[tuple[object, Any]] = []

    @property
    def ptr(self) -> Any:
        """The `struct cl_stepper *`. Raises CorelaneError once closed."""
        if self._ptr is None:
            raise CorelaneError("use a stepper", "it is closed", "make a new one")
        return self._ptr

    @typed("step a part of a test")
    def add(self, part: Runtime | Wire) -> None:
        """Drive a runtime, instead of Runtime.start, or a wire, instead of Wire.start.

        Raises CorelaneError for one that was started or lives by another clock.
        """
        if isinstance(part, Runtime):
            part.stepped_by(self.ptr)
        else:
            functions = (ffi.addressof(lib, "cl_wire_step"), ffi.addressof(lib, "cl_wire_next_tsc"))
            types = ("unsigned (*)(void *)", "uint64_t (*)(void *)")
            step, next_ns = (ffi.cast(kind, function) for kind, function in zip(types, functions, strict=True))
            stepped = ffi.new("struct cl_stepped *", {"step": step, "next_ns": next_ns, "arg": part.ptr})
            check(lib.cl_stepper_add(self.ptr, stepped), "step a wire")
        self._parts.append((part, part.ptr))

    def remove(self, part: Runtime | Wire) -> None:
        """Drive it no more: before it is closed, if the stepper is to run on."""
        for known, pointer in self._parts:
            if known is part:
                lib.cl_stepper_remove(self.ptr, pointer)
        self._parts = [pair for pair in self._parts if pair[0] is not part]

    @typed("run a stepper")
    def run(self, seconds: float) -> None:
        """Do all that is due in the next `seconds` of the clock, and leave it there.

        Raises CorelaneError if there is always something to do, so that no time passes.
        """
        if not 0 <= seconds <= _MOST_S:
            raise CorelaneError("run a stepper", f"seconds is {seconds}", f"give 0 to {_MOST_S:g}")
        err = ffi.new("char[256]")
        until = self.clock.now_ns() + round(seconds * 1e9)
        check(lib.cl_stepper_run(self.ptr, until, err), "run a stepper", err)

    def close(self) -> None:
        """Free it; what it drove stays as it is. May be called twice."""
        if self._ptr is not None:
            ptr, self._ptr = self._ptr, None
            lib.cl_stepper_delete(ptr)
            self._parts.clear()

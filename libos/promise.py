"""Work with a deadline: what a Runtime asks of its iokernel, and what becomes of it (docs/deadlines.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib

STATES = {
    lib.CL_PROMISE_NONE: "none",
    lib.CL_PROMISE_MEASURING: "measuring",
    lib.CL_PROMISE_ADMITTED: "admitted",
    lib.CL_PROMISE_REFUSED: "refused",
    lib.CL_PROMISE_MET: "met",
    lib.CL_PROMISE_MISSED: "missed",
}
_NEVER = 2**64 - 1
_MOST = 2**62


@dataclass(frozen=True, slots=True)
class Promised:
    """What became of a deadline.

    state: "none" was asked for; "measuring" how fast the work is; "admitted"; "refused"; "met"; "missed". text: why,
    and what would be possible. cores: that it is promised now. done: units, as far as the iokernel knows. ends_in_s: at
    the pace of the last seconds; None: not known.
    """

    state: str
    text: str
    cores: float
    done: int
    ends_in_s: float | None


class Promising:
    """What a Runtime says of its work."""

    @property
    def ptr(self) -> Any:
        """The `struct cl_runtime *`."""
        raise NotImplementedError

    @typed("ask for a deadline")
    def promise(self, work: int, within_s: float, *, done: int = 0, counter: str = "units") -> Promised:
        """Ask the iokernel to have so many units of work done within that time. For batch work, one at a time.

        done: units counted so far; those of `work` come after them. counter: the one of those that `publish` shows that
        counts units. First the iokernel measures how fast the work is, then it admits it or refuses it: ask `promised`.
        It grants at most what deadline_cores in its configuration says. Raises CorelaneError: embedded, or no iokernel
        is there at the moment (errno ENOTCONN).
        """
        if not 0 < work <= _MOST or not 0 <= done <= _MOST or not 0.001 <= within_s <= 30 * 86400:
            hint = "1 to 2^62 units, 1 ms to 30 days"
            raise CorelaneError("ask for a deadline", f"{work} units within {within_s} s cannot be", hint)
        return self._promise(work, done, int(within_s * 1e6), counter)

    @typed("look at the deadline")
    def promised(self, done: int = 0) -> Promised:
        """What became of the deadline by now. done: units counted so far, in case the iokernel has not seen it yet.

        "none" after an iokernel has come anew, which may be asked again. Raises as `promise`.
        """
        return self._promise(0, done, 0, "")

    def _promise(self, work: int, done: int, within_us: int, counter: str) -> Promised:
        ask, out = ffi.new("struct cl_promise *"), ffi.new("struct cl_promised *")
        err = ffi.new("char[256]")
        ask.work, ask.done, ask.within_us = work, done, within_us
        name = counter.encode("ascii", errors="replace")[:31]
        ffi.memmove(ask.counter, name, len(name))
        check(lib.cl_runtime_promise(self.ptr, ask, out, err), "ask for a deadline", err)
        ends_us = int(out.ends_us)
        return Promised(
            state=STATES.get(int(out.state), str(int(out.state))),
            text=ffi.string(out.text).decode(errors="replace"),
            cores=int(out.share_ppm) / 1e6,
            done=int(out.done),
            ends_in_s=None if ends_us == _NEVER else ends_us / 1e6,
        )

"""The floor of a TCP server, as a thread on one of our NICs: reflector.h.

with Reflector(nic, cpu=1):
    point = load.measure(1e5, 1.0)
"""

from __future__ import annotations

from ...drivers.nic.nic import Nic
from ...runtime.closing import Closing
from ...runtime.errors import check
from .._native import ffi, lib


class Reflector(Closing):
    """Answers from construction to `close`, and spins. takes: data is acknowledged, and not sent back; keeps: and
    summed and copied before; connects: it is the least TCP that answers requests (minimal.h). Raises CorelaneError if
    its thread cannot start."""

    def __init__(self, nic: Nic, *, cpu: int, takes: bool = False, keeps: bool = False, connects: bool = False) -> None:
        self._ptr = ffi.NULL
        data = lib.CL_REFLECTOR_KEEPS if keeps else lib.CL_REFLECTOR_TAKES if takes else lib.CL_REFLECTOR_RETURNS
        data = lib.CL_REFLECTOR_CONNECTS if connects else data
        out, err = ffi.new("struct cl_tcp_reflector **"), ffi.new("char[256]")
        check(
            lib.cl_tcp_reflector_start(ffi.cast("struct cl_nic *", nic.ptr), cpu, data, out, err),
            "start a reflector",
            err,
        )
        self._nic, self._ptr = nic, out[0]

    def close(self) -> None:
        """Stop answering. Closing twice is allowed."""
        ptr, self._ptr = self._ptr, ffi.NULL
        if ptr != ffi.NULL:
            lib.cl_tcp_reflector_stop(ptr)

"""NICs of one queue each as one NIC: drivers/nic/joined.h says how, and what it is for."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.errors import CorelaneError
from ...runtime.typed import typed
from .._native import ffi, lib
from ..device import check
from .nic import Nic


class JoinedNic(Nic):
    """Several NICs as one with a queue each. It owns them, and closes them."""

    @typed("join NICs")
    def __init__(self, nics: Sequence[Nic]) -> None:
        """Queue q is that of nics[q]. Raises CorelaneError for none, one twice, or one of several queues; they then
        remain the caller's."""
        if len(set(map(id, nics))) != len(nics):
            raise CorelaneError("join NICs", "one of them is there twice", "give each once")
        out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
        check(lib.cl_joined_nic_new([nic.ptr for nic in nics], len(nics), out, err), err, "join NICs")
        super().__init__(out[0], keep=tuple(nics))
        for nic in nics:
            nic.release()

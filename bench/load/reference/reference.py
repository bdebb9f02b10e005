"""A server of known latency, for Python. reference.h says what it does.

with Reference(udp=True) as server:
    ...                        # load 127.0.0.1, port server.port
    print(server.kept.percentile(99))
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ....runtime.errors import check
from ....runtime.hist import Hist
from ..._native import ffi, lib


class Reference:
    """A running reference server on 127.0.0.1. port: 0 for any free one. cpu: where its thread is pinned, -1 nowhere.

    Raises CorelaneError if the port is taken.
    """

    def __init__(self, *, udp: bool, port: int = 0, cpu: int = -1) -> None:
        out, err = ffi.new("struct cl_reference **"), ffi.new("char[256]")
        check(lib.cl_reference_start(udp, port, cpu, out, err), "start a reference server", err)
        self._ptr: Any = out[0]
        self.udp = udp
        self.port = int(lib.cl_reference_port(self._ptr))

    @property
    def kept(self) -> Hist:
        """How long requests were kept since the last `clear`, ns: a copy."""
        return Hist.view(lib.cl_reference_kept(self._ptr), self).snapshot()

    @property
    def since_due(self) -> Hist:
        """How long after they were to be sent requests were answered, by their heads, ns: likewise."""
        return Hist.view(lib.cl_reference_since_due(self._ptr), self).snapshot()

    def counts(self) -> dict[str, int]:
        """Requests, answers, refused, late, connections, since the last `clear`."""
        out = ffi.new("struct cl_reference_counts *")
        lib.cl_reference_counts(self._ptr, out)
        return {name: int(getattr(out, name)) for name in ("requests", "answers", "refused", "late", "connections")}

    def clear(self) -> None:
        """Forget what was kept and counted so far."""
        lib.cl_reference_clear(self._ptr)

    def close(self) -> None:
        """End the server."""
        if self._ptr is not None:
            ptr, self._ptr = self._ptr, None
            lib.cl_reference_stop(ptr)

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

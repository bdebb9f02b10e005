"""Our servers on a runtime: server.h."""

from __future__ import annotations

from ...libos import Runtime
from ...runtime.errors import check
from .._native import ffi, lib

ECHO, SINK, SOURCE = 9000, 9001, 9002  # ports
KINDS = {ECHO: lib.CL_BENCH_TCP_ECHO, SINK: lib.CL_BENCH_TCP_SINK, SOURCE: lib.CL_BENCH_TCP_SOURCE}
BACKLOG = 4096


class Servers:
    """All three kinds on a runtime that has one kthread. check: the sink compares each byte. Outlives the runtime."""

    def __init__(self, runtime: Runtime, *, check_bytes: bool = False) -> None:
        self._server = ffi.new("struct cl_bench_tcp_server *", {"check": check_bytes})
        self._runtime = runtime
        for port, kind in KINDS.items():
            rc = lib.cl_bench_tcp_listen(runtime.ptr, port, BACKLOG, kind, self._server)
            check(rc, f"listen on TCP port {port}")

    def counts(self) -> dict[str, int]:
        """The servers' counters."""
        return {name: int(getattr(self._server, name)) for name, _ in ffi.typeof(self._server[0]).fields}

    def stack(self) -> dict[str, int]:
        """The counters of the runtime's TCP."""
        out = ffi.new("struct cl_tcp_counts *")
        lib.cl_runtime_tcp_counts(self._runtime.ptr, out)
        return {name: int(getattr(out, name)) for name, _ in ffi.typeof(out[0]).fields}

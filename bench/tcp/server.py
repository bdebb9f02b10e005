"""Our servers on a runtime: server.h."""

from __future__ import annotations

from ...drivers.nic.nic import ipv4_to_int
from ...libos import Runtime
from ...runtime.errors import check
from .._native import ffi, lib

ECHO, SINK, SOURCE, BLOCKING = 9000, 9001, 9002, 9003  # ports
KINDS = {ECHO: lib.CL_BENCH_TCP_ECHO, SINK: lib.CL_BENCH_TCP_SINK, SOURCE: lib.CL_BENCH_TCP_SOURCE}
BACKLOG = 4096


FLOWS = lib.CL_BENCH_TCP_FLOWS


class Servers:
    """All three kinds, and the echo in blocking form, on a runtime that has one kthread.

    check_bytes: the sink compares each byte. Outlives the runtime.
    """

    def __init__(self, runtime: Runtime, *, check_bytes: bool = False) -> None:
        self._server = ffi.new("struct cl_bench_tcp_server *", {"check": check_bytes})
        self._runtime = runtime
        self._connecting: list[object] = []
        for port, kind in KINDS.items():
            rc = lib.cl_bench_tcp_listen(runtime.ptr, port, BACKLOG, kind, self._server)
            check(rc, f"listen on TCP port {port}")
        check(lib.cl_bench_tcp_block(runtime.ptr, BLOCKING, BACKLOG, self._server), f"listen on TCP port {BLOCKING}")

    def counts(self) -> dict[str, int]:
        """The servers' counters."""
        fields = [name for name, _ in ffi.typeof(self._server[0]).fields if name != "flow_bytes"]
        return {name: int(getattr(self._server, name)) for name in fields}

    @property
    def accepted(self) -> int:
        """Connections that were opened, by either end."""
        return int(self._server.accepted)

    def flow_bytes(self, n: int) -> list[int]:
        """Bytes that came by each of the first n connections."""
        return [int(self._server.flow_bytes[i]) for i in range(n)]

    def connect(self, address: str, port: int, n: int, *, receives: bool) -> None:
        """Open n connections to a source (receives) or to a sink elsewhere, soon after this returns."""
        kind = lib.CL_BENCH_TCP_SINK if receives else lib.CL_BENCH_TCP_SOURCE
        fields = {"rt": self._runtime.ptr, "server": self._server, "ipv4": ipv4_to_int(address), "port": port}
        connecting = ffi.new("struct cl_bench_tcp_connect *", {**fields, "kind": kind, "n": n})
        self._connecting.append(connecting)  # its uthread reads it
        rc = lib.cl_runtime_spawn(self._runtime.ptr, ffi.addressof(lib, "cl_bench_tcp_connect"), connecting)
        check(rc, "open connections")

    def stack(self) -> dict[str, int]:
        """The counters of the runtime's TCP."""
        out = ffi.new("struct cl_tcp_counts *")
        lib.cl_runtime_tcp_counts(self._runtime.ptr, out)
        return {name: int(getattr(out, name)) for name, _ in ffi.typeof(out[0]).fields}

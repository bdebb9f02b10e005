"""TCP on the kernel's sockets (linux_tcp.h): servers as threads of this process, and a client that runs to its end.

with LinuxTcp(kind="echo", poll="spin", cpu=1, address="10.79.0.2", port=9000, netns=far.namespace.name):
    point = ask(address="10.79.0.2", port=9000, cpu=0, connections=100, rate=1e5, seconds=1.0)
"""

from __future__ import annotations

from typing import Any

from ...runtime.closing import Closing
from ...runtime.errors import check, check_pointer
from ...runtime.hist import Hist
from .._native import ffi, lib
from ..harness.openloop import Point
from .sockets import POLL, ipv4_number, namespace_fd

KINDS = {"echo": lib.CL_LINUX_TCP_ECHO, "sink": lib.CL_LINUX_TCP_SINK, "source": lib.CL_LINUX_TCP_SOURCE}
WARM_FRACTION, DRAIN_S = 0.15, 0.2


class LinuxTcp(Closing):
    """A thread of this process that serves TCP; it runs from construction to `close`.

    kind: echo, sink or source; poll: "spin" or "block"; cpu: where it is pinned, -1 nowhere; netns: a namespace's name;
    congestion: by name, "" the system's. Raises CorelaneError with the reason if it cannot serve.
    """

    def __init__(
        self,
        *,
        kind: str,
        poll: str,
        address: str,
        port: int,
        cpu: int = -1,
        netns: str = "",
        congestion: str = "",
    ) -> None:
        self._ptr = ffi.NULL
        name = ffi.new("char[]", congestion.encode())
        with namespace_fd(netns) as netns_fd:
            fields = {
                "netns_fd": netns_fd,
                "cpu": cpu,
                "ipv4": ipv4_number(address),
                "port": port,
                "poll": POLL[poll],
                "kind": KINDS[kind],
                "congestion": name if congestion else ffi.NULL,
            }
            out, err = ffi.new("struct cl_linux_tcp **"), ffi.new("char[256]")
            rc = lib.cl_linux_tcp_start(ffi.new("struct cl_linux_tcp_config *", fields), out, err)
        check(rc, f"serve TCP on {address}", err)
        self._name = name  # listened with
        self._ptr = out[0]

    def stats(self) -> dict[str, int]:
        """Counters: connections, bytes, system calls."""
        out = ffi.new("struct cl_linux_tcp_stats *")
        lib.cl_linux_tcp_stats(check_pointer(self._ptr, "read the server's counters", "it is closed"), out)
        return {name: int(getattr(out, name)) for name, _ in ffi.typeof(out[0]).fields}

    def flow_bytes(self, n: int) -> list[int]:
        """Bytes that came by each of the first n connections."""
        out = ffi.new("uint64_t[]", lib.CL_LINUX_TCP_FLOWS)
        lib.cl_linux_tcp_flow_bytes(check_pointer(self._ptr, "read the server's counters", "it is closed"), out)
        return [int(out[i]) for i in range(n)]

    def close(self) -> None:
        """Stop serving. Closing twice is allowed."""
        ptr, self._ptr = self._ptr, ffi.NULL
        lib.cl_linux_tcp_stop(ptr)


def _run(traffic: int, seconds: float, congestion: str, netns: str, **fields: Any) -> tuple[Any, Hist, float]:
    """The result, the latencies, the measured seconds."""
    warm_s = WARM_FRACTION * seconds
    hist, out, err = Hist(), ffi.new("struct cl_linux_tcp_result *"), ffi.new("char[256]")
    name = ffi.new("char[]", congestion.encode())
    with namespace_fd(netns) as netns_fd:
        config = {
            "netns_fd": netns_fd,
            "traffic": traffic,
            "warm_ns": int(warm_s * 1e9),
            "measured_ns": int((seconds - warm_s) * 1e9),
            "drain_ns": int(DRAIN_S * 1e9),
            "seed": 1,
            "congestion": name if congestion else ffi.NULL,
            **fields,
        }
        rc = lib.cl_linux_tcp_client(ffi.new("struct cl_linux_tcp_client_config *", config), hist.ptr, out, err)
    check(rc, "run a client on kernel sockets", err)
    return out, hist, seconds - warm_s


def ask(
    *,
    address: str,
    port: int,
    cpu: int,
    connections: int,
    rate: float,
    seconds: float,
    request_bytes: int = 64,
    netns: str = "",
) -> Point:
    """Requests of a client on kernel sockets, by the rules of every other client; rate 0: a closed loop."""
    fields = {"ipv4": ipv4_number(address), "port": port, "cpu": cpu, "connections": connections, "rate": rate}
    out, hist, measured_s = _run(lib.CL_LINUX_TCP_ASK, seconds, "", netns, request_bytes=request_bytes, **fields)
    span_s = max(measured_s, (out.last_ns - out.start_ns) / 1e9 if out.last_ns else 0.0)
    point = Point(
        rate, out.answered / span_s, out.sent, out.answered, out.late, out.dropped, seconds=measured_s, hist=hist
    )
    point.set_percentiles(hist)
    if out.wrong:
        point.extra["wrong"] = int(out.wrong)
    return point


def bulk(
    *,
    send: bool,
    address: str,
    port: int,
    cpu: int,
    seconds: float,
    connections: int = 1,
    netns: str = "",
    congestion: str = "",
) -> float:
    """Gb/s that one client sends, as the kernel takes it, or receives. Raises CorelaneError if a byte was wrong."""
    traffic = lib.CL_LINUX_TCP_SEND if send else lib.CL_LINUX_TCP_RECEIVE
    fields = {"ipv4": ipv4_number(address), "port": port, "cpu": cpu, "connections": connections}
    out, _, measured_s = _run(traffic, seconds, congestion, netns, request_bytes=64, **fields)
    check(-74 if out.wrong else 0, "receive what was sent")  # EBADMSG
    return 8e-9 * float(out.bytes_out if send else out.bytes_in) / measured_s

"""TCP load: connections that ask, that come and go, that carry bytes without end, or that only exist. tcpload.h states
the rules.

    with TcpLoad("ask", connections=1000, server_mac=runtime.mac) as load:
        load.start_client(end, cpu=0)
        result = load.run(rate=1e6, seconds=2.0)
        print(result.answered, result.percentile_us(99))
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ....runtime.clock import monotonic_s
from ....runtime.closing import Closing
from ....runtime.errors import CorelaneError
from ..._native import ffi, lib
from ...device import check
from ..loadgen.runs import Latency, Limits, Phase, Result, await_end, phase_result, set_common, summed
from ..nic import Nic, ipv4_to_int, mac_to_bytes

TRAFFIC = {
    "ask": lib.CL_TCPLOAD_ASK,
    "churn": lib.CL_TCPLOAD_CHURN,
    "send": lib.CL_TCPLOAD_SEND,
    "receive": lib.CL_TCPLOAD_RECEIVE,
    "hold": lib.CL_TCPLOAD_HOLD,
}
ARRIVALS = {
    "poisson": lib.CL_ARRIVALS_POISSON,
    "uniform": lib.CL_ARRIVALS_UNIFORM,
    "closed": lib.CL_ARRIVALS_CLOSED,
}
ATTACKS = {
    "SYN flood": lib.CL_TCPLOAD_ATTACK_SYN,
    "ACK flood": lib.CL_TCPLOAD_ATTACK_ACK,
    "blind resets": lib.CL_TCPLOAD_ATTACK_BLIND_RST,
    "blind SYNs": lib.CL_TCPLOAD_ATTACK_BLIND_SYN,
    "blind data": lib.CL_TCPLOAD_ATTACK_BLIND_DATA,
    "blind acknowledgements": lib.CL_TCPLOAD_ATTACK_BLIND_ACK,
    "zero windows": lib.CL_TCPLOAD_ATTACK_ZERO_WINDOW,
    "slow readers": lib.CL_TCPLOAD_ATTACK_SLOW_READER,
    "tiny segments": lib.CL_TCPLOAD_ATTACK_TINY,
    "optimistic acknowledgements": lib.CL_TCPLOAD_ATTACK_OPTIMISTIC,
    "overlapping data": lib.CL_TCPLOAD_ATTACK_OVERLAP,
    "data outside of the window": lib.CL_TCPLOAD_ATTACK_OUTSIDE,
    "all ports": lib.CL_TCPLOAD_ATTACK_PORTS,
}
NEIGHBOUR = "a neighbour as busy"  # no attack: requests as the client's, as many as attackers send segments
KINDS = ATTACKS | {NEIGHBOUR: lib.CL_TCPLOAD_NEIGHBOUR}
CONNECTED = tuple(name for name, kind in KINDS.items() if kind >= lib.CL_TCPLOAD_ATTACK_ZERO_WINDOW)
OVER = (lib.CL_TCPLOAD_IDLE, lib.CL_TCPLOAD_FAILED)
FOREVER_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSource:
    """Where connections come from. mac: own address, "02:00:00:00:00:01" if None. ip: first own address. ips: own
    addresses from `ip` on. first_port, ports: of each address, used in turn."""

    mac: str | None = None
    ip: str = "10.77.0.1"
    ips: int = 1
    first_port: int = 20000
    ports: int = 40000


def _script(lines: Sequence[tuple[bytes, bytes]]) -> tuple[Any, ...]:
    """A `struct cl_tcpload_script` of requests and answers, and what it points to."""
    sides = [[line[side] for line in lines] for side in (0, 1)]
    at = [ffi.new("uint32_t[]", [0, *itertools.accumulate(map(len, side))]) for side in sides]
    kept = [ffi.new("uint8_t[]", b"".join(side)) for side in sides]
    fields = {
        "lines": len(lines),
        "requests": kept[0],
        "answers": kept[1],
        "request_at": at[0],
        "answer_at": at[1],
    }
    return (ffi.new("struct cl_tcpload_script *", fields), *at, *kept)


class TcpLoad(Closing):
    """A client for one server. traffic: ask, churn, send, receive or hold (tcpload.h). request_bytes: of a request and
    of its answer. script: of ask, requests and their answers instead. window_bytes: offered to the server. plain:
    without timestamps and window scale. verify: compute the checksums of what comes, too; its bytes are always
    compared. keep: of ask, connections stay open from run to run, until the client's thread ends. Raises CorelaneError
    for a value outside its limits."""

    def __init__(
        self,
        traffic: Literal["ask", "churn", "send", "receive", "hold"],
        *,
        server_mac: str | None = None,
        server_ip: str = "10.77.0.2",
        server_port: int = 9000,
        connections: int = 1,
        request_bytes: int = 64,
        script: Sequence[tuple[bytes, bytes]] = (),
        arrivals: Literal["poisson", "uniform", "closed"] = "poisson",
        window_bytes: int = 0,
        plain: bool = False,
        verify: bool = False,
        keep: bool = False,
        seed: int = 1,
        source: TcpSource | None = None,
        limits: Limits | None = None,
    ) -> None:
        source, limits = source or TcpSource(), limits or Limits()
        c = ffi.new("struct cl_tcpload_config *")
        c.traffic, c.arrivals, c.seed = TRAFFIC[traffic], ARRIVALS[arrivals], seed & (2**64 - 1)
        c.ip, c.ips, c.server_ip = ipv4_to_int(source.ip), source.ips, ipv4_to_int(server_ip)
        c.server_port, c.first_port, c.ports = server_port, source.first_port, source.ports
        c.connections, c.request_bytes, c.window_bytes = connections, request_bytes, window_bytes
        c.plain, c.verify, c.keep = plain, verify, keep
        self._script = _script(script)
        if script:
            c.script = self._script[0]
        set_common(c, limits, source.mac, server_mac)
        self.traffic, self.arrivals = traffic, arrivals
        self._phases: tuple[Phase, ...] = ()
        self._aborted = False  # the last run
        self._client: Any = None
        self._nic: Nic | None = None
        self._client_nic: Nic | None = None
        out, err = ffi.new("struct cl_tcpload **"), ffi.new("char[256]")
        check(lib.cl_tcpload_new(c, out, err), err, "TCP load")
        self._ptr: Any = out[0]

    @property
    def ptr(self) -> Any:
        """The `struct cl_tcpload *`. Raises CorelaneError once closed."""
        if self._ptr is None:
            raise CorelaneError("this TCP load is closed; make a new one")
        return self._ptr

    def nic(self, buffers: int = 0) -> Nic:
        """The client as a NIC with one queue: whoever polls it is loaded. `close` closes it too."""
        if self._nic is None or self._nic.closed:
            out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
            check(lib.cl_tcpload_nic_new(self.ptr, buffers, out, err), err, "TCP load NIC")
            self._nic = Nic(out[0], keep=(self,))
        return self._nic

    def aim(self, server_mac: str) -> None:
        """The server's MAC address, if it was not known before. Not while a run is under way."""
        lib.cl_tcpload_aim(self.ptr, mac_to_bytes(server_mac))

    def attack(self, kind: str, rate: float = 0.0, connections: int = 1000) -> None:
        """From the next run on somebody on the same link sends `rate` segments a second, of KINDS; "": nobody does.

        connections: of its own, for kinds of CONNECTED. Not while a run is under way."""
        rc = lib.cl_tcpload_attack(self.ptr, KINDS[kind] if kind else 0, rate, connections)
        check(rc, ffi.new("char[256]"), "attack")

    def start_client(self, nic: Nic, cpu: int = -1) -> None:
        """Drive the client by a thread over queue 0 of `nic`, pinned to `cpu` (-1: anywhere); it polls during a run."""
        out, err = ffi.new("struct cl_tcpload_client **"), ffi.new("char[256]")
        check(lib.cl_tcpload_client_start(self.ptr, nic.ptr, cpu, out, err), err, "TCP load")
        self._client, self._client_nic = out[0], nic

    def stop_client(self) -> None:
        """End the client's thread, and the run if one is under way."""
        client, self._client, self._client_nic = self._client, None, None
        if client is not None:
            lib.cl_tcpload_client_stop(client)

    def start(self, phases: tuple[Phase, ...]) -> None:
        """Begin a run; returns at once."""
        array = ffi.new("struct cl_loadgen_phase[]", len(phases))
        for made, phase in zip(array, phases, strict=True):
            made.duration_ns, made.rate, made.measured = int(phase.seconds * 1e9), phase.rate, phase.measured
        err = ffi.new("char[256]")
        check(lib.cl_tcpload_run(self.ptr, array, len(phases), err), err, "TCP load")
        self._phases, self._aborted = phases, False

    def begin(self, rate: float, seconds: float, warmup_s: float, windows: int = 1) -> None:
        """Begin a run at one rate: warm-up, then `seconds` measured in `windows` equal parts."""
        warm = (Phase(warmup_s, rate, measured=False),) if warmup_s > 0 else ()
        self.start((*warm, *[Phase(seconds / windows, rate)] * windows))

    def begins_s(self) -> float | None:
        """When the first measured phase of the run begins or began, as time.monotonic(); None: not known yet, as
        connections are still opened."""
        start_tsc = self._counts(next((i for i, phase in enumerate(self._phases) if phase.measured), 0)).start_tsc
        return monotonic_s(start_tsc) if start_tsc else None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the run. timeout_s: by default the run's time and 30 s. Raises CorelaneError if
        connections were not opened, or if it was not over by then (then it is ended)."""
        await_end(
            lambda: lib.cl_tcpload_state(self.ptr) in OVER,
            lambda: lib.cl_tcpload_state(self.ptr) == lib.CL_TCPLOAD_RUNNING and not self._aborted,
            self.abort,
            sum(phase.seconds for phase in self._phases),
            timeout_s,
        )
        if lib.cl_tcpload_state(self.ptr) == lib.CL_TCPLOAD_FAILED:
            why = ffi.new("char[256]")
            lib.cl_tcpload_reason(self.ptr, why)
            raise CorelaneError(f"TCP load: {ffi.string(why).decode()}")

    def run(self, rate: float, seconds: float = 1.0, warmup_s: float = 0.1) -> Result:
        """A run at one rate. Returns when it is over."""
        self.begin(rate, seconds, warmup_s)
        self.wait()
        return self.result()

    def abort(self) -> None:
        """Ask for the end of the run; it ends at the next poll."""
        self._aborted = True
        lib.cl_tcpload_abort(self.ptr)

    @contextlib.contextmanager
    def held(self, timeout_s: float = 30.0) -> Iterator[None]:
        """All connections are open inside, and say nothing unless the traffic is bulk."""
        self.start((Phase(FOREVER_S, 0.0, measured=False),))
        end = time.monotonic() + timeout_s
        while lib.cl_tcpload_state(self.ptr) in (lib.CL_TCPLOAD_ASKED, lib.CL_TCPLOAD_OPENING):
            if time.monotonic() > end:
                self.abort()
                raise CorelaneError(f"{self.open} connections were open after {timeout_s:.0f} s, and not all")
            time.sleep(0.001)
        if lib.cl_tcpload_state(self.ptr) != lib.CL_TCPLOAD_RUNNING:
            self.wait(timeout_s)  # raises: it has failed
        try:
            yield
        finally:
            self.abort()
            self.wait(timeout_s)

    @property
    def open(self) -> int:
        """Connections that are established now."""
        return int(lib.cl_tcpload_open(self.ptr))

    def result(self) -> Result:
        """All measured phases of the last run as one; `windows` are the single ones."""
        parts = [self._phase_result(i, p) for i, p in enumerate(self._phases) if p.measured]
        total = summed(parts)
        total.windows = parts
        return total

    def bytes(self) -> tuple[int, int]:
        """Of the measured phases of the last run: bytes that came and were right, and that the server acknowledged."""
        counts = [self._counts(i) for i, phase in enumerate(self._phases) if phase.measured]
        return sum(int(c.bytes_in) for c in counts), sum(int(c.bytes_out) for c in counts)

    def other(self) -> dict[str, int]:
        """Counts that belong to no phase: segments, connections, what was sent or came twice, strangers' frames."""
        out = ffi.new("struct cl_tcpload_other *")
        lib.cl_tcpload_other(self.ptr, out)
        return {name: int(getattr(out, name)) for name, _ in ffi.typeof("struct cl_tcpload_other").fields}

    def close(self) -> None:
        """Stop the client, close the NIC, free the tables. Nobody may be polling the NIC. May be called twice."""
        if self._ptr is None:
            return
        self.stop_client()
        if self._nic is not None:
            self._nic.close()
        ptr, self._ptr = self._ptr, None
        lib.cl_tcpload_delete(ptr)

    def _counts(self, index: int) -> Any:
        c = ffi.new("struct cl_tcpload_counts *")
        check(lib.cl_tcpload_counts(self.ptr, index, c), ffi.new("char[256]"), f"phase {index}")
        return c

    def _phase_result(self, index: int, phase: Phase) -> Result:
        c = self._counts(index)
        span = 0.0
        if c.last_tsc:
            span = lib.cl_clock_ticks_to_ns(lib.cl_clock_default(), c.last_tsc - c.start_tsc) / 1e9
        latency = Latency(lib.cl_tcpload_latency(self.ptr, index))
        return phase_result(phase, c, span, latency, open_loop=self.arrivals != "closed")

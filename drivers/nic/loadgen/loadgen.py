"""Open-loop load: what to ask, how often, and what the answers were worth. drivers/nic/loadgen/loadgen.h states the
rules.

    with Loadgen(Memcached(keys=1_000_000, zipf=0.99), server_mac=nic.mac) as load:
        load.start_client(end, cpu=0)                  # or: iokernel or runtime polls load.nic()
        result = load.run(rate=1e6, seconds=2.0)
        print(result.answered, result.percentile_us(99))

The generator draws all randomness from `seed` when it is made. One Loadgen serves any number of runs in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ....runtime.clock import monotonic_s
from ....runtime.closing import Closing
from ....runtime.errors import CorelaneError
from ....runtime.options import Group, option
from ....runtime.typed import typed, typed_class
from ..._native import ffi, lib
from ...device import check
from ..nic import Nic, ipv4_to_int
from .runs import Latency, Result, await_end, merged, phase_result, set_common, summed
from .runs import Limits as Limits  # for who makes one of these
from .runs import Phase as Phase


@typed_class("make echo traffic")
@dataclass(frozen=True, slots=True)
class Echo:
    """UDP echo: `payload_bytes` (8..mtu - 28) come back unchanged. 22 bytes make a frame of exactly one cache line.

    service_us, long_us: what the application `spin`, if it is told to, spends on a request: long_us on `long_fraction`
    of them, chosen beforehand, and service_us on the others. The long ones' latencies are then told apart.
    """

    payload_bytes: int = 22
    service_us: float = 0.0
    long_us: float = 0.0
    long_fraction: float = 0.0


@typed_class("make memcached traffic")
@dataclass(frozen=True, slots=True)
class Memcached:
    """memcached's ASCII protocol over UDP: GETs and SETs of `keys` keys.

    key_bytes 1..250, value_bytes 1..65536 (what a SET must carry has to fit into one datagram). get_fraction: of the
    requests that are GETs, 0..1. zipf: exponent of the keys' popularity, 0 for all alike. preload: set every key once
    before the first run, with flow control, at most preload_window (a power of two) at a time.
    """

    keys: int = 1_000_000
    key_bytes: int = 16
    value_bytes: int = 64
    get_fraction: float = 1.0
    zipf: float = 0.99
    preload: bool = True
    preload_window: int = 64


@typed_class("make bursty arrivals")
@dataclass(frozen=True, slots=True)
class Bursty:
    """Bursts of a geometric number of requests, `burst` on average, that take the fraction `duty` of time.

    duty 0: the requests of a burst are due at the same moment.
    """

    burst: int = 16
    duty: float = 0.0


@typed_class("make a closed loop")
@dataclass(frozen=True, slots=True)
class Closed:
    """Not open loop: `window` requests are outstanding at any time, whatever the rate says. For probing a peak only."""

    window: int = 64


Arrivals = Literal["poisson", "uniform"] | Bursty | Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Group):
    """Where requests come from.

    mac: own address, "02:00:00:00:00:01"; None: that one. ip: first own address. first_port, flows (a power of two up
    to 16384): source ports from first_port on. ips (a power of two up to `flows`): own addresses from `ip` on, over
    which the flows are spread. Flows spread the requests over the server's queues.
    """

    mac: str | None = option(None, "own MAC address")
    ip: str = option("10.77.0.1", "first own address")
    first_port: int = option(20000, "first source port", low=1, high=65535)
    flows: int = option(64, "source ports", low=1, high=16384)
    ips: int = option(1, "own addresses", low=1, high=16384)


class Replay:
    """Requests given one by one, for Loadgen.replay: at_ns, when each is due after the run's start, ascending;
    service_ns, what the server is to spend on it. Two numpy arrays of one length, copied.

    Once the run is over: sent_ns and answered_ns, when each was sent and rightly answered after the run's start (0:
    never), uint64 arrays; `gaps`, when the generator's poller stayed away for a microsecond or longer.
    """

    ROOM = 1 << 18  # gaps

    def __init__(self, at_ns: Any, service_ns: Any) -> None:
        self._at, self._service = at_ns.astype("uint64"), service_ns.astype("uint32")
        if len(self._at) != len(self._service):
            raise CorelaneError("replay requests", "the two arrays differ in length", "give both for each request")
        self.sent_ns, self.answered_ns = self._at * 0, self._at * 0
        self._gap_at, self._gap_ns = (self._at.copy() for _ in range(2))
        for array in (self._gap_at, self._gap_ns):
            array.resize(self.ROOM, refcheck=False)
        fields = {"n": len(self._at), "room": self.ROOM}
        self.ptr = ffi.new("struct cl_loadgen_replay *", fields)
        self.ptr.service_ns = ffi.cast("uint32_t *", self._service.ctypes.data)
        for name, array in (
            ("at_ns", self._at),
            ("sent_ns", self.sent_ns),
            ("answered_ns", self.answered_ns),
            ("gap_at_ns", self._gap_at),
            ("gap_ns", self._gap_ns),
        ):
            setattr(self.ptr, name, ffi.cast("uint64_t *", array.ctypes.data))

    @property
    def seconds(self) -> float:
        """Until the last request is due."""
        return float(self._at[-1]) / 1e9 if len(self._at) else 0.0

    @property
    def gaps(self) -> tuple[Any, Any]:
        """When the poller stayed away, and for how long, ns; two arrays."""
        n = int(self.ptr.n_gaps)
        return self._gap_at[:n], self._gap_ns[:n]


class Loadgen(Closing):
    """A load generator for one server. Addresses: "10.77.0.1", "02:00:00:00:00:01"; server_mac None: asked for by ARP.

    checksum: compute UDP checksums, which peers with a real device or Linux in between want. schedule: what `start`
    runs unless it is given another. clock: a `struct cl_clock *` instead of the process's. Raises CorelaneError for a
    value outside its limits (drivers/nic/loadgen/loadgen.h gives them).
    """

    @typed("make a load generator")
    def __init__(
        self,
        traffic: Echo | Memcached,
        *,
        arrivals: Arrivals = "poisson",
        schedule: Sequence[Phase] = (),
        seed: int = 1,
        server_mac: str | None = None,
        server_ip: str = "10.77.0.2",
        server_port: int = 9000,
        checksum: bool = False,
        source: Source | None = None,
        limits: Limits | None = None,
        clock: Any = None,
    ) -> None:
        source, limits = source or Source(), limits or Limits()
        c = ffi.new("struct cl_loadgen_config *")
        c.ip, c.server_ip = ipv4_to_int(source.ip), ipv4_to_int(server_ip)
        try:
            c.seed, c.server_port, c.checksum = seed & (2**64 - 1), server_port, checksum
            self._set_traffic(c, traffic)
            self._set_arrivals(c, arrivals)
        except (OverflowError, ValueError) as error:  # negative, or more than the field holds
            raise CorelaneError("load generator", str(error), "loadgen.h gives the limits") from error
        c.first_port, c.flows, c.ips, c.outstanding = source.first_port, source.flows, source.ips, limits.outstanding
        set_common(c, limits, source.mac, server_mac)
        if clock is not None:
            c.clock = clock
        self.traffic = traffic
        self.arrivals = arrivals
        self.schedule: tuple[Phase, ...] = tuple(schedule)
        self._clock = clock if clock is not None else lib.cl_clock_default()
        self._phases: tuple[Phase, ...] = ()
        self._replayed: Replay | None = None
        self._client: Any = None
        self._nic: Nic | None = None
        self._client_nic: Nic | None = None
        self.client_cpu_s = 0.0
        out, err = ffi.new("struct cl_loadgen **"), ffi.new("char[256]")
        check(lib.cl_loadgen_new(c, out, err), err, "load generator")
        self._ptr: Any = out[0]

    @staticmethod
    def _set_traffic(c: Any, traffic: Echo | Memcached) -> None:
        if isinstance(traffic, Echo):
            c.traffic, c.payload_bytes = lib.CL_LOAD_ECHO, traffic.payload_bytes
            c.service_ns, c.long_ns = int(traffic.service_us * 1e3), int(traffic.long_us * 1e3)
            c.long_fraction = traffic.long_fraction
            return
        c.traffic, c.keys, c.key_bytes, c.value_bytes = (
            lib.CL_LOAD_MEMCACHED,
            traffic.keys,
            traffic.key_bytes,
            traffic.value_bytes,
        )
        c.get_fraction, c.zipf = traffic.get_fraction, traffic.zipf
        c.preload, c.preload_window = traffic.preload, traffic.preload_window

    @staticmethod
    def _set_arrivals(c: Any, arrivals: Arrivals) -> None:
        if isinstance(arrivals, Bursty):
            c.arrivals, c.burst, c.duty = lib.CL_ARRIVALS_BURSTY, arrivals.burst, arrivals.duty
        elif isinstance(arrivals, Closed):
            c.arrivals, c.window = lib.CL_ARRIVALS_CLOSED, arrivals.window
        elif arrivals in ("poisson", "uniform"):
            c.arrivals = lib.CL_ARRIVALS_POISSON if arrivals == "poisson" else lib.CL_ARRIVALS_UNIFORM
        else:
            raise CorelaneError(f"unknown arrivals {arrivals!r}: 'poisson', 'uniform', Bursty(...) or Closed(...)")

    @property
    def ptr(self) -> Any:
        """The `struct cl_loadgen *`. Raises CorelaneError once closed."""
        if self._ptr is None:
            raise CorelaneError("this load generator is closed; make a new one")
        return self._ptr

    def nic(self, buffers: int = 0) -> Nic:
        """The generator as a NIC with one queue: whoever polls it is loaded. `close` closes it too."""
        if self._nic is None or self._nic.closed:
            out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
            check(lib.cl_loadgen_nic_new(self.ptr, buffers, out, err), err, "load generator NIC")
            self._nic = Nic(out[0], keep=(self,))
        return self._nic

    def start_client(self, nic: Nic, cpu: int = -1, *, queue: int = 0, spin: bool = True) -> None:
        """Drive the generator by a thread over a queue of `nic`, pinned to `cpu` (-1: anywhere).

        spin: poll all the time during a run (else sleep until something is due or comes). Raises CorelaneError if the
        requests do not fit the NIC, or there is a client or NIC already.
        """
        out, err = ffi.new("struct cl_loadgen_client **"), ffi.new("char[256]")
        rc = lib.cl_loadgen_client_start(self.ptr, nic.ptr, queue, cpu, spin, out, err)
        check(rc, err, "load generator client")
        self._client, self._client_nic = out[0], nic

    def stop_client(self) -> float:
        """End the client thread, and the run if one is under way. Returns the CPU seconds that the thread used."""
        if self._client is not None:
            client, self._client = self._client, None
            self.client_cpu_s = lib.cl_loadgen_client_stop(client) / 1e9
            self._client_nic = None
        return self.client_cpu_s

    def start(self, schedule: Sequence[Phase] = ()) -> None:
        """Begin a run of the given phases, or of those given to the constructor; returns at once."""
        phases = tuple(schedule) or self.schedule
        if not phases:
            raise CorelaneError("nothing to run: give a schedule, as in [Phase(seconds=1, rate=1e6)]")
        array = ffi.new("struct cl_loadgen_phase[]", len(phases))
        for made, phase in zip(array, phases, strict=True):
            if not 0 <= phase.seconds <= 86400:
                raise CorelaneError("load generator run", f"a phase of {phase.seconds} s", "give 0 to 86400, a day")
            made.duration_ns, made.rate, made.measured = int(phase.seconds * 1e9), phase.rate, phase.measured
            made.series = phase.series
        err = ffi.new("char[256]")
        check(lib.cl_loadgen_run(self.ptr, array, len(phases), err), err, "load generator run")
        self._phases = phases

    def replay(self, load: Replay) -> None:
        """Begin a run of given requests; returns at once, see `wait`. The traffic is Echo with service_us."""
        err = ffi.new("char[256]")
        check(lib.cl_loadgen_replay(self.ptr, load.ptr, err), err, "load generator replay")
        self._replayed = load  # the engine's thread writes to it
        self._phases = (Phase(load.seconds, 1.0, measured=False),)

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return lib.cl_loadgen_state(self.ptr) not in (lib.CL_LOAD_IDLE, lib.CL_LOAD_FAILED)

    def begins_s(self) -> float | None:
        """When the first measured phase of the run begins or began, as time.monotonic(); None: not known yet, as the
        server is still looked for or given its items. Of the process's clock."""
        first = next((i for i, phase in enumerate(self._phases) if phase.measured), 0)
        c = ffi.new("struct cl_loadgen_counts *")
        check(lib.cl_loadgen_counts(self.ptr, first, c), ffi.new("char[256]"), f"phase {first}")
        return monotonic_s(c.start_tsc) if c.start_tsc else None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the run.

        timeout_s: by default the schedule's time, plus time for resolving, preloading and the last answers. Raises
        CorelaneError if the run failed (with the reason) or was not over by then (then it is ended).
        """
        await_end(
            lambda: lib.cl_loadgen_state(self.ptr) in (lib.CL_LOAD_IDLE, lib.CL_LOAD_FAILED),
            lambda: lib.cl_loadgen_state(self.ptr) == lib.CL_LOAD_RUNNING,
            self.abort,
            sum(p.seconds for p in self._phases),
            timeout_s,
        )
        if lib.cl_loadgen_state(self.ptr) == lib.CL_LOAD_FAILED:
            raise CorelaneError(f"load generator: {ffi.string(lib.cl_loadgen_reason(self.ptr)).decode()}")

    def abort(self) -> None:
        """Ask for the end of the run; it ends at the next poll."""
        lib.cl_loadgen_abort(self.ptr)

    def results(self) -> list[Result]:
        """What became of each phase of the last run, warm-up included, in order."""
        return [self._phase_result(i, phase) for i, phase in enumerate(self._phases)]

    def result(self) -> Result:
        """All measured phases of the last run as one; `windows` are the single ones."""
        parts = [r for r, p in zip(self.results(), self._phases, strict=True) if p.measured]
        total = summed(parts)
        total.windows = parts
        return total

    def series(self) -> dict[int, Latency]:
        """Latencies of the last run by the phases' series; with long requests, of the others."""
        first = {p.series: i for i, p in reversed(list(enumerate(self._phases))) if p.series and p.measured}
        return {number: Latency(lib.cl_loadgen_latency(self.ptr, first[number])) for number in sorted(first)}

    def last_answers(self) -> list[float]:
        """Of each phase of the last run, in order: when the last right answer to a request of it came, in seconds after
        the run began; inf if none did."""
        out: list[float] = []
        began, c = 0, ffi.new("struct cl_loadgen_counts *")
        for i in range(len(self._phases)):
            check(lib.cl_loadgen_counts(self.ptr, i, c), ffi.new("char[256]"), f"phase {i}")
            began = began or c.start_tsc
            out.append(lib.cl_clock_ticks_to_ns(self._clock, c.last_tsc - began) / 1e9 if c.last_tsc else math.inf)
        return out

    def run(self, rate: float, seconds: float = 1.0, warmup_s: float = 0.1, windows: int = 1) -> Result:
        """A run at one rate: warm-up, then `seconds` measured in `windows` equal parts. Returns when it is over."""
        self.begin(rate, seconds, warmup_s, windows)
        self.wait()
        return self.result()

    def begin(self, rate: float, seconds: float, warmup_s: float, windows: int) -> None:
        """As `run`, but for the waiting."""
        # Of a series each: its requests are not to wait for fresh pages of its histogram.
        phases = [Phase(seconds / windows, rate, series=i) for i in range(1, windows + 1)]
        if warmup_s > 0:
            phases.insert(0, Phase(warmup_s, rate, measured=False))
        self.start(phases)

    def other(self) -> dict[str, int]:
        """Counts that belong to no phase: stray and foreign frames, ARP, preload."""
        out = ffi.new("struct cl_loadgen_other *")
        lib.cl_loadgen_other(self.ptr, out)
        return {name: int(getattr(out, name)) for name, _ in ffi.typeof("struct cl_loadgen_other").fields}

    def key(self, number: int) -> bytes:
        """Key `number` of the memcached traffic."""
        out = ffi.new("uint8_t[256]")
        return bytes(ffi.buffer(out, lib.cl_loadgen_key(self.ptr, number, out)))

    def value(self, number: int) -> bytes:
        """The value that GETs of key `number` must give; with flags 7."""
        out = ffi.new("uint8_t[65536]")
        return bytes(ffi.buffer(out, lib.cl_loadgen_value(self.ptr, number, out)))

    def close(self) -> None:
        """Stop the client, close the NIC, free the tables. Nobody may be polling the NIC. May be called twice."""
        if self._ptr is None:
            return
        self.stop_client()
        if self._nic is not None:
            self._nic.close()
        ptr, self._ptr = self._ptr, None
        lib.cl_loadgen_delete(ptr)

    def _phase_result(self, index: int, phase: Phase) -> Result:
        c = ffi.new("struct cl_loadgen_counts *")
        check(lib.cl_loadgen_counts(self.ptr, index, c), ffi.new("char[256]"), f"phase {index}")
        span = lib.cl_clock_ticks_to_ns(self._clock, c.last_tsc - c.start_tsc) / 1e9 if c.last_tsc else 0.0
        latency, short, long = Latency(lib.cl_loadgen_latency(self.ptr, index)), None, None
        if lib.cl_loadgen_latency_long(self.ptr, index) != ffi.NULL:
            long = Latency(lib.cl_loadgen_latency_long(self.ptr, index))
            latency, short = merged((latency, long)), latency
        found = phase_result(phase, c, span, latency, open_loop=not isinstance(self.arrivals, Closed))
        return replace(found, short=short, long=long, series=phase.series)

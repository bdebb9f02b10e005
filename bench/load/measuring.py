"""One server under load: the engine's results as points with their intervals and doubts, and the client's own share.

The client's own share is what the same engine measures against a reflector on this machine's loopback, with as many
connections, at the same rate and with messages of about the same length: the way through the client's code and the
kernel's, twice, and through the reflector. It is taken before the server is loaded, and is not subtracted. Of a load
over corelane's own stack it is that of the same code and stack over a memory link, without the NIC. TLS is not in it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..harness.numbers import PERCENTILES, plain
from ..harness.openloop import LOSS_LIMIT, RATE_SLACK, Point
from .arrivals import Arrivals
from .reference.reference import Reference
from .sockload.sockload import ECHO_LEAST, Asked, Functions, Result, SockLoad, Tick
from .targets import STORES, Target
from .trust import Doubt, Samples, doubts, interval, latencies, samples
from .workloads import Workload

if TYPE_CHECKING:
    from ...libos import Runtime

RECORDS = 1 << 19
SHARE_S, SHARE_CONNECTIONS = 1.0, 1000
LOST_S = 1.0  # a datagram of one's own, of which nobody says what answers it: its socket waits no longer
REPLY_MOST = 16384  # of the reflector's messages
DATAGRAM_MOST = 1400  # what one packet holds of a datagram


def _names_host(line: str) -> bool:
    return line.partition(":")[0].lower() == "host"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a server is loaded. Times in seconds. asked: the highest quantile that is wanted. headers: HTTP's, whole
    lines. request_bytes: of an echo. over: a runtime that carries the load, instead of the kernel's sockets; way: what
    carries it, in words. insecure: TLS with whoever the server is; ca: a file of those that sign certificates."""

    target: Target
    workload: Workload
    arrivals: Arrivals = field(default_factory=Arrivals)
    custom: Functions | None = None
    connections: int = 16
    depth: int = 1
    threads: int = 1
    cpus: tuple[int, ...] = ()
    spin: bool = True
    fresh: bool = False
    preload: bool = True
    request_bytes: int = 64
    timeout_s: float = 0.0
    drain_s: float = 1.0
    warm_s: float = 1.0
    late_s: float = 10e-6
    seed: int = 1
    asked: float = 0.99
    headers: tuple[str, ...] = ()
    records: int = RECORDS
    over: Runtime | None = None
    way: str = "kernel sockets"
    insecure: bool = False
    ca: str = ""

    @property
    def protocol(self) -> str:
        scheme = self.target.protocol
        return scheme if scheme in (*STORES, "http") else "custom" if self.custom else "echo"

    @property
    def reflector(self) -> str:
        """Where the server is that the client's own share is measured with."""
        return "loopback" if self.over is None else "a memory link"

    @property
    def _host(self) -> str:
        """What a header of the user's says instead of the URL; "": none does."""
        return next((line.partition(":")[2].strip() for line in self.headers if _names_host(line)), "")

    def engine(self) -> Asked:
        """What the engine is asked for."""
        work = self.workload
        greeting, replies = self.target.greeting()
        return Asked(
            protocol=self.protocol,
            address=self.target.address,
            port=self.target.port,
            udp=self.target.udp,
            threads=self.threads,
            connections=max(self.connections, self.threads),
            depth=self.depth,
            cpus=self.cpus[: self.threads],
            spin=self.spin,
            fresh=self.fresh,
            seed=self.seed,
            arrivals="poisson" if self.arrivals.kind == "replay" else self.arrivals.kind,
            burst=self.arrivals.burst,
            duty=self.arrivals.duty,
            replay_ns=self.arrivals.due_ns,
            late_s=self.late_s,
            drain_s=self.drain_s,
            timeout_s=self.timeout_s or (LOST_S if self.custom and self.target.udp else 0.0),
            keys=work.keys,
            zipf=work.zipf,
            latest=work.latest,
            mix=work.mix if self.target.stores else {"get": 1.0},
            key_bytes=work.key_bytes,
            value_bytes=work.value_bytes,
            request_bytes=self.request_bytes,
            host=self._host or self.target.authority,
            path=self.target.path,
            headers="".join(f"{line}\r\n" for line in self.headers if not _names_host(line)),
            greeting=greeting,
            greeting_replies=replies,
            functions=self.custom,
            runtime=self.over,
            tls=("unverified" if self.insecure else "verified") if self.target.tls else "",
            tls_host=self.target.host if self.target.tls else "",
            tls_ca=self.ca,
            records=self.records,
        )

    def message_bytes(self) -> tuple[int, int]:
        """About how long a request and its answer are."""
        if not self.target.stores:
            return self.request_bytes, self.request_bytes
        key, value = (sum(sizes) // len(sizes) for sizes in (self.workload.key_bytes, self.workload.value_bytes))
        writes = sum(self.workload.mix.get(op, 0.0) for op in ("set", "insert", "update"))
        return int(key + 16 + writes * value), int(key + 24 + (1 - writes) * value)


@dataclass(frozen=True)
class Share:
    """The client's own share: what it measures against a reflector, us. why: why there is none, "" if there is."""

    p50_us: float = math.nan
    p90_us: float = math.nan
    p99_us: float = math.nan
    p999_us: float = math.nan
    why: str = ""

    def by_name(self) -> dict[str, float]:
        return {} if self.why else {name: float(getattr(self, f"{name}_us")) for name, _ in PERCENTILES}


@dataclass
class Measured:
    """A load and what became of it. point: as in the other benchmarks. intervals_us: of each percentile, 95 %."""

    point: Point
    result: Result
    seen: Samples
    intervals_us: dict[str, tuple[float, float]]
    doubts: list[Doubt] = field(default_factory=list)

    @property
    def carried(self) -> bool:
        """Whether (nearly) all was answered, at the rate at which it was due; a short load has chance in its rate."""
        p = self.point
        slack = RATE_SLACK + 1 / math.sqrt(max(p.answered, 1))
        return p.loss < LOSS_LIMIT and p.achieved_rps >= (1 - slack) * p.due_rps

    def why_not(self) -> str:
        """Why it was not carried; empty if it was."""
        return "" if self.carried else self.point.why_not()

    def row(self, name: str) -> dict[str, Any]:
        """As an arm of the document."""
        counts = self.result.counts
        extra: dict[str, Any] = {
            "intervals_us": {k: [plain(low), plain(high)] for k, (low, high) in self.intervals_us.items()},
            "independent_samples": round(self.seen.n),
            "correlation": self.seen.correlation,
            "independent_from": self.seen.independent_from,
            "lag_us": {k: plain(self.result.lag.percentile(100 * q) / 1e3) for k, q in PERCENTILES},
            "from_send_us": {k: plain(self.result.from_send.percentile(100 * q) / 1e3) for k, q in PERCENTILES},
            "operations": {
                op: {"answered": h.count} | {f"{k}_us": plain(h.percentile(100 * q) / 1e3) for k, q in PERCENTILES}
                for op, h in self.result.by_op.items()
            },
            "counts": counts,
            "heard": self.result.heard,
            "aborted": self.result.aborted,
            "doubts": [{"check": d.check, "text": d.text} for d in self.doubts],
        }
        return self.point.row(name) | extra


def point_of(result: Result) -> Point:
    """The engine's result as the harness has it."""
    counts = result.counts
    point = Point(
        result.rate or result.offered_rps,
        result.achieved_rps,
        counts["sent"],
        counts["answered"],
        counts["late"],
        counts["dropped"],
        busy_core_s=math.nan,  # of the server, which is a stranger's
        seconds=result.seconds,
        hist=result.latency,
    )
    point.set_percentiles(result.latency)
    return point


Explained = Callable[[dict[str, float]], list[str]]  # Canary.explained


class Server:
    """A server to be loaded, by a plan. One caller at a time. share: the client's own, taken by `measure_share`."""

    def __init__(self, plan: Plan, share: Share | None = None) -> None:
        self.plan = plan
        self.share = share or Share(why="it was not measured")
        self.load = SockLoad(plan.engine())

    def prepare(self, tick: Tick | None = None) -> int:
        """Connect, and store all keys if the plan says so. How many were stored."""
        self.load.connect()
        return self.load.preload(tick) if self.plan.preload and self.plan.target.stores else 0

    def measure(
        self,
        rate: float,
        seconds: float,
        *,
        tick: Tick | None = None,
        explained: Explained | None = None,
        warm_s: float | None = None,
    ) -> Measured:
        """Offer a rate for the plan's warm-up and then for `seconds`. explained: which percentiles the machine's own
        gaps explain."""
        warm = self.plan.warm_s if warm_s is None else warm_s
        result = self.load.run(rate, seconds, warm, tick)
        point = point_of(result)
        found = latencies(result.records)
        seen = samples(found, result.counts["answered"])
        point_us = point.latencies_us()
        between = {name: interval(result.latency, q, seen.n) for name, q in PERCENTILES}
        out = Measured(point, result, seen, {k: (a / 1e3, b / 1e3) for k, (a, b) in between.items()})
        out.doubts = doubts(
            seen=seen,
            found=found,
            latency=result.latency,
            lag=result.lag,
            counts=result.counts,
            offered=result.offered_rps,
            achieved=result.achieved_rps,
            carried=out.carried,
            asked=self.plan.asked,
            explained=explained(point_us) if explained else (),
            share_us=self.share.by_name(),
            point_us=point_us,
        )
        return out

    def close(self) -> None:
        self.load.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


@contextlib.contextmanager
def _reflector(plan: Plan) -> Iterator[dict[str, Any]]:
    """A server that sends back what it is sent, by a way like the plan's: where it is, for Asked."""
    if plan.over is None:
        with Reference(udp=plan.target.udp) as server:
            yield {"address": "127.0.0.1", "port": server.port}
        return
    from .dataplane import PORT, reflecting

    cpus = plan.cpus or (-1,)
    with reflecting(cpus[0]) as (runtime, address):
        yield {"address": address, "port": PORT, "runtime": runtime}


def measure_share(plan: Plan, rate: float, seconds: float = SHARE_S) -> Share:
    """What the client measures at this rate against a reflector on loopback, or on a memory link."""
    asks, answers = (min(max(n, ECHO_LEAST), REPLY_MOST) for n in plan.message_bytes())
    if plan.over is not None:  # its server sends back what it gets
        asks = answers = min((asks + answers) // 2, DATAGRAM_MOST if plan.target.udp else REPLY_MOST)
    own = replace(
        plan.engine(),
        protocol="echo",
        connections=max(min(plan.connections, SHARE_CONNECTIONS), plan.threads),
        fresh=False,
        replay_ns=b"",
        request_bytes=asks,
        reply_bytes=answers,
        greeting=b"",
        greeting_replies=0,
        functions=None,
        records=0,
        drain_s=0.2,
        tls="",
    )
    with _reflector(plan) as where, SockLoad(replace(own, **where)) as load:
        load.connect()
        result = load.run(rate, seconds, min(0.2, seconds))
    if result.aborted:
        raise KeyboardInterrupt
    if point_of(result).loss >= LOSS_LIMIT:
        return Share(why=f"the reflector, on a core of this machine, did not carry {rate:,.0f} requests/s")
    p50, p90, p99, p999 = (result.latency.percentile(100 * q) / 1e3 for _, q in PERCENTILES)
    return Share(p50, p90, p99, p999)

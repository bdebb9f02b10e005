"""The load engine for Python. sockload.h states the rules; this makes an object of it and reads its results.

with SockLoad(Asked(protocol="memcached", address="127.0.0.1", port=11211, connections=100)) as load:
    load.connect()
    load.preload()
    result = load.run(rate=50_000, seconds=5, warm_s=0.5)
    print(result.latency.percentile(99), result.counts["late"])
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ....runtime.errors import CorelaneError, check
from ....runtime.hist import Hist
from ..._native import ffi, lib

if TYPE_CHECKING:
    from ....libos import Runtime

PROTOCOLS = {
    "echo": lib.CL_SOCKLOAD_ECHO,
    "memcached": lib.CL_SOCKLOAD_MEMCACHED,
    "redis": lib.CL_SOCKLOAD_RESP,
    "http": lib.CL_SOCKLOAD_HTTP,
    "custom": lib.CL_SOCKLOAD_CUSTOM,
}
OPERATIONS = ("get", "set", "insert", "delete", "scan", "update")  # by their numbers in sockload.h
TLS = {"": 0, "verified": 1, "unverified": 2}
ARRIVALS = {"poisson": 0, "uniform": 1, "bursty": 2}  # CL_ARRIVALS_*
COUNTS = (
    *("offered", "sent", "answered", "late", "held", "dropped", "wrong", "errors", "broken", "timeouts"),
    *("hits", "misses", "stored", "stray", "reconnects", "refused", "bytes_out", "bytes_in"),
    *("in_time", "first_ns", "last_ns", "cpu_ns"),
)
LOOK_S = 0.05
RECORD = "struct cl_sockload_record"
ECHO_LEAST = ffi.sizeof("struct cl_sockload_head")  # bytes of an echo, and of its answer
PRELOAD_DEPTH = 16
IN_TIME_LEAST = 10
STUCK_S = 10.0  # a preload without an answer for so long has failed


@dataclass(frozen=True)
class Functions:
    """Addresses of two C functions (cl_sockload_ask, cl_sockload_answer), and what must live as long as they do."""

    ask: int
    answer: int
    keep: object


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to ask whom, and how. Times in seconds; the rest as sockload.h has it.

    mix: share of each operation of OPERATIONS. key_bytes, value_bytes, hold_ns: tables to draw from, of a power of two
    of entries. functions: for protocol "custom". runtime: carries it instead of the kernel's sockets; with one kthread,
    started; it outlives the load. tls: a key of TLS; tls_host: whom the certificate must name.
    """

    protocol: str
    address: str
    port: int
    udp: bool = False
    threads: int = 1
    connections: int = 1
    depth: int = 1
    cpus: Sequence[int] = ()
    spin: bool = True
    fresh: bool = False
    seed: int = 1
    arrivals: str = "poisson"
    burst: int = 16
    duty: float = 0.0
    replay_ns: Sequence[int] | bytes = ()
    late_s: float = 10e-6
    drain_s: float = 1.0
    timeout_s: float = 0.0
    connect_s: float = 10.0
    keys: int = 1
    zipf: float = 0.0
    latest: bool = False
    scan_most: int = 100
    mix: Mapping[str, float] = field(default_factory=lambda: {"get": 1.0})
    key_bytes: Sequence[int] = (17,)
    value_bytes: Sequence[int] = (64,)
    hold_ns: Sequence[int] = ()
    request_bytes: int = 64
    reply_bytes: int = 0
    host: str = "localhost"
    path: str = "/"
    headers: str = ""
    greeting: bytes = b""
    greeting_replies: int = 0
    functions: Functions | None = None
    runtime: Runtime | None = None
    tls: str = ""
    tls_host: str = ""
    tls_ca: str = ""
    custom_room: int = 0
    records: int = 0


@dataclass
class Result:
    """What became of a run. latency: ns from the intended send time, infinite if unanswered; from_send: from the real
    one; lag: from the intended to the real one, of requests that no connection had to become free for. by_op: latency
    of answered requests of each operation. records: bytes, an array of `struct cl_sockload_record`. heard: the
    beginning of the first answer that was not right, or not whole. aborted: cut short; the counts are of what was
    settled."""

    rate: float
    seconds: float
    counts: dict[str, int]
    latency: Hist
    from_send: Hist
    lag: Hist
    by_op: dict[str, Hist]
    records: bytes = b""
    heard: str = ""
    aborted: bool = False
    warm_s: float = 0.0

    @property
    def offered_rps(self) -> float:
        """The rate that the arrivals drawn really had."""
        return self.counts["offered"] / self.seconds if self.seconds else 0.0

    @property
    def achieved_rps(self) -> float:
        """Answers a second, from the first one within the measured time to that time's end: a server that falls behind
        is seen, and one that takes long for each request is not mistaken for it. If hardly any answer came by then,
        all answers, from the first to the last."""
        c = self.counts
        until_ns = c["last_ns"] if self.aborted else (self.warm_s + self.seconds) * 1e9
        if c["in_time"] > IN_TIME_LEAST and until_ns > c["first_ns"]:
            return c["in_time"] * 1e9 / (until_ns - c["first_ns"])
        took_ns = c["last_ns"] - c["first_ns"]
        return c["answered"] * 1e9 / took_ns if took_ns > 0 else 0.0

    @property
    def busy_core_s(self) -> float:
        """CPU time of the client's threads."""
        return self.counts["cpu_ns"] / 1e9


Tick = Callable[[float, int, int], None]  # (seconds since the start, sent, answered)


class SockLoad:
    """Connections to one server and the threads that load it. One caller at a time."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        config, self._keep = _config(asked)
        out, err = ffi.new("struct cl_sockload **"), ffi.new("char[256]")
        check(lib.cl_sockload_new(config, out, err), "set up the load", err)
        self._ptr: Any = out[0]
        self._err = err

    @property
    def ptr(self) -> Any:
        """The `struct cl_sockload *`. Raises CorelaneError once closed."""
        if self._ptr is None:
            raise CorelaneError("this load is closed; make a new one")
        return self._ptr

    @property
    def where(self) -> str:
        """The server, for sentences."""
        address = f"[{self.asked.address}]" if ":" in self.asked.address else self.asked.address
        return f"{address} port {self.asked.port}"

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return int(lib.cl_sockload_open(self.ptr))

    def connect(self) -> None:
        """Open all connections. CorelaneError if one cannot be opened. A KeyboardInterrupt ends it at once."""
        with ThreadPoolExecutor(1) as pool:
            pool.submit(int).result()  # an interrupt while it begins a thread loses that: then it does nothing of C's
            try:
                rc = pool.submit(lib.cl_sockload_connect, self.ptr, self._err).result()
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                lib.cl_sockload_abort(self.ptr)
                raise
        hint = "is the server running there, and does it allow so many connections? see also `ulimit -n`"
        if rc == -errno.EPROTO and self.asked.tls:
            hint = "--ca FILE trusts who signed its certificate, --insecure takes whatever it shows"
        check(rc, f"connect to {self.where}", self._err, hint)

    def preload(self, tick: Tick | None = None, depth: int = PRELOAD_DEPTH) -> int:
        """Store every key; how many were. CorelaneError if the server does not store one, or stops answering."""
        check(lib.cl_sockload_preload(self.ptr, depth, self._err), f"store keys on {self.where}", self._err)
        self._wait(tick, stuck_s=STUCK_S, what=f"store keys on {self.where}")
        return self.progress()[1]

    def run(
        self, rate: float, seconds: float, warm_s: float = 0.0, tick: Tick | None = None, window: int = 0
    ) -> Result:
        """Offer `rate` for warm_s, which is not measured, and then for `seconds`. tick: called some times a second.

        window: closed loop with so many outstanding; not open loop. A KeyboardInterrupt ends the run, and what was
        measured until then is returned, `aborted`.
        """
        begun = time.monotonic()
        rc = lib.cl_sockload_run(self.ptr, rate, int(warm_s * 1e9), int(seconds * 1e9), window, self._err)
        check(rc, f"load {self.where}", self._err)
        aborted = False
        try:
            self._wait(tick, what=f"load {self.where}")
        except KeyboardInterrupt:
            aborted = True
            self._end(f"load {self.where}")
            seconds = min(seconds, max(time.monotonic() - begun - warm_s, 0.0))
        return self._result(rate, seconds, aborted, warm_s)

    def progress(self) -> tuple[int, int]:
        """Requests sent and answered so far."""
        out = ffi.new("uint64_t[2]")
        lib.cl_sockload_progress(self.ptr, out, out + 1)
        return int(out[0]), int(out[1])

    def _wait(self, tick: Tick | None, *, what: str, stuck_s: float = 0.0) -> None:
        begun = moved = time.monotonic()
        last = 0
        pause = 0.001
        while not lib.cl_sockload_done(self.ptr):
            time.sleep(pause)
            pause = min(2 * pause, LOOK_S)
            now = time.monotonic()
            sent, answered = self.progress()
            if tick:
                tick(now - begun, sent, answered)
            if answered != last:
                last, moved = answered, now
            if stuck_s and now - moved > stuck_s:
                lib.cl_sockload_abort(self.ptr)
                lib.cl_sockload_wait(self.ptr, self._err)
                raise CorelaneError(what, f"no answer for {stuck_s:g} s", "look whether the server still answers")
        self._end(what)

    def _end(self, what: str) -> None:
        lib.cl_sockload_abort(self.ptr)  # of what is done: nothing
        check(lib.cl_sockload_wait(self.ptr, self._err), what, self._err)

    def _hist(self, which: int) -> Hist:
        return Hist.view(lib.cl_sockload_hist(self.ptr, which), self).snapshot()

    def _result(self, rate: float, seconds: float, aborted: bool, warm_s: float) -> Result:
        raw = ffi.new("struct cl_sockload_counts *")
        lib.cl_sockload_counts(self.ptr, raw)
        room = self.asked.records + lib.CL_SOCKLOAD_MAX_THREADS
        records = ffi.new(f"{RECORD}[]", room) if self.asked.records else None
        n = lib.cl_sockload_records(self.ptr, records, room) if records is not None else 0
        by_op = {name: self._hist(lib.CL_SOCKLOAD_LATENCY_OF + i) for i, name in enumerate(OPERATIONS)}
        return Result(
            rate,
            seconds,
            {name: int(getattr(raw, name)) for name in COUNTS},
            self._hist(lib.CL_SOCKLOAD_LATENCY),
            self._hist(lib.CL_SOCKLOAD_FROM_SEND),
            self._hist(lib.CL_SOCKLOAD_LAG),
            {name: hist for name, hist in by_op.items() if hist.count},
            bytes(ffi.buffer(records, n * ffi.sizeof(RECORD))) if n else b"",
            ffi.string(lib.cl_sockload_heard(self.ptr)).decode("ascii", "replace"),
            aborted,
            warm_s,
        )

    # For tests: what is asked, and what answers are taken for.

    def request(self, op: str, key: int = 0, count: int = 1, room: int = 1 << 20) -> bytes:
        """The bytes of a request."""
        out = ffi.new("uint8_t[]", room)
        n = lib.cl_sockload_write(self.ptr, OPERATIONS.index(op), key, count, out, room)
        return bytes(ffi.buffer(out, n)) if n > 0 else b""

    def judge(self, answer: bytes, op: str, key: int = 0, count: int = 1) -> tuple[int, int]:
        """(length of the answer at the beginning of the bytes, 0 for more, negative for none; what it is worth)."""
        worth = ffi.new("uint32_t *")
        given = ffi.from_buffer(answer)
        n = lib.cl_sockload_judge(self.ptr, OPERATIONS.index(op), key, count, given, len(answer), worth)
        return int(n), int(worth[0])

    def key(self, key: int) -> bytes:
        """What a key is called."""
        out = ffi.new("uint8_t[256]")
        return bytes(ffi.buffer(out, lib.cl_sockload_key(self.ptr, key, out)))

    def value(self, key: int) -> bytes:
        """What is stored under it."""
        n = lib.cl_sockload_value(self.ptr, key, ffi.new("uint8_t[1]"), 0)
        out = ffi.new("uint8_t[]", n + 1)
        lib.cl_sockload_value(self.ptr, key, out, n)
        return bytes(ffi.buffer(out, n))

    def close(self) -> None:
        """End what runs and close all connections."""
        if self._ptr is not None:
            ptr, self._ptr = self._ptr, None
            lib.cl_sockload_delete(ptr)

    def __enter__(self) -> SockLoad:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _config(asked: Asked) -> tuple[Any, list[Any]]:
    """The C struct, and what it points to."""
    c = ffi.new("struct cl_sockload_config *")
    keep: list[Any] = [asked.functions, asked.runtime]

    def text(value: str | bytes) -> Any:
        if not value:
            return ffi.NULL
        keep.append(ffi.new("char[]", value.encode() if isinstance(value, str) else value))
        return keep[-1]

    def table(kind: str, values: Sequence[int] | bytes) -> Any:
        if not len(values):
            return ffi.NULL
        made = ffi.from_buffer(f"{kind}[]", values) if isinstance(values, bytes) else ffi.new(f"{kind}[]", values)
        keep.append((made, values))
        return made

    try:
        c.transport = lib.CL_SOCKLOAD_UDP if asked.udp else lib.CL_SOCKLOAD_TCP
        c.protocol = PROTOCOLS[asked.protocol]
        c.address, c.port = text(asked.address), asked.port
        c.threads, c.connections, c.depth = asked.threads, asked.connections, asked.depth
        if asked.cpus:
            c.cpus = table("int32_t", [*asked.cpus, *(-1 for _ in range(asked.threads - len(asked.cpus)))])
        c.spin, c.fresh, c.seed = asked.spin, asked.fresh, asked.seed & (2**64 - 1)
        c.arrivals, c.burst, c.duty = ARRIVALS[asked.arrivals], asked.burst, asked.duty
        c.replay_ns = table("uint64_t", asked.replay_ns)
        c.n_replay = len(keep[-1][0]) if len(asked.replay_ns) else 0
        c.late_ns, c.drain_ns = int(asked.late_s * 1e9), int(asked.drain_s * 1e9)
        c.timeout_ns, c.connect_ns = int(asked.timeout_s * 1e9), int(asked.connect_s * 1e9)
        c.keys, c.zipf, c.latest, c.scan_most = asked.keys, asked.zipf, asked.latest, asked.scan_most
        for name, share in asked.mix.items():
            c.mix[OPERATIONS.index(name)] = share
        c.key_bytes, c.n_key_bytes = table("uint16_t", asked.key_bytes), len(asked.key_bytes)
        c.value_bytes, c.n_value_bytes = table("uint32_t", asked.value_bytes), len(asked.value_bytes)
        c.hold_ns, c.n_hold_ns = table("uint64_t", asked.hold_ns), len(asked.hold_ns)
        c.request_bytes, c.reply_bytes = asked.request_bytes, asked.reply_bytes
        c.host, c.path, c.headers = text(asked.host), text(asked.path), text(asked.headers)
        c.greeting, c.greeting_replies = text(asked.greeting), asked.greeting_replies
        c.custom_room, c.records = asked.custom_room, asked.records
        c.tls, c.tls_host, c.tls_ca = TLS[asked.tls], text(asked.tls_host), text(asked.tls_ca)
        if asked.runtime:
            c.runtime = asked.runtime.ptr
        if asked.functions:
            c.ask = ffi.cast("cl_sockload_ask", asked.functions.ask)
            c.answer = ffi.cast("cl_sockload_answer", asked.functions.answer)
    except OverflowError as error:
        raise CorelaneError("set up the load", str(error), "sockload.h gives the limits") from error
    return c, keep

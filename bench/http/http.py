"""HTTP against nginx: files of 1 KiB and 1 MiB, connections that stay and one for each request, plain and over TLS.

One client asks both servers, on one veth pair: connections of corelane's own TCP on AF_XDP, in a closed loop
(client.h). The servers have the other end of the pair, and one core, in turn:

    ours     the http application on AF_XDP, one kthread
    nginx    one worker on Linux' TCP, set up for static files

The client, its NIC and its TLS are the same for both; every frame on a veth is copied by the kernel in its sender's
system call, both ways and for both. A closed loop says what a server carries, not what it is like to wait for it: the
times in the table are those of that many requests under way at any time.

With a core each, client and server bound each other: the table has how busy both were. Where the client is full the
ratio is a bound from below. What any server of HTTP on our TCP could do with kept connections and 1 KiB stands beside
the figure: one that answers the same bytes to whatever comes, and reads nothing of it (bound.h).
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

from ...drivers.linux import netns
from ...drivers.nic.af_xdp.af_xdp import AfXdp
from ...drivers.nic.nic import ipv4_to_int
from ...libos import Runtime, Scheduler
from ...runtime.errors import check
from .._native import ffi, lib
from ..baseline import nginx
from ..harness import rest, usage
from ..harness.numbers import number, pairwise
from ..harness.plot import Canvas
from ..harness.rig import started
from ..harness.session import Session

SUMMARY = "HTTP and HTTPS of static files against nginx: the same client on the same link"
FIGURES = ("http.over_nginx", "http.close_over_nginx", "http.mib_over_nginx", "http.tls_over_nginx")

SERVER, CLIENT, PREFIX = "10.77.0.2", "10.77.0.1", 16
PORT, TLS_PORT = 8080, 8443
ROUNDS = 5
SPIN_US = 5000  # the client and our server poll all through a run, and sleep between runs
WARM_S = 0.1
SETTLE_S = 5.0
FULL = 0.8  # of a loop's turns, that find something
SIZES = {"1 KiB": 1 << 10, "1 MiB": 1 << 20}
CONNECTIONS = {"1 KiB": 64, "1 MiB": 8}


@dataclass(frozen=True)
class Case:
    """What is asked: a file, over connections that stay or not, plain or by TLS."""

    size: str
    keep: bool
    tls: bool

    @property
    def name(self) -> str:
        return f"{self.size}, {'kept' if self.keep else 'a connection each'}{', TLS' if self.tls else ''}"


CASES = tuple(Case(size, keep, tls) for size in SIZES for keep in (True, False) for tls in (False, True))
FIGURE_OF = {
    Case("1 KiB", True, False): "http.over_nginx",
    Case("1 KiB", False, False): "http.close_over_nginx",
    Case("1 MiB", True, False): "http.mib_over_nginx",
    Case("1 KiB", True, True): "http.tls_over_nginx",
}


@dataclass(frozen=True)
class Found:
    """Of one case in one round."""

    rate: float
    body_bytes_s: float
    p50_us: float
    p99_us: float
    wrong: int
    failed: int
    client_busy: float  # fraction of its turns that found something to do
    server_busy: float  # the same; of nginx the fraction of the time that its worker ran


def client_missing() -> str:
    """Why there is no client here; empty: there is."""
    if lib.cl_http_built():
        return ""
    return "the library was built without llhttp: apt-get install node-llhttp, and build again"


def missing() -> str:
    """Why this cannot be measured here; empty: it can."""
    if why := netns.missing():
        return why
    if why := client_missing():
        return why
    return "" if shutil.which("openssl") else "openssl is not installed: apt-get install openssl"


@dataclass(frozen=True)
class Site:
    """What both servers have: a folder with a file of each size, a certificate and its key."""

    root: Path
    certificate: Path
    key: Path

    @staticmethod
    def make(folder: Path) -> Site:
        root = folder / "root"
        root.mkdir()
        for name, size in SIZES.items():
            (root / path_of(name)[1:]).write_bytes(bytes(i * 131 % 251 for i in range(1024)) * (size // 1024))
        made = Site(root, folder / "certificate.pem", folder / "key.pem")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", "2", "-subj", "/CN=corelane", "-out", str(made.certificate), "-keyout", str(made.key)]
        subprocess.run(command, check=True, capture_output=True)
        return made


def path_of(size: str) -> str:
    """The target of the file of a size."""
    return f"/{size.replace(' ', '-')}.bin"


class Client:
    """Connections of ours on one end of the pair. Its runtime lives through all rounds: what ends late ends there."""

    def __init__(self, end: netns.Interface, server_mac: str, cpu: int, stack: contextlib.ExitStack) -> None:
        with end.namespace.entered():
            nic = stack.enter_context(AfXdp(end.name, steer="all"))
        self._runtime = Runtime(
            nic=nic, address=f"{CLIENT}/{PREFIX}", cpus=[cpu], scheduler=Scheduler(spin_us=SPIN_US), name="http-client"
        )
        self._runs: list[Any] = []
        self._keep: list[Any] = []
        stack.callback(self._close)
        self._runtime.add_neighbour(SERVER, server_mac)
        self._runtime.start()

    def _close(self) -> None:
        self._runtime.stop()
        for run in self._runs:  # whose callbacks the runtime calls no more
            lib.cl_bench_http_delete(run)
        self._runtime.close()

    def alive(self) -> int:
        """Connections that exist."""
        counts = ffi.new("struct cl_tcp_counts *")
        lib.cl_runtime_tcp_counts(self._runtime.ptr, counts)
        return int(counts.begun - counts.over)

    def begin(self, case: Case, connections: int) -> Any:
        """Open so many connections, which ask from now on."""
        lines = f"GET {path_of(case.size)} HTTP/1.1\r\nHost: {SERVER}\r\nUser-Agent: corelane\r\nAccept: */*\r\n"
        lines += "" if case.keep else "Connection: close\r\n"
        request = ffi.new("char[]", f"{lines}\r\n".encode())
        config = ffi.new(
            "struct cl_bench_http_config *",
            {
                "ipv4": ipv4_to_int(SERVER),
                "port": TLS_PORT if case.tls else PORT,
                "keep": case.keep,
                "tls": case.tls,
                "connections": connections,
                "request": request,
            },
        )
        out, err = ffi.new("struct cl_bench_http **"), ffi.new("char[256]")
        check(lib.cl_bench_http_start(self._runtime.ptr, config, out, err), "start the client of HTTP", err)
        self._keep.append(request)
        self._runs.append(out[0])
        return out[0]

    def counts(self, run: Any) -> Any:
        out = ffi.new("struct cl_bench_http_counts *")
        lib.cl_bench_http_counts(run, out)
        return out

    def turns(self) -> tuple[int, int]:
        """Turns of its loop so far, and those that found nothing to do."""
        sched = self._runtime.stats().sched
        return sched["polls"], sched["idle_turns"]


Busy = Callable[[], tuple[float, float]]
"""What of a server grows while it is busy, and what grows all the time."""


@contextlib.contextmanager
def ours(end: netns.Interface, cpu: int, site: Site) -> Iterator[Busy]:
    """The http application on AF_XDP."""
    from ...apps import registry

    app = registry.load("http")
    options = app.options(
        port=PORT,
        tls_port=TLS_PORT,
        root=str(site.root),
        tls_cert=str(site.certificate),
        tls_key=str(site.key),
        drain_s=0.0,
    )
    with end.namespace.entered():
        nic = AfXdp(end.name, addresses=[f"{end.address}/{PREFIX}"])
    with nic:
        scheduler = Scheduler(spin_us=SPIN_US)
        runtime = Runtime(nic=nic, address=f"{SERVER}/{PREFIX}", cpus=[cpu], scheduler=scheduler, name="http")
        try:
            service = app.setup(runtime, options)
            try:
                runtime.start()
                yield partial(turns_of, runtime)
            finally:
                runtime.close()
                service.close()
        finally:
            runtime.close()


@contextlib.contextmanager
def theirs(end: netns.Interface, cpu: int, site: Site) -> Iterator[Busy]:
    """nginx on Linux' TCP, at the same address and ports."""
    with nginx.Nginx(
        root=site.root,
        certificate=site.certificate,
        key=site.key,
        address=SERVER,
        port=PORT,
        tls_port=TLS_PORT,
        netns=end.namespace.name,
        cpu=cpu,
    ) as server:

        def busy() -> tuple[float, float]:
            used = sum(usage.of_thread(pid, pid).busy_s for pid in server.workers())
            return used, time.monotonic()

        yield busy


@contextlib.contextmanager
def bound(end: netns.Interface, cpu: int, site: Site) -> Iterator[Busy]:
    """Our TCP on AF_XDP, which answers the bytes that ours does to BOUND_CASE, without HTTP."""
    bytes_ = answer_of(site.root / path_of(BOUND_CASE.size)[1:])
    held = ffi.from_buffer("uint8_t[]", bytes_)
    fixed = ffi.new("struct cl_bench_http_bound *", {"answer": held, "bytes": len(bytes_)})

    def bind(runtime: Runtime) -> None:
        check(lib.cl_bench_http_bound_listen(runtime.ptr, PORT, 1024, fixed), f"serve TCP port {PORT}")

    with end.namespace.entered():
        nic = AfXdp(end.name, addresses=[f"{end.address}/{PREFIX}"])
    with nic, started(nic, cpu, bind, address=f"{SERVER}/{PREFIX}") as (runtime, _):
        yield partial(turns_of, runtime)


def answer_of(path: Path) -> bytes:
    """An answer with that file: its lines are those of the http application, and as long."""
    about, body = path.stat(), path.read_bytes()
    day = formatdate(about.st_mtime, usegmt=True)
    lines = (
        *("HTTP/1.1 200 OK", "Server: corelane", f"Date: {day}", f"Last-Modified: {day}"),
        f'ETag: "{about.st_ino:x}-{about.st_size:x}-{about.st_mtime_ns:x}"',
        *("Accept-Ranges: bytes", "Content-Type: application/octet-stream", f"Content-Length: {len(body)}"),
    )
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def turns_of(runtime: Runtime) -> tuple[float, float]:
    """As Busy has it: turns that found something, and all."""
    sched = runtime.stats().sched
    return float(sched["polls"] - sched["idle_turns"]), float(sched["polls"])


SERVERS = {"ours": ours, "nginx": theirs}
BOUND, BOUND_CASE = "bound: no HTTP", Case("1 KiB", keep=True, tls=False)


def run(session: Session) -> None:
    """Both servers in each round, and each case with each of them."""
    if why := missing():
        session.skip("all arms", why)
        return
    if len(session.cores) < 2:
        session.skip("all arms", "a client and a server need two cores, and this process may use one")
        return
    servers = {"ours": ours}
    if not session.baseline:
        session.skip("nginx", "baselines were not asked for")
    elif why := nginx.missing():
        session.skip("nginx", why)
    else:
        servers["nginx"] = theirs
    session.settings |= {
        "message": "a GET and its answer",
        "connections": {size: CONNECTIONS[size] for size in SIZES},
        "nginx": nginx.SETTINGS,
        "link": "one veth pair for both: the client on AF_XDP, ours on AF_XDP, nginx on Linux' TCP",
    }
    with contextlib.ExitStack() as stack:
        site = Site.make(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        near, far = stack.enter_context(netns.link(addresses=(SERVER, CLIENT), prefix=PREFIX))
        client = Client(far, near.mac.hex(":"), session.cores[0], stack)
        slot = session.seconds / (ROUNDS * (len(servers) * len(CASES) + 1))

        def arm(serve: Callable[..., Any], cases: tuple[Case, ...] = CASES) -> Callable[[], dict[Case, Found]]:
            def body() -> dict[Case, Found]:
                rest.demand("a server on a veth pair")
                with serve(near, session.cores[1], site) as busy:
                    return {case: measure(client, case, slot, busy) for case in cases}

            return body

        arms = {name: arm(serve) for name, serve in servers.items()}
        found = session.interleave(arms | {BOUND: arm(bound, (BOUND_CASE,))}, ROUNDS)
    conclude(session, found)


def measure(client: Client, case: Case, seconds: float, busy: Busy, connections: int = 0) -> Found:
    """One case for so long, behind a while in which connections open and caches fill.

    connections: 0 for CONNECTIONS.
    """
    started = client.begin(case, connections or CONNECTIONS[case.size])
    try:
        time.sleep(min(WARM_S, seconds / 4))
        lib.cl_hist_reset(lib.cl_bench_http_latency(started))
        before, begin = client.counts(started), time.monotonic()
        turns, server = client.turns(), busy()
        time.sleep(seconds)
        after, took = client.counts(started), time.monotonic() - begin
        turns_after, server_after = client.turns(), busy()
    finally:
        lib.cl_bench_http_stop(started)
        deadline = time.monotonic() + SETTLE_S
        while client.alive() and time.monotonic() < deadline:
            time.sleep(0.005)
    latency = lib.cl_bench_http_latency(started)
    polls, idle = turns_after[0] - turns[0], turns_after[1] - turns[1]
    return Found(
        rate=(after.answers - before.answers) / took,
        body_bytes_s=(after.bytes - before.bytes) / took,
        p50_us=lib.cl_hist_percentile(latency, 50.0) / 1e3,
        p99_us=lib.cl_hist_percentile(latency, 99.0) / 1e3,
        wrong=int(after.wrong),
        failed=int(after.failed),
        client_busy=1 - idle / polls if polls else 0.0,
        server_busy=(server_after[0] - server[0]) / max(server_after[1] - server[1], 1e-9),
    )


def conclude(session: Session, found: dict[str, list[dict[Case, Found]]]) -> None:
    """Medians over the rounds, a row a server and case; ratios pair by pair."""
    for case in CASES:
        for name, rounds in found.items():
            if case not in rounds[0]:
                continue
            several = [one[case] for one in rounds]
            row = {
                field: statistics.median(getattr(one, field) for one in several)
                for field in ("rate", "body_bytes_s", "p50_us", "p99_us", "client_busy", "server_busy")
            }
            bad = {field: sum(getattr(one, field) for one in several) for field in ("wrong", "failed")}
            session.arm(f"{name}: {case.name}", **row, **bad)
    for case, figure in FIGURE_OF.items():
        if "nginx" not in found:
            session.figure(figure, None, reason=session.skipped.get("nginx", "nginx did not run"))
            continue
        rates = {name: [one[case].rate for one in rounds] for name, rounds in found.items() if case in rounds[0]}
        if min(rates["nginx"]) <= 0 or min(rates["ours"]) <= 0:
            session.figure(figure, None, reason="in some round a server answered nothing")
            continue
        beside = {BOUND: pairwise(rates[BOUND], rates["nginx"]).median} if BOUND in rates else {}
        session.ratio_figure(figure, rates["ours"], rates["nginx"], beside=beside)
        _name_the_bound(session, figure, case, [one[case] for one in found["ours"]])
    session.note(
        "closed loop: as many requests are under way as there are connections; busy is the part of a loop's turns that "
        "found something to do (turns without are many and short), of nginx the part of the time that its worker ran"
    )


def _name_the_bound(session: Session, figure: str, case: Case, several: list[Found]) -> None:
    """What ends our rate, as far as the loops tell: a side that is full finds something in nearly each turn."""
    client = statistics.median(one.client_busy for one in several)
    server = statistics.median(one.server_busy for one in several)
    if max(client, server) < FULL:
        what = "neither is full: the round trips of so many connections are the bound, or the machine is"
    else:
        what = f"the bound is {'the client: the ratio is at least that' if client > server else 'our server'}"
    session.note(
        f"{figure} ({case.name}): beside ours the client found something in {client:.1%} of its turns, the server in "
        f"{server:.1%}; {what}"
    )


def plot(document: dict[str, Any]) -> Canvas:
    """Requests a second of each server, by case."""
    arms = document["arms"]
    canvas = Canvas(
        "http: requests a second on one core, the same client and link",
        message=document["settings"].get("message", "a GET and its answer"),
        n=round(sum(number(arm["rate"]) for arm in arms) * 1.0),
        size=(10, 7),
    )
    names = [str(arm["name"]) for arm in arms]
    colours = [0 if name.startswith("ours") else 4 if name.startswith(BOUND) else 1 for name in names]
    canvas.bars(names, [number(arm["rate"]) for arm in arms], ylabel="answers (1/s)", colours=colours, log=True)
    for name, figure in document["figures"].items():
        if figure["value"] is not None:
            canvas.caption(f"{name} = {figure['value']:.3g} (goal {figure['goal']}, {figure['sense']}).")
    return canvas

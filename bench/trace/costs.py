"""What it costs servers that their requests are written down: by turns within a run (turns.py).

Throughput in a closed loop that keeps the server busy: what a request takes longer, all others are answered later.
p99 at half of that. Each cost is the median of what it is in pairs of turns, and is judged if the goal does not lie
where that median may be, with 95 %.

The cost of p99 is that of the window in the middle of a turn: a p99 of all requests is that of the machine's gaps. What
full does seldom is not in that window. So a cost is not met either if that of all requests is missed (harness/tails).
Turns without tracing are compared with others without tracing, too: less than these differ nobody can tell.

Beside a cost of throughput: ns of a request without tracing, what is added, and what a stamp for each would cost, which
short handlers share. Beside that of the default: what it adds to a request that is alone, where nothing is shared.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...apps import echo as app
from ...apps.kv import app as kv_app
from ...drivers.nic.loadgen.loadgen import Closed, Echo, Loadgen, Memcached, Source
from ...libos import Runtime
from ...runtime.clock import default_clock
from .._native import lib
from ..harness import rig, tails, usage
from ..harness.goals import GOALS
from ..harness.load import Generator
from ..harness.numbers import median_interval
from ..harness.session import Session
from ..kv_tcp import servers
from ..kv_tcp.scripts import Space
from ..tcp import links
from . import turns
from .turns import Cycle, Served, Turn

ECHO, KV, TCP = "echo", "kv", "kv over TCP"
MODES = {ECHO: ("off", "sampled", "full"), KV: ("off", "full"), TCP: ("off", "full")}
NAMES = {ECHO: "", KV: "kv_", TCP: "tcp_"}  # in the figures
TIME = {ECHO: 0.4, KV: 0.2, TCP: 0.2}  # of the session's
HALF = 0.5
PORT = 9000
WINDOW = 256  # of a closed loop: the ring is never empty
AGAIN = "off, once more"
TAILS = ("off", "full", AGAIN)  # at half load
LONE = ("off", "sampled")  # modes in which echo answers one request at a time
CONNECTIONS = 100
MEMORY_BYTES = 256 << 20
STAMPS, STAMP_RUNS = 10_000, 20


def measure(session: Session, keys: int) -> None:
    """All figures of costs."""
    stamp_ns = statistics.median(_stamp_ns() for _ in range(STAMP_RUNS))
    session.settings["stamp_ns"] = round(stamp_ns, 2)
    for name, serve in SERVERS.items():
        with serve(session.two_cores, keys) as served:
            _server(session, name, served, TIME[name] * session.seconds, stamp_ns)


def _stamp_ns() -> float:
    return float(lib.cl_bench_stamps(STAMPS)) / STAMPS * 1e9 / default_clock().hz


def _server(session: Session, name: str, served: Served, seconds: float, stamp_ns: float) -> None:
    """Both loads of a server, the canary before each."""
    modes = MODES[name]
    parts = 4 if name == ECHO else 3  # the tail has two, echo one of lone requests
    seconds /= parts
    session.take_canary()
    session.say(f"{name}: throughput, {len(modes)} modes by turns")
    with _loaded(served, WINDOW) as (client, tids):
        busy = turns.cycles(served, client, modes, 1.0, seconds, tids)
    if not busy.found:
        session.skip(name, f"all of {busy.left_out} cycles were disturbed")
        return
    rate = HALF * turns.middle(busy.found, modes[0], _rps)
    session.take_canary()
    session.say(f"{name}: p99 at {rate:,.0f} requests/s, by turns")
    with _loaded(served, 0) as (client, tids):
        half = turns.cycles(served, client, TAILS, rate, 2 * seconds, tids)
    for load, cycles, of in (("closed loop", busy, modes), ("half load", half, TAILS)):
        for mode in of:
            _row(session, f"{name}, {mode}, {load}", cycles.found, mode, cycles.left_out)
    lone = _lone(session, served, seconds) if name == ECHO else {}
    _throughput(session, name, busy.found, stamp_ns, lone)
    cost = statistics.median(1 - ratio for ratio in turns.ratios(busy.found, "full", _rps))
    _tail(session, f"trace.{NAMES[name]}p99_cost", half, cost)


def _lone(session: Session, served: Served, seconds: float) -> dict[str, float]:
    """What a request takes that is alone, and what the default adds to it: the client sends it when it has the answer
    to the one before."""
    session.take_canary()
    session.say("echo: one request under way, by turns")
    with _loaded(served, 1) as (client, tids):
        cycles = turns.cycles(served, client, LONE, 1.0, seconds, tids)
    if not cycles.found:
        return {}
    for mode in LONE:
        _row(session, f"{ECHO}, {mode}, one under way", cycles.found, mode, cycles.left_out)
    off, sampled = LONE
    more = [ratio - 1 for ratio in turns.ratios(cycles.found, off, _rps, sampled)]
    told = {
        "ns a lone request, off": 1e9 / turns.middle(cycles.found, off, _rps),
        "added to it": statistics.median(more),
    }
    if interval := median_interval(more):
        told |= {"added to it, 95 % from": interval[0], "added to it, 95 % to": interval[1]}
    return told


@contextlib.contextmanager
def _loaded(served: Served, under_way: int) -> Iterator[tuple[Generator, frozenset[int]]]:
    """A client, and its threads."""
    before = usage.threads()
    with served.client(under_way) as client:
        yield client, tails.since(before)


def delayed(cost: float) -> float:
    """What part more of the requests wait for a stop of a server that does less by `cost`, at HALF of its load: those
    that come in the stop, and until they are worked off by what is left. Infinite: nothing is left."""
    left = 1 - cost - HALF
    return (1 - cost) * (1 - HALF) / left - 1 if left > 0 else math.inf


def _tail(session: Session, figure: str, cycles: turns.Cycles, cost: float) -> None:
    """What is added to p99, and to that of turns in which nothing differs. Beside it the same of all requests, and what
    the cost of throughput alone makes of a stop."""
    added, alike = ([ratio - 1 for ratio in turns.ratios(cycles.found, mode, _p99)] for mode in ("full", AGAIN))
    whole = tails.Compared(figure, "full", "off", less=1.0)
    whole.pairs = [([cycle["full"].slot], [cycle["off"].slot]) for cycle in cycles.timely]
    whole.look()
    low, high = whole.ends(tails.SHOWN)
    beside = {"of all requests": whole.value, "of all requests, 95 % from": low, "of all requests, 95 % to": high}
    beside["more requests wait for a stop, by throughput"] = delayed(cost)
    _figure(session, figure, added, beside, alike, spoilt=whole.verdict == tails.MISSED)


def _row(session: Session, arm: str, found: Sequence[Cycle], mode: str, left_out: int) -> None:
    if found:
        session.arm(
            arm,
            turns=len(found),
            left_out=left_out,
            answered=sum(cycle[mode].n for cycle in found),
            achieved_rps=turns.middle(found, mode, _rps),
            p99_us=turns.middle(found, mode, _p99),
        )


def _throughput(
    session: Session, name: str, found: Sequence[Cycle], stamp_ns: float, sampled: dict[str, float]
) -> None:
    """sampled: what stands beside the cost of that mode."""
    off_ns = 1e9 / turns.middle(found, "off", _rps)
    for mode in MODES[name][1:]:
        lost = [1 - ratio for ratio in turns.ratios(found, mode, _rps)]
        more_ns = [1e9 / _rps(cycle[mode]) - 1e9 / _rps(cycle["off"]) for cycle in found]
        beside = {"ns a request, off": off_ns, "ns more": statistics.median(more_ns)}
        beside |= {"one stamp a request": stamp_ns / (off_ns + stamp_ns)} if mode == "full" else sampled
        figure = "trace.sampled_cost" if mode == "sampled" else f"trace.{NAMES[name]}throughput_cost"
        _figure(session, figure, lost, beside)


def _figure(
    session: Session,
    name: str,
    runs: Sequence[float],
    beside: dict[str, float] | None = None,
    alike: Sequence[float] = (),
    *,
    spoilt: bool = False,
) -> None:
    """alike: what runs would be that differ in nothing. spoilt: it is not met, whatever the median says."""
    if not runs:
        session.figure(name, None, reason="all turns of it were disturbed: repeat it on a quieter machine")
        return
    interval, noise = median_interval(runs), median_interval(alike)
    undecided, beside = "too few turns: give more --seconds", dict(beside or {})
    if interval is not None:
        goal, (low, high) = GOALS[name], interval
        beside |= {"95 % from": low, "95 % to": high, "pairs": len(runs)}
        within = f"within its noise: with 95 % of {len(runs)} pairs it lies between {low:.3g} and {high:.3g}"
        undecided = "" if goal.met(low) == goal.met(high) else within
    if noise is not None:
        beside |= {"bound: off against off, 95 % from": noise[0], "bound: off against off, 95 % to": noise[1]}
        undecided += f"; off against off: {noise[0]:.3g} to {noise[1]:.3g}" if undecided else ""
    if spoilt and GOALS[name].met(statistics.median(runs)):
        undecided = "of all requests, with what is seldom among them, it is missed"
    session.figure(name, statistics.median(runs), runs=runs, undecided=undecided, beside=beside)


def _rps(turn: Turn) -> float:
    return turn.rps


def _p99(turn: Turn) -> float:
    return turn.p99_us


def _served(runtime: Runtime, tids: frozenset[int], client: Any) -> Served:
    def set_mode(mode: str) -> None:
        runtime.trace = "off" if mode == AGAIN else mode

    return Served(tids, set_mode, client)


@contextlib.contextmanager
def _udp(cores: tuple[int, int], bind: Any, traffic: Echo | Memcached, port: int) -> Iterator[Served]:
    """A server on cores[1] over a memory link."""
    with rig.linked() as (near, far), rig.started(far, cores[1], bind) as (runtime, tids):

        @contextlib.contextmanager
        def client(under_way: int) -> Iterator[Loadgen]:
            with Loadgen(
                traffic,
                arrivals=Closed(under_way) if under_way else "poisson",
                source=Source(ip=rig.CLIENT_IP),
                server_ip=rig.SERVER_IP,
                server_mac=runtime.mac,
                server_port=port,
                checksum=True,
            ) as load:
                load.start_client(near, cpu=cores[0])
                yield load

        yield _served(runtime, tids, client)


@contextlib.contextmanager
def _echo(cores: tuple[int, int], keys: int) -> Iterator[Served]:
    with _udp(cores, lambda runtime: runtime.bind(app.handler("c", PORT)), Echo(), PORT) as served:
        yield served


@contextlib.contextmanager
def _kv(cores: tuple[int, int], keys: int) -> Iterator[Served]:
    def bind(runtime: Runtime) -> object:
        return kv_app.setup(runtime, kv_app.Options(port=PORT, memory_bytes=MEMORY_BYTES))

    with _udp(cores, bind, Memcached(keys=keys, value_bytes=64), PORT) as served:
        yield served


@contextlib.contextmanager
def _tcp(cores: tuple[int, int], keys: int) -> Iterator[Served]:
    space = Space(keys)
    bind = partial(servers.bind, space=space, connections=CONNECTIONS)
    with links.serving(cores, bind, port=servers.OURS_PORT) as link:

        def client(under_way: int) -> contextlib.AbstractContextManager[Any]:
            arrivals = "closed" if under_way else "poisson"  # one under way on each connection
            return link.client("ask", script=space.memcached(), connections=CONNECTIONS, arrivals=arrivals)

        yield _served(link.runtime, link.tids, client)


SERVERS = {ECHO: _echo, KV: _kv, TCP: _tcp}

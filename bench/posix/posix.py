"""Stock servers under `corelane run --posix` beside the same binaries on Linux' sockets: one thread, one core, 100
connections, and one client over AF_XDP on veth pairs for both.

memcached and redis-server are asked for items of 16-byte keys with values of 64 bytes, nginx for a file of 1 KiB. In a
closed loop they say what they carry; at half of what memcached carries on Linux an open loop says how long an answer
takes. Then memcached on the memory NIC: attached to an iokernel whose uplink is the client. Beside both stands what
bounds them: an echo in C on our TCP, without descriptors and without a program behind them. At last what the library
costs where it does nothing: calls on descriptors of Linux, and an idle server.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...drivers.linux import netns
from ...runtime.errors import SystemLimit
from ..baseline import memcached, nginx, redis
from ..harness import rest, usage
from ..harness.load import Load
from ..harness.numbers import number, pairwise
from ..harness.openloop import Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session
from ..harness.tails import Asked, between, compare, judge, rows, slot_s
from ..http import http
from ..kv_tcp.scripts import Space
from ..tcp import links
from . import foreign, servers
from .servers import LINUX, OURS

SUMMARY = "stock memcached, redis-server and nginx with their sockets on the dataplane, beside Linux' sockets"
FIGURES = (
    "posix.memcached_gain",
    "posix.redis_gain",
    "posix.nginx_gain",
    "posix.memcached_memory",
    "posix.p99_gain",
    "posix.foreign_ns",
    "posix.idle",
)

KEYS = 10_000
CONNECTIONS = 100
ROUNDS = 5
HALF = 0.5  # of what memcached carries on Linux
IDLE_LEAST_S = 0.5  # a server looks at its clock once a second
GAINS = {"memcached": "posix.memcached_gain", "redis-server": "posix.redis_gain", "nginx": "posix.nginx_gain"}
WORLDS = (LINUX, OURS)
MEMORY = "memcached, memory NIC"
IN_C = "an echo in C on our TCP"
OWN = "share of its time that the server spends outside of the kernel, on Linux"
IN_C_ON_MEMORY = f"{IN_C}, memory NIC"
TAILS = "memcached's tail"
SHARES = {"memcached": 0.2, TAILS: 0.25, "redis-server": 0.15, "nginx": 0.15, MEMORY: 0.15, "foreign": 0.1, "idle": 0.1}


def run(session: Session) -> None:
    """All parts."""
    space = Space(KEYS)
    session.settings |= {
        "message": "a GET of a 16-byte key and its 64-byte value; of nginx, of a file of 1 KiB",
        "keys": KEYS,
        "connections": CONNECTIONS,
        "nginx": nginx.SETTINGS,
        "links": {
            "all but the memory NIC": "the client over AF_XDP on a veth pair; ours over AF_XDP, the others over Linux",
            MEMORY: "attached to an iokernel in the client's process, whose uplink is the client",
        },
    }
    on_memory(session, space, beside_linux(session, space))
    foreign_calls(session)


def why_not(session: Session, name: str) -> str:
    """Why a server cannot be measured here; "" if it can."""
    of_program = {"memcached": memcached.missing, "redis-server": redis.missing, "nginx": nginx.missing}
    if not session.baseline:
        return "--no-baseline was given"
    if name == "nginx" and (why := http.client_missing()):
        return why
    return netns.missing() or of_program[name]()


def beside_linux(session: Session, space: Space) -> dict[str, list[float]]:
    """Each server on both; what memcached carries, round by round."""
    rates: dict[str, dict[str, list[float]]] = {}
    for name in GAINS:
        if why := why_not(session, name):
            for world in WORLDS:
                session.skip(_arm(name, world), why)
            continue
        with contextlib.ExitStack() as stack:
            if name == "nginx":
                rates[name] = _nginx(session, servers.Nginxes(stack, session.two_cores, CONNECTIONS))
                continue
            pair = servers.Pair(stack, session.two_cores, name, space, CONNECTIONS)
            bound = servers.Bound(stack, session.two_cores, CONNECTIONS) if name == "memcached" else None
            rates[name] = _closed(session, pair, name, bound)
            if bound:
                tails(session, pair, bound, HALF * statistics.median(rates[name][LINUX]))
                idle(session, pair)
        _gain(session, name, rates[name])
    if "nginx" in rates:
        _gain(session, "nginx", rates["nginx"])
    return rates.get("memcached", {})


def _gain(session: Session, name: str, rates: dict[str, list[float]]) -> None:
    if all(rates[LINUX]) and all(rates[OURS]):
        session.ratio_figure(GAINS[name], rates[OURS], rates[LINUX], beside=_bounds(rates, IN_C))
    else:
        session.figure(GAINS[name], None, reason="in some round a server answered nothing")


def _bounds(rates: dict[str, list[float]], echo: str) -> dict[str, float]:
    """Over what the server carries on Linux: an echo in C, and the same if it took the server's own time as well. The
    server has a core to itself, so each answer takes it 1 / rate, of which a share is spent outside of the kernel."""
    linux, fast = rates[LINUX], rates.get(echo, [])
    if not fast or not all(fast) or not all(linux):
        return {}
    with_own = [1 / (1 / e + own / theirs) for e, own, theirs in zip(fast, rates[OWN], linux, strict=True)]
    return {
        f"bound: {echo}": pairwise(fast, linux).median,
        f"bound: {echo}, and the server's own time": pairwise(with_own, linux).median,
    }


def _arm(name: str, world: str) -> str:
    return f"{name} on {world}" if world == LINUX else f"{name}, {world}"


def _point(pair: servers.Pair, world: str, rate: float, seconds: float) -> Point:
    rest.demand("a server on a veth pair")
    before = usage.of_process(pair.pids[world])
    with pair.client(world, "poisson" if rate else "closed") as load:
        point = Load(load, lambda: usage.of_process(pair.pids[world]).busy_s).measure(rate, seconds)
    used = usage.of_process(pair.pids[world]) - before
    if world == LINUX and not rate:
        pair.own.append(used.user_s / used.busy_s if used.busy_s else 0.0)
    return point


def _closed(
    session: Session, pair: servers.Pair, name: str, bound: servers.Bound | None = None
) -> dict[str, list[float]]:
    """What both carry, and what bounds ours, in the same rounds."""
    slot = SHARES[name] * session.seconds / ROUNDS / (3 if name == "memcached" else 2)
    arms = {_arm(name, world): partial(_point, pair, world, 0.0, slot) for world in WORLDS}
    if bound:
        arms[IN_C] = partial(bound.measure, slot)
    found = session.interleave(arms, ROUNDS)
    for arm, points in found.items():
        session.point(arm, middle(points))
    names = {_arm(name, world): world for world in WORLDS} | {IN_C: IN_C}
    rates = {names[arm]: [p.achieved_rps for p in points] for arm, points in found.items()}
    return rates | {OWN: pair.own}


def tails(session: Session, pair: servers.Pair, bound: servers.Bound, rate: float) -> None:
    """memcached at a rate that both carry, and what bounds ours at that."""
    figure = "posix.p99_gain"
    if rate <= 0:
        session.figure(figure, None, reason="memcached carried no load on Linux")
        return
    seconds = SHARES[TAILS] * session.seconds
    how: dict[str, Any] = {"rate": rate, "slot_s": slot_s(seconds), "connections": CONNECTIONS}
    clients = {world: partial(pair.client, world, "poisson", keep=True) for world in WORLDS}
    asked = {world: Asked(clients[world], pid=pair.pids[world], **how) for world in WORLDS}
    asked[IN_C] = Asked(partial(bound.client, keep=True), serving=bound.veth.ours, **how)
    arms = {name: one.arm(session) for name, one in asked.items()}
    done = compare(session, figure, arms, {LINUX: OURS}, seconds)
    names = {world: _arm("memcached", world) for world in WORLDS} | {IN_C: IN_C}
    rows(session, done, lambda name: f"{names[name]}, at half of Linux' rate")
    judge(session, figure, done, beside={f"bound: {IN_C}": between(done, LINUX, IN_C)})


def idle(session: Session, pair: servers.Pair) -> None:
    """What memcached takes of a core while nobody asks it, on both."""
    rest.demand("an idle server")
    seconds = max(SHARES["idle"] * session.seconds, IDLE_LEAST_S)
    before = {world: usage.of_process(pid).busy_s for world, pid in pair.pids.items()}
    begin = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - begin
    used = {world: (usage.of_process(pid).busy_s - before[world]) / took for world, pid in pair.pids.items()}
    session.arm("memcached, idle", seconds=took, ours_core=used[OURS], linux_core=used[LINUX])
    session.figure("posix.idle", used[OURS], runs=[used[OURS]], beside={"on Linux' sockets": used[LINUX]})


def _nginx(session: Session, both: servers.Nginxes) -> dict[str, list[float]]:
    def one(world: str, seconds: float) -> http.Found:
        rest.demand("a server on a veth pair")
        return both.measure(world, seconds)

    slot = SHARES["nginx"] * session.seconds / ROUNDS / 2
    found = session.interleave({_arm("nginx", world): partial(one, world, slot) for world in WORLDS}, ROUNDS)
    for arm, several in found.items():
        medians = {
            field: statistics.median(getattr(one, field) for one in several)
            for field in ("rate", "p50_us", "p99_us", "client_busy", "server_busy")
        }
        session.arm(arm, **medians, wrong=sum(one.wrong for one in several), failed=sum(one.failed for one in several))
    return {world: [one.rate for one in found[_arm("nginx", world)]] for world in WORLDS}


def on_memory(session: Session, space: Space, memcacheds: dict[str, list[float]]) -> None:
    """memcached on the memory NIC, over what it carries on Linux behind a veth pair."""
    figure = "posix.memcached_memory"
    if why := memcached.missing():
        session.skip(MEMORY, why)
        return
    slot = SHARES[MEMORY] * session.seconds / ROUNDS / 2
    with servers.memcached_on_memory(session.two_cores, space, CONNECTIONS) as load:
        found = session.interleave({MEMORY: partial(Load(load).measure, 1.0, slot)}, ROUNDS)
    with links.attached(session.two_cores, "ask", connections=CONNECTIONS, arrivals="closed") as load:
        found |= session.interleave({IN_C_ON_MEMORY: partial(Load(load).measure, 1.0, slot)}, ROUNDS)
    for arm, points in found.items():
        session.point(arm, middle(points))
    rates = {arm: [p.achieved_rps for p in points] for arm, points in found.items()}
    linux = memcacheds.get(LINUX, [])
    if linux and all(linux) and all(rates[MEMORY]):
        session.ratio_figure(figure, rates[MEMORY], linux, beside=_bounds(memcacheds | rates, IN_C_ON_MEMORY))
    else:
        session.figure(figure, None, reason="memcached carried no load on Linux, or was not run there")


def foreign_calls(session: Session) -> None:
    """What a wrapped call on a descriptor of Linux costs more."""
    with tempfile.TemporaryDirectory(prefix="corelane-bench-") as folder:
        try:
            program = foreign.compile_into(Path(folder))
        except SystemLimit as error:
            session.skip("calls on descriptors of Linux", str(error))
            return
        slot = SHARES["foreign"] * session.seconds / ROUNDS
        body: Callable[[], foreign.Cost] = partial(foreign.measure, program, session.cores[0], slot)
        found = session.interleave({"calls on descriptors of Linux": body}, ROUNDS)
    costs = found["calls on descriptors of Linux"]
    session.arm(
        "calls on descriptors of Linux",
        through_ns=statistics.median(one.through_ns for one in costs),
        direct_ns=statistics.median(one.direct_ns for one in costs),
        empty_ns=statistics.median(one.empty_ns for one in costs),
    )
    runs = [one.added_ns for one in costs]
    beside = {"bound: a function that does nothing": statistics.median(one.bound_ns for one in costs)}
    session.figure("posix.foreign_ns", statistics.median(runs), runs=runs, beside=beside)


def plot(document: dict[str, Any]) -> Canvas:
    """What each server carries, and memcached's tail at half of what it carries on Linux."""
    rows = {str(row["name"]): row for row in document["arms"]}
    n = sum(int(row["sent"]) for row in rows.values() if "sent" in row)
    canvas = Canvas("stock servers, unchanged", message=document["settings"]["message"], n=n, panels=2, size=(18, 8))
    arms = [
        arm
        for arm in (*(_arm(name, world) for name in GAINS for world in WORLDS), IN_C, MEMORY, IN_C_ON_MEMORY)
        if arm in rows
    ]
    rates = [number(rows[arm]["achieved_rps" if "achieved_rps" in rows[arm] else "rate"]) for arm in arms]
    if arms:
        canvas.bars(arms, rates, ylabel="answers (1/s)", colours=[1 if "Linux" in arm else 0 for arm in arms])
    half = [f"{_arm('memcached', world)}, at half of Linux' rate" for world in WORLDS]
    half = [arm for arm in half if arm in rows]
    if half:
        canvas.bars(half, [number(rows[arm]["p99_us"]) for arm in half], ylabel="p99 (us)", panel=1, colours=[1, 0])
    canvas.caption(
        f"One thread, one core, {CONNECTIONS} connections, closed loop; one client over AF_XDP for both. Right: open "
        "loop."
        if arms
        else "Not measured here."
    )
    return canvas

"""Connections that say nothing: what memory one takes, and what 100 000 of them add to a round of the loop."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from functools import partial

from ...drivers.nic.tcpload.tcpload import TcpLoad, TcpSource
from ..harness import usage
from ..harness.session import Session
from . import links
from .server import BLOCKING, ECHO

BYTES, ROUND = "tcp.idle_bytes", "tcp.idle_round_ns"
FIGURES = (BYTES, ROUND)
FEW, MANY = 1, 100_000
SOME = 20_000  # held first: what else the link and the client need is in memory then
BLOCKING_SOME, BLOCKING_MANY = 1000, 5000  # the same in blocking form
ROUNDS = 5
ROUNDS_OF_BYTES = 3
IPS = 4  # own addresses of the client, of 40 000 ports each


def measure(session: Session, seconds: float) -> None:
    """Memory on fresh runtimes; then the loop, which spins, with few and many connections by turns. A runtime each, for
    the canary: one that spins would be beside it."""
    cores = session.two_cores
    look_s = min(max(seconds / (4 * ROUNDS), 0.01), 0.2)
    session.say(f"memory of {MANY:,} idle connections")
    sizes = [_bytes(cores, ECHO, SOME, MANY) for _ in range(ROUNDS_OF_BYTES)]
    session.say(f"memory of {BLOCKING_MANY:,} idle connections in blocking form")
    blocking = _bytes(cores, BLOCKING, BLOCKING_SOME, BLOCKING_MANY)
    beside = {"blocking form, with the stack of its uthread": blocking}
    session.figure(BYTES, statistics.median(sizes), runs=sizes, beside=beside)
    session.arm("idle connection, event form", n=MANY, bytes=statistics.median(sizes))
    session.arm("idle connection, blocking form", n=BLOCKING_MANY, bytes=blocking)
    rounds: dict[str, Callable[[], float]] = {_arm(n): partial(_round_ns, cores, n, look_s) for n in (FEW, MANY)}
    found = session.interleave(rounds, ROUNDS)
    for name, took in found.items():
        session.arm(name, n=ROUNDS, round_ns=statistics.median(took), runs=took)
    added = [many - few for few, many in zip(found[_arm(FEW)], found[_arm(MANY)], strict=True)]
    beside = {"a whole round without them": statistics.median(found[_arm(FEW)])}
    session.figure(ROUND, statistics.median(added), runs=added, beside=beside)


def _arm(n: int) -> str:
    return f"a round, {n} idle"


def _client(link: links.Link, n: int, port: int = ECHO) -> TcpLoad:
    source = TcpSource(ip=links.MANY_IPS, ips=IPS)
    return links.load_of("hold", server_mac=link.runtime.mac, server_port=port, connections=n, source=source)


def _bytes(cores: tuple[int, int], port: int, some: int, many: int) -> float:
    """What a connection adds to the memory of this process: of many less that of some."""
    used = []
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(links.memory(cores))
        loads = [stack.enter_context(contextlib.closing(_client(link, n, port))) for n in (some, many)]
        for load in loads:
            load.start_client(link.end, cores[0])
            with load.held():
                used.append(usage.own_memory())
            load.stop_client()
    return (used[1] - used[0]) / (many - some)


def _round_ns(cores: tuple[int, int], n: int, seconds: float) -> float:
    """What a turn of the kthread's loop takes in which nothing is to be done. The client polls meanwhile."""
    with links.memory(cores, poll="spin") as link, contextlib.closing(_client(link, n)) as load:
        load.start_client(link.end, link.cores[0])
        with load.held():
            before, begin = link.runtime.stats().sched["polls"], time.monotonic_ns()
            time.sleep(seconds)
            polls = link.runtime.stats().sched["polls"] - before
            return (time.monotonic_ns() - begin) / max(polls, 1)

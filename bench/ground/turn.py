"""An adopted kthread beside an ordinary one: a turn with nothing to do, echo, a wake-up, and an idle loop.

Server and client are threads on two cores with a memory link between them, so that nothing but the kthread differs. The
client polls, and sends one request at a time:

echo   the server polls all the time. The adopted one's loop looks at its own epoll after every LOOK turns, which is
       what a loop does that has other descriptors; `echo, adopted, looks each turn` does so after each, and
       `echo, adopted, no looks` never: what the turns alone cost stands beside the figure
wake   the server sleeps as soon as it has nothing to do, and the client waits PAUSE_NS before each request
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import selectors
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from ...apps import echo
from ...drivers.nic.memory import memory_link
from ...libos.runtime import Runtime
from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.plot import Canvas
from ..harness.session import Session

FIGURES = ("ground.turn_ns", "ground.turn_echo", "ground.wake_over_own", "ground.idle")
ROUNDS = 7
LOOK = 64
NO_LOOKS = 1 << 30
TURNS = 200_000
ECHOES = 20_000
WAKES = 1_000
PAUSE_NS = 50_000
IDLE_SHARE = 0.3  # of the time, for the idle loop
SERVER, CLIENT = ("02:00:00:00:00:01", "10.78.0.1"), ("02:00:00:00:00:02", "10.78.0.2")
PAYLOAD = bytes(32)
TURN = {"turn, asleep": "block", "turn, polling": "spin"}
# How the server is driven: None by its own thread, else by ours, with a look at the epoll each so many turns.
ECHO: dict[str, int | None] = {
    "echo, ordinary": None,
    "echo, adopted": LOOK,
    "echo, adopted, no looks": NO_LOOKS,
    "echo, adopted, looks each turn": 1,
}
WAKE: dict[str, int | None] = {"wake, ordinary": None, "wake, adopted": 1}


def _sum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return int(~(total + (total >> 16)) & 0xFFFF)


def _frame() -> bytes:
    """A request to UDP port 9000. Without a UDP checksum, as RFC 768 permits."""
    (to_mac, to), (from_mac, sender) = SERVER, CLIENT
    udp = struct.pack("!HHHH", 5555, 9000, 8 + len(PAYLOAD), 0) + PAYLOAD
    addresses = ipaddress.IPv4Address(sender).packed + ipaddress.IPv4Address(to).packed
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + addresses
    head = head[:10] + struct.pack("!H", _sum(head)) + head[12:]
    macs = bytes.fromhex((to_mac + from_mac).replace(":", ""))
    return macs + b"\x08\x00" + head + udp


@contextlib.contextmanager
def _runtime(poll: str, adopted: int, cpu: int) -> Iterator[tuple[Runtime, Any]]:
    """A started echo server on a memory link, and the NIC at the other end."""
    nic, end = memory_link((1, 1), ipv4=(SERVER[1], CLIENT[1]), ipv4_prefix=24, mac=(SERVER[0], CLIENT[0]))
    with nic, end, Runtime(nic=nic, adopted=adopted, poll=poll, cpus=[cpu]) as runtime:
        runtime.add_neighbour(CLIENT[1], CLIENT[0])
        runtime.bind(echo.handler())
        runtime.start()
        yield runtime, end


def turns(poll: str, cpu: int, n: int) -> float:
    """ns of one of n turns with nothing to do."""
    with _runtime(poll, 1, cpu) as (runtime, end):
        runtime.turn()
        end.recv(8)  # its announcement
        took = int(lib.cl_bench_turns(_sched(runtime), cpu, n))
    if took < 0:
        raise CorelaneError("turn a kthread", os.strerror(-took), errno=-took)
    return took / n


def _sched(runtime: Runtime) -> Any:
    return ffi.cast("struct cl_sched *", lib.cl_runtime_sched(ffi.cast("struct cl_runtime *", runtime.ptr)))


def ask(poll: str, look: int | None, cores: tuple[int, int], n: int, pause_ns: int) -> list[int]:
    """ns of n requests to a server that is driven as ECHO says."""
    with _runtime(poll, int(look is not None), cores[0]) as (runtime, end), contextlib.ExitStack() as stack:
        if look is not None:
            driver = threading.Thread(target=lib.cl_bench_drive, args=(_sched(runtime), cores[0], look))
            driver.start()
            stack.callback(driver.join)
            stack.callback(runtime.stop)
        runtime.wait_until(lambda stats: stats.net["tx_frames"] > 0)
        end.recv(8)
        frame, out = _frame(), ffi.new("uint32_t[]", n)
        rc = lib.cl_bench_ask(ffi.cast("struct cl_nic *", end.ptr), cores[1], frame, len(frame), n, pause_ns, out)
        if rc:
            raise CorelaneError("ask an echo server over a memory link", os.strerror(-rc), errno=-rc)
        return sorted(out)


def idle(seconds: float) -> float:
    """Processor time, of one core, of a thread with a selectors loop whose runtime has nothing to do."""
    with _runtime("block", 1, -1) as (runtime, _end), selectors.DefaultSelector() as selector:
        selector.register(runtime, selectors.EVENT_READ)
        while runtime.turn():
            pass
        used, begin = time.thread_time(), time.monotonic()
        while (left := begin + seconds - time.monotonic()) > 0:
            again = runtime.turn()
            selector.select(0 if again else left)
        return (time.thread_time() - used) / (time.monotonic() - begin)


def _middle(took: list[int]) -> float:
    """The mean of the middle half of sorted times: the p50, finer than a tick of the stamps, which may be 10 ns."""
    quarter = len(took) // 4
    return statistics.fmean(took[quarter : len(took) - quarter])


def _over(ours: list[float], own: list[float]) -> list[float]:
    return [a / b for a, b in zip(ours, own, strict=True)]


def _ratio(session: Session, figure: str, ours: list[float], own: list[float], **beside: list[float]) -> None:
    runs = _over(ours, own)
    beside_it = {name.replace("_", " "): statistics.median(_over(other, own)) for name, other in beside.items()}
    session.figure(figure, statistics.median(runs), runs=runs, beside=beside_it or None)


def measure(session: Session, seconds: float) -> None:
    """All arms by turns, then the idle loop; sets FIGURES."""
    cores = session.two_cores
    arms: dict[str, Any] = {name: lambda poll=poll: turns(poll, cores[0], TURNS) for name, poll in TURN.items()}
    arms |= {name: lambda look=look: ask("spin", look, cores, ECHOES, 0) for name, look in ECHO.items()}
    arms |= {name: lambda look=look: ask("block", look, cores, WAKES, PAUSE_NS) for name, look in WAKE.items()}
    samples: dict[str, list[Any]] = session.interleave(arms, ROUNDS)
    for name in TURN:
        session.arm(name, ns=statistics.median(samples[name]), ns_min=min(samples[name]), n=TURNS * ROUNDS)
    p50: dict[str, list[float]] = {}
    for name in (*ECHO, *WAKE):
        p50[name] = [_middle(took) for took in samples[name]]
        every = sorted(ns for took in samples[name] for ns in took)
        session.arm(
            name,
            ns=statistics.median(p50[name]),
            ns_min=min(p50[name]),
            p99_ns=every[len(every) * 99 // 100],
            n=len(every),
        )
    worst = [max(rounds) for rounds in zip(*(samples[name] for name in TURN), strict=True)]
    session.figure("ground.turn_ns", statistics.median(worst), runs=worst)
    bare = p50["echo, adopted, no looks"]
    _ratio(session, "ground.turn_echo", p50["echo, adopted"], p50["echo, ordinary"], without_looks=bare)
    _ratio(session, "ground.wake_over_own", p50["wake, adopted"], p50["wake, ordinary"])
    share = idle(max(1.0, seconds * IDLE_SHARE))
    session.arm("idle selectors loop", cores=share, n=1)
    session.figure("ground.idle", share)
    session.settings["turn"] = {
        "message": f"a UDP echo of {len(PAYLOAD)} bytes over a memory link",
        "pause_ns": PAUSE_NS,
    }


def draw(canvas: Canvas, document: dict[str, Any], panel: int) -> None:
    """p50 of echo and wake by arm."""
    rows = [row for row in document["arms"] if row["name"] in ECHO or row["name"] in WAKE]
    canvas.bars(
        [row["name"] for row in rows], [row["ns"] for row in rows], ylabel="time of a request, p50 (ns)", panel=panel
    )
    canvas.caption("Third: one request at a time over a memory link. Fourth: by a virtual clock, how fast it goes.")

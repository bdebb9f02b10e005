"""asyncio servers on the dataplane: a TCP echo as protocols and as streams, and uvicorn, beside uvloop and the stock
loop on Linux' sockets; the echo as a numba handler; an idle server; a start from nothing.

The server's lines are the same for every loop (server.py), and so are link, core and client. One thread, one core, 100
connections. Each part is a module of this room: FIGURES and `measure(session, seconds)`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..harness.numbers import number
from ..harness.plot import Canvas
from ..harness.session import Session
from ..tcp import links
from . import echo, loops, start, web
from .places import CONNECTIONS

SUMMARY = "asyncio servers with their sockets on the dataplane, beside uvloop and the stock loop"
FIGURES = (
    "asyncio.over_uvloop",
    "asyncio.streams_over_uvloop",
    "asyncio.over_uvloop_memory",
    "asyncio.p99_over_uvloop",
    "asyncio.http_over_uvloop",
    "embed.numba_over_asyncio",
    "start.cold_s",
    "idle.asyncio_busy",
)

PARTS: dict[ModuleType, float] = {echo: 0.65, web: 0.2, start: 0.15}  # of the time


def run(session: Session) -> None:
    """All parts, one after another."""
    session.settings |= {
        "message": f"{links.REQUEST_BYTES} bytes and the same back; of uvicorn, a GET and a few bytes of JSON",
        "connections": CONNECTIONS,
        "links": {
            "all but the memory NIC": "a veth pair each; the client over AF_XDP, or on kernel sockets where it is said",
            "memory NIC": "a memory link in this process",
        },
    }
    for part, share in PARTS.items():
        part.measure(session, share * session.seconds)


def plot(document: dict[str, Any]) -> Canvas:
    """What each carries, the tails, uvicorn, and the starts."""
    rows = {str(row["name"]): row for row in document["arms"]}
    n = sum(int(row["sent"]) for row in rows.values() if "sent" in row)
    message = document["settings"]["message"]
    canvas = Canvas("asyncio on the dataplane", message=message, n=n, panels=4, rows=2, size=(20, 15))
    half = [echo.at_half(name) for name in rows if echo.at_half(name) in rows]
    closed = [name for name in rows if "sent" in rows[name] and name not in half]
    _bars(canvas, rows, 0, closed, "achieved_rps", "echo, closed loop: answers (1/s)")
    _bars(canvas, rows, 1, half, "p99_us", "echo, at half of uvloop's rate: p99 (us)")
    _bars(canvas, rows, 2, [web.arm_name(loop) for loop in loops.ALL], "rate", "uvicorn, closed loop: answers (1/s)")
    _bars(canvas, rows, 3, [start.BEHIND, start.AT_ONCE], "start_s", "from nothing to the first answer (s)")
    canvas.caption(
        f"One server thread on one core, {CONNECTIONS} connections; medians over the rounds, percentiles of all "
        f"requests together. n: requests of the echo. {_floor(rows)}"
    )
    return canvas


def _floor(rows: dict[str, Any]) -> str:
    row = rows.get(echo.ENTRY)
    return f"The interpreter alone takes {number(row['ns']):.0f} ns for a message." if row else ""


def _bars(canvas: Canvas, rows: dict[str, Any], panel: int, names: list[str], key: str, label: str) -> None:
    there = [name for name in names if name in rows]
    if not there:
        canvas.caption(f"{label.partition(':')[0].capitalize()}: not measured here.")
        return
    values = [number(rows[name][key]) for name in there]
    canvas.bars(there, values, ylabel=label, panel=panel, colours=[_colour(name) for name in there])


def _colour(name: str) -> int:
    """By the system: ours, stock, uvloop, what bounds ours, numba."""
    of = {loops.OURS: 0, loops.STOCK: 1, loops.UVLOOP: 2, echo.IN_C: 4, echo.REFLECTOR: 4, echo.NUMBA_ON_MEMORY: 3}
    return next((colour for word, colour in of.items() if name.startswith(word)), 0)

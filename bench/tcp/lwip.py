"""lwIP on the same NIC: what a request costs a core there, over what it costs here.

Both servers spin, and the client asks on every connection that is idle, so that the server's core is the bound: what a
request costs is the time over the answers. Where the client is the bound instead, ours costs less than is told here,
and the ratio is larger: what the client reaches with a reflector of segments (reflector.h) stands beside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...drivers.nic.nic import Nic
from ...runtime.errors import SystemLimit
from ..baseline.lwip import Lwip, library
from ..harness import rest
from ..harness.load import Load
from ..harness.numbers import pairwise
from ..harness.openloop import Point, middle
from ..harness.rig import SERVER_IP, linked
from ..harness.session import Session
from . import links
from .server import ECHO

FEW, MANY = 100, 1000
NAMES = {FEW: "tcp.lwip_over_ours", MANY: "tcp.lwip_over_ours_1000"}
FIGURES = tuple(NAMES.values())
ROUNDS = 5


def _arm(server: str, n: int) -> str:
    return f"{server}, {n} connections, saturated"


def _missing(session: Session) -> str:
    """Why lwIP cannot be measured; empty if it can."""
    if not session.baseline:
        return "--no-baseline was given"
    try:
        library()
    except SystemLimit as error:
        return str(error)
    return ""


def measure(session: Session, seconds: float) -> None:
    """Both servers with both numbers of connections, by turns."""
    if why := _missing(session):
        for n in NAMES:
            session.skip(_arm("lwIP", n), why)
        return
    slot = seconds / (ROUNDS * 3 * len(NAMES))
    arms: dict[str, Callable[[], Point]] = {}
    for n in NAMES:
        arms[_arm("ours", n)] = partial(_ours, session.two_cores, n, slot)
        arms[_arm("lwIP", n)] = partial(_lwip, session.two_cores, n, slot)
        arms[_arm("reflector", n)] = partial(_floor, session.two_cores, n, slot)
    found = session.interleave(arms, ROUNDS)
    for name, points in found.items():
        point = middle(points)
        point.extra["ns_per_request"] = 1e9 / point.achieved_rps if point.achieved_rps else 0.0
        session.point(name, point)
    for n, figure in NAMES.items():
        ours, theirs, floor = (
            [p.achieved_rps for p in found[_arm(server, n)]] for server in ("ours", "lwIP", "reflector")
        )
        if all(theirs):
            bound = {"bound: a reflector of segments": pairwise(floor, theirs).median}
            session.ratio_figure(figure, ours, theirs, beside=bound)
        else:
            session.figure(figure, None, reason="lwIP answered nothing in a round: is the machine this busy?")


def _ours(cores: tuple[int, int], n: int, seconds: float) -> Point:
    rest.demand("a server that spins")
    with links.memory(cores, poll="spin") as link, link.client("ask", connections=n, arrivals="closed") as load:
        return Load(load).measure(1.0, seconds)


def _floor(cores: tuple[int, int], n: int, seconds: float) -> Point:
    rest.demand("a server that spins")
    with links.floor(cores, "ask", connections=n, arrivals="closed") as floor:
        return floor.measure(1.0, seconds)


@contextlib.contextmanager
def lwip_link(cores: tuple[int, int]) -> Iterator[tuple[Nic, str]]:
    """lwIP on one end of a memory link. Gives the other end, and the server's MAC address."""
    with linked() as (client_end, server_end), Lwip(server_end, address=SERVER_IP, port=ECHO, cpu=cores[1]):
        yield client_end, server_end.mac


def _lwip(cores: tuple[int, int], n: int, seconds: float) -> Point:
    rest.demand("a server that spins")
    with lwip_link(cores) as (end, mac):
        load: Any = links.load_of("ask", server_mac=mac, connections=n, arrivals="closed")
        with contextlib.closing(load):
            load.start_client(end, cores[0])
            return Load(load).measure(1.0, seconds)

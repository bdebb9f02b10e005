"""What somebody who means no good does to a TCP port, from Linux in a namespace, while others are asked to be served.

An attack is given `asks`, which asks another client something and checks the answer, and calls it again and again. So
the other's waits, which it keeps, are those while the attack goes on.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import time
from collections.abc import Callable, Sequence

from corelane.drivers.linux import netns
from corelane.libos import Runtime
from corelane.libos._native import ffi, lib

Connect = Callable[[], socket.socket]
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class Other:
    """Another client, which asks the same all the time. waits_ms: how long it waited for each answer. changes: a regex
    of what differs from answer to answer, and not in length."""

    def __init__(self, link: socket.socket, question: bytes, answer: bytes, changes: bytes = b"$.") -> None:
        self._link, self._question, self._answer = link, question, answer
        self._changes = re.compile(changes)
        self.waits_ms: list[float] = []

    def __call__(self) -> None:
        """Ask once. The answer has to come, and be right."""
        began = time.monotonic()
        self._link.sendall(self._question)
        got = b""
        while len(got) < len(self._answer):
            part = self._link.recv(1 << 16)
            assert part, f"the other client was cut off after {got!r}"
            got += part
        assert self._changes.sub(b"", got) == self._changes.sub(b"", self._answer)
        self.waits_ms.append(1000 * (time.monotonic() - began))

    def shown(self) -> str:
        """Its waits, for whoever reads the test's output."""
        waits = sorted(self.waits_ms)
        middle, longest = waits[len(waits) // 2], waits[-1]
        return f"meanwhile the other client waited {middle:.2f} ms, {longest:.2f} at the longest, of {len(waits)} times"


def tcp_counts(runtime: Runtime) -> dict[str, int]:
    """Struct cl_tcp_counts of a runtime."""
    out = ffi.new("struct cl_tcp_counts *")
    lib.cl_runtime_tcp_counts(runtime.ptr, out)
    return {name: int(getattr(out, name)) for name, _ in ffi.typeof(out[0]).fields}


def _sum16(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def syn(source: tuple[str, int], to: tuple[str, int], sequence: int) -> bytes:
    """An IPv4 packet with a SYN (RFC 9293, section 3.1) and a segment size."""
    ends = socket.inet_aton(source[0]) + socket.inet_aton(to[0])
    tcp = struct.pack(">HHIIHHHHBBH", source[1], to[1], sequence, 0, 6 << 12 | 2, 65535, 0, 0, 2, 4, 1460)
    check = _sum16(ends + struct.pack(">HH", 6, len(tcp)) + tcp)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + ends  # Linux fills in the checksum
    return ip + tcp[:16] + struct.pack(">H", check) + tcp[18:]


def syn_flood(space: netns.Namespace, to: tuple[str, int], count: int, asks: Callable[[], None], seed: int) -> None:
    """SYNs from neighbours that do not exist, so nobody answers what they are answered."""
    draw = random.Random(seed)
    net = to[0].rsplit(".", 1)[0]
    with space.entered():
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    with raw:
        for i in range(count):
            source = (f"{net}.{draw.randrange(100, 250)}", draw.randrange(1024, 65536))
            raw.sendto(syn(source, to, draw.getrandbits(32)), (to[0], 0))
            if i % 200 == 0:
                asks()


def slow_writers(connect: Connect, requests: Sequence[bytes], asks: Callable[[], None]) -> list[socket.socket]:
    """A connection for each request, which sends a byte at a time, in turns. Returns them, with all sent."""
    links = [connect() for _ in requests]
    for at in range(max(map(len, requests))):
        for link, request in zip(links, requests, strict=True):
            link.sendall(request[at : at + 1])
        asks()
    return links


def stopped(connect: Connect, beginning: bytes, count: int, asks: Callable[[], None]) -> list[socket.socket]:
    """So many connections that stop in the middle of a request, as far as they are not cut off before."""
    links = []
    for _ in range(count):
        links.append(connect())
        with contextlib.suppress(ConnectionError):
            links[-1].sendall(beginning)
        asks()
    return links


def come_and_go(connect: Connect, beginnings: Sequence[bytes], count: int, asks: Callable[[], None], seed: int) -> None:
    """So many connections that begin something and are dropped, some with a reset; up to 50 at a time."""
    draw = random.Random(seed)
    now: list[socket.socket] = []
    for i in range(count):
        s = connect()
        with contextlib.suppress(ConnectionError):  # it was told that there are too many
            s.sendall(draw.choice(beginnings))
        now.append(s)
        if len(now) == 50 or i + 1 == count:
            draw.shuffle(now)
            asks()
            keep = 0 if i + 1 == count else 25
            for old in now[keep:]:
                if draw.random() < 0.3:
                    old.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                old.close()
            del now[keep:]


def garbage(
    connect: Connect,
    words: Sequence[bytes],
    count: int,
    asks: Callable[[], None],
    seed: int,
    first: bytes = b"\x80",
) -> None:
    """So many connections that send bytes of all kinds, perhaps behind the first ones of another protocol, or words of
    a protocol in any order, and leave."""
    draw = random.Random(seed)
    for _ in range(count):
        with connect() as link, contextlib.suppress(ConnectionError):
            if draw.random() < 0.5:
                link.sendall(draw.choice([b"", first]) + draw.randbytes(draw.randrange(1, 3000)))
            else:
                link.sendall(b"".join(draw.choices(words, k=draw.randrange(1, 60))))
            asks()


def ended(link: socket.socket) -> bytes:
    """What comes up to the end of a connection, which has to come."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while part := link.recv(1 << 16):
            got += part
    return got


def until(link: socket.socket, end: bytes) -> bytes:
    """What comes up to `end`, or up to the end of the connection."""
    got = b""
    while not got.endswith(end) and (part := link.recv(1 << 16)):
        got += part
    return got

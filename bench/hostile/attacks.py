"""What an attacker does, a function each: it makes ready, then takes a step at each `yield`, until it is closed.

A refusal is what an attacker has to expect: it is counted, and the attack goes on. What an attack holds it gives back
when it is closed. All of it stays on this machine: unix sockets, an arena of its own, loopback.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import mmap
import os
import random
import select
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from ...runtime.errors import CorelaneError, check
from .._native import ffi, lib
from ..isolation.flooder import PAUSE_NS, UPLINK_IP

TIMEOUT_S, SHORT_S = 5.0, 0.01
MORE_THAN_ALLOWED = 300  # connections; a user's budget is 256 by default
FLOODERS = 4
UNREAD = 20  # connections that never read
MANY = 40
LINGER_S = 5
LINGERING_MOST = 16  # sockets an attack
ARENA_BYTES = 1 << 30  # half of a user's budget, for buffers to receive into
TOUCHED_BYTES = 16 << 20
AREA_BYTES = 1 << 16
FLOOD_SLOTS = 4096
FLOOD_PIECE_S = 0.02
FRAME_BYTES = 60
IPV6 = b"\x86\xdd"
KTHREADS, KTHREADS_ALLOWED = 64, 256  # of an application; a user's budget by default
ARENA = {"n_kthreads": 1, "rx_slots": 64, "tx_slots": 64, "n_rx": 64, "n_tx": 64}
HEADER = struct.Struct("=IHHII")  # struct cl_control_header


def message(kind: int, body: bytes = b"") -> bytes:
    """A control message."""
    return HEADER.pack(lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION, kind, HEADER.size + len(body), 0) + body


STATS = message(lib.CL_CONTROL_STATS)


@dataclass
class Target:
    """The iokernel at `path`. victim_ip: whose address is forged; uplink_mac: out of which frames are sent.

    counts: what the attack did.
    """

    path: str
    victim_ip: int = 0
    uplink_mac: bytes = bytes(6)
    counts: Counter[str] = field(default_factory=Counter)

    def connect(self) -> socket.socket | None:
        """A connection; None: refused."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(TIMEOUT_S)
        try:
            sock.connect(self.path)
        except OSError:
            self.counts["refused"] += 1
            sock.close()
            return None
        self.counts["connections"] += 1
        return sock

    def attach(self, name: str, **wishes: int) -> Attached:
        """Attach as an application. CorelaneError if it is refused."""
        return Attached(self.path, name, **(ARENA | wishes))


class Attached:
    """An application without a runtime: the raw memory and descriptors that an iokernel gives it, until `close`."""

    def __init__(self, path: str, name: str, **wishes: int) -> None:
        err, self.accept = ffi.new("char[256]"), ffi.new("struct cl_control_accept *")
        hello = ffi.new("struct cl_control_hello *", wishes)
        ffi.memmove(hello.name, name.encode(), len(name))
        timeout_ms, fds = int(1000 * TIMEOUT_S), ffi.new("int[3]", [-1, -1, -1])
        self._sock = check(lib.cl_control_connect(path.encode(), timeout_ms, err), "connect", err)
        try:
            check(lib.cl_control_attach(self._sock, hello, self.accept, fds, timeout_ms, err), "attach", err)
        except BaseException:
            lib.cl_control_close(self._sock)
            raise
        self.arena_fd, self._state_fd, self.doorbell_fd = (int(fd) for fd in fds)

    def map(self) -> mmap.mmap:
        """Its arena."""
        return mmap.mmap(self.arena_fd, int(self.accept.layout.total_bytes))

    def ring(self) -> None:
        """Wake the loop."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self.doorbell_fd, 1)

    def close(self) -> None:
        """Its connection ends, and so does the application."""
        for fd in (self.arena_fd, self._state_fd, self.doorbell_fd):
            os.close(fd)
        lib.cl_control_close(self._sock)


Steps = Generator[None, None, None]
Attack = Callable[[Target], Steps]


def idle_connections(target: Target) -> Steps:
    """As many connections as there are to be had, and then more: for each one that is told to go another one comes."""
    held: deque[socket.socket] = deque()
    try:
        while True:
            if (sock := target.connect()) is not None:
                held.append(sock)
            if len(held) > MORE_THAN_ALLOWED:
                held.pop().close()
                time.sleep(0.001)
            yield
    finally:
        for sock in held:
            sock.close()


def churn(target: Target) -> Steps:
    """Connects and closes at once, again and again."""
    while True:
        if (sock := target.connect()) is not None:
            sock.close()
        yield


def stats_flood(target: Target) -> Steps:
    """Asks for statistics on some connections without waiting for answers, and reads what comes."""
    socks: list[socket.socket] = []
    try:
        while True:
            while len(socks) < FLOODERS and (sock := _quick(target)) is not None:
                socks.append(sock)
            ready, writable, _ = select.select(socks, socks, [], 0.01)
            ended = [sock for sock in ready if not _read(target, sock)]
            ended += [sock for sock in writable if sock not in ended and not _send(target, sock, STATS * 250)]
            for sock in ended:
                socks.remove(sock)
                sock.close()
            yield
    finally:
        _close(socks)


def unread_answers(target: Target) -> Steps:
    """Asks for statistics and moves on many connections, and never reads. Whoever is closed connects again."""
    moves = message(lib.CL_CONTROL_MOVES, struct.pack("=QII", 0, 0, 0))
    socks: list[socket.socket] = []
    try:
        while True:
            while len(socks) < UNREAD and (sock := _quick(target)) is not None:
                socks.append(sock)
            for sock in list(socks):
                if not _send(target, sock, (STATS + moves) * 20):
                    socks.remove(sock)
                    sock.close()
            time.sleep(0.001)
            yield
    finally:
        _close(socks)


def garbage(target: Target) -> Steps:
    """Random bytes, and random bytes behind a header that is in order."""
    rng = random.Random(28)
    kinds = range(lib.CL_CONTROL_HELLO, lib.CL_CONTROL_MOVES_OK + 2)
    for turn in itertools.count():
        sock = target.connect()
        if sock is not None:
            body = rng.randbytes(rng.randrange(1, 1000))
            with sock, contextlib.suppress(OSError):
                sock.settimeout(SHORT_S)  # too few bytes are not answered
                sock.sendall(message(rng.choice(kinds), body) if turn % 2 else body)
                sock.recv(4096)
        yield


def one_byte_at_a_time(target: Target) -> Steps:
    """Many connections, each of which sends a message byte by byte."""
    socks: list[socket.socket] = []
    try:
        for turn in itertools.count():
            while len(socks) < MANY and (sock := _quick(target)) is not None:
                socks.append(sock)
            at = turn % len(STATS)
            for sock in list(socks):
                with contextlib.suppress(OSError):
                    sock.recv(1 << 16)
                if not _send(target, sock, STATS[at : at + 1]):
                    socks.remove(sock)
                    sock.close()
            yield
    finally:
        _close(socks)


def large_arena(target: Target) -> Steps:
    """Attaches with the largest arena that fits into the budget, uses some of it, and ends; again and again."""
    per_buffer = 2048
    wishes = {"n_rx": ARENA_BYTES // per_buffer, "rx_slots": 1 << 16, "n_kthreads": KTHREADS, "buffer_bytes": 2048}
    for turn in itertools.count():
        try:
            one = target.attach(f"large-{turn % 8}", **wishes)
        except CorelaneError:
            target.counts["refused"] += 1
        else:
            target.counts["attached"] += 1
            at, n = int(one.accept.layout.buffers_offset), min(TOUCHED_BYTES, int(one.accept.layout.total_bytes))
            with one.map() as arena:
                arena[at : at + n] = bytes(n)
            one.close()
        yield


def descriptors(target: Target) -> Steps:
    """Sends descriptors: files, and TCP sockets whose last close blocks for seconds."""
    peers: list[socket.socket] = []
    try:
        while True:
            sock = target.connect()
            if sock is not None:
                fd = os.memfd_create("hostile")
                with sock:
                    _pass(target, sock, [fd] * 16)
                os.close(fd)
            if len(peers) < LINGERING_MOST and (sock := target.connect()) is not None:
                ours, peer = _lingering()
                peers.append(peer)
                with sock:
                    if not _pass(target, sock, [ours.fileno()]):
                        _reset(peers.pop())  # or closing ours would block us
                ours.close()
            yield
    finally:
        for peer in peers:
            peer.close()


def storage_areas(target: Target) -> Steps:
    """Makes an area, keeps it open, and asks for it, for a list, for another and for an end of it on many others."""
    first = target.connect()
    if first is None:
        raise CorelaneError("ask for storage", "the connection was refused")
    socks: list[socket.socket] = []
    try:
        for op in (lib.CL_CONTROL_AREA_CREATE, lib.CL_CONTROL_AREA_OPEN):
            first.sendall(_area(op, "hostile"))
            _, rights, _, _ = first.recvmsg(4096, socket.CMSG_SPACE(4))
            for _, _, data in rights:
                os.close(array.array("i", data[:4])[0])  # the claim is the connection's
        names = ("hostile", "hostile", "", "another", "another")
        ops = (
            lib.CL_CONTROL_AREA_OPEN,
            lib.CL_CONTROL_AREA_DELETE,
            lib.CL_CONTROL_AREA_LIST,
            lib.CL_CONTROL_AREA_CREATE,
            lib.CL_CONTROL_AREA_DELETE,
        )
        for turn in itertools.count():
            if len(socks) >= MANY:
                socks.pop(0).close()
            if (sock := _quick(target)) is not None:
                socks.append(sock)
                _send(target, sock, _area(ops[turn % len(ops)], names[turn % len(ops)]))
            time.sleep(0.0005)
            yield
    finally:
        _close([first, *socks])


def random_arena(target: Target) -> Steps:
    """Writes random bytes over its whole arena, its header and rings too, and rings."""
    rng = random.Random(28)
    one = target.attach("random-arena", n_kthreads=2)
    try:
        with one.map() as arena:
            layout = one.accept.layout
            rings = int(layout.lines_offset), int(layout.buffers_offset)
            arena[:] = rng.randbytes(len(arena))
            while True:
                for _ in range(200):
                    at = rng.randrange(*rings)
                    arena[at : at + 16] = rng.randbytes(16)
                arena[: rings[0]] = rng.randbytes(rings[0])  # the doorbell is in there
                one.ring()
                target.counts["writes"] += 201
                yield
    finally:
        one.close()


def doorbell_bits(target: Target) -> Steps:
    """Sets the bits of all kthreads that it may have, all the time; none of their rings has anything."""
    word = b"\xff" * 8
    with contextlib.ExitStack() as stack:
        arenas = []
        for number in range(KTHREADS_ALLOWED // KTHREADS):
            one = target.attach(f"doorbell-bits-{number}", n_kthreads=KTHREADS)
            stack.callback(one.close)
            arena = stack.enter_context(one.map())
            header = ffi.cast("struct cl_arena_header *", ffi.from_buffer(arena))
            arenas.append((one, arena, int(header.doorbell_offset)))
            del header
        while True:
            for one, arena, at in arenas:
                for _ in range(250):
                    arena[at : at + 8] = word
                one.ring()
                target.counts["writes"] += 250
            yield


def broadcast_flood(target: Target) -> Steps:
    """Frames to everybody, as fast as they are taken."""
    return _flood(target, "broadcast-flood", dst_mac=b"\xff" * 6)


def ethertype_flood(target: Target) -> Steps:
    """Frames of another ethertype (IPv6), as fast as they are taken."""
    return _flood(target, "ethertype-flood", ethertype=IPV6)


def spoofed_flood(target: Target) -> Steps:
    """Frames from the victim's address, as fast as they are taken."""
    return _flood(target, "spoofed-flood", src_ip=target.victim_ip)


def _flood(target: Target, name: str, *, dst_mac: bytes = b"", src_ip: int = 0, ethertype: bytes = b"") -> Steps:
    out, err = ffi.new("struct cl_flood **"), ffi.new("char[256]")
    check(lib.cl_flood_new(target.path.encode(), name.encode(), FLOOD_SLOTS, out, err), "flood", err)
    try:
        mac, ip = ffi.new("uint8_t[6]"), ffi.new("uint32_t *")
        lib.cl_flood_address(out[0], mac, ip)
        frame, udp_bytes = ffi.new("uint8_t[]", FRAME_BYTES), FRAME_BYTES - int(lib.CL_UDP_HEADERS)
        dst = dst_mac or target.uplink_mac
        lib.cl_net_udp_headers(frame, mac, dst, src_ip or ip[0], UPLINK_IP, 7, 7, udp_bytes, False)
        if ethertype:
            ffi.buffer(frame)[12:14] = ethertype
        result = ffi.new("struct cl_flood_result *")
        piece_ns = int(FLOOD_PIECE_S * 1e9)
        while True:
            yield
            check(lib.cl_flood_run(out[0], frame, FRAME_BYTES, piece_ns, PAUSE_NS, 0, result), "flood")
            target.counts["frames"] += int(result.sent)
    finally:
        lib.cl_flood_delete(out[0])


def _quick(target: Target) -> socket.socket | None:
    """A connection that never blocks."""
    sock = target.connect()
    if sock is not None:
        sock.setblocking(False)
    return sock


def _send(target: Target, sock: socket.socket, data: bytes) -> bool:
    """Send what there is room for. False: the connection has ended."""
    try:
        target.counts["bytes_sent"] += sock.send(data)
    except BlockingIOError:
        pass
    except OSError:
        target.counts["refused"] += 1
        return False
    return True


def _read(target: Target, sock: socket.socket) -> bool:
    """Read what has come. False: the connection has ended."""
    with contextlib.suppress(OSError):
        target.counts["bytes_read"] += (n := len(sock.recv(1 << 20)))
        return n > 0
    return False


def _pass(target: Target, sock: socket.socket, fds: list[int]) -> bool:
    """Send descriptors. False: the kernel refused it, or the connection has ended."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    try:
        sock.sendmsg([STATS[:8]], rights)
    except OSError:
        target.counts["refused"] += 1
        return False
    target.counts["descriptors"] += len(fds)
    return True


def _close(socks: list[socket.socket]) -> None:
    for sock in socks:
        sock.close()


def _lingering() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection; the last close of the first one blocks for LINGER_S, unless the other is reset."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        ours = socket.socket()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
        ours.connect(listener.getsockname())
        peer = listener.accept()[0]
    ours.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            ours.send(bytes(65536))
    return ours, peer


def _reset(peer: socket.socket) -> None:
    """End the connection from the other side."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def _area(op: int, name: str, size: int = AREA_BYTES) -> bytes:
    asked: Any = ffi.new("struct cl_control_area *", {"op": op, "bytes": size})
    ffi.memmove(asked.name, name.encode(), len(name))
    return message(lib.CL_CONTROL_AREA, bytes(ffi.buffer(asked))[HEADER.size :])


ATTACKS: dict[str, Attack] = {
    "idle connections": idle_connections,
    "connect and close": churn,
    "STATS flood": stats_flood,
    "unread answers": unread_answers,
    "garbage": garbage,
    "one byte at a time": one_byte_at_a_time,
    "largest arena": large_arena,
    "descriptors": descriptors,
    "storage areas": storage_areas,
    "random arena": random_arena,
    "doorbell bits": doorbell_bits,
    "broadcast flood": broadcast_flood,
    "ethertype flood": ethertype_flood,
    "spoofed flood": spoofed_flood,
}

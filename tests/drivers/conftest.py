"""Pairs of NICs that face each other, for the common driver tests (test_nic.py).

A new driver joins by one entry in PAIRS: a generator that yields a `Pair` and cleans up. The tests then run on it
unchanged. What a driver does by its nature (loses frames when full, cannot carry short frames) it says in the Pair.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import random
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from cltest import wait_until
from cltest.examples import compile_example

from corelane.drivers._native import ffi, lib
from corelane.drivers.linux import netns
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp, SocketOptions, Umem
from corelane.drivers.nic.fault import FaultNic
from corelane.drivers.nic.joined import JoinedNic
from corelane.drivers.nic.link.link import Link, LinkNic
from corelane.drivers.nic.link.wire import Wire
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic, ipv4_to_int, mac_to_bytes
from corelane.drivers.nic.pcap import PcapNic
from corelane.drivers.nic.tap.tap import Tap
from corelane.drivers.port.port import open_port
from corelane.iokernel import Iokernel


@dataclass
class Pair:
    """Two NICs: what `a` sends, `b` receives, and the other way round."""

    a: Nic
    b: Nic
    lossless: bool = True  # a full queue refuses frames and never drops them
    short_frames: bool = True  # carries frames of less than 60 bytes
    hears_close: bool = True  # one end notices that the other has closed
    keeps_ids: bool = True  # the identification of packets that are never fragmented, which means nothing (RFC 6864)

    def __post_init__(self) -> None:
        ends = ((self.a, "10.77.9.1"), (self.b, "10.77.9.2"))
        self.addresses = [(mac_to_bytes(nic.mac), ipv4_to_int(nic.ipv4 or default)) for nic, default in ends]

    def frame(self, payload: bytes, flow: int = 0, *, back: bool = False) -> bytes:
        """An Ethernet frame with a UDP datagram from a to b (or back), of one of many flows."""
        (src_mac, src), (dst_mac, dst) = self.addresses[::-1] if back else self.addresses
        buf = ffi.new("uint8_t[]", lib.CL_UDP_HEADERS + len(payload))
        ffi.buffer(buf)[lib.CL_UDP_HEADERS :] = payload
        lib.cl_net_udp_headers(buf, src_mac, dst_mac, src, dst, 20000 + flow, 9000, len(payload), True)
        return bytes(ffi.buffer(buf))

    def same(self, frames: Sequence[bytes]) -> list[bytes]:
        """Them, sorted, to be compared with others: without what the pair may change."""
        if self.keeps_ids:
            return sorted(frames)
        return sorted(f[:18] + bytes(2) + f[20:24] + bytes(2) + f[26:] if f[12:14] == b"\x08\0" else f for f in frames)

    def collect(self, nic: Nic, n: int, deadline_s: float = 60.0) -> list[bytes]:
        """Receive on all queues until n datagrams for port 9000 have come; fewer only after the deadline."""
        out: list[bytes] = []
        end = time.monotonic() + deadline_s
        while len(out) < n and time.monotonic() < end:
            for queue in range(nic.queues):
                out += [f for f in nic.recv(queue=queue) if f[36:38] == b"\x23\x28"]
        return out


@contextlib.contextmanager
def memory_pair(**options: object) -> Iterator[Pair]:
    a, b = memory_link(**options)  # type: ignore[arg-type]
    with a, b:
        yield Pair(a, b)


@contextlib.contextmanager
def joined_pair() -> Iterator[Pair]:
    """Two links with a queue each as one with two."""
    links = [memory_link() for _ in range(2)]
    with JoinedNic([a for a, _ in links]) as a, JoinedNic([b for _, b in links]) as b:
        yield Pair(a, b)


@contextlib.contextmanager
def fault_pair() -> Iterator[Pair]:
    """Wrappers without faults, around NICs with several queues."""
    a, b = memory_link((2, 2))
    with FaultNic(a) as faulty_a, FaultNic(b) as faulty_b:
        yield Pair(faulty_a, faulty_b)


@contextlib.contextmanager
def link_pair() -> Iterator[Pair]:
    """Links in both directions of one end, around NICs with several queues."""
    a, b = memory_link((2, 2))
    with LinkNic(a, rx=Link(), tx=Link()) as linked, b:
        # What a path has taken is no buffer any more: it is full when it drops.
        yield Pair(linked, b, lossless=False, hears_close=False)


@contextlib.contextmanager
def wire_pair(**settings: object) -> Iterator[Pair]:
    """A wire and its thread between two memory links."""
    link = Link(**settings)  # type: ignore[arg-type]
    (a, near), (b, far) = (
        memory_link((2, 2), mac=(None, "02:00:00:00:00:03")),
        memory_link(mac=("02:00:00:00:00:02", None)),
    )
    with a, b, Wire(near, far, there=link, back=link).start():
        yield Pair(a, b, lossless=False, hears_close=False)


@contextlib.contextmanager
def pcap_pair() -> Iterator[Pair]:
    """Both ends recorded."""
    a, b = memory_link((2, 1))
    with (
        tempfile.TemporaryDirectory() as folder,
        PcapNic(a, f"{folder}/a.pcap") as recorded_a,
        PcapNic(b, f"{folder}/b.pcap") as recorded_b,
    ):
        yield Pair(recorded_a, recorded_b)


@contextlib.contextmanager
def af_xdp_pair(queues: int = 1, **options: object) -> Iterator[Pair]:
    """AF_XDP on both ends of a veth pair, each taking every frame."""
    missing = netns.missing()
    if missing:
        pytest.skip(missing)
    with contextlib.ExitStack() as stack:
        ends = stack.enter_context(netns.link(queues=queues))
        nics = []
        for end in ends:
            with end.namespace.entered():
                nics.append(stack.enter_context(AfXdp(end.name, steer="all", **options)))  # type: ignore[arg-type]
        # The kernel drops what finds no free chunk; a removed program is not heard of at the other end.
        yield Pair(*nics, lossless=False, hears_close=False)


@contextlib.contextmanager
def tap_pair(queues: int = 1) -> Iterator[Pair]:
    """Two taps joined by a bridge of a namespace."""
    missing = netns.missing()
    if missing:
        pytest.skip(missing)
    with netns.namespace("tap") as space, contextlib.ExitStack() as stack:
        space.ip("link", "add", "bridge0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        space.ip("link", "set", "bridge0", "up")
        nics = []
        with space.entered():
            for name in ("tapa", "tapb"):
                nics.append(stack.enter_context(Tap(name, queues)))
                space.ip("link", "set", name, "master", "bridge0", "txqueuelen", "4096")
        yield Pair(*nics, lossless=False, hears_close=False, keeps_ids=False)


@contextlib.contextmanager
def port_pair(kthreads: tuple[int, int] = (1, 1), poll: str = "adaptive") -> Iterator[Pair]:
    """Two applications of an iokernel without an uplink, which switches between them."""
    with tempfile.TemporaryDirectory(prefix="cl-port-") as folder, contextlib.ExitStack() as stack:
        path = f"{folder}/s"
        stack.enter_context(Iokernel(path, poll=poll))
        nics = [stack.enter_context(open_port(path, name=f"end{i}", kthreads=n)) for i, n in enumerate(kthreads)]
        # A full receive ring drops, as a switch does; one application does not hear of another's end.
        yield Pair(*nics, lossless=False, hears_close=False)


@functools.cache
def socket_driver() -> ctypes.CDLL:
    """examples/socket_nic.c, compiled as its head says."""
    with tempfile.TemporaryDirectory(prefix="cl-nic-") as folder:
        library = ctypes.CDLL(str(compile_example("socket_nic.c", Path(folder), shared=True)))
    library.socket_nic_new.restype = ctypes.c_void_p
    library.socket_nic_new.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32]
    return library


def socket_nics() -> tuple[Nic, Nic]:
    """Both ends of a link of that driver."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    make = socket_driver().socket_nic_new
    left, right = (
        Nic.at(make(end.detach(), bytes((2, 0, 0, 0, 0, i)), ipv4_to_int(f"10.77.9.{i}"), 24), [socket_driver()])
        for i, end in enumerate(ends, 1)
    )
    return left, right


@contextlib.contextmanager
def socket_pair() -> Iterator[Pair]:
    left, right = socket_nics()
    with left, right:
        # An end learns that the other has closed when it receives.
        yield Pair(left, right, hears_close=False)


PAIRS: dict[str, Callable[[], contextlib.AbstractContextManager[Pair]]] = {
    "memory": memory_pair,
    "memory-4x3": lambda: memory_pair(queues=(4, 3)),
    "tap": tap_pair,
    "tap-3": lambda: tap_pair(queues=3),
    "af_xdp": af_xdp_pair,
    "af_xdp-3": lambda: af_xdp_pair(queues=3),
    "af_xdp-generic": lambda: af_xdp_pair(
        mode="generic", umem=Umem(buffer_bytes=4096, buffers=800, fill=256), sockets=SocketOptions(need_wakeup=False)
    ),
    "port": port_pair,
    "port-3x2-block": lambda: port_pair((3, 2), "block"),
    "fault": fault_pair,
    "link": link_pair,
    "wire": wire_pair,
    "wire-1G": lambda: wire_pair(rate_bps=1e9, delay_us=50, jitter_us=20, queue_bytes=1 << 24),
    "pcap": pcap_pair,
    "joined": joined_pair,
    "socket-example": socket_pair,
    "memory-jumbo": lambda: memory_pair(buffer_bytes=16384, mtu=9000),
}


@pytest.fixture(params=sorted(PAIRS))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Each registered pair of NICs in turn; afterwards no buffer may be missing at an end still open."""
    with PAIRS[request.param]() as made:
        yield made
        ends = [nic for nic in (made.a, made.b) if not nic.closed]

        def all_back() -> bool:
            # The other side of a switch may be about to give the last ones back, and a wire has frames on their way.
            for nic in ends:
                for queue in range(nic.queues):
                    while nic.recv(queue=queue):
                        pass
            return all(nic.buffers_free == nic.buffers for nic in ends)

        wait_until(all_back, what=f"all buffers of {ends} to be free again")


@pytest.fixture
def rng(seed: int) -> random.Random:
    """A generator from the run's printed seed."""
    return random.Random(seed)

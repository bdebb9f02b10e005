"""A runtime with the services of c/services.c, and Linux on the other end of its NIC."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import json
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cltest import netns_missing, wait_until
from cltest.cbuild import ROOT
from cltest.certificates import make_certificate
from cltest.netns import skip_without_af_xdp

from corelane import libos
from corelane.drivers.linux import netns
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.nic import Nic, ipv4_to_int
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos._native import ffi, lib

LINUX, OURS = "10.99.0.1", "10.99.0.2"
KINDS = {"echo": (0, 7), "sink": (1, 9), "source": (2, 19), "http": (3, 80)}
"""Name of a service: its number in services.c, and the port that offers it."""
Wrap = Callable[[Nic], Nic]


def pattern(start: int, stop: int) -> bytes:
    """Bytes start..stop of what a source sends, as services.c makes them."""
    at = np.arange(start, stop, dtype=np.uint64).astype(np.uint32)
    return (at * np.uint32(2654435761) >> np.uint32(24)).astype(np.uint8).tobytes()


class Ours:
    """Services on a runtime at OURS; `spaces` are the namespaces of the link, in the first of them Linux has LINUX, at
    `mac`."""

    linux = LINUX
    pattern = staticmethod(pattern)

    def __init__(
        self,
        spaces: Sequence[netns.Namespace],
        mac: str,
        nic: str,
        device: Nic,
        runtime: libos.Runtime,
        library: ctypes.CDLL,
    ) -> None:
        self.spaces, self.space, self.device = spaces, spaces[0], device
        self.mac, self.nic, self.runtime, self.library = mac, nic, runtime, library
        self.rt = ctypes.c_void_p(int(ffi.cast("uintptr_t", runtime.ptr)))
        # A reset that is lost, on a bad wire or in a ring that is full, is not said again: who waits for its peer asks.
        assert lib.cl_runtime_tcp_keep_alive(runtime.ptr, 5000, 1000, 9) == 0
        for kind, port in KINDS.values():
            assert library.services_listen(self.rt, port, kind, 4096) == 0
        self._errors_before = self._errors()[0]

    def address(self, kind: str) -> tuple[str, int]:
        """Where we offer a service."""
        return OURS, KINDS[kind][1]

    def socket(self, address: tuple[str, int] | None = None, listens: int = 0) -> socket.socket:
        """A kernel socket of the namespace: connected to `address`, or listening at any port of LINUX, or neither."""
        with self.space.entered():
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(60.0)
        if listens:
            s.bind((LINUX, 0))
            s.listen(listens)
        elif address:
            s.connect(address)
        return s

    def open(self, kind: str, port: int, count: int = 1, size: int = 0) -> None:
        """Open connections to a port of LINUX, each of which is a service; size: bytes of each source."""
        rc = self.library.services_open(self.rt, ipv4_to_int(LINUX), port, KINDS[kind][0], count, ctypes.c_uint64(size))
        assert rc == 0

    def result(self, i: int = 0, timeout_s: float = 60.0) -> tuple[int, int, int]:
        """Of the i-th that was opened, once it is over: errno, bytes sent or taken, CRC-32 of what was taken."""
        error, size, crc = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_uint32()
        refs = [ctypes.byref(x) for x in (error, size, crc)]
        wait_until(lambda: self.library.services_result(i, *refs), timeout_s, "a connection to be over")
        return error.value, size.value, crc.value

    def errors(self) -> tuple[int, int]:
        """How many connections ended with an error since this was made, and the errno of the last."""
        count, last = self._errors()
        return count - self._errors_before, last

    def forget_resets(self) -> None:
        """Let the peer have reset connections up to now, if that is all that went wrong."""
        count, last = self.errors()
        assert count == 0 or last in (errno.ECONNRESET, errno.EPIPE)
        self._errors_before += count

    def _errors(self) -> tuple[int, int]:
        last = ctypes.c_int()
        return self.library.services_errors(ctypes.byref(last)), last.value

    @property
    def alive(self) -> int:
        """Connections that are open now, of either direction."""
        return int(self.library.services_alive())

    def lost(self) -> dict[str, int]:
        """Frames that found no room, of either direction, by where: in the NIC's rings, in the devices of the link, and
        in the queue before the receiver, which is one for all that a core of this machine receives.
        """
        stats = self.device.stats()
        links = [each for space in self.spaces for each in json.loads(space.ip("-json", "-stats", "link", "show"))]
        devices = sum(each["stats64"][way]["dropped"] for each in links for way in ("rx", "tx"))
        backlog = sum(int(line.split()[1], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines())
        return {"rings": stats.dropped, "devices": devices, "backlog": backlog}

    def linux_resets(self) -> int:
        """Resets that Linux has sent in its namespace (OutRsts of proc_net_snmp)."""
        names, values = (
            line.split() for line in self.space.run(["cat", "/proc/net/snmp"]).stdout.splitlines() if line[:4] == "Tcp:"
        )
        return int(values[names.index("OutRsts")])

    def counts(self) -> Any:
        """The `struct cl_tcp_counts` of the runtime."""
        out = ffi.new("struct cl_tcp_counts *")
        lib.cl_runtime_tcp_counts(self.runtime.ptr, out)
        return out

    def held_bytes(self) -> int:
        """Memory that connections hold."""
        out, total = ffi.new("struct cl_chunk_stats *"), 0
        for kind in (lib.CL_CHUNKS_TCP_SEND, lib.CL_CHUNKS_TCP_RECEIVE):
            assert lib.cl_runtime_chunk_stats(self.runtime.ptr, kind, out) == 0
            total += out.held_bytes
        return total

    def rate(self, what: str, size: int, since: float) -> None:
        """Print how fast that was: `pytest -s` shows it."""
        print(f"{self.nic}: {what}: {size * 8 / (time.monotonic() - since) / 1e6:.2f} Mb/s")

    @staticmethod
    def descriptors(count: int) -> None:
        """Let this process have so many descriptors more than tests use."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < count + 512:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count + 512, max(hard, count + 512)))

    def listens(self, port: int) -> bool:
        """Whether a program in the namespace listens at a port (state 0A of proc_net_tcp(5))."""
        table = self.space.run(["cat", "/proc/net/tcp"]).stdout + self.space.run(["cat", "/proc/net/tcp6"]).stdout
        rows = [line.split() for line in table.splitlines()]
        return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)

    def start(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """A program that runs in the namespace. Skips the test if it is not installed."""
        needs(argv[0])
        return subprocess.Popen(self.space.command(argv), **options)

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 120.0) -> bytes:
        """What a program prints that runs in the namespace and has to succeed. Skips the test if it is missing."""
        needs(argv[0])
        command = self.space.command(argv)
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s, check=False)
        assert done.returncode == 0, (argv, done.returncode, done.stderr.decode(errors="replace"))
        return done.stdout


PACKAGES = {"nc": "netcat-openbsd"}


def needs(program: str) -> None:
    """Skip the test if a program is missing, with the package that has it."""
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}: apt-get install {PACKAGES.get(program, program)}")


@pytest.fixture(scope="session")
def services(c_library: Callable[..., Path]) -> ctypes.CDLL:
    """c/services.c on the library that Python uses."""
    ctypes.CDLL(str(ROOT / "runtime/_lib/libcorelane.so"), ctypes.RTLD_GLOBAL)  # whose calls the next one makes
    library = ctypes.CDLL(str(c_library("tests/libos/net/tcp/c/services.c")))
    for name in ("services_alive", "services_over", "services_errors"):
        getattr(library, name).restype = ctypes.c_uint64
    return library


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key, for TLS."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:corelane.test")


@contextlib.contextmanager
def _nic(kind: str, queues: int) -> Iterator[tuple[list[netns.Namespace], Nic, str]]:
    """A NIC at OURS, the namespaces of its link, the one in which Linux is at the other end first, and Linux' MAC."""
    if kind == "tap":
        with netns.namespace("linux") as space:
            with space.entered():
                nic = Tap(address=f"{LINUX}/24", ipv4=f"{OURS}/24", queues=queues)
            mac = space.ip("-brief", "link", "show", "dev", nic.ifname).split()[2]
            yield [space], nic, mac
        return
    skip_without_af_xdp()
    with netns.link(queues=queues, addresses=(OURS, LINUX)) as (near, far):
        with near.namespace.entered():
            xdp = AfXdp(near.name, queues, addresses=[f"{OURS}/24"])
        yield [far.namespace, near.namespace], xdp, far.mac.hex(":")


def expect_whole(nic: Nic, full: int) -> None:
    """A NIC that nobody uses any more gets all its buffers back.

    What its peer sends in vain lies in the receive ring, and is taken out here. The kernel sends our last frames when
    it likes.
    """

    def whole() -> bool:
        for queue in range(nic.queues):
            while nic.recv(queue=queue):
                pass
        return nic.buffers_free == full

    print(f"{nic.name}: {full - nic.buffers_free} buffers are missing after the stop")
    wait_until(whole, 60.0, lambda: f"the NIC to have its buffers back: {nic.buffers_free} of {full}")


@contextlib.contextmanager
def ours_on(services: ctypes.CDLL, kind: str = "tap", queues: int = 1, wrap: Wrap | None = None) -> Iterator[Ours]:
    """Services on a NIC ("tap" or "af_xdp"), which `wrap` may put another one around. When it is over nothing is left.

    With `wrap` each end knows the other's MAC: ARP has no checksum that would find a flipped bit.
    """
    if missing := netns_missing():
        pytest.skip(missing)
    with _nic(kind, queues) as (spaces, inner, mac), wrap(inner) if wrap else inner as nic:
        full = nic.buffers_free
        runtime = libos.Runtime(nic=nic, address=f"{OURS}/24")
        if wrap:
            interface = inner.ifname if kind == "tap" else "clb"
            spaces[0].ip("neigh", "replace", OURS, "lladdr", nic.mac, "dev", interface, "nud", "permanent")
            runtime.add_neighbour(LINUX, mac)
        made = Ours(spaces, mac, kind, nic, runtime, services)
        runtime.start()
        try:
            yield made
            wait_until(lambda: made.held_bytes() == 0, 60.0, "connections to give their memory back")
        finally:
            stuck = runtime.stop()
            stats, held = runtime.stats(), made.held_bytes()
            runtime.close()
        assert (stuck, held) == (0, 0)
        assert stats.balanced
        if not wrap:  # a wrapper may hold some
            expect_whole(nic, full)


@pytest.fixture(params=[("tap", 1), ("tap", 2), ("af_xdp", 1)], ids=["tap", "two kthreads", "af_xdp"])
def ours(request: pytest.FixtureRequest, services: ctypes.CDLL) -> Iterator[Ours]:
    """On each kind of NIC."""
    with ours_on(services, *request.param) as made:
        yield made
        assert made.errors()[0] == 0, f"errno of the last: {made.errors()[1]}"


@pytest.fixture
def ours_behind(services: ctypes.CDLL) -> Callable[..., contextlib.AbstractContextManager[Ours]]:
    """`with ours_behind(kind, queues, wrap) as ours`: on a NIC of the test's own."""
    return functools.partial(ours_on, services)

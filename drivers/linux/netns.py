"""Network namespaces and veth pairs for tests and benchmarks: made by iproute2's `ip`, removed on leaving the block.

    with netns.link(queues=2) as (near, far):       # two namespaces joined by a veth pair, 10.x addresses, static ARP
        with near.namespace.entered():               # this thread only
            nic = AfXdp(near.name, queues=2)
        with far.namespace.entered():
            sock = socket.socket(AF_INET, SOCK_DGRAM)  # keeps living in `far` after the block

Invariants: addresses are given only inside namespaces that this module made; names carry the process id and a counter,
so that concurrent runs never meet; a namespace is removed even when the block raises, and what a killed process left
behind goes when its id comes again. setns(2) moves the calling thread alone, and threads inherit the namespace of their
starter: inside `entered()` start only what belongs there.

Checksum offload is switched off on both ends unless asked for: veth never computes a checksum, it passes "to be filled
in" along as kernel metadata, and a frame read by AF_XDP or a packet socket then carries a sum of the pseudo-header
only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...runtime.errors import CorelaneError
from .ethtool import offloads_off

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_counter = itertools.count()


def missing() -> str | None:
    """What this process lacks to make namespaces, as one line that names the remedy; None if nothing."""
    if os.geteuid() != 0:
        return "needs root for network namespaces (run as root, or with CAP_SYS_ADMIN and CAP_NET_ADMIN)"
    if shutil.which("ip") is None:
        return "needs the `ip` command (apt install iproute2)"
    if not Path("/proc/self/ns/net").exists():
        return "needs a kernel with network namespaces (CONFIG_NET_NS)"
    try:
        with namespace("probe"):
            return None
    except CorelaneError as error:
        return f"cannot make network namespaces here: {error}"


def _ip(*args: str, namespace: str | None = None) -> str:
    """Run `ip`; its output, or a CorelaneError with what it printed."""
    command = ["ip", *(("-n", namespace) if namespace else ()), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    if done.returncode:
        raise CorelaneError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _setns(fd: int) -> None:
    # os.setns exists from Python 3.12 on.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET):
        errno = ctypes.get_errno()
        raise CorelaneError(f"setns: {os.strerror(errno)}: entering a network namespace needs CAP_SYS_ADMIN")


@dataclass(frozen=True)
class Namespace:
    """A network namespace that `ip netns` knows by `name`."""

    name: str

    @property
    def path(self) -> Path:
        """The file that stands for the namespace."""
        return Path("/run/netns") / self.name

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Move the calling thread into the namespace for the block. Sockets opened inside stay in it for ever."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            there = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _setns(there)
            finally:
                os.close(there)
            try:
                yield
            finally:
                _setns(home)
        finally:
            os.close(home)

    def call(self, function: Callable[[], T]) -> T:
        """The result of `function()` run inside the namespace, in the calling thread."""
        with self.entered():
            return function()

    def thread(self, function: Callable[[], None], name: str = "netns") -> threading.Thread:
        """A started daemon thread that runs `function` inside the namespace."""

        def body() -> None:
            with self.entered():
                function()

        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` inside the namespace (for subprocess)."""
        return ["ip", "netns", "exec", self.name, *argv]

    def run(self, argv: Sequence[str], timeout_s: float = 20.0) -> subprocess.CompletedProcess[str]:
        """Run a command inside the namespace to its end, output captured as text; the caller looks at returncode."""
        return subprocess.run(self.command(argv), capture_output=True, text=True, check=False, timeout=timeout_s)

    def ip(self, *args: str) -> str:
        """`ip` applied to the namespace; its output. Raises CorelaneError with what it printed."""
        return _ip(*args, namespace=self.name)

    def udp_socket(self, address: tuple[str, int] = ("0.0.0.0", 0), timeout_s: float | None = 5.0) -> socket.socket:
        """A kernel UDP socket of the namespace, bound to `address`."""
        with self.entered():
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(address)
        sock.settimeout(timeout_s)
        return sock


@dataclass(frozen=True)
class Interface:
    """One end of a veth pair."""

    namespace: Namespace
    name: str
    index: int
    mac: bytes
    address: str
    prefix: int


@contextlib.contextmanager
def namespace(label: str = "ns") -> Iterator[Namespace]:
    """A new namespace with loopback up and IPv6 off (no router solicitations among the frames); removed on leaving."""
    made = Namespace(f"cl{os.getpid()}-{next(_counter)}-{label}")
    if made.path.exists():  # of a process that had our id and was killed
        _ip("netns", "delete", made.name)
    _ip("netns", "add", made.name)
    try:
        made.ip("link", "set", "lo", "up")
        with made.entered():
            for where in ("all", "default"):
                switch = Path(f"/proc/sys/net/ipv6/conf/{where}/disable_ipv6")
                if switch.exists():
                    switch.write_text("1")
        yield made
    finally:
        _ip("netns", "delete", made.name)


def _interface(space: Namespace, name: str, address: str, prefix: int) -> Interface:
    with space.entered():
        index = socket.if_nametoindex(name)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            reply = fcntl.ioctl(sock, 0x8927, struct.pack("256s", name.encode()))  # SIOCGIFHWADDR
    return Interface(space, name, index, reply[18:24], address, prefix)


@contextlib.contextmanager
def veth(
    near: Namespace,
    far: Namespace,
    *,
    queues: int = 1,
    addresses: tuple[str, str] = ("10.79.0.1", "10.79.0.2"),
    prefix: int = 24,
    static_arp: bool = True,
    mtu: int = 1500,
    offloads: bool = False,
) -> Iterator[tuple[Interface, Interface]]:
    """A veth pair between two namespaces, both ends up; removed on leaving.

    queues: receive and transmit queues of each end. addresses: IPv4 of each end, inside 10.0.0.0/8. static_arp: each
    end knows the other's MAC for ever, so that no ARP is among the frames of a test. offloads: leave checksums and
    segmentation to the "hardware", as Linux does by itself: for pairs with Linux on both ends.
    """
    if any(not a.startswith("10.") for a in addresses):
        raise CorelaneError(f"addresses {addresses} are not in 10.0.0.0/8, the only range that test links may use")
    names = ("cla", "clb")
    count = ("numrxqueues", str(queues), "numtxqueues", str(queues))
    ends = (("name", names[0], "netns", near.name), ("name", names[1], "netns", far.name))
    _ip("link", "add", *ends[0], *count, "type", "veth", "peer", *ends[1], *count)
    try:
        for space, name, address in zip((near, far), names, addresses, strict=True):
            if not offloads:
                with space.entered():
                    offloads_off(name)
            space.ip("address", "add", f"{address}/{prefix}", "dev", name)
            space.ip("link", "set", name, "mtu", str(mtu), "up")
        a = _interface(near, names[0], addresses[0], prefix)
        b = _interface(far, names[1], addresses[1], prefix)
        if static_arp:
            for here, there in ((a, b), (b, a)):
                neighbour(here, there.address, there.mac)
        yield a, b
    finally:
        near.ip("link", "delete", names[0])


def neighbour(interface: Interface, address: str, mac: bytes) -> None:
    """A permanent ARP entry: `interface`'s kernel reaches `address` at `mac`."""
    text = mac.hex(":")
    interface.namespace.ip("neigh", "replace", address, "lladdr", text, "dev", interface.name, "nud", "permanent")


@contextlib.contextmanager
def link(
    *,
    queues: int = 1,
    addresses: tuple[str, str] = ("10.79.0.1", "10.79.0.2"),
    prefix: int = 24,
    static_arp: bool = True,
    mtu: int = 1500,
    offloads: bool = False,
) -> Iterator[tuple[Interface, Interface]]:
    """Two new namespaces joined by a veth pair: (near end, far end). See `veth` for the arguments."""
    with (
        namespace("near") as near,
        namespace("far") as far,
        veth(
            near,
            far,
            queues=queues,
            addresses=addresses,
            prefix=prefix,
            static_arp=static_arp,
            mtu=mtu,
            offloads=offloads,
        ) as ends,
    ):
        yield ends

"""Network namespaces that a test makes for itself and that vanish with it.

Names are unique to the process, links are created inside the namespaces, so nothing of the host's network is touched or
even seen. Needs root and iproute2.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence

_CLONE_NEWNET = 0x40000000
_serial = itertools.count()


@functools.cache
def netns_missing() -> str:
    """Why namespaces cannot be made here and what to do, or "" if they can."""
    if not shutil.which("ip"):
        return "needs iproute2: apt-get install iproute2"
    if os.geteuid() != 0:
        return "needs root: run the tests with sudo, or as root in a container with CAP_NET_ADMIN and CAP_SYS_ADMIN"
    name = f"clprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"needs CAP_SYS_ADMIN for network namespaces ({made.stderr.strip()}); in a container: --privileged"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


def _ip(*args: str) -> str:
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


class Namespace:
    """One network namespace with its loopback up and IPv6 off (no router solicitations in the traces)."""

    def __init__(self, name: str) -> None:
        self.name = name
        _ip("netns", "add", name)
        self.ip("link", "set", "lo", "up")
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"])

    def ip(self, *args: str) -> str:
        """Run `ip` inside; RuntimeError with its message if it fails."""
        return _ip("-n", self.name, *args)

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` inside."""
        return ["ip", "netns", "exec", self.name, *command]

    def run(self, command: Sequence[str], timeout_s: float = 30.0) -> str:
        """Run a command inside and return its output; CalledProcessError if it fails."""
        done = subprocess.run(self.command(command), capture_output=True, text=True, timeout=timeout_s, check=True)
        return done.stdout

    def popen(self, command: Sequence[str], **kwargs: object) -> subprocess.Popen[bytes]:
        """Start a command inside; the caller ends it."""
        return subprocess.Popen(self.command(command), **kwargs)  # type: ignore[call-overload, no-any-return]

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread is inside: sockets that it opens and threads that it starts belong to the namespace."""
        libc = ctypes.CDLL(None, use_errno=True)
        home = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(f"/run/netns/{self.name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.setns(there, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns to {self.name}")
            try:
                yield
            finally:
                if libc.setns(home, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns back home")
        finally:
            os.close(home)
            os.close(there)


class NetnsFactory:
    """Makes namespaces and veth pairs; `close` removes all of them."""

    def __init__(self) -> None:
        self._made: list[Namespace] = []

    def add(self, label: str = "") -> Namespace:
        """A new namespace with a unique name."""
        ns = Namespace(f"cl{os.getpid()}x{next(_serial)}{label}")
        self._made.append(ns)
        return ns

    def veth(
        self,
        a: Namespace,
        b: Namespace,
        name_a: str = "veth0",
        name_b: str = "veth0",
        address_a: str = "",
        address_b: str = "",
        queues: int = 1,
        mtu: int = 1500,
    ) -> None:
        """Join two namespaces by a veth pair, both ends up; addresses like "10.9.0.1/24" are optional."""
        n = ["numrxqueues", str(queues), "numtxqueues", str(queues)]
        peer = ["peer", "name", name_b, "netns", b.name, *n]
        _ip("link", "add", name_a, "netns", a.name, *n, "type", "veth", *peer)
        for ns, name, address in ((a, name_a, address_a), (b, name_b, address_b)):
            if address:
                ns.ip("addr", "add", address, "dev", name)
            ns.ip("link", "set", name, "mtu", str(mtu), "up")

    def close(self) -> None:
        """Remove every namespace made; links and addresses go with them."""
        while self._made:
            _ip("netns", "del", self._made.pop().name)

"""Network namespaces that a test makes for itself and that vanish with it: corelane.drivers.linux.netns behind a
fixture."""

from __future__ import annotations

import contextlib
import errno
import functools
import socket
from collections.abc import Iterator

import pytest

from corelane.drivers.linux import netns
from corelane.drivers.linux.netns import Interface, Namespace
from corelane.runtime.errors import CorelaneError

__all__ = ["Interface", "Namespace", "NetnsFactory", "netns_missing"]


@functools.cache
def netns_missing() -> str:
    """Why namespaces cannot be made here and what to do, or "" if they can."""
    return netns.missing() or ""


@contextlib.contextmanager
def skip_without(kind: str) -> Iterator[None]:
    """Skip the test if what is made inside is a link of a kind that the kernel does not know."""
    try:
        yield
    except CorelaneError as error:
        if not any(says in str(error) for says in ("Unknown device type", "not supported")):
            raise
        pytest.skip(f"needs a kernel with {kind} links (CONFIG_{kind.upper()}): {error}")


def skip_without_af_xdp() -> None:
    """Skip the test if the kernel has no AF_XDP sockets."""
    try:
        socket.socket(socket.AF_XDP if hasattr(socket, "AF_XDP") else 44, socket.SOCK_RAW).close()
    except OSError as error:
        if error.errno != errno.EAFNOSUPPORT:
            raise
        pytest.skip("needs a kernel with AF_XDP sockets (CONFIG_XDP_SOCKETS)")


class NetnsFactory:
    """Makes namespaces and veth pairs; `close` removes all of them, the last made first."""

    def __init__(self) -> None:
        self._made = contextlib.ExitStack()

    def add(self, label: str = "ns") -> Namespace:
        """A new namespace with a unique name."""
        return self._made.enter_context(netns.namespace(label))

    def veth(
        self,
        near: Namespace,
        far: Namespace,
        *,
        queues: int = 1,
        addresses: tuple[str, str] = ("10.79.0.1", "10.79.0.2"),
        static_arp: bool = True,
        mtu: int = 1500,
    ) -> tuple[Interface, Interface]:
        """Join two namespaces by a veth pair, both ends up; see corelane.drivers.linux.netns.veth."""
        pair = netns.veth(near, far, queues=queues, addresses=addresses, static_arp=static_arp, mtu=mtu)
        with skip_without("veth"):
            return self._made.enter_context(pair)

    def link(
        self,
        *,
        queues: int = 1,
        addresses: tuple[str, str] = ("10.79.0.1", "10.79.0.2"),
        static_arp: bool = True,
        mtu: int = 1500,
    ) -> tuple[Interface, Interface]:
        """Two new namespaces joined by a veth pair: (near end, far end)."""
        ends = (self.add("near"), self.add("far"))
        return self.veth(*ends, queues=queues, addresses=addresses, static_arp=static_arp, mtu=mtu)

    def close(self) -> None:
        """Remove everything that was made."""
        self._made.close()

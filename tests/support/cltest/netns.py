"""Network namespaces that a test makes for itself and that vanish with it: corelane.drivers.netns behind a fixture."""

from __future__ import annotations

import contextlib
import functools

from corelane.drivers import netns
from corelane.drivers.netns import Interface, Namespace

__all__ = ["Interface", "Namespace", "NetnsFactory", "netns_missing"]


@functools.cache
def netns_missing() -> str:
    """Why namespaces cannot be made here and what to do, or "" if they can."""
    return netns.missing() or ""


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
        """Join two namespaces by a veth pair, both ends up; see corelane.drivers.netns.veth."""
        pair = netns.veth(near, far, queues=queues, addresses=addresses, static_arp=static_arp, mtu=mtu)
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

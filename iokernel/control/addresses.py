"""Addresses of applications: which one a name has, and which nobody gets by asking for it.

A name's addresses follow from the name alone: the same at every start, on every machine. What the configuration says of
a name comes first. Whatever has an address already (the subnet, its broadcast, the gateway, this machine, a name with a
section of its own) keeps it: a wish for it is refused, and a hash that meets it goes on to the next one.
"""

from __future__ import annotations

import errno
import hashlib
import ipaddress
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from ...runtime.config import AppConfig, NetworkConfig
from ...runtime.errors import ConfigError, Refused


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16, person=b"corelane-addr").digest(), "big")


def stable_mac(name: str) -> bytes:
    """Six bytes: locally administered, unicast (IEEE 802, 48-bit addresses: 02), the rest hashed from the name."""
    return b"\x02" + _digest(name).to_bytes(16, "big")[:5]


def stable_ipv4(name: str, subnet: ipaddress.IPv4Network, taken: Collection[int] = ()) -> int:
    """An address of `subnet` in host byte order, none of `taken`; never the network's, the broadcast or the first one.

    Two names may meet in one address, with some 1 in 65000 in the default /16; then one needs one in the config.
    """
    usable = subnet.num_addresses - 3
    for step in range(min(usable, len(taken) + 1)):
        found = int(subnet.network_address) + 2 + (_digest(name) + step) % usable
        if found not in taken:
            return found
    raise ConfigError(f"subnet {subnet}", "has no room for applications", "use a prefix of 30 bits or fewer")


class Addresses:
    """The addresses of one iokernel's applications.

    apps: the configuration's sections. macs: this machine's own. host: tells its IPv4 addresses at this moment, in host
    byte order. Raises ConfigError for a section with a MAC address of this machine.
    """

    def __init__(
        self,
        network: NetworkConfig,
        apps: Mapping[str, AppConfig],
        *,
        macs: Iterable[str] = (),
        host: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._subnet = subnet = ipaddress.IPv4Network(network.subnet)
        self._host = host
        self._special = {
            int(subnet.network_address): "the subnet's own address",
            int(subnet.broadcast_address): "the subnet's broadcast address",
        }
        if network.gateway is not None:
            self._special[_number(network.gateway)] = "the gateway's address"
        if network.host_address is not None:
            self._special[_number(network.host_address)] = "this machine's own address"
        self._owners: defaultdict[int, set[str]] = defaultdict(set)  # names with a section, by their IPv4 address
        self._mac_owners: defaultdict[bytes, set[str]] = defaultdict(set)
        self._macs = {_mac(mac) for mac in macs}
        for name, app in apps.items():
            if app.ip is not None:
                self._owners[_number(app.ip)].add(name)
            if app.mac is not None and _mac(app.mac) in self._macs:
                raise ConfigError(f"apps.{name}.mac", f"{app.mac} is this machine's own", "give it another")
            self._mac_owners[_mac(app.mac) if app.mac is not None else stable_mac(name)].add(name)
        given = {*self._special, *self._owners, *host()}
        self._own = {name: stable_ipv4(name, subnet, given) for name, app in apps.items() if app.ip is None}
        for name, address in self._own.items():
            self._owners[address].add(name)

    def ipv4(self, name: str, settings: AppConfig, wanted: int) -> int:
        """In host byte order: what the configuration says, else what is wanted (0: nothing), else the name's own.

        Raises Refused with the reason.
        """
        if settings.ip is not None:
            return _number(settings.ip)
        wanted = wanted or self._own.get(name, 0)
        if wanted:
            if why := self._why_not(name, wanted):
                raise _refused(f"{ipaddress.IPv4Address(wanted)} is {why}", "choose another address")
            return wanted
        of_others = {address for address, owners in self._owners.items() if name not in owners}
        return stable_ipv4(name, self._subnet, {*self._special, *of_others, *self._host()})

    def _why_not(self, name: str, address: int) -> str:
        """What an address is that this name may not have."""
        if ipaddress.IPv4Address(address) not in self._subnet:
            return f"not in {self._subnet}"
        owners = self._owners.get(address, set())
        if owners and name not in owners:
            return f"reserved for {min(owners)}"
        if address in self._host():
            return "this machine's own address"
        return self._special.get(address, "")

    def mac(self, name: str, settings: AppConfig) -> bytes:
        """What the configuration says, else the name's own. Raises Refused if that is somebody else's."""
        if settings.mac is not None:
            return _mac(settings.mac)
        found = stable_mac(name)
        owners = self._mac_owners.get(found, set())
        if found in self._macs or (owners and name not in owners):
            whose = "this machine's" if found in self._macs else f"reserved for {min(owners)}"
            raise _refused(f"the MAC address of the name {name}, {found.hex(':')}, is {whose}", "choose another name")
        return found


def _number(address: str) -> int:
    return int(ipaddress.IPv4Address(address))


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _refused(why: str, hint: str) -> Refused:
    return Refused(why, hint=hint, errno=errno.EINVAL)

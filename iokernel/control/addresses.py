"""An application's MAC and IPv4 address, from its name alone: the same at every start, on every machine."""

from __future__ import annotations

import hashlib
import ipaddress
import os

from ...runtime.errors import ConfigError


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(os.fsencode(name), digest_size=16, person=b"corelane-addr").digest(), "big")


def stable_mac(name: str) -> bytes:
    """Six bytes: locally administered, unicast (IEEE 802, 48-bit addresses: 02), the rest hashed from the name."""
    return b"\x02" + _digest(name).to_bytes(16, "big")[:5]


def stable_ipv4(name: str, subnet: ipaddress.IPv4Network) -> int:
    """An address of `subnet` in host byte order; never the network's, the broadcast or the first one (the gateway's).

    Two names may meet in one address, with some 1 in 65000 in the default /16; then one needs one in the config.
    """
    usable = subnet.num_addresses - 3
    if usable < 1:
        raise ConfigError(f"subnet {subnet}", "has no room for applications", "use a prefix of 30 bits or fewer")
    return int(subnet.network_address) + 2 + _digest(name) % usable

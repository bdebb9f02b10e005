"""The wire behind an iokernel's uplink, with one client on it that speaks UDP and ARP."""

from __future__ import annotations

from typing import Any

from corelane.drivers.nic.nic import Nic

from .packets import BROADCAST, Host, arp, ethernet, read_datagram
from .waiting import wait_until

CLIENT = Host("02:00:00:00:00:99", "10.77.0.99")


class Outside:
    """The wire behind the iokernel's uplink."""

    def __init__(self, nic: Nic) -> None:
        self.nic = nic

    def next_datagram(self, deadline_s: float = 60.0) -> Any:
        """The next UDP datagram for the client."""
        found: list[bytes] = []

        def look() -> bool:
            found.extend(f for f in self.nic.recv() if f[12:14] == b"\x08\x00")
            return bool(found)

        wait_until(look, deadline_s, "a datagram from the application")
        return read_datagram(found[0])

    def resolve(self, address: str) -> Host:
        """Ask by ARP until the application answers."""
        ask = ethernet(arp(1, CLIENT.mac, CLIENT.ip, "00:00:00:00:00:00", address), CLIENT.mac, BROADCAST, 0x0806)
        hosts: list[Host] = []

        def look() -> bool:
            self.nic.send(ask)
            for f in self.nic.recv(timeout_s=0.02):
                if f[12:14] == b"\x08\x06" and f[20:22] == b"\0\2":
                    hosts.append(Host(f[22:28].hex(":"), ".".join(map(str, f[28:32]))))
            return bool(hosts)

        wait_until(look, 60, f"an ARP reply from {address}")
        return hosts[0]

    def ask(self, server: Host, payload: bytes) -> bytes:
        """One request and its reply."""
        self.nic.send(CLIENT.datagram(server, payload))
        return bytes(self.next_datagram().payload)

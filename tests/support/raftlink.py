"""A Raft node on a runtime at one end of a memory link, and a client made by hand at the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cltest import wait_until
from cltest.packets import Host, arp, ethernet, ip_bytes, read_datagram

from corelane.apps.raft.service.service import RaftService, serve
from corelane.apps.raft.service.settings import GroupSettings
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic
from corelane.libos import Runtime

SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.100")
RAFT_PORT, KV_PORT = 7400, 11211
ALONE = {1: (SERVER.ip, RAFT_PORT)}
QUICK = GroupSettings(memory_bytes=4 << 20, election_ms=100)
_OURS = 5555


class LinkClient:
    """The client's end of the wire."""

    def __init__(self, end: Nic) -> None:
        self.end = end

    def send(self, *payloads: bytes, port: int = KV_PORT) -> None:
        """A datagram each, in one burst."""
        self.end.send([CLIENT.datagram(SERVER, payload, _OURS, port) for payload in payloads])

    def payloads(self) -> Iterator[bytes]:
        """Of the datagrams to us that have come; a question for our MAC is answered."""
        for frame in self.end.recv():
            if frame[12:14] == b"\x08\x06":
                if frame[38:42] == ip_bytes(CLIENT.ip):
                    reply = arp(2, CLIENT.mac, CLIENT.ip, SERVER.mac, SERVER.ip)
                    self.end.send([ethernet(reply, CLIENT.mac, SERVER.mac, 0x0806)])
                continue
            datagram = read_datagram(frame)
            if datagram.dst == CLIENT.ip and datagram.dport == _OURS:
                yield datagram.payload

    def memcached(self, text: bytes) -> bytes:
        """What is answered to it in one datagram."""
        self.send(b"\0\7\0\0\0\1\0\0" + text)
        payload: bytes = wait_until(lambda: next(self.payloads(), b""), 60, f"an answer to {text!r}")
        return payload[8:]


@contextlib.contextmanager
def linked(**options: Any) -> Iterator[tuple[Runtime, LinkClient]]:
    """A runtime that has not started, and a client of what it will serve. options: of Runtime."""
    server, client = memory_link(mac=(SERVER.mac, CLIENT.mac), ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24)
    with server, client, Runtime(nic=server, poll="block", **options) as runtime:
        yield runtime, LinkClient(client)


@contextlib.contextmanager
def served(**options: Any) -> Iterator[tuple[RaftService, LinkClient]]:
    """Node 1, which runs; options: of `serve`, and `peers` if it is not alone."""
    with linked() as (runtime, client):
        service = serve(runtime, 1, **{"peers": ALONE, "group": QUICK} | options)
        runtime.start()
        yield service, client
        runtime.stop()
        service.close()


def await_lead(service: RaftService) -> None:
    """Wait until the node leads."""
    wait_until(lambda: service.status()["role"] == "leader", 60, "it to lead")

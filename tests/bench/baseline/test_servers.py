"""The baseline servers answer, count what they do, and go away."""

from __future__ import annotations

import os
import socket

import pytest
from cltest import NetnsFactory
from kvclient import settled

from corelane.apps.kv import Store
from corelane.bench.baseline import memcached
from corelane.bench.baseline.asyncio_echo import AsyncioEcho
from corelane.bench.baseline.sockets import SERVER_MAC, LinuxUdp, LinuxUdpProcess, socket_nic
from corelane.drivers.nic.loadgen.loadgen import Loadgen, Memcached, Source
from corelane.runtime.errors import CorelaneError


def ask(port: int, payloads: list[bytes]) -> list[bytes]:
    """Send all, then receive as many, in any order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(60)
        for payload in payloads:
            sock.sendto(payload, ("127.0.0.1", port))
        return sorted(sock.recv(65536) for _ in payloads)


@pytest.mark.parametrize("poll", ["block", "spin"])
@pytest.mark.parametrize("batch", [1, 32])
def test_echo(poll: str, batch: int) -> None:
    sent = sorted(b"%03d" % i for i in range(100))
    with LinuxUdp(poll=poll, batch=batch) as server:
        assert ask(server.port, sent) == sent
        assert settled(server.stats)["received"] == 100
    with pytest.raises(CorelaneError, match="closed"):
        server.stats()


def test_in_a_process() -> None:
    with LinuxUdpProcess(poll="block", batch=8) as server:
        assert ask(server.port, [b"hello"]) == [b"hello"]
        pid = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_asyncio() -> None:
    with AsyncioEcho() as server:
        assert ask(server.port, [b"hello", b"world"]) == [b"hello", b"world"]


def test_refusals() -> None:
    with pytest.raises(CorelaneError, match="poll 'sleep'"):
        LinuxUdp(poll="sleep")
    with pytest.raises(CorelaneError, match="batch must be"):
        LinuxUdp(batch=65)
    with pytest.raises(CorelaneError, match="enter namespace"):
        LinuxUdp(netns="no-such-namespace")
    with LinuxUdp() as server, pytest.raises(CorelaneError, match="cannot bind"):
        LinuxUdp(port=server.port)


@pytest.mark.root
def test_in_a_namespace(netns: NetnsFactory) -> None:
    """The serving thread alone is in the namespace: a socket out here does not reach it."""
    name = netns.add().name
    with LinuxUdp(netns=name, port=9000) as server, LinuxUdp(port=0):
        assert server.port == 9000
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.2)
            sock.sendto(b"x", ("127.0.0.1", 9000))
            with pytest.raises(OSError):  # refused or silent
                sock.recv(10)
        assert server.stats()["received"] == 0


def test_memcached() -> None:
    why = memcached.missing()
    if why:
        pytest.skip(why)
    with memcached.Memcached(memory_mib=16) as server:
        assert server.preload((b"k%d" % i, b"v" * 10) for i in range(5000)) == 5000
        pid = server.pid
        header = b"\0\1\0\0\0\1\0\0"
        assert ask(server.udp_port, [header + b"get k7\r\n"]) == [header + b"VALUE k7 0 10\r\nvvvvvvvvvv\r\nEND\r\n"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_generator_over_a_kernel_socket() -> None:
    """The load generator reaches a server on loopback through the socket NIC, and gives every buffer back."""
    traffic = Memcached(keys=500, value_bytes=1000, get_fraction=0.9)
    with (
        Store(4 << 20) as store,
        LinuxUdp(poll="block", batch=32, store=store) as server,
        Loadgen(
            traffic, server_mac=SERVER_MAC, server_ip="127.0.0.1", server_port=server.port, source=Source(flows=1)
        ) as load,
        socket_nic("127.0.0.1", server.port, "10.77.0.1", 20000) as nic,
    ):
        load.start_client(nic, spin=False)
        result = load.run(2000, 0.5, warmup_s=0)
        load.stop_client()
        assert nic.buffers_free == nic.buffers
    assert (result.wrong, result.errors, result.misses) == (0, 0, 0)
    assert result.answered == result.sent > 0

"""Commands of a group by each of its ports, in the runtime's trace: messages of that port, with their stages."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
from cltest import netns_missing, wait_until
from kvserver import LINUX, OURS
from raftlink import KV_PORT, QUICK, RAFT_PORT, await_lead

from corelane.apps.raft.service.service import serve
from corelane.apps.raft.service.settings import RespSettings, TcpSettings
from corelane.drivers.linux import netns
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import Runtime
from corelane.libos.trace.pieces import joined
from corelane.runtime._native import lib
from corelane.runtime.trace import Segment

pytestmark = pytest.mark.root
RESP_PORT, UDP_PORT = 6379, 11299


@contextlib.contextmanager
def serving(**options: Any) -> Iterator[tuple[netns.Namespace, Segment]]:
    """A group of one that leads and traces all, options: of `serve`; the namespace of its clients."""
    if missing := netns_missing():
        pytest.skip(missing)
    with netns.namespace("raft") as space:
        with space.entered():
            nic = Tap(address=f"{LINUX}/24", ipv4=f"{OURS}/24", queues=1)
        with nic, Runtime(nic=nic, address=f"{OURS}/24", kthreads=1, poll="block", trace="full") as runtime:
            service = serve(runtime, 1, {1: (OURS, RAFT_PORT)}, group=QUICK, **options)
            try:
                with Segment.of_process(os.getpid()) as segment:
                    runtime.start()
                    await_lead(service)
                    if "resp" in options:
                        wait_until(lambda: service.stats()["port_resp_leads"] == 1, 60, "it to execute commands")
                    yield space, segment
            finally:
                runtime.stop()
                service.close()


def ask(sock: socket.socket, text: bytes) -> bytes:
    """A short answer."""
    sock.sendall(text)
    return sock.recv(2000)


def called(segment: Segment, service: str, n: int) -> Any:
    """The commands of the first n messages of a service, once they are written down."""
    parts: list[Any] = []

    def rows() -> numpy.ndarray[Any, Any]:
        parts.append(segment.read())
        names, seen = segment.services(), joined(parts)
        number = names.index(service) if service in names else -1
        mine = seen.messages["id"][seen.messages["service"] == number]
        found: numpy.ndarray[Any, Any] = seen.commands[numpy.isin(seen.commands["id"], mine)]
        return found

    wait_until(lambda: len(rows()) >= n, 60, f"{n} commands of {service}")
    return rows()[:n]


def asked(port: int, kind: int, do: Callable[[socket.socket], None], n: int, **options: Any) -> Any:
    """What is written down of the commands that came by a port."""
    with serving(**options) as (space, segment):
        with space.entered():
            sock = socket.socket(socket.AF_INET, kind)
        with sock:
            sock.settimeout(60)
            sock.connect((OURS, port))
            do(sock)
            return called(segment, f"Raft {port}", n)


def write_and_read(frame: bytes) -> Callable[[socket.socket], None]:
    """Of memcached's protocol; frame: before each request and answer."""

    def do(sock: socket.socket) -> None:
        for text, said in ((b"set a 0 0 1\r\n1\r\n", b"STORED\r\n"), (b"get a\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n")):
            assert ask(sock, frame + text) == frame + said

    return do


def check_write_and_read(commands: Any) -> None:
    write, read = commands
    assert (write["flags"], read["flags"]) == (0, lib.CL_TRACE_COMMAND_READ)
    assert write["gone"] <= write["durable"] <= write["agreed"] < 2**32 - 1
    assert read["index"] == write["index"]
    assert read["gone"] <= read["others"] == read["agreed"] < 2**32 - 1


def test_datagrams_of_memcached() -> None:
    do = write_and_read(b"\0\7\0\0\0\1\0\0")
    options = {"kv_port": UDP_PORT, "tcp": TcpSettings(port=KV_PORT)}
    check_write_and_read(asked(UDP_PORT, socket.SOCK_DGRAM, do, 2, **options))


def test_turns_of_connections_of_memcached() -> None:
    options = {"kv_port": UDP_PORT, "tcp": TcpSettings(port=KV_PORT)}
    check_write_and_read(asked(KV_PORT, socket.SOCK_STREAM, write_and_read(b""), 2, **options))


def test_entries_and_queries_of_resp() -> None:
    def do(sock: socket.socket) -> None:
        assert ask(sock, b"SET a 1\r\n") == b"+OK\r\n"
        assert ask(sock, b"GET a\r\n") == b"$1\r\n1\r\n"

    commands = asked(RESP_PORT, socket.SOCK_STREAM, do, 2, resp=RespSettings(port=RESP_PORT))
    assert set(commands["flags"]) == {0, lib.CL_TRACE_COMMAND_READ}
    entry = commands[commands["flags"] == 0][0]
    assert entry["gone"] <= entry["agreed"] < 2**32 - 1

"""Connections to beyond the subnet: by a gateway on the dataplane, without one by Linux."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator

import pytest
from cltest import netns_missing

from corelane.drivers.linux import netns

from .conftest import LINUX, SERVED, preloaded

pytestmark = pytest.mark.root

BEYOND = "10.98.7.1"
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as s:
    s.sendall(b"question")
    print(s.recv(100).decode(), s.getsockname()[0])
"""


@pytest.fixture
def space() -> Iterator[netns.Namespace]:
    """A namespace in which Linux is the gateway, and has an address of another net."""
    if missing := netns_missing():
        pytest.skip(missing)
    with netns.namespace("posix") as made:
        made.ip("link", "set", "lo", "up")
        made.ip("address", "add", f"{BEYOND}/32", "dev", "lo")
        yield made


@pytest.mark.parametrize(("gateway", "world"), [(f",gateway={LINUX}", "the dataplane's"), ("", "Linux'")])
def test_a_connection_to_beyond_the_subnet(space: netns.Namespace, gateway: str, world: str) -> None:
    words = f"nic=tap:clpx,host={LINUX}/24,address={SERVED}/24,trace=1{gateway}"
    with contextlib.ExitStack() as stack:
        with space.entered():
            listener = stack.enter_context(socket.create_server((BEYOND, 0)))
            port = listener.getsockname()[1]
            listener.settimeout(60)
            command = ["/usr/bin/python3", "-S", "-c", CLIENT, BEYOND, str(port)]
            client = stack.enter_context(
                subprocess.Popen(
                    command, env=preloaded(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            )
        stack.callback(client.kill)
        peer, address = listener.accept()
        with peer:
            assert peer.recv(100) == b"question"
            peer.sendall(b"answer")
            out, said = client.communicate(timeout=30)
    assert client.returncode == 0, said
    assert f"connect {BEYOND}:{port}: {world}" in said
    assert out == f"answer {address[0]}\n"
    assert (address[0] == SERVED) == bool(gateway)

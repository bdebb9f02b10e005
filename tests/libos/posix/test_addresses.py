"""Which addresses are ours: of listeners those that are named, 127.0.0.1 if it is the program's own."""

from __future__ import annotations

import re

import pytest

from .conftest import INSIDE, OURS, python

BINDS = """
import socket, sys
kind = socket.SOCK_DGRAM if sys.argv[1] == "udp" else socket.SOCK_STREAM
for word in sys.argv[2:]:
    address, port = word.split(":")
    try:
        socket.socket(socket.AF_INET, kind).bind((address, int(port)))
    except OSError:
        pass
"""


def bound(words: str, *names: str, kind: str = "tcp") -> list[bool]:
    """Of each name whether a socket that is bound to it is ours."""
    said = python(BINDS, kind, *names, config=f"{INSIDE},{words}trace=1").stderr
    found = dict(re.findall(r": bind ([\d.:]+): (the dataplane's|Linux')", said))
    assert set(found) == set(names), said
    return [found[name] == "the dataplane's" for name in names]


@pytest.mark.parametrize(
    ("words", "anywhere", "own", "local"),
    [
        ("", True, True, False),
        ("listen=80;7001,", True, True, False),
        ("listen=80,", False, False, False),
        ("listen=10.77.0.*:7001,", True, True, False),
        ("listen=10.77.*.2,", True, True, False),
        ("listen=10.78.*.*:7001,", False, False, False),
        ("listen=10.77.0.3:7001;*:80,", False, False, False),
        ("listen=*:7001,", True, True, False),
        ("listen=127.0.0.1:7001,", False, False, False),
        ("loopback=1,", True, True, True),
        ("listen=127.0.0.1:*,loopback=1,", False, False, True),
        ("listen=10.77.0.2:*,loopback=1,", True, True, False),
        ("listen=7001,loopback=1,", True, True, True),
    ],
)
def test_listeners_are_ours_by_their_address_and_port(words: str, anywhere: bool, own: bool, local: bool) -> None:
    assert bound(words, "0.0.0.0:7001", f"{OURS}:7001", "127.0.0.1:7001") == [anywhere, own, local]


def test_datagrams_to_127_0_0_1_stay_linux() -> None:
    assert bound("loopback=1,", "127.0.0.1:7001", f"{OURS}:7001", kind="udp") == [False, True]


LOCAL = """
import socket
here = "127.0.0.1"
listener = socket.create_server((here, 7001))
other = socket.create_connection(("OURS", 7001))
client = socket.create_connection((here, 7001))
server, peer = listener.accept()
print(server.getsockname()[0], peer == client.getsockname(), client.getpeername() == (here, 7001))
client.sendall(b"x")
print(server.recv(1))
try:
    print(other.recv(1))
except ConnectionResetError:
    print("reset")
linux = socket.create_server((here, 7002))
client = socket.create_connection((here, 7002))
print(client.getpeername() == (here, 7002))
try:
    socket.create_server(("OURS", 7001))
except OSError as error:
    print(error.errno)
"""


def test_what_listens_at_127_0_0_1_is_for_the_program_alone() -> None:
    """And it reaches Linux' listeners there, where it has none of its own."""
    done = python(LOCAL.replace("OURS", OURS), config=f"{INSIDE},loopback=1,listen=7001")
    assert done.stdout.splitlines() == ["127.0.0.1 True True", "b'x'", "reset", "True", "98"]
    sentences = done.stderr.splitlines()
    assert "at which the program does not listen" in sentences[0]
    assert "at one address of the dataplane alone" in sentences[1]
    assert len(sentences) == 2, sentences

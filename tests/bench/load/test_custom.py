"""Requests and replies of one's own, compiled by numba."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from corelane.bench.load.custom import compiled
from corelane.bench.load.sockload.sockload import Asked, Functions, SockLoad
from corelane.runtime.errors import CorelaneError


def request(out: np.ndarray, number: int) -> int:
    """A line with the number."""
    out[0] = 64 + number % 7
    out[1] = 10
    return 2


def reply(data: np.ndarray, number: int) -> int:
    """The letter twice, and the end of the line."""
    if len(data) < 3:
        return 0
    letter = 64 + number % 7
    return 3 if data[0] == letter and data[1] == letter and data[2] == 10 else -1


@pytest.fixture(scope="module")
def doubler() -> Iterator[int]:
    """A TCP server that answers each letter of a line twice."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, contextlib.suppress(ConnectionError):  # a client that gives up resets it
                while got := peer.recv(4096):
                    peer.sendall(b"".join(b"%c%c\n" % (c, c) for c in got.replace(b"\n", b"")))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60)


def counts(port: int, functions: Functions) -> dict[str, int]:
    asked = Asked(protocol="custom", address="127.0.0.1", port=port, connections=1, depth=8, functions=functions)
    with SockLoad(asked) as load:
        load.connect()
        return load.run(500, 0.1).counts


def test_own_requests_are_answered(doubler: int):
    found = counts(doubler, compiled(request, reply))
    assert found["answered"] == found["offered"] > 0


def test_without_a_reply_function_the_answer_is_the_request(doubler: int):
    found = counts(doubler, compiled(request))
    assert found["wrong"] > 0
    assert found["answered"] == 0


def test_a_wrong_datagram_is_kept_for_a_person():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))

    def serve() -> None:
        while (got := server.recvfrom(100))[0] != b"end":
            server.sendto(b"no such letter\n", got[1])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        port = server.getsockname()[1]
        asked = Asked(protocol="custom", address="127.0.0.1", port=port, udp=True, functions=compiled(request, reply))
        with SockLoad(asked) as load:
            load.connect()
            result = load.run(500, 0.1)
    finally:
        server.sendto(b"end", server.getsockname())
        thread.join(60)
        server.close()
    assert result.counts["wrong"] > 0
    assert result.heard == "no such letter"


def test_what_numba_cannot_compile_is_said():
    def opens(out: np.ndarray, number: int) -> int:
        return open("x")

    called = r".*called as request\(array of uint8, number\)"
    with pytest.raises(CorelaneError, match=r"compile .*opens: .*" + called):
        compiled(opens)
    with pytest.raises(CorelaneError, match=r"compile .*: it takes \(out\) " + called):
        compiled(lambda out: 1)
    with pytest.raises(CorelaneError, match=r"compile len: builtin_function_or_method is not written in Py" + called):
        compiled(len)


def test_a_request_of_no_length_ends_the_run(doubler: int):
    def empty(out: np.ndarray, number: int) -> int:
        return 0

    with pytest.raises(CorelaneError, match="a request was not written"):
        counts(doubler, compiled(empty, reply))

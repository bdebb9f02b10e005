"""Loads through TLS: whom the client trusts, and what becomes of records in pieces. The servers are Python's ssl."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import threaded
from cltest.certificates import make_certificate

from corelane.bench.load.sockload.sockload import Asked, Result, SockLoad
from corelane.runtime.errors import CorelaneError

BYTES = 64


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and 127.0.0.1, signed by itself, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:localhost", "IP:127.0.0.1")


def echo(peer: ssl.SSLSocket) -> None:
    while got := peer.recv(1 << 14):
        peer.sendall(got)


@contextlib.contextmanager
def serving(signed: tuple[Path, Path], serve: Callable[[ssl.SSLSocket], None] = echo) -> Iterator[int]:
    """A TLS server, each of whose connections is handled by `serve` on a thread; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signed)

    def handle(plain: socket.socket, _number: int) -> None:
        with context.wrap_socket(plain, server_side=True) as peer:
            serve(peer)

    with threaded.serving(handle) as port:
        yield port


def asked(port: int, **options: Any) -> Asked:
    usual: dict[str, Any] = {"protocol": "echo", "address": "127.0.0.1", "port": port, "connections": 2}
    return Asked(**usual | {"tls": "verified", "request_bytes": BYTES} | options)


def run(port: int, **options: Any) -> Result:
    with SockLoad(asked(port, **options)) as load:
        load.connect()
        return load.run(200, 0.1)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", ""])
def test_a_server_that_is_trusted_is_loaded(signed: tuple[Path, Path], host: str):
    with serving(signed) as port:
        counts = run(port, tls_ca=str(signed[0]), tls_host=host).counts
    assert counts["answered"] == counts["offered"] > 0
    assert counts["bytes_in"] == counts["bytes_out"] == BYTES * counts["answered"]
    assert not any(counts[name] for name in ("wrong", "broken", "stray", "reconnects", "refused"))


@pytest.mark.parametrize(
    ("trust", "host", "why"),
    [
        (False, "localhost", r"TLS: self.signed certificate.*--ca FILE.*--insecure"),
        (True, "other.example", r"TLS: [Hh]ostname mismatch"),
        (True, "127.0.0.2", r"TLS: IP address mismatch"),
    ],
)
def test_a_server_that_is_not_trusted_is_refused(signed: tuple[Path, Path], trust: bool, host: str, why: str):
    with (
        serving(signed) as port,
        SockLoad(asked(port, tls_ca=str(signed[0]) if trust else "", tls_host=host)) as load,
        pytest.raises(CorelaneError, match=why),
    ):
        load.connect()


def test_any_server_is_taken_where_that_is_asked_for(signed: tuple[Path, Path]):
    with serving(signed) as port:
        counts = run(port, tls="unverified", tls_host="other.example").counts
    assert counts["answered"] == counts["offered"] > 0


def test_names_are_sent_and_addresses_are_not(signed: tuple[Path, Path]):
    seen: list[str | None] = []

    class Names(ssl.SSLContext):
        pass

    context = Names(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signed)
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    for host in ("localhost", "127.0.0.1"):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve(listener: socket.socket = listener) -> None:
                plain, _ = listener.accept()
                with plain, contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as peer:
                    echo(peer)

            thread = threading.Thread(target=serve)
            thread.start()
            run(listener.getsockname()[1], connections=1, tls_ca=str(signed[0]), tls_host=host)
            thread.join(60)
    assert seen == ["localhost", None]


@pytest.mark.parametrize("bytes_each", [100_000, 3_000_000])
def test_answers_of_many_records_come_whole(signed: tuple[Path, Path], bytes_each: int):
    with serving(signed) as port:
        counts = run(port, tls="unverified", request_bytes=bytes_each, drain_s=20.0).counts
    assert counts["answered"] == counts["offered"] > 0


def test_records_of_one_byte_come_together(signed: tuple[Path, Path]):
    def serve(peer: ssl.SSLSocket) -> None:
        while got := peer.recv(BYTES):
            for i in range(len(got)):
                peer.sendall(got[i : i + 1])

    with serving(signed, serve) as port:
        counts = run(port, tls="unverified", drain_s=20.0).counts
    assert counts["answered"] == counts["offered"] > 0


def test_a_connection_for_each_request(signed: tuple[Path, Path]):
    with serving(signed) as port:
        counts = run(port, tls="unverified", fresh=True, connections=32, drain_s=20.0).counts
    assert counts["answered"] == counts["offered"] > 0
    assert counts["reconnects"] == 0


def test_a_stream_that_is_cut_is_no_answer(signed: tuple[Path, Path]):
    def serve(peer: ssl.SSLSocket) -> None:
        peer.recv(BYTES)
        socket.socket(fileno=peer.detach()).close()  # without the end of the session

    with serving(signed, serve) as port:
        counts = run(port, tls="unverified").counts
    assert counts["answered"] == 0
    assert counts["broken"] > 0


def test_a_server_without_tls_is_told_of():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1 << 12)
                peer.sendall(b"-ERR unknown command\r\n")
                peer.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        with (
            SockLoad(asked(listener.getsockname()[1], connections=1)) as load,
            pytest.raises(CorelaneError, match=r"TLS: .*(wrong version|packet length)"),
        ):
            load.connect()
        thread.join(60)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "TLS: the handshake has no answer"),
        ({"tls": "", "greeting": b"AUTH x\r\n", "greeting_replies": 1}, "AUTH and SELECT have no answer"),
    ],
)
def test_a_server_that_is_silent_is_told_of(options: dict[str, Any], why: str):
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        SockLoad(asked(listener.getsockname()[1], connections=1, connect_s=0.2, **options)) as load,
        pytest.raises(CorelaneError, match=why),
    ):
        load.connect()

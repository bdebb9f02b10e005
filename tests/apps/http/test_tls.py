"""TLS without a network: Python's ssl on memory BIOs is the client."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cltest.certificates import make_certificate
from httphost import LARGE, TEXT, Server, read_answers

from corelane.runtime.errors import CorelaneError

ASK = b"GET /text.txt HTTP/1.1\r\nHost: here\r\n\r\n"
CLOSED, ABORTED = 2, 3
Certificate = tuple[Path, Path]


def context(
    certificate: Certificate, version: ssl.TLSVersion | None = None, alpn: list[str] | None = None
) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=certificate[0])
    if version:
        made.minimum_version = made.maximum_version = version
    if alpn is not None:
        made.set_alpn_protocols(alpn)
    return made


class Client:
    """A client with TLS on the host's connection. step: bytes that are carried at a time."""

    def __init__(
        self,
        server: Server,
        how: ssl.SSLContext,
        session: ssl.SSLSession | None = None,
        step: int = 1 << 20,
        name: str | None = "here",
    ):
        assert server.open(tls=True)
        self.server, self.step = server, step
        self.to_us, self.from_us = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = how.wrap_bio(self.to_us, self.from_us, server_hostname=name, session=session)

    def carry(self) -> bool:
        """Whether anything moved."""
        out, moved = self.from_us.read(), False
        while out:
            n = self.server.send(out[: self.step])
            out = out[n:]
            moved |= bool(n) or self.fetch()
        return self.fetch() or moved

    def fetch(self) -> bool:
        data = self.server.read()
        self.to_us.write(data)
        return bool(data)

    def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                assert self.carry(), "the handshake stands still"
            else:
                self.carry()
                return

    def ask(self, request: bytes) -> bytes:
        """All that is answered."""
        self.tls.write(request)
        out = b""
        while True:
            self.carry()
            try:
                part = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                return out
            if not part:
                return out
            out += part


@pytest.fixture
def server(serve: Callable[..., Server], certificate: Certificate) -> Server:
    made = serve(room=200_000)
    made.set_certificate(*certificate)
    return made


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("step", [1 << 20, 1])
def test_requests(server: Server, certificate: Certificate, version: ssl.TLSVersion, step: int) -> None:
    client = Client(server, context(certificate, version, ["h2", "http/1.1"]), step=step)
    client.shake_hands()
    assert client.tls.selected_alpn_protocol() == "http/1.1"
    assert [a.body for a in read_answers(client.ask(ASK))] == [TEXT]
    assert [a.status for a in read_answers(client.ask(3 * ASK + ASK.replace(b"text", b"none")))] == [200] * 3 + [404]
    n = server.counts()
    assert (n.handshakes, n.resumed, n.requests) == (1, 0, 5)


def test_a_large_answer_through_a_narrow_place(server: Server, certificate: Certificate) -> None:
    client = Client(server, context(certificate))
    client.shake_hands()
    answer = read_answers(client.ask(ASK.replace(b"text.txt", b"large.bin")))[0]
    assert answer.body == bytes(range(256)) * (LARGE // 256)
    assert [a.body for a in read_answers(client.ask(ASK))] == [TEXT]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed(server: Server, certificate: Certificate, version: ssl.TLSVersion) -> None:
    how = context(certificate, version)
    first = Client(server, how)
    first.shake_hands()
    first.ask(ASK)  # TLS 1.3 sends its tickets behind the handshake
    assert not first.tls.session_reused
    second = Client(server, how, first.tls.session)
    second.shake_hands()
    assert second.tls.session_reused
    assert [a.body for a in read_answers(second.ask(ASK))] == [TEXT]
    assert (server.counts().handshakes, server.counts().resumed) == (2, 1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_of_a_server_before_is_no_error(
    serve: Callable[..., Server], certificate: Certificate, version: ssl.TLSVersion
) -> None:
    """Tickets are good for the server that gave them: after a restart a client shakes hands in full."""
    how, servers = context(certificate, version), [serve(), serve()]
    for made in servers:
        made.set_certificate(*certificate)
    before = Client(servers[0], how)
    before.shake_hands()
    before.ask(ASK)
    after = Client(servers[1], how, before.tls.session)
    after.shake_hands()
    assert not after.tls.session_reused
    assert [a.body for a in read_answers(after.ask(ASK))] == [TEXT]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_name_has_its_certificate(
    serve: Callable[..., Server], certificate: Certificate, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    other = make_certificate(tmp_path, "DNS:there.net", "DNS:*.there.net")
    server = serve()
    for one in (certificate, other):
        server.set_certificate(*one)
    names = {"here": certificate, "there.net": other, "a.there.net": other, "a.b.there.net": certificate}
    for name, wanted in names.items():
        how = context(wanted, version, ["http/1.1"])
        how.check_hostname = name != "a.b.there.net"  # nobody's: it gets the first
        client = Client(server, how, name=name)
        client.shake_hands()
        assert client.tls.selected_alpn_protocol() == "http/1.1"
        assert [a.body for a in read_answers(client.ask(ASK))] == [TEXT]
        again = Client(server, how, client.tls.session, name=name)
        again.shake_hands()
        assert again.tls.session_reused
    nameless = context(certificate, version)
    nameless.check_hostname = False
    Client(server, nameless, name=None).shake_hands()


def test_who_does_not_read_is_not_read_from(server: Server, certificate: Certificate) -> None:
    """What waits encrypted is bounded: the server takes no more requests than it can answer."""
    client = Client(server, context(certificate), step=1000)
    client.shake_hands()
    for _ in range(2000):
        client.tls.write(ASK)
    data, sent = client.from_us.read(), 0
    while n := server.send(data[sent : sent + 1000]):
        sent += n
    assert sent < len(data) / 2
    assert server.counts().requests < 300
    raw = b""
    while client.fetch() or sent < len(data):
        sent += server.send(data[sent:])
        with contextlib.suppress(ssl.SSLWantReadError):
            raw += client.tls.read(1 << 24)
    with contextlib.suppress(ssl.SSLWantReadError):
        while part := client.tls.read(1 << 24):
            raw += part
    assert [a.body for a in read_answers(raw)] == [TEXT] * 2000


def test_an_end_is_said(server: Server, certificate: Certificate) -> None:
    client = Client(server, context(certificate))
    client.shake_hands()
    assert read_answers(client.ask(ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")))
    assert client.tls.read(1) == b"", "not that it wants more"


def test_the_client_ends_it(server: Server, certificate: Certificate) -> None:
    client = Client(server, context(certificate))
    client.shake_hands()
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.carry()
    assert server.state == CLOSED


def test_who_speaks_another_protocol_is_refused(server: Server, certificate: Certificate) -> None:
    client = Client(server, context(certificate, alpn=["h2"]))
    with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
        client.shake_hands()
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match=r"(?i)version"):
        Client(server, old).shake_hands()
    assert server.counts().failed_handshakes == 2


@pytest.mark.parametrize(
    "data", [ASK, b"\x16\x03\x01" + b"\xff" * 600, b"\0" * 100_000], ids=["http", "hello", "zeros"]
)
def test_what_is_no_handshake(server: Server, data: bytes) -> None:
    assert server.open(tls=True)
    server.send(data)
    assert server.state == CLOSED
    assert server.counts().failed_handshakes == 1


def test_a_record_that_was_changed(server: Server, certificate: Certificate) -> None:
    client = Client(server, context(certificate))
    client.shake_hands()
    client.tls.write(ASK)
    record = bytearray(client.from_us.read())
    record[-1] ^= 1
    server.send(bytes(record))
    assert server.state == CLOSED
    assert server.counts().requests == 0


def test_times(serve: Callable[..., Server], certificate: Certificate) -> None:
    server = serve(tick_ms=1000, head_ms=3000, keep_alive_ms=5000)
    server.set_certificate(*certificate)
    assert server.open(tls=True)
    server.send(b"\x16\x03\x01\x02\x00")
    server.pass_ticks(3)
    assert (server.state, server.counts().late_heads) == (ABORTED, 1)
    client = Client(server, context(certificate))
    client.shake_hands()
    server.pass_ticks(4)
    assert [a.status for a in read_answers(client.ask(ASK))] == [200]
    server.pass_ticks(5)
    assert (server.state, server.counts().idle) == (CLOSED, 1)


def test_memory_counts(serve: Callable[..., Server], certificate: Certificate) -> None:
    server = serve(memory_bytes=20_000)
    server.set_certificate(*certificate)
    assert not server.open(tls=True)
    assert server.counts().no_memory == 1


def test_certificates_that_are_none(serve: Callable[..., Server], certificate: Certificate, tmp_path: Path) -> None:
    with pytest.raises(CorelaneError, match=r"cannot use the certificates in .*none"):
        serve().set_certificate(tmp_path / "none", certificate[1])
    with pytest.raises(CorelaneError, match="cannot use the key in"):
        serve().set_certificate(certificate[0], certificate[0])

"""A value is never executed as a command, however wrong the command before it was: streams and datagrams."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from kvclient import UdpClient

from corelane.apps.kv import Session, Store
from corelane.bench.baseline.sockets import LinuxUdp

KEPT, KEPT_VALUE = b"set kept 0 0 4\r\nkept\r\n", b"VALUE kept 0 4\r\nkept\r\nEND\r\n"
BAD_FORMAT, ERROR = b"CLIENT_ERROR bad command line format\r\n", b"ERROR\r\n"
BAD_CHUNK, TOO_LARGE = b"CLIENT_ERROR bad data chunk\r\n", b"SERVER_ERROR object too large for cache\r\n"
LONG = b"k" * 251

# Refused, but the end of the data block is known: what follows it is executed.
SKIPPED = [
    (b"set a x 0 9", BAD_FORMAT),
    (b"set a 0 x 9", BAD_FORMAT),
    (b"set a -1 0 9", BAD_FORMAT),
    (b"set a 18446744073709551616 0 9", BAD_FORMAT),
    (b"add a 1x 0 9", BAD_FORMAT),
    (b"set " + LONG + b" 0 0 9", BAD_FORMAT),
    (b"append " + LONG + b" 0 0 9 noreply", b""),
    (b"set a x 0 9 noreply", b""),
    (b"set a x 0 9 junk", BAD_FORMAT),
    (b"cas a x 0 9 1", BAD_FORMAT),
    (b"cas a 0 0 9 x", BAD_FORMAT),
    (b"ms a 9 x", b"CLIENT_ERROR invalid flag\r\n"),
    (b"ms a 9 q x", b"CLIENT_ERROR invalid flag\r\n"),
    (b"ms a 9 MZ", b"CLIENT_ERROR invalid mode for ms M token\r\n"),
    (b"ms a 9 Tx", b"CLIENT_ERROR bad token in command line format\r\n"),
    (b"ms a= 9 b", b"CLIENT_ERROR error decoding key\r\n"),
    (b"ms " + LONG + b" 9 q", BAD_FORMAT),
    (b"cas " + LONG + b" 0 0 9 1 noreply", b""),
]
# Refused, and nobody knows where the value ends.
DROPPED = [
    (b"set a 0 0 -1", BAD_FORMAT),
    (b"set a 0 0 -2 noreply", b""),
    (b"set a 0 0 x", BAD_FORMAT),
    (b"set a 0 0 9x", BAD_FORMAT),
    (b"set a 0 0 2147483646", BAD_FORMAT),
    (b"set a 0 0 99999999999999999999", BAD_FORMAT),
    (b"set", ERROR),
    (b"set a", ERROR),
    (b"set a 0 0", ERROR),
    (b"set  0 0 9", ERROR),  # an empty key
    (b"set  0 0 9 noreply", b""),
    (b"set a b 0 0 9", BAD_FORMAT),  # a key with a space
    (b"set a 1 0 0 9", BAD_FORMAT),
    (b"set a b 0 0 9 noreply", ERROR),
    (b"set a b c 0 0 9", ERROR),
    (b"cas a 0 0 9", ERROR),
    (b"cas  0 0 9 1 noreply", b""),
    (b"cas a 1 0 0 9 1", BAD_FORMAT),
    (b"set a 0 0 1", BAD_CHUNK),  # shorter than the value
    (b"set a 0 0 13", BAD_CHUNK),  # longer
    (b"set a x 0 1", BAD_FORMAT),
    (b"sET a 0 0 9", ERROR),  # a datagram that begins with a large letter is an answer, and not answered at all
    (b"sett a 0 0 9", ERROR),
    (b"s a 0 0 9", ERROR),
    (b"ms", ERROR),
    (b"ms a", BAD_FORMAT),
    (b"ms a -1", BAD_FORMAT),
    (b"ms a x T0", BAD_FORMAT),
    (b"ms a b 9", BAD_FORMAT),  # a key with a space
    (b"ms  9", BAD_FORMAT),  # an empty key
    (b"ms  9 q", BAD_FORMAT),
    (b"ms a 1", BAD_CHUNK),
    (b"ms a 13 q", BAD_CHUNK),
    (b"ms a 2147483646", BAD_FORMAT),
    (b"mt a 9", ERROR),
    (b"ms a 0 9", b"CLIENT_ERROR invalid flag\r\n"),  # a key with a space
    (b"ms a 0 0 noreply", b"CLIENT_ERROR invalid flag\r\n"),
    (b"sett a\0b 0 0 9", ERROR),  # what follows a zero byte in a line is not looked at
    (b"set\ta\t0\t0\t9", ERROR),
    ("set\u00a0a\u00a00\u00a00\u00a09".encode(), ERROR),  # spaces that do not break a line
    (b"set\xa0a\xa00\xa00\xa09", ERROR),
    (b"ms\x7fa\x7f9", ERROR),
    (b"ms a\n b 9", BAD_FORMAT),
    (b"set a\r\nset b 0 0 9", ERROR),  # a line end in the key
]
IDS = {"ids": lambda p: p[:30].decode("latin-1") if isinstance(p, bytes) else None}


class Stream:
    """A new connection for each request; what the stream still takes is asked for by another one."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def ask(self, data: bytes) -> bytes:
        return Session(self.store).execute(data)


class Bytewise(Stream):
    """The same, a byte at a time."""

    def ask(self, data: bytes) -> bytes:
        session = Session(self.store)
        return b"".join(session.execute(data[i : i + 1]) for i in range(len(data)))


class Datagram:
    def __init__(self, client: UdpClient) -> None:
        self.client = client

    def ask(self, data: bytes) -> bytes:
        """The answer; to what is not answered the next one, which is to a fence, says so."""
        self.client.send(b"\0\1\0\0\0\1\0\0" + data)
        self.client.send(b"\0\2\0\0\0\1\0\0touch :fence: 0\r\n")
        answer = b""
        while not (datagram := self.client.receive()).startswith(b"\0\2"):
            answer += datagram[8:]
        return answer


@pytest.fixture(params=["stream", "bytewise", "datagram"])
def asker(request: pytest.FixtureRequest, store: Store) -> Iterator[Callable[[bytes], bytes]]:
    if request.param == "datagram":
        with LinuxUdp(store=store, datagram_bytes=65536) as server, UdpClient(server.port) as client:
            yield Datagram(client).ask
    else:
        yield (Stream if request.param == "stream" else Bytewise)(store).ask


@pytest.mark.parametrize(("line", "answer"), SKIPPED, **IDS)
def test_the_block_of_a_refused_store_is_skipped(asker: Callable[[bytes], bytes], line: bytes, answer: bytes) -> None:
    assert asker(KEPT) == b"STORED\r\n"
    assert asker(line + b"\r\nflush_all\r\nget kept\r\n") == answer + KEPT_VALUE


@pytest.mark.parametrize(("line", "answer"), DROPPED, **IDS)
def test_what_may_be_a_value_is_dropped(asker: Callable[[bytes], bytes], line: bytes, answer: bytes) -> None:
    assert asker(KEPT) == b"STORED\r\n"
    for value in (b"flush_all", b"\r\nflush_all", b"xflush_all", b"xxxflush_all", b"\r\nx\r\nflush_all"):
        got = asker(line + b"\r\n" + value + b"\r\nflush_all\r\nget kept\r\n")
        assert got == answer, value
        assert asker(b"get kept\r\n") == KEPT_VALUE


def test_a_value_that_is_too_large_is_skipped_and_has_to_end_where_it_should(asker: Callable[[bytes], bytes]) -> None:
    assert asker(KEPT) == b"STORED\r\n"
    line, value = b"set a 0 0 2000000\r\n", b"flush_all\r\n" * 3
    assert asker(line + value + b"get kept\r\n") == TOO_LARGE
    assert asker(b"set " + LONG + b" 0 0 2000000\r\n" + value) == BAD_FORMAT
    assert asker(b"get kept\r\n") == KEPT_VALUE


def test_text_after_the_binary_protocols_first_byte_is_no_text(asker: Callable[[bytes], bytes]) -> None:
    assert asker(KEPT) == b"STORED\r\n"
    for line in (b"\x80set a 0 0 9\r\nflush_all\r\n", b"\x80\r\nflush_all\r\n", b"\x80" + b"\r\nflush_all" * 9):
        asker(line)
        assert asker(b"get kept\r\n") == KEPT_VALUE


def test_a_skipped_block_that_ends_elsewhere_closes_the_stream(store: Store) -> None:
    large = store.usage()["item_max_bytes"]
    for wrong in (b"x\n", b"\rx", b"xx"):
        session = Session(store)
        assert session.execute(b"set a 0 0 %d\r\n" % large) == TOO_LARGE
        assert session.execute(b"v" * large) == b""
        assert not session.closed
        assert session.execute(wrong[:1]) == session.execute(wrong[1:] + b"get a\r\n") == b""
        assert session.closed
    session = Session(store)
    assert session.execute(b"set a 0 0 %d\r\n" % large + b"v" * large + b"\r\nget a\r\n") == TOO_LARGE + b"END\r\n"
    assert not session.closed


def test_random_values_after_random_lines(asker: Callable[[bytes], bytes], seed: int) -> None:
    """Lines that miss, repeat or garble words of a store: the value never runs."""
    draw = random.Random(seed)
    assert asker(KEPT) == b"STORED\r\n"
    for _ in range(300):
        value = draw.choice([b"flush_all", b"\r\nflush_all", b"delete kept", b"x\r\nflush_all", b"set kept 0 0 0\r\n"])
        words = [draw.choice([b"set", b"cas", b"append", b"ms"]), b"a", b"0", b"0", b"%d" % len(value), b"1"]
        words = [b"ms", b"a", words[4]] if words[0] == b"ms" else words[: 6 if words[0] == b"cas" else 5]
        at = draw.randrange(1, len(words))
        words[at : at + draw.randrange(2)] = draw.choice([[], [b""], [b"-1"], [b"x"], [b"0", b"0"], [b"noreply"]])
        if draw.random() < 0.3:
            words.append(b"noreply")
        asker(b" ".join(words) + b"\r\n" + value + b"\r\n")
        assert asker(b"get kept\r\n") == KEPT_VALUE, (words, value)


@pytest.mark.parametrize("at", [b"2592001", b"1000000000"])
def test_flush_all_at_a_day_that_is_past_flushes_nothing(store: Store, at: bytes) -> None:
    session = Session(store)
    session.execute(KEPT)
    assert session.execute(b"flush_all " + at + b"\r\nget kept\r\n") == b"OK\r\n" + KEPT_VALUE
    assert session.execute(b"flush_all 5\r\nflush_all " + at + b"\r\n") == b"OK\r\nOK\r\n"
    store.time_s += 100
    assert session.execute(b"get kept\r\n") == KEPT_VALUE  # as in memcached the one that waited is gone
    assert session.execute(b"flush_all\r\nflush_all " + at + b"\r\nget kept\r\n") == b"OK\r\nOK\r\nEND\r\n"


@pytest.mark.parametrize("head", [b"POST / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\n", b"OPTIONS * HTTP/1.0\r\n"])
def test_the_body_of_a_request_of_http_is_no_command(asker: Callable[[bytes], bytes], head: bytes) -> None:
    assert asker(KEPT) == b"STORED\r\n"
    asker(head + b"\r\nflush_all\r\n")
    assert asker(b"get kept\r\n") == KEPT_VALUE

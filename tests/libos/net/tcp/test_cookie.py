"""SYN cookies (libos/net/tcp/cookie.h): a full backlog answers, remembers nothing, and takes who answers."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Iterator

import pytest
from cltest.tcp_host import ACK, MS, PORT, PSH, RST, SYN, Heard, TcpHost, mss_of, times

from corelane.libos._native import lib

SECOND = 1000 * MS
BACKLOG = 4
OPTIONS = bytes((2, 4)) + struct.pack(">H", 1460) + bytes((4, 2)) + times(1000, 0)[2:] + bytes((1, 3, 3, 7))


@pytest.fixture
def host() -> Iterator[TcpHost]:
    """Whose backlog is full."""
    made = TcpHost()
    yield made
    made.close()


def flooded(host: TcpHost) -> int:
    """Fill the backlog. Returns the listener."""
    listener = host.listen(BACKLOG)
    for port in range(BACKLOG):
        host.say(SYN, 0, port=1000 + port)
    assert len(host.heard()) == BACKLOG
    return listener


def cookie(host: TcpHost, port: int = 5000, seq: int = 77, options: bytes = OPTIONS) -> Heard:
    host.say(SYN, seq, port=port, options=options)
    (answer,) = host.heard()
    assert (answer.flags, answer.ack) == (SYN | ACK, seq + 1)
    return answer


def times_of(answer: Heard) -> int:
    """The timestamp in an answer: behind the MSS, and SACK or two fillers."""
    kind, length, value = struct.unpack(">BBI", answer.options[6:12])
    assert (kind, length) == (8, 10)
    return int(value)


def test_a_peer_that_answers_gets_in_with_what_was_agreed(host: TcpHost) -> None:
    listener = flooded(host)
    answer = cookie(host)
    assert mss_of(answer.options) == 1460
    host.say(ACK, 78, answer.seq + 1, options=times(1001, times_of(answer)), port=5000)
    s, port = host.accept(listener)
    assert port == 5000
    info = host.info(s)
    assert (info.times, info.sacks, info.scales, info.snd_scale, info.snd_mss) == (1, 1, 1, 7, 1448)
    host.say(PSH | ACK, 78, answer.seq + 1, b"question", options=times(1002, times_of(answer)), port=5000)
    assert host.read(s) == b"question"
    assert host.write(s, b"answer") == 6
    said = host.heard()[-1]
    assert (said.seq, said.ack, said.data) == (answer.seq + 1, 86, b"answer")
    assert (struct.unpack(">I", said.options[4:8])[0] - times_of(answer)) % 2**32 < 64
    counts = host.counts()
    assert (counts.cookies_sent, counts.cookies_right, counts.cookies_wrong, counts.accepted) == (1, 1, 0, 1)


@pytest.mark.parametrize("mss", [40, 536, 1000, 1220, 1459, 1460, 9000])
def test_without_timestamps_there_is_the_mss_alone(host: TcpHost, mss: int) -> None:
    listener = flooded(host)
    answer = cookie(host, options=struct.pack(">BBHBBBB", 2, 4, mss, 4, 2, 1, 1))
    assert len(answer.options) == 4
    host.say(ACK, 78, answer.seq + 1, port=5000)
    info = host.info(host.accept(listener)[0])
    assert (info.times, info.sacks, info.scales) == (0, 0, 0)
    known = [64, 536, 1220, 1360, 1400, 1440, 1460]  # what a cookie can say, up to our own
    assert info.snd_mss == max([m for m in known if m <= mss], default=64)


def test_the_first_data_answers_as_well(host: TcpHost) -> None:
    listener = flooded(host)
    answer = cookie(host)
    host.say(PSH | ACK, 78, answer.seq + 1, b"late", options=times(1001, times_of(answer)), port=5000)
    assert host.read(host.accept(listener)[0]) == b"late"


def test_it_is_right_for_a_while_only(host: TcpHost) -> None:
    listener = flooded(host)
    first, second = cookie(host, port=5000), cookie(host, port=5001)
    host.run(60 * SECOND)
    host.say(ACK, 78, first.seq + 1, options=times(1001, times_of(first)), port=5000)
    assert host.accept(listener)[0] >= 0
    host.run(90 * SECOND)
    host.heard()
    host.say(ACK, 78, second.seq + 1, options=times(1001, times_of(second)), port=5001)
    assert [s.flags for s in host.heard()] == [RST]


def test_guesses_are_wrong(host: TcpHost, seed: int) -> None:
    listener, rng = flooded(host), random.Random(seed)
    answer = cookie(host)
    guesses = [(5000, 78, answer.seq + 2), (5000, 79, answer.seq + 1), (5001, 78, answer.seq + 1)]
    guesses += [(5000, 78, answer.seq + 1 ^ 1 << bit) for bit in range(32)]
    guesses += [(rng.randrange(1024, 65536), rng.randrange(2**32), rng.randrange(2**32)) for _ in range(1000)]
    for port, seq, ack in guesses:
        host.say(ACK, seq, ack, port=port)
        ((flags, number, *_),) = host.heard()
        assert (flags, number) == (RST, ack % 2**32)
    assert host.accept(listener)[0] == -errno.EAGAIN
    assert host.counts().cookies_wrong == len(guesses)


def test_nothing_is_kept_of_a_flood(host: TcpHost) -> None:
    listener = flooded(host)
    for port in range(2000, 4000):
        answer = cookie(host, port=port)
        if port % 1000 == 0:
            host.say(ACK, 78, answer.seq + 1, options=times(1001, times_of(answer)), port=port)
    assert [host.accept(listener)[1] for _ in range(2)] == [2000, 3000]
    assert (host.counts().cookies_sent, host.counts().cookies_right) == (2000, 2)
    assert host.held() == 0
    assert lib.cl_tcp_host_listen(host.ptr, PORT + 1, 1) >= 0


def test_who_accepts_too_slowly_gives_out_no_cookies(host: TcpHost) -> None:
    """Else peers would believe that they are connected, and nobody took them."""
    listener = flooded(host)
    answers = {port: cookie(host, port=port) for port in range(2000, 2000 + BACKLOG + 1)}
    for port, answer in answers.items():
        host.say(ACK, 78, answer.seq + 1, options=times(1001, times_of(answer)), port=port)
    host.say(SYN, 0, port=3000)
    assert host.heard() == []
    assert host.counts().dropped_backlog == 2  # that SYN, and the last of the acknowledgements
    assert host.accept(listener)[1] == 2000
    host.say(SYN, 0, port=3000)
    assert len(host.heard()) == 1
    assert host.counts().cookies_sent == BACKLOG + 2
    last = 2000 + BACKLOG
    host.say(PSH | ACK, 78, answers[last].seq + 1, b"again", options=times(1002, times_of(answers[last])), port=last)
    assert [host.accept(listener)[1] for _ in range(BACKLOG)] == list(range(2001, last + 1))

"""The memcached traffic against a 30-line server, over a fake clock: framing, checking, preloading, reassembly."""

from __future__ import annotations

import random

import pytest
from cltest.fakeload import FakeLoad, swap, with_payload

from corelane.drivers.nic.loadgen.loadgen import Limits, Memcached, Phase, Source
from corelane.runtime.errors import CorelaneError

MS = 1_000_000


class Server:
    """memcached's get and set over UDP, split into datagrams of `split` bytes."""

    def __init__(self, split: int = 1400) -> None:
        self.store: dict[bytes, tuple[bytes, bytes]] = {}
        self.split = split
        self.sets = self.gets = 0
        self.seen: list[bytes] = []

    def text(self, request: bytes) -> bytes:
        line, rest = request.split(b"\r\n", 1)
        words = line.split()
        if words[0] == b"get":
            assert rest == b""
            self.gets += 1
            self.seen.append(words[1])
            if words[1] not in self.store:
                return b"END\r\n"
            flags, value = self.store[words[1]]
            return b"VALUE %b %b %d\r\n%b\r\nEND\r\n" % (words[1], flags, len(value), value)
        assert words[0] == b"set"
        assert words[3] == b"0"
        n = int(words[4])
        assert rest[n:] == b"\r\n"
        self.sets += 1
        self.store[words[1]] = (words[2], rest[:n])
        return b"STORED\r\n"

    def replies(self, frame: bytes) -> list[bytes]:
        payload = frame[42:]
        assert payload[2:8] == b"\0\0\0\1\0\0"
        text = self.text(payload[8:])
        parts = [text[i : i + self.split] for i in range(0, len(text), self.split)]
        back = swap(bytearray(frame))
        return [
            with_payload(back, payload[:2] + i.to_bytes(2, "big") + len(parts).to_bytes(2, "big") + b"\0\0" + part)
            for i, part in enumerate(parts)
        ]

    def reply(self, frame: bytes) -> bytes:
        (only,) = self.replies(frame)
        return only


def preloaded(traffic: Memcached, server: Server, **options) -> FakeLoad:
    fake = FakeLoad(traffic, **options)
    fake.load.start([Phase(0.01, 1e5)])
    end = fake.now + 1000 * MS
    while fake.load.other()["preloaded"] < traffic.keys:
        fake.receive(*(r for f in fake.poll() for r in server.replies(f)))
        fake.now += 10_000
        assert fake.now < end
    fake.poll()
    return fake


@pytest.mark.parametrize("key_bytes", [3, 8, 16, 250])
@pytest.mark.parametrize("value_bytes", [1, 7, 64, 1000])
def test_every_key_is_set_and_found(key_bytes, value_bytes):
    server = Server()
    traffic = Memcached(keys=300, key_bytes=key_bytes, value_bytes=value_bytes, get_fraction=0.9, zipf=0)
    fake = preloaded(traffic, server)
    assert len(server.store) == server.sets == 300
    for number in (0, 1, 15, 16, 299):
        flags, value = server.store[fake.load.key(number)]
        assert (flags, value) == (b"7", fake.load.value(number))
    assert all(len(k) == key_bytes and len(v) == value_bytes for k, (_, v) in server.store.items())
    if value_bytes >= 7:
        assert len({v for _, v in server.store.values()}) == 300
    fake.serve(server.reply, fake.now + 100 * MS)
    result = fake.load.result()
    assert result.answered == result.sent == result.offered == result.hits + result.stored > 800
    assert result.wrong == result.errors == result.misses == 0
    assert result.hits == server.gets
    assert result.stored == pytest.approx(0.1 * result.sent, abs=60)


def test_popular_keys_are_asked_for_more():
    server = Server()
    fake = preloaded(Memcached(keys=1000, zipf=0.99), server)
    fake.serve(server.reply, fake.now + 100 * MS)
    counts = sorted((server.seen.count(k) for k in set(server.seen)), reverse=True)
    harmonic = sum((k + 1) ** -0.99 for k in range(1000))
    assert counts[0] == pytest.approx(len(server.seen) / harmonic, rel=0.3)


def test_misses_are_answers():
    server = Server()
    fake = FakeLoad(Memcached(keys=100, preload=False))
    fake.start(Phase(0.001, 1e5))
    fake.serve(server.reply, fake.now + 100 * MS)
    result = fake.load.result()
    assert result.misses == result.answered == result.sent == server.gets > 50


def test_wrong_answers_and_errors():
    server = Server()
    fake = FakeLoad(Memcached(keys=100, get_fraction=0.5, preload=False))
    fake.start(Phase(0.01, 1e5))
    texts = {
        b"get": [b"VALUE x 7 1\r\na\r\nEND\r\n", b"STORED\r\n", b"", b"SERVER_ERROR out of memory\r\n", b"ERROR\r\n"],
        b"set": [b"NOT_STORED\r\n", b"END\r\n", b"S", b"SERVER_ERROR object too large\r\n", b"CLIENT_ERROR bad\r\n"],
    }
    kinds = {b"get": 0, b"set": 0}

    def answer(frame: bytes) -> bytes:
        kind = frame[50:53]
        text = texts[kind][kinds[kind] % 5]
        kinds[kind] += 1
        return with_payload(server.reply(frame), frame[42:44] + b"\0\0\0\1\0\0" + text)

    fake.serve(answer, fake.now + 100 * MS)
    result = fake.load.result()
    assert result.answered == 0
    assert result.wrong == pytest.approx(0.6 * result.sent, abs=4)
    assert result.errors == pytest.approx(0.4 * result.sent, abs=4)
    assert result.wrong + result.errors == result.sent
    assert result.latency.infinite == result.offered


def test_a_changed_value_is_wrong():
    server = Server()
    fake = preloaded(Memcached(keys=10, zipf=0), server)
    fake.serve(server.reply, fake.now + 3 * MS)
    good = fake.load.results()[0].answered
    assert good > 100
    key, other = fake.load.key(3), fake.load.key(4)
    server.store[key] = server.store[other]
    fake.serve(server.reply, fake.now + 100 * MS)
    result = fake.load.result()
    assert result.wrong == pytest.approx((result.sent - good) / 10, rel=0.4)
    assert result.answered + result.wrong == result.sent


@pytest.mark.parametrize("value_bytes", [1400, 5000, 65536])
@pytest.mark.parametrize("order", ["in order", "reversed", "shuffled", "doubled", "one lost", "one wrong"])
def test_answers_of_several_datagrams(value_bytes, order):
    rng = random.Random(3)
    server = Server()
    fake = FakeLoad(Memcached(keys=5, value_bytes=value_bytes, preload=False, zipf=0))
    for number in range(5):
        server.store[fake.load.key(number)] = (b"7", fake.load.value(number))
    fake.start(Phase(0.001, 1e5))
    while fake.load.running:
        for frame in fake.poll():
            parts = server.replies(frame)
            assert len(parts) > 1
            if order == "reversed":
                parts.reverse()
            elif order == "shuffled":
                rng.shuffle(parts)
            elif order == "doubled":
                parts = [p for p in parts for _ in range(2)]
            elif order == "one lost":
                del parts[rng.randrange(len(parts))]
            elif order == "one wrong":
                at = rng.randrange(len(parts))
                bad = bytearray(parts[at])
                bad[50 + rng.randrange(len(bad) - 50)] ^= 1
                parts[at] = bytes(bad)
            fake.receive(*parts)
        fake.now += 1000
    result = fake.load.result()
    assert result.sent > 50
    if order == "one lost":
        assert result.answered == result.wrong == 0
    elif order == "one wrong":
        assert result.wrong == result.sent
    else:
        assert result.answered == result.hits == result.sent
        assert result.wrong == 0


def test_lies_in_the_frame_header():
    """Impossible sequence numbers and counts, from a broken server, are wrong answers and harm nothing."""
    fake = FakeLoad(Memcached(keys=5, preload=False))
    rng = random.Random(4)
    fake.start(Phase(0.1, 1e5))
    frames: list[bytes] = []
    while len(frames) < 2000:
        fake.now += 1000
        frames += fake.poll()
    for frame in frames:
        head = frame[42:44] + rng.randbytes(6)
        fake.receive(with_payload(swap(bytearray(frame)), head + rng.randbytes(rng.randrange(200))))
        fake.receive(with_payload(swap(bytearray(frame)), rng.randbytes(rng.randrange(12))))
    fake.load.abort()
    fake.poll()
    assert fake.load.result().answered == 0


def test_preloading_survives_loss_and_duplicates(rng):
    server = Server()
    fake = FakeLoad(Memcached(keys=2000, preload_window=32))
    fake.load.start([Phase(0.001, 1e5)])
    end = fake.now + 100_000 * MS
    while fake.load.other()["preloaded"] < 2000:
        for frame in fake.poll():
            if rng.random() < 0.1:
                continue  # the request is lost
            replies = server.replies(frame) * rng.choice((1, 1, 1, 2))
            fake.receive(*(r for r in replies if rng.random() > 0.1))
        fake.now += MS
        assert fake.now < end
    other = fake.load.other()
    assert other["preload_resent"] > 0
    assert other["preload_refused"] == 0
    assert len(server.store) == 2000
    fake.poll()
    fake.serve(server.reply, fake.now + 100 * MS)
    result = fake.load.result()
    assert result.hits == result.sent == result.offered


def test_preloading_gives_up_on_a_dead_server():
    fake = FakeLoad(Memcached(keys=100), limits=Limits(give_up_s=0.5))
    fake.load.start([Phase(0.001, 1e5)])
    for _ in range(100):
        fake.poll()
        fake.now += 10 * MS
    with pytest.raises(CorelaneError, match="preload"):
        fake.load.wait(1)
    # A later run tries again.
    server = Server()
    fake.load.start([Phase(0.001, 1e5)])
    for _ in range(100_000):
        if not fake.load.running:
            break
        fake.receive(*(r for f in fake.poll() for r in server.replies(f)))
        fake.now += 10_000
    assert fake.load.result().hits > 50


def test_many_more_requests_than_ids():
    """200 000 outstanding requests on 4 flows: the 16-bit ids go round, port and id together do not."""
    fake = FakeLoad(Memcached(keys=50, preload=False), source=Source(flows=4), limits=Limits(outstanding=262144))
    fake.start(Phase(0.2, 1e6))
    frames: list[bytes] = []
    while len(frames) < 150_000:
        fake.now += 64_000
        while burst := fake.poll():
            frames += burst
    fake.receive(*(with_payload(swap(bytearray(f)), f[42:50] + b"END\r\n") for f in frames))
    result = fake.load.results()[0]
    assert result.answered == len(frames) == result.misses
    assert fake.load.other()["stray"] == 0

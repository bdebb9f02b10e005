"""raft-kv answers like kv, to the byte: the same datagrams to both, each at one end of a memory link."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import kvbinary as kb
import pytest
from cltest import soak, wait_until
from hypothesis import HealthCheck, given, settings
from kvclient import HEADER
from kvscripts import STORED, Refused, scripts, sent
from raftlink import KV_PORT, QUICK, LinkClient, await_lead, linked
from raftlink import served as served_raft

from corelane.apps.kv import app as kv

LAST, LAST_READ = 0xFFFE, 0xFFFF
DATAGRAM = 1400
TRIALS = 5


class Asker:
    """A client of a store."""

    def __init__(self, client: LinkClient) -> None:
        self.client = client

    def ask(self, *datagrams: bytes) -> list[bytes]:
        """All that is answered to these, one after the other: to each comes what is answered before the answer to a
        command behind it, and last before that to a read."""
        got: list[bytes] = []
        for datagram in datagrams:
            self._until(got, datagram, LAST, b"delete nobody\r\n")
        self._until(got, b"", LAST_READ, b"get nobody\r\n")
        return [d for d in got if int.from_bytes(d[:2], "big") < LAST]

    def _until(self, got: list[bytes], datagram: bytes, number: int, text: bytes) -> None:
        behind = HEADER.pack(number, 0, 1, 0) + text
        self.client.send(*(d for d in (datagram, behind) if d))
        seen = len(got)

        def answered() -> bool:
            got.extend(self.client.payloads())
            return any(d[:2] == behind[:2] for d in got[seen:])

        wait_until(answered, 60, f"the answer to {text!r}")


@contextlib.contextmanager
def served(replicated: bool) -> Iterator[Asker]:
    if replicated:
        with served_raft(kv_port=KV_PORT) as (node, client):
            await_lead(node)
            yield Asker(client)
        return
    with linked() as (runtime, client):
        store = kv.setup(runtime, kv.Options(memory_bytes=QUICK.memory_bytes, item_max_bytes=8192, huge_pages=0))
        runtime.start()
        yield Asker(client)
        runtime.stop()
        store.close()


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Asker, Asker]]:
    with served(False) as ours, served(True) as theirs:
        yield ours, theirs


Both = tuple[Asker, Asker]


def compare(both: Both, *datagrams: bytes) -> list[bytes]:
    """What both answer."""
    ours, theirs = (asker.ask(*datagrams) for asker in both)
    assert sorted(theirs) == sorted(ours), datagrams
    return ours


def one(text: bytes, number: int = 7, sequence: int = 0, total: int = 1) -> bytes:
    return HEADER.pack(number, sequence, total, 0) + text


COMMANDS = [
    b"set abc 1 0 5\r\nhello\r\n",
    b"get abc\r\n",
    b"gets abc abc nothing\r\n",
    b"incr n 1\r\n",
    b"cas abc 0 0 1 7\r\nx\r\n",
    b"append abc 0 0 2\r\n++\r\n",
    b"touch abc 100\r\n",
    b"gat 100 abc\r\n",
    b"flush_all 1000000\r\n",
    b"verbosity 1\r\n",
    b"version\r\n",
    b"delete abc\r\n",
    b"quit\r\n",
    b"nonsense\r\n",
    b"ms abc 5 T100 F1 c k\r\nhello\r\n",
    b"mg abc v f c k O7\r\n",
    b"mg YWJj b N100 R30 v q\r\n",
    b"md abc I T50\r\n",
    b"ma n N0 J5 D2 v\r\n",
    b"mn\r\n",
    kb.store(kb.SET, b"abc", b"hello", 1),
    kb.request(kb.GETK, b"abc", opaque=b"\0\1\2\3"),
]


def test_each_command_cut_off_at_every_byte(both: Both) -> None:
    compare(both, one(b"set n 0 0 1\r\n0\r\n"))
    for text in COMMANDS:
        whole = one(text)
        compare(both, *(whole[:n] for n in range(len(whole) + 1)))


def test_what_was_done_before_a_command_that_is_cut_off_is_answered(both: Both) -> None:
    answer = compare(both, one(b"set a 0 0 1\r\n7\r\nincr a 3\r\nset b 0 0 9\r\nxx"))
    assert answer == [one(b"STORED\r\n10\r\nCLIENT_ERROR bad data chunk\r\n")]
    assert compare(both, one(b"get a\r\nget a")) == [one(b"VALUE a 0 2\r\n10\r\nEND\r\nERROR\r\n")]


def test_a_request_of_several_datagrams_is_refused(both: Both) -> None:
    text = b"SERVER_ERROR multi-packet request not supported\r\n"
    assert compare(both, one(b"set a 0 0 1\r\n", 7, 0, 2), one(b"1\r\n", 7, 1, 2)) == [one(text)]


def test_an_answer_is_not_answered(both: Both) -> None:
    assert compare(both, one(b"STORED\r\n"), one(b"10\r\n"), one(b"get a\r\n", 7, 1, 3), one(b"")) == []


def test_long_answers_and_values_that_are_too_long(both: Both) -> None:
    draw = random.Random(1)
    for _ in range(8):
        value = draw.randbytes(1000)
        compare(both, one(b"append long 0 0 1000\r\n" + value + b"\r\n"), one(b"get long\r\n"))
        compare(both, one(b"add long 0 0 1000\r\n" + value + b"\r\n"), one(b"gets long long\r\n"))
    compare(both, one(b"set big 0 0 %d\r\n" % 9000), one(b"get big\r\n"))


def test_answers_of_any_length(both: Both) -> None:
    """Up to the longest that there is, and beyond, for a read and among commands: those behind it are not done."""
    compare(both, *(one(b"%s long 0 0 1000\r\n%s\r\n" % (w, b"x" * 1000)) for w in [b"set"] + 7 * [b"append"]))
    compare(both, one(b"set short 0 0 300\r\n" + b"y" * 300 + b"\r\n"), one(b"set n 0 0 1\r\n0\r\n"))
    long, short = len(b"VALUE long 0 8000\r\n") + 8002, len(b"VALUE short 0 300\r\n") + 302
    for most in (16384, 65536):
        left = most - len(b"END\r\n")
        keys, left = [b"long"] * (left // long), left % long
        while left > short + 200:
            keys, left = [*keys, b"short"], left - short
        for more in (-100, -1, 0, 1, 100, 400):
            size = left - len(b"VALUE d 0 100\r\n\r\n") + more
            compare(both, one(b"set d 0 0 %d\r\n" % size + b"d" * size + b"\r\n"))
            get = b"get " + b" ".join([*keys, b"d"]) + b"\r\n"
            compare(both, one(get))
            compare(both, one(get + b"incr n 1\r\n"), one(b"get n\r\n"))
    compare(both, one(b"get " + b"long " * 250 + b"\r\n"))


def packed(commands: list[bytes]) -> list[bytes]:
    """In datagrams, as many in one as there is room for; without those that are too long for any."""
    datagrams = [one(b"")]
    for command in commands:
        if len(datagrams[-1]) + len(command) > DATAGRAM:
            datagrams.append(one(b""))
        if len(datagrams[-1]) + len(command) <= DATAGRAM:
            datagrams[-1] += command
    return datagrams


@pytest.mark.soak(short=True, takes_s=20)
@given(script=scripts)
@settings(
    max_examples=soak.examples(25, 1000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_scripts(both: Both, script: list[bytes]) -> None:
    """The scripts on which kv and memcached agree."""
    compare(both, one(b"".join(b"delete %b\r\n" % key for key in STORED) + b"flush_all\r\n"))
    (answer,) = compare(both, one(b"set unique 0 0 1\r\nx\r\ngets unique\r\n"))
    lowest = int(answer.split(b"\r\n")[1].split()[-1])
    commands = [c for c in script if not c.startswith(b"stats")]  # which tell of one node
    compare(both, *packed([c if isinstance(c, Refused) else sent(c, lowest) for c in commands]))


def mutated(seed: int) -> list[list[bytes]]:
    draw = random.Random(seed)
    rounds: list[list[bytes]] = []
    for _ in range(30):
        datagrams: list[bytes] = []
        for _ in range(10):
            text = bytearray(one(draw.choice(COMMANDS) * draw.choice([1, 1, 2, 20]), draw.randrange(LAST)))
            for _ in range(draw.randrange(5)):
                at = draw.randrange(len(text))
                text[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
            stats = b"stats" in text or (text[8:9] == b"\x80" and kb.STAT in text[8:])  # of one node, so not alike
            if int.from_bytes(text[:2], "big") < LAST and not stats:
                datagrams.append(bytes(text)[:DATAGRAM])
        rounds.append(datagrams)
    return rounds


def test_mutated_requests(seed: int) -> None:
    """Some expire items after a second or a few, and the two are not asked at one moment.

    What differs by that alone does not differ each time that all are asked again.
    """
    rounds = mutated(seed)
    differs: list[bytes] | None = None
    for _ in range(TRIALS):
        with served(False) as ours, served(True) as theirs:
            differs = next((d for d in rounds if sorted(ours.ask(*d)) != sorted(theirs.ask(*d))), None)
        if not differs:
            return
    raise AssertionError(f"kv and raft-kv answer differently to {differs}")

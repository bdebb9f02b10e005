"""Meta commands: the same bytes to stock memcached and to our command layer must give the same bytes back.

Differences that docs/kv.md lists are kept out: class and size of an item, the base64 form of a key whose item memcached
made without noting it, marks of counters that an answer still holds, values of refused commands (memcached executes
them), and ma with an opaque that is too long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cltest import soak
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvoracle import FENCE, Oracle

from corelane.apps.kv import Session, Store
from corelane.bench.baseline.memcached import Memcached

PLAIN = [b"a", b"key-3", b"k" * 250]
BASE64 = {b"YQ==": b"a", b"Ymlu": b"bin", b"Zm9vYmFy": b"foobar", b"!Ymlu!": b"bin"}
BROKEN = [b"===", b"====", b"YQ=", b"!", b"Y===", b"YQ==YQ==", b"k" * 251]
# Lets memcached send what it has: an item that an answer still holds is not changed in place, and loses its marks.
FLUSH = b"mn\r\n"
TRIES = 4  # as often a script is run whose answers differ: memcached's second may have ended in between


@dataclass(frozen=True)
class Command:
    """A command: texts, and uniques (counted from the first store of the script) between them."""

    line: tuple[bytes | int, ...]
    value: bytes = b""
    refused: bool = False  # for its form: memcached would execute the value, and is not sent it

    def text(self, lowest: int) -> bytes:
        return b"".join(b"%d" % (part + lowest) if isinstance(part, int) else part for part in self.line)


@pytest.fixture(scope="module")
def link(oracle: Memcached) -> Iterator[Oracle]:
    made = Oracle(oracle, [*PLAIN, *BASE64.values()])
    yield made
    made.close()


def told(answer: bytes, lowest: int) -> bytes:
    """An answer with its uniques counted from `lowest`, binary keys as they are, and without what may differ."""
    out, at = [], 0
    while at < len(answer):
        end = answer.index(b"\r\n", at) + 2
        words = answer[at:end].split(b" ")
        size = int(words[1]) + 2 if words[0] == b"VA" else int(words[3]) + 2 if words[0] == b"VALUE" else 0
        line = re.sub(rb"(?<= c)([1-9]\d*)", lambda m: b"%d" % (int(m[1]) - lowest), answer[at:end])
        line = re.sub(rb"(?<= cas=)(\d+)", lambda m: b"%d" % (int(m[1]) - lowest), line)
        line = re.sub(rb" cls=\d+ size=\d+", b"", line)
        for coded, key in BASE64.items():
            line = line.replace(b" k" + coded + b" b", b" k" + key).replace(b"ME " + coded, b"ME " + key)
        out.append(line + answer[end : end + size])
        at = end + size
    return b"".join(out)


def run(link: Oracle, script: list[Command], cut: int = 0) -> tuple[bytes, bytes]:
    """(memcached's answer, ours), told alike, to the same commands on emptied stores."""
    link.reset()
    lowest = link.cas()
    theirs = link.execute(b"".join(c.text(lowest) + (b"" if c.refused else c.value) for c in script) + FENCE)
    data = b"".join(c.text(0) + c.value for c in script) + FENCE
    with Store(4 << 20, seed=1, huge_pages=0, manual_clock=True) as store:
        session = Session(store)
        ours = session.execute(data[:cut]) + session.execute(data[cut:])
        store.check()
    return told(theirs, lowest), told(ours, 0)


def same(link: Oracle, script: list[Command], cut: int = 0) -> bytes:
    """The answer that both give."""
    for _ in range(TRIES):
        theirs, ours = run(link, script, cut)
        if ours == theirs:
            break
    assert ours == theirs
    return ours


TIMES = [b"0", b"30", b"1000", b"2592000", b"-1"]
FLAGS = st.one_of(
    st.sampled_from([b"k", b"s", b"t", b"c", b"f", b"l", b"h", b"v", b"v", b"u", b"q", b"k", b"c", b"I", b"b"]),
    st.sampled_from([b"O1", b"Oopaque", b"O" + b"x" * 31, b"O", b"Pproxy", b"L"]),
    st.sampled_from([b"F0", b"F5", b"F4294967295", b"J7", b"J0", b"D1", b"D5", b"D18446744073709551615", b"MA"]),
    st.sampled_from([b"MS", b"ME", b"MP", b"MR", b"MI", b"MD", b"M+", b"M-", b"MA", b"ME"]),
    st.builds(lambda flag, time: flag + time, st.sampled_from([b"T", b"N", b"R"]), st.sampled_from(TIMES)),
)
BAD_FLAGS = st.sampled_from(
    [
        b"x",
        b"S5",
        b"E1",
        b"\xff",
        b"T",
        b"Tx",
        b"N1x",
        b"R",
        b"Fx",
        b"Cx",
        b"C",
        b"Dx",
        b"J-1",
        b"M",
        b"MAA",
        b"MZ",
        b"z9",
    ]
)
VERBS = st.sampled_from([b"mg", b"mg", b"mg", b"ms", b"ms", b"ms", b"md", b"ma", b"ma"])
VALUES = st.sampled_from([b"", b"0", b"10", b"99", b"x", b"value", b"18446744073709551615", b"mg a v\r\nmn"])


@st.composite
def metas(draw: st.DrawFn) -> Command:
    verb = draw(VERBS)
    flags: list[bytes] = draw(st.lists(FLAGS, max_size=7))
    wrong = draw(st.integers(0, 5)) == 0
    if wrong:
        flags.insert(draw(st.integers(0, len(flags))), draw(BAD_FLAGS))
    else:
        flags = list({flag[:1]: flag for flag in flags}.values())  # each once
        if any(flag[1:] == b"-1" for flag in flags):  # t would count seconds from memcached's start
            flags = [flag for flag in flags if flag != b"t"]
    coded = b"b" in flags
    key = draw(st.sampled_from(list(BASE64) if coded else PLAIN))
    if draw(st.integers(0, 15)) == 0:
        key = draw(st.sampled_from(BROKEN))
    unique = draw(st.none() | st.integers(0, 12))
    line: list[bytes | int] = [FLUSH * (verb == b"ma") + verb + b" " + key]
    value = draw(VALUES)
    if verb == b"ms":
        line.append(b" %d" % len(value))
    line.append(b"".join(b" " + flag for flag in flags))
    if unique is not None and not any(flag.startswith(b"C") for flag in flags):
        line += [b" C", unique] if unique else [b" C0"]
    line.append(b"\r\n")
    # A key that is too long is the one thing that memcached refuses without knowing of the value.
    return Command(tuple(line), value + b"\r\n" if verb == b"ms" else b"", refused=len(key) > 250)


def command(line: bytes, value: bytes | None = None) -> Command:
    return Command((line + b"\r\n",), b"" if value is None else value + b"\r\n")


OTHERS = st.sampled_from(
    [
        command(b"mn"),
        command(b"mn a b"),
        command(b"mg"),
        command(b"md"),
        command(b"ma"),
        command(b"me"),
        command(b"me a"),
        command(b"me " + b"k" * 250),
        command(b"me YQ== b"),
        command(b"me = b"),
        command(b"me a x"),
        command(b"me nothing"),
        command(b"mt"),
        command(b"get a bin"),
        command(b"set a 5 0 2", b"12"),
        command(b"set bin 0 1000 3", b"abc"),
        command(b"touch a 1000"),
        command(b"add a 0 0 1", b"9"),
        command(FLUSH + b"incr a 3"),
        command(b"delete bin"),
        command(b"mg a" + b" " + b" ".join(b"O%d" % i for i in range(17))),
        command(b"mg a" + b" " + b" ".join(b"kstcflhvuqbIPLOFDJ"[i : i + 1] for i in range(18))),
        command(b"md a" + b" k" * 18),
        command(b"ma a" + b" k" * 18),
        command(b"md a O" + b"x" * 32),
        command(b"mg a O" + b"x" * 32),
        command(b"ms a 2 O" + b"x" * 32, b"no"),
        Command((b"ms a 2" + b" k" * 17 + b"\r\n",), b"no\r\n", refused=True),
        command(b"mg a v t"),
        command(b"mg a v c h l t f s k"),
        command(b"md a I T30"),
        command(b"md a I"),
        Command((b"ms a 3 I C", 1, b" c k s\r\n"), b"old\r\n"),
    ]
)


@pytest.mark.soak(short=True, takes_s=5)
@given(script=st.lists(st.one_of(metas(), metas(), metas(), OTHERS), min_size=1, max_size=20), cut=st.integers(0, 200))
@settings(
    max_examples=soak.examples(120, 1500),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_commands(link: Oracle, script: list[Command], cut: int) -> None:
    same(link, script, cut)


def test_one_client_is_told_to_store_a_missing_item(link: Oracle) -> None:
    ask = command(b"mg a N30 v t c")
    answer = same(link, [ask, ask, command(b"ms a 3 c", b"new"), ask])
    assert answer.startswith(b"VA 0 t30 c1 W\r\n\r\nVA 0 t30 c1 Z\r\n\r\nHD c2\r\nVA 3 t-1 c2\r\nnew\r\n")


def test_one_client_is_told_to_store_a_stale_item(link: Oracle) -> None:
    ask = command(b"mg a v")
    late = Command((b"ms a 4 I C", 1, b"\r\n"), b"late\r\n")
    answer = same(link, [command(b"set a 0 0 3", b"old"), command(b"md a I T1000"), ask, ask, late, ask, ask])
    assert answer.startswith(b"STORED\r\nHD\r\nVA 3 X W\r\nold\r\nVA 3 Z X\r\nold\r\nHD\r\nVA 4 Z X\r\nlate\r\n")


def test_one_client_is_told_to_store_an_item_that_is_about_to_expire(link: Oracle) -> None:
    ask = command(b"mg a v R60")
    answer = same(link, [command(b"ms a 1 T30", b"x"), ask, ask, command(b"ms a 1 T90", b"y"), ask])
    assert answer.startswith(b"HD\r\nVA 1 W\r\nx\r\nVA 1 Z\r\nx\r\nHD\r\nVA 1\r\ny\r\n")


def test_a_binary_key_comes_back_as_it_came(link: Oracle) -> None:
    link.reset()
    script = (
        b"ms AAEKDf8= 2 b k\r\nhi\r\nmg AAEKDf8= b k v\r\nme AAEKDf8= b\r\nmd AAEKDf8= b k\r\nmg AAEKDf8= b k\r\n"
        + FENCE
    )
    with Store(4 << 20, seed=1, huge_pages=0, manual_clock=True) as store:
        for _ in range(TRIES):
            theirs, ours = told(link.execute(script), 0), told(Session(store).execute(script), 0)
            theirs, ours = (re.sub(rb"cas=\d+", b"", answer) for answer in (theirs, ours))
            if ours == theirs:
                break
        assert ours == theirs
        assert b"VA 2 kAAEKDf8= b\r\nhi\r\n" in ours


def test_the_age_counts_from_the_last_write_or_touch_and_a_read_leaves_it(store: Store) -> None:
    session = Session(store)
    session.execute(b"set a 0 0 1\r\nx\r\n")
    store.time_s = 12
    assert session.execute(b"mg a l h\r\nmg a l h\r\n") == b"HD l10 h0\r\nHD l10 h1\r\n"
    assert session.execute(b"touch a 0\r\nmg a l\r\n") == b"TOUCHED\r\nHD l0\r\n"
    store.time_s = 20
    assert session.execute(b"me a\r\n").startswith(b"ME a exp=-1 la=8 cas=1 fetch=yes cls=1 size=")


@pytest.mark.parametrize("store_again", [b"set a 0 0 1\r\ny\r\n", b"set a 0 0 400\r\n" + b"y" * 400 + b"\r\n"])
def test_an_item_that_is_stored_again_was_not_read(store: Store, store_again: bytes) -> None:
    session = Session(store)
    session.execute(b"set a 0 0 1\r\nx\r\nget a\r\nget a\r\nget a\r\nget a\r\n")
    assert session.execute(b"mg a h u\r\n") == b"HD h1\r\n"
    session.execute(store_again)
    assert session.execute(b"mg a h u\r\nmg a h u\r\nget a\r\nmg a h\r\n").startswith(b"HD h0\r\nHD h0\r\n")
    assert session.execute(b"mg a h\r\n") == b"HD h1\r\n"


def test_marks_of_items_survive_that_their_log_goes_round(store: Store) -> None:
    session = Session(store)
    session.execute(b"ms a 1 F7\r\nx\r\nmd a I\r\nmg a v\r\n")  # stale, one client was told, read
    for i in range(20_000):
        session.execute(b"set n%d 0 0 200 noreply\r\n%b\r\n" % (i, b"v" * 200) + b"mg a\r\n")
    assert store.usage()["evictions"] > 1000
    assert session.execute(b"mg a v f h\r\n") == b"VA 1 f7 h1 Z X\r\nx\r\n"


def test_too_little_room_for_an_answer_changes_nothing(store: Store) -> None:
    value = b"v" * 8000
    Session(store).execute(b"set a 0 1000 8000\r\n" + value + b"\r\nmd a I\r\n")
    small = Session(store, room=9200)
    answer = small.execute(b"mg a v T30 t\r\nmg a v t\r\n")
    assert answer == b"VA 8000 t30 X W\r\n%b\r\nVA 8000 t30 Z X\r\n%b\r\n" % (value, value)

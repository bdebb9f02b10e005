"""The same bytes to stock memcached over TCP and to our command layer must give the same bytes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cltest import soak
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvoracle import FENCE, Oracle
from kvscripts import STORED, scripts, sent, shift

from corelane.apps.kv import Session, Store
from corelane.bench.baseline.memcached import Memcached


@pytest.fixture(scope="module")
def link(oracle: Memcached) -> Iterator[Oracle]:
    made = Oracle(oracle, STORED)
    yield made
    made.close()


def run(link: Oracle, script: list[bytes], cut: int = 0) -> tuple[bytes, bytes]:
    """(memcached's answer, ours) to the same commands on emptied stores whose next unique is the same."""
    link.reset()
    data = b"".join(script) + FENCE
    with Store(4 << 20, seed=1, huge_pages=0) as store:
        session = Session(store)
        lowest = link.cas()
        theirs = link.execute(b"".join(sent(c, lowest) for c in script) + FENCE)
        ours = session.execute(data[:cut]) + session.execute(data[cut:]) if cut else session.execute(data)
        store.check()
        return shift(theirs, lowest), ours


@pytest.mark.soak(short=True, takes_s=5)
@given(script=scripts, cut=st.integers(0, 200))
@settings(
    max_examples=soak.examples(120, 1000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_commands(link: Oracle, script: list[bytes], cut: int) -> None:
    theirs, ours = run(link, script, min(cut, sum(map(len, script))))
    assert ours == theirs


@pytest.mark.parametrize("when", [b"", b" 0", b" -1", b" -2592001", b" 2592001", b" 1000000000", b" 2592000", b" x"])
def test_flush_all_takes_a_unique_where_memcached_does(link: Oracle, when: bytes) -> None:
    theirs, ours = run(link, [b"set a 0 0 0\r\n\r\nflush_all" + when + b"\r\nset a 0 0 0\r\n\r\ngets a\r\n"])
    assert ours == theirs


@pytest.mark.parametrize("verb", [b"get", b"gets", b"gat 0", b"gats 0"])
@pytest.mark.parametrize("place", [0, 1, 29])
def test_key_too_long_among_others(link: Oracle, verb: bytes, place: int) -> None:
    with Store(4 << 20) as store:
        session = Session(store)
        link.reset()
        assert link.execute(b"set a 0 0 1\r\nx\r\n" + FENCE) == session.execute(b"set a 0 0 1\r\nx\r\n" + FENCE)
        names = [b"a"] * 30
        names[place] = b"k" * 251
        line = verb + b"".join(b" " + n for n in names) + b"\r\n"
        link.send(line)
        assert link.read(b"\r\n") == session.execute(line) == b"CLIENT_ERROR bad command line format\r\n"

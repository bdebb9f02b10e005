"""A store that never evicts: what it took stays, what finds no room is refused and changes nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from corelane.apps.kv import Session, Store
from corelane.runtime.errors import CorelaneError


@pytest.fixture
def kept() -> Iterator[Store]:
    """2 MiB, manual clock; checked at the end."""
    with Store(2 << 20, item_max_bytes=8192, manual_clock=True, no_evict=True, seed=3, huge_pages=0) as made:
        yield made
        made.check()


def fill(store: Store, share: float, value_bytes: int, prefix: bytes = b"k") -> int:
    """Store until live items fill that share of the log; how many there are."""
    n = 0
    while store.usage()["live_bytes"] < share * store.usage()["log_bytes"]:
        assert store.store(b"%s%d" % (prefix, n), b"v" * value_bytes) == "ok"
        n += 1
    return n


@pytest.mark.parametrize(
    ("share", "hot"),
    [
        pytest.param(0.29, 1, marks=pytest.mark.soak(takes_s=2)),
        pytest.param(0.46, 1, marks=pytest.mark.soak(takes_s=2)),
        (0.70, 7),
    ],
)
def test_overwriting_a_few_keys_for_ever_loses_nothing(share: float, hot: int) -> None:
    """A long stretch of live items comes to the tail again and again. These loads made the evicting store evict."""
    with Store(16 << 20, item_max_bytes=8192, no_evict=True, seed=3, huge_pages=0) as store:
        n = fill(store, share, 1000)
        for i in range(30_000):
            value = b"w" * (1000 if i // hot % 2 else 400)  # not replaced in place
            assert store.store(b"hot%d" % (i % hot), value) == "ok"
        usage = store.usage()
        assert usage["moved"] > n
        assert usage["evictions"] == usage["index_evictions"] == 0
        assert all(store.get(b"k%d" % i) for i in range(n))
        store.check()


def test_a_write_without_room_is_refused_and_changes_nothing(kept: Store) -> None:
    n = 0
    while kept.store(b"k%d" % n, b"v" * 1000) == "ok":
        n += 1
    usage = kept.usage()
    assert usage["log_bytes"] * 0.74 < usage["live_bytes"] <= usage["log_bytes"] * 0.75
    before = kept.get(b"k0")
    assert kept.store(b"k0", b"w" * 4000) == "no_memory"
    assert kept.store(b"k0", b"w" * 4000, mode="append") == "no_memory"
    assert kept.get(b"k0") == before
    session = Session(kept)
    refused = session.execute(b"set x 0 0 2000\r\n%s\r\n" % bytes(2000))
    assert refused == b"SERVER_ERROR out of memory storing object\r\n"
    for i in range(20_000):  # of one size, and smaller
        assert kept.store(b"k%d" % (i % n), b"w" * (1000 if i % 2 else 400)) == "ok"
    assert kept.delete(b"k1")
    assert kept.delete(b"k2")
    assert kept.store(b"new", b"v" * 900) == "ok"
    assert kept.get(b"k0") is not None


def test_what_expired_makes_room(kept: Store) -> None:
    fill(kept, 0.70, 1000)
    n = 0
    while kept.store(b"e%d" % n, b"v" * 400, expires_s=10) == "ok":
        n += 1
    kept.time_s = 9
    assert kept.store(b"x", b"v" * 1000) == "no_memory"
    kept.time_s = 10
    assert kept.store(b"x", b"v" * 1000) == "ok"
    while kept.store(b"y%d" % n, b"v" * 400) == "ok":
        n += 1
    assert kept.store(b"x", b"v" * 1000, expires_s=1) == "ok"  # gone at once, in the second that was looked at
    assert kept.store(b"z", b"v" * 500) == "ok"
    while kept.store(b"y%d" % n, b"v" * 400) == "ok":
        n += 1
    assert kept.touch(b"y%d" % (n - 1), 5)
    assert kept.store(b"z2", b"v" * 400) == "ok"
    assert kept.store(b"z3", b"v" * 400) == "no_memory"
    kept.flush_all()
    assert kept.store(b"z3", b"v" * 8000) == "ok"
    assert kept.usage()["items"] == 1


def test_reads_drop_nothing(kept: Store) -> None:
    kept.store(b"k", b"v", expires_s=5)
    kept.time_s = 5
    before = kept.usage()
    assert kept.get(b"k") is None
    assert kept.usage() == before
    assert kept.sweep() == 1


def test_a_full_index_refuses_new_keys_only() -> None:
    with Store(2 << 20, index_bytes=4096, no_evict=True, seed=5, huge_pages=0) as store:
        taken = [i for i in range(5000) if store.store(b"k%d" % i, b"v") == "ok"]
        assert 100 < len(taken) < 1000
        for i in taken:
            assert store.store(b"k%d" % i, b"a longer value") == "ok"
        assert store.delete(b"k%d" % taken[0])
        assert store.store(b"k%d" % taken[0], b"v") == "ok"
        assert store.usage()["items"] == len(taken)
        store.check()


def test_the_largest_items_at_the_limit(seed: int) -> None:
    """Pads before the log's end and moves across it always find the room that is kept for them."""
    with Store(1 << 20, no_evict=True, seed=5, huge_pages=0) as store:
        most = store.usage()["item_max_bytes"] - 48 - 8
        draw = random.Random(seed)
        seen: dict[bytes, bytes] = {}
        refused = 0
        for i in range(30_000):
            key = b"%d" % draw.randrange(60)
            value = b"%d" % i * 6000
            value = value[: most if draw.random() < 0.5 else int(most ** draw.random())]
            if draw.random() < 0.1:
                assert store.delete(key) == (seen.pop(key, None) is not None)
            elif store.store(key, value) == "ok":
                seen[key] = value
            else:
                refused += 1
        assert refused
        store.check()
        for key, value in seen.items():
            assert store.get(key)[0] == value  # type: ignore[index]


def test_items_must_be_small_beside_the_log() -> None:
    with pytest.raises(CorelaneError, match="1/32 of a partition's log"):
        Store(1 << 20, item_max_bytes=65536, no_evict=True)


def test_what_expires_in_a_second_that_was_there_before_makes_room(kept: Store) -> None:
    """The clock was set back. All had been looked at in that second once, and nothing was gone then."""
    kept.time_s = 100
    n = 0
    while kept.store(b"k%d" % n, b"v" * 1000) == "ok":
        n += 1
    kept.time_s = 50
    assert kept.delete(b"k0")
    assert kept.store(b"short", b"s" * 1000, expires_s=80) == "ok"
    kept.time_s = 100
    assert kept.store(b"more", b"m" * 1000) == "ok"

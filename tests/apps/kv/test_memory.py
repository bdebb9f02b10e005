"""Bounded memory: what is evicted, when, and that the accounts always balance."""

from __future__ import annotations

import random

import pytest

from corelane.apps.kv import Store
from corelane.runtime.errors import CorelaneError


def balanced(store: Store) -> dict[str, int]:
    """The store's usage, after checking it."""
    store.check()
    usage = store.usage()
    assert usage["live_bytes"] + usage["dead_bytes"] + usage["free_bytes"] == usage["log_bytes"]
    assert usage["index_bytes"] + usage["log_bytes"] < usage["memory_bytes"]
    return usage


def number(i: int) -> bytes:
    return b"key-%08d" % i


@pytest.mark.parametrize(
    ("value_bytes", "partitions"),
    [
        (0, 1),
        *(pytest.param(n, 1, marks=pytest.mark.soak(takes_s=3)) for n in (10, 100, 1000)),
        (100_000, 1),
        pytest.param(10, 4, marks=pytest.mark.soak(takes_s=3)),
        (1000, 4),
    ],
)
def test_memory_stays_bounded(partitions: int, value_bytes: int) -> None:
    """Several times more than fits goes in: the bound holds, what is newest is there, the accounts balance."""
    size = partitions << 20
    with Store(size, partitions=partitions, seed=5, huge_pages=0) as store:
        n = min(3 * size // (value_bytes + 48), 100_000)
        for i in range(n):
            assert store.store(number(i), b"v" * value_bytes) == "ok"
        usage = balanced(store)
        assert usage["memory_bytes"] <= size
        assert usage["items"] + usage["evictions"] + usage["index_evictions"] == n
        assert usage["evictions"] + usage["index_evictions"] > 0
        assert store.get(number(n - 1)) is not None
        assert store.get(number(0)) is None
        if value_bytes >= 10:
            assert usage["live_bytes"] > usage["log_bytes"] * 0.6


def test_nothing_is_evicted_while_there_is_room() -> None:
    """Overwriting and deleting for ever leaves everything else in place: dead items are reclaimed, not live ones."""
    with Store(4 << 20, seed=5, huge_pages=0) as store:
        draw = random.Random(1)
        for i in range(10_000):
            store.store(number(i), b"v" * 100)
        for _ in range(15_000):
            i = 20_000 + draw.randrange(100)
            if draw.random() < 0.1:
                store.delete(number(i))
            else:
                store.store(number(i), b"w" * draw.randrange(1000))  # sizes differ: most are not in place
        usage = balanced(store)
        assert usage["evictions"] == usage["index_evictions"] == 0
        assert usage["moved"] > 0
        assert all(store.get(number(i)) for i in range(10_000))


def test_what_is_used_stays() -> None:
    """A working set of a fifth of the memory, read all the time, survives a scan of four times the memory."""
    with Store(1 << 20, seed=5, huge_pages=0) as store:
        hot = [number(i) for i in range(1250)]
        for key in hot:
            store.store(key, b"h" * 100)
        for i in range(25_000):
            store.store(b"scan-%d" % i, b"s" * 100)
            store.get(hot[i % len(hot)])
        balanced(store)
        assert sum(store.get(key) is not None for key in hot) > 0.98 * len(hot)


def test_hits_are_no_fewer_than_under_lru() -> None:
    """Zipf reads with fill on miss: not worse than an exact LRU of as many items."""
    from collections import OrderedDict

    draw = random.Random(11)
    weights = [1 / (i + 1) ** 0.9 for i in range(40_000)]
    wanted = draw.choices(range(40_000), weights, k=30_000)
    with Store(1 << 20, item_max_bytes=1024, seed=5, huge_pages=0) as store:
        hits = 0
        for i in wanted:
            if store.get(number(i)):
                hits += 1
            else:
                store.store(number(i), b"v" * 60)
        room = balanced(store)["items"]
        lru: OrderedDict[int, None] = OrderedDict()
        lru_hits = 0
        for i in wanted:
            if i in lru:
                lru_hits += 1
                lru.move_to_end(i)
            else:
                lru[i] = None
                if len(lru) > room:
                    lru.popitem(last=False)
        assert hits >= lru_hits


def test_index_runs_out_before_the_log() -> None:
    with Store(2 << 20, index_bytes=4096, seed=5, huge_pages=0) as store:
        for i in range(5000):
            assert store.store(number(i), b"v") == "ok"
        usage = balanced(store)
        assert usage["index_evictions"] > 0
        assert usage["evictions"] == 0
        assert store.get(number(4999)) is not None


def test_a_full_index_drops_what_came_first() -> None:
    """But not what is asked for, and that no longer than it is."""
    with Store(2 << 20, index_bytes=4096, seed=5, huge_pages=0) as store:
        asked = [number(i) for i in range(10)]
        for i in range(2000):
            assert store.store(number(i), b"v") == "ok"
            if i % 8 == 0 or i < len(asked):
                assert all(store.get(key) is not None for key in asked[: i + 1]), i
        for i in range(2000, 4000):
            assert store.store(number(i), b"v") == "ok"
        newest = balanced(store)["items"] // 4
        assert all(store.get(number(i)) is not None for i in range(4000 - newest, 4000))
        assert not any(store.get(key) for key in asked)


def test_items_of_all_sizes() -> None:
    """Sizes from nothing to the largest, with deletes: pads, wraps and compaction keep the accounts right."""
    with Store(2 << 20, seed=5, huge_pages=0) as store:
        draw = random.Random(2)
        most = store.usage()["item_max_bytes"] - 48 - 12
        for _ in range(8_000):
            key = number(draw.randrange(500))
            size = int(most ** draw.random())
            if draw.random() < 0.2:
                store.delete(key)
            else:
                value = bytes([size % 251]) * size
                assert store.store(key, value) == "ok"
                assert store.get(key) == (value, 0, store.get(key)[2])  # type: ignore[index]
        usage = balanced(store)
        assert usage["items"] <= 500


def test_too_large() -> None:
    with Store(2 << 20, item_max_bytes=2048, seed=5) as store:
        assert store.store(b"k", b"v" * (2048 - 48 - 1)) == "ok"
        assert store.store(b"k", b"v" * (2048 - 48), mode="add") == "too_large"
        assert store.get(b"k") is not None
        assert store.store(b"k", b"v" * (2048 - 48)) == "too_large"
        assert store.get(b"k") is None, "an old value must not outlive a set that failed"
        assert store.counters()["store_too_large"] == 2
        balanced(store)


def test_expired_items_make_room_first() -> None:
    with Store(4 << 20, manual_clock=True, seed=5, huge_pages=0) as store:
        for i in range(15_000):
            store.store(number(i), b"v" * 100, expires_s=10 if i % 2 else 0)
        store.time_s = 10
        assert store.get(number(1)) is None
        assert store.get(number(0)) is not None
        before = store.usage()["items"]
        assert store.sweep() == before - 7500
        assert balanced(store)["items"] == 7500
        for i in range(15_000, 22_000):
            store.store(number(i), b"v" * 100)
        usage = balanced(store)
        assert usage["evictions"] == 0
        assert usage["items"] == 14_500


def test_expiry_rules(store: Store) -> None:
    """Protocol times to the store's clock: 0 never, negative past, up to 30 days relative, beyond that Unix time."""
    from corelane.apps._native import lib

    store.time_s = 1000
    thread = store.thread()
    base = lib.cl_kv_unix_base(store.ptr)
    month = 30 * 86400
    assert lib.cl_kv_expiry(thread, 0) == 0
    assert lib.cl_kv_expiry(thread, -1) == 1
    assert lib.cl_kv_expiry(thread, 5) == 1005
    assert lib.cl_kv_expiry(thread, month) == 1000 + month
    assert lib.cl_kv_expiry(thread, month + 1) == 1  # 1970
    assert lib.cl_kv_expiry(thread, base) == 1
    assert lib.cl_kv_expiry(thread, base + 5000) == 5000


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"memory_bytes": 1000}, "memory_bytes must be"),
        ({"partitions": 3}, "power of two"),
        ({"partitions": 128}, "power of two"),
        ({"memory_bytes": 2 << 20, "partitions": 4}, "1 MiB a partition"),
        ({"threads": 5000}, "threads must be"),
        ({"item_max_bytes": 1 << 30}, "item_max_bytes must be"),
        ({"index_bytes": 1 << 30}, "index_bytes must be"),
        ({"huge_pages": 3}, "huge_pages must be"),
    ],
)
def test_refusals(settings: dict[str, int], reason: str) -> None:
    with pytest.raises(CorelaneError, match=reason):
        Store(**settings)  # type: ignore[arg-type]


def test_closed_store_says_so() -> None:
    store = Store(1 << 20)
    store.close()
    store.close()
    with pytest.raises(CorelaneError, match="closed"):
        store.get(b"k")

"""Counters, rate limiters and LRU tables: in C against models, in Python, and from compiled handlers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from corelane import libos
from corelane.libos.numba.calls import bucket_take, counter_add, counter_read, lru_get, lru_put, lru_remove
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., Any]
SANITIZED = bool(os.environ.get("CORELANE_SANITIZE"))


@pytest.mark.parametrize(("kthreads", "mode"), [(1, "block"), (4, "block"), (2, "spin")])
def test_against_models_and_by_many(c_program: Callable[..., Any], kthreads: int, mode: str, seed: int) -> None:
    c_program("tests/libos/state/c/state.c")(kthreads, mode, seed, 500 if SANITIZED else 5000)


def test_a_table_holds_no_python_objects() -> None:
    for key, value in ((object, np.uint64), (np.uint64, dict), ("u4", [("of", "O")])):
        with pytest.raises(CorelaneError, match=r"make an LRU table: .* is kept as a Python object, which C cannot"):
            libos.LruTable(10, key, value)


def test_counter_and_bucket() -> None:
    counter = libos.ShardedCounter()
    counter.add(5)
    counter.add(-7)
    counter.add()
    assert int(counter) == -1
    bucket = libos.TokenBucket(1, burst=3)
    assert [bucket.take(2), bucket.take()] == [0, 0]
    assert 0 < bucket.take() <= 1
    assert bucket.counters == {"taken": 3, "refused": 1}
    with pytest.raises(CorelaneError, match="take no more at a time than the burst"):
        bucket.take(4)
    for bad in ((0, 1), (10**9 + 1, 1), (1, 0), (1, 2**32), (1, 10**9)):
        with pytest.raises(CorelaneError, match=r"give 1 to 10\^9 a second"):
            libos.TokenBucket(*bad)


def test_table() -> None:
    table = libos.LruTable(3, key="S8", value=np.float64, shards=1)
    assert not any(table.put(name, i) for i, name in enumerate((b"a", b"b", b"c")))
    assert table.get(b"a") == 0.0
    assert table.put(b"d", 7)  # b goes
    assert table.get(b"b", "none") == "none"
    assert [table.get(name) for name in (b"a", b"c", b"d")] == [0.0, 2.0, 7.0]
    assert (table.remove(b"a"), table.remove(b"a"), len(table)) == (True, False, 2)
    assert table.counters == {"hits": 4, "misses": 1, "inserted": 4, "replaced": 0, "evicted": 1, "removed": 1}
    for bad in ((0, "S8", "u8", None), (5, "S257", "u8", None), (5, "u8", "S4097", None), (5, "u8", "u8", 3)):
        with pytest.raises(CorelaneError, match="shards a power of two"):
            libos.LruTable(*bad[:3], shards=bad[3])


def test_in_a_handler(serve: Serve) -> None:
    seen, requests, limit = libos.LruTable(4, np.uint8, np.uint8), libos.ShardedCounter(), libos.TokenBucket(1, 3)
    state = np.array([seen.address, requests.address, limit.address], np.uint64)

    @libos.udp(9000, state=state)
    def remember(request: Any, reply: Any, state: Any) -> Any:
        """Value for key, 255 if there is none; then the new one is entered. Four bytes ask something else."""
        counter_add(state[1], 1)
        if len(request) == 4:
            reply[0] = counter_read(state[1])
            reply[1] = lru_remove(state[0], request[:1]) == 0
            reply[2] = lru_get(state[0], request, reply[:1]) == -errno.EINVAL
            return 3
        if bucket_take(state[2], 1):
            reply[0] = 254
            return 1
        if lru_get(state[0], request[:1], reply[:1]):
            reply[0] = 255
        lru_put(state[0], request[:1], request[1:2])
        return 1

    served = serve(remember)
    answers = [served.ask(bytes(pair))[0] for pair in ((1, 7), (1, 8), (2, 9), (1, 1))]
    assert answers == [255, 7, 255, 254]
    assert seen.get(1) == 8
    assert served.ask(b"\x01abc") == b"\x05\x01\x01"
    assert seen.get(1) is None
    assert int(requests) == 5
    assert limit.counters == {"taken": 3, "refused": 1}

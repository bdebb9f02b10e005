"""Fixtures of the kv tests: a store with a clock of its own, and stock memcached as the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corelane.apps.kv import Store
from corelane.bench.baseline import memcached


@pytest.fixture
def store() -> Iterator[Store]:
    """4 MiB, one partition, manual clock, fixed hash seed; its invariants are checked at the end of the test."""
    with Store(4 << 20, manual_clock=True, seed=1, huge_pages=0) as made:
        yield made
        made.check()


@pytest.fixture(scope="session")
def oracle() -> Iterator[memcached.Memcached]:
    """A stock memcached of this test session on loopback."""
    why = memcached.missing()
    if why:
        pytest.skip(why)
    with memcached.Memcached(memory_mib=64) as server:
        yield server

"""The replicated store's state machine alone: replicas stay the same when it is full, and after snapshots."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from corelane.apps._native import lib
from corelane.apps.kv import Store
from corelane.apps.raft.service import app
from corelane.apps.raft.service.logs import snapshot_bytes

Make = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("kind", ["mixed", "tiny"])
def test_replicas_decide_alike_whatever_they_were_asked_and_were_made_from(
    c_program: Make, seed: int, kind: str
) -> None:
    commands = 10_000 if os.environ.get("CORELANE_SANITIZE") else 60_000
    run = c_program("tests/apps/raft/node/c/kv_replicas.c", one_thread=True)
    assert f"{commands} commands" in run(commands, seed, kind)


def test_the_default_store_fits_into_a_snapshot_of_the_log_that_the_docs_make() -> None:
    memory = app.Options().memory_bytes
    with Store(memory, item_max_bytes=8192, index_bytes=memory // 6, no_evict=True, seed=1) as store:
        most = lib.cl_kv_image_most(store.ptr)
    sessions = app.Options().max_sessions * (16384 + 64)
    assert most + sessions + 8192 < snapshot_bytes(256 << 20) * (1 - 1 / 1024)

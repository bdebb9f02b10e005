"""The replicated store's state machine alone: replicas stay the same when it is full, and after snapshots."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

Make = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("kind", ["mixed", "tiny"])
def test_replicas_decide_alike_whatever_they_were_asked_and_were_made_from(
    c_program: Make, seed: int, kind: str
) -> None:
    commands = 10_000 if os.environ.get("CORELANE_SANITIZE") else 60_000
    assert f"{commands} commands" in c_program("tests/apps/raft/c/kv_replicas.c")(commands, seed, kind)

"""What a service says of its node on the logger, once."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest
from cltest import wait_until

from corelane.apps._native import lib
from corelane.apps.raft import service
from corelane.apps.raft.service import RaftService


@pytest.mark.parametrize(("number", "said"), [(0, 0), (errno.EIO, 1)])
def test_snapshots_that_fail_are_told_of_once_with_the_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, said: int
) -> None:
    looks = 0

    def counters(_node: Any, out: Any) -> None:
        nonlocal looks
        looks += 1
        out.snapshot_errno = number if looks > 3 else 0

    played = SimpleNamespace(
        CL_RAFT_STOPPED=lib.CL_RAFT_STOPPED,
        cl_raft_service_node=lambda _: None,
        cl_raft_node_state=lambda _: lib.CL_RAFT_RUNNING,
        cl_raft_service_status=lambda *_: None,
        cl_raft_node_counters=counters,
        cl_raft_service_delete=lambda _: None,
    )
    monkeypatch.setattr(service, "lib", played)
    monkeypatch.setattr(service, "WATCH_S", 0.001)
    one = RaftService(None, 7, (7400,), None, [], "")
    wait_until(lambda: looks > 20, 60, "the node to be looked at")
    one.close()
    texts = [r.getMessage() for r in caplog.records]
    assert len(texts) == said
    for text in texts:
        assert text.startswith(f"Raft node 7 cannot make a snapshot: Input/output error [errno {number}].")

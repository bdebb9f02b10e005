"""What a service says of its node on the logger, once."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from cltest import wait_until

from corelane.apps._native import ffi, lib
from corelane.apps.raft.service import service
from corelane.apps.raft.service.service import RaftService
from corelane.runtime.errors import CorelaneError


def said_of(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    look: Callable[[int, Any], None] = lambda *_: None,
    awaits: Callable[[int], int] = lambda _: 0,
) -> list[str]:
    """What node 7, whose peers are 5 and 6, says while `look` sets its counters at each look, from 1 on, and `awaits`
    says what its log owes it."""
    looks = 0

    def counters(_node: Any, out: Any) -> None:
        nonlocal looks
        looks += 1
        look(looks, out)

    played = SimpleNamespace(
        CL_RAFT_STOPPED=lib.CL_RAFT_STOPPED,
        cl_raft_service_node=lambda _: None,
        cl_raft_node_state=lambda _: lib.CL_RAFT_RUNNING,
        cl_raft_node_counters=counters,
        cl_raft_node_awaits=lambda _: awaits(looks),
        cl_raft_node_first_voters=lambda *_: 0,
        cl_raft_service_delete=lambda _: None,
    )
    monkeypatch.setattr(service, "lib", played)
    monkeypatch.setattr(service, "WATCH_S", 0.001)
    one = RaftService(None, 7, (7400,), None, [], "", others=(5, 6))
    wait_until(lambda: looks > 20, 60, "the node to be looked at")
    one.close()
    return [r.getMessage() for r in caplog.records]


@pytest.mark.parametrize(("number", "said"), [(0, 0), (errno.EIO, 1)])
def test_snapshots_that_fail_are_told_of_once_with_the_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, said: int
) -> None:
    def look(n: int, out: Any) -> None:
        out.snapshot_errno = number if n > 3 else 0

    texts = said_of(monkeypatch, caplog, look)
    assert len(texts) == said
    for text in texts:
        assert text.startswith(f"Raft node 7 cannot make a snapshot: Input/output error [errno {number}].")


@pytest.mark.parametrize("field", service.REFUSALS)
def test_of_refused_nodes_only_those_that_can_exist_are_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    senders = [0, 7, 4294967295, 6, 8, 6, 7]

    def look(n: int, out: Any) -> None:
        setattr(out, field, n)
        setattr(out, f"{field}_node", senders[n % len(senders)])

    texts = said_of(monkeypatch, caplog, look)
    assert len(texts) == 1
    assert texts[0].startswith("Raft node 7 refuses node 6")


@pytest.mark.parametrize("why", [b"its disk failed", b"its disk failed\xce"], ids=["", "cut inside a letter"])
def test_a_stop_that_was_not_seen_before_the_close_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: bytes
) -> None:
    failed: list[CorelaneError] = []
    played = SimpleNamespace(
        CL_RAFT_STOPPED=lib.CL_RAFT_STOPPED,
        cl_raft_service_node=lambda _: None,
        cl_raft_node_state=lambda _: lib.CL_RAFT_STOPPED,
        cl_raft_node_why=lambda _: ffi.new("char[]", why),
        cl_raft_service_delete=lambda _: None,
    )
    monkeypatch.setattr(service, "lib", played)
    monkeypatch.setattr(service, "WATCH_S", threading.TIMEOUT_MAX)
    RaftService(None, 7, (7400,), None, [], "", fail=failed.append).close()
    said = why.decode(errors="replace")
    assert [str(error) for error in failed] == [f"serve Raft node 7: it has stopped: {said}"]
    assert [r.getMessage() for r in caplog.records] == [
        f"Raft node 7 has stopped, and the others go on without it: {said}"
    ]


OWED = [1, 3, 5, 6, 6, 7, 7, 7, 7, 7, 7, 7, 8, 8, 9, 9, 9, 9, 9, 9, 9]


@pytest.mark.parametrize(
    ("awaits", "said"),
    [
        (lambda n: 2 * n + 1, 0),  # never idle, and answered in time
        (lambda _: 6, 0),  # idle
        (lambda n: 6 if n < 5 else 7, 1),
        (lambda n: OWED[n - 1] if n <= len(OWED) else 10, 2),
    ],
    ids=["busy", "idle", "hangs", "hangs twice"],
)
def test_a_disk_that_does_not_answer_is_told_of_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, awaits: Callable[[int], int], said: int
) -> None:
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += 0.4
        return now

    monkeypatch.setattr(service, "time", SimpleNamespace(monotonic=monotonic))
    texts = said_of(monkeypatch, caplog, awaits=awaits)
    assert len(texts) == said
    for text in texts:
        assert text.startswith("Raft node 7: its disk has not answered for 1 s, and it does not vote before it does")


@pytest.mark.parametrize(
    ("ahead_ms", "said"), [(0, None), (59_000, None), (3_600_000, "ahead of"), (-90_000, "behind")]
)
def test_a_clock_that_is_far_off_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ahead_ms: int, said: str | None
) -> None:
    def look(n: int, out: Any) -> None:
        out.clock_ahead_ms = ahead_ms if n > 3 else 0

    texts = said_of(monkeypatch, caplog, look)
    assert len(texts) == (said is not None)
    for text in texts:
        assert f"the log's clock is {abs(ahead_ms) // 1000} s {said} this machine's" in text
        assert "`corelane raft clock --set`" in text


@pytest.mark.parametrize("field", service.LOST)
def test_a_log_that_went_back_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    def look(n: int, out: Any) -> None:
        setattr(out, f"{field}_node", 5 if n > 3 else 0)

    (text,) = said_of(monkeypatch, caplog, look)
    assert text.startswith("Raft node 7: node 5 ")

"""Slow functions of several users: whose turn it is, and that waiting for somebody else takes nobody's turn."""

from __future__ import annotations

import select
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cltest import wait_until

from corelane.iokernel.control.jobs import Jobs
from corelane.runtime.errors import Refused

DEADLINE_S = 60


class Later(Refused):
    """What a function raises that found busy what it wants."""


@pytest.fixture
def jobs() -> Iterator[Callable[..., Jobs]]:
    """`made = jobs(at_once=n)`, closed at the end."""
    made: list[Jobs] = []

    def make(**options: int) -> Jobs:
        made.append(Jobs(Later, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def collect(jobs: Jobs, n: int) -> list[tuple[Any, Any]]:
    """The next n results, in the order in which they came."""
    got: list[tuple[Any, Any]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(got) < n:
        assert time.monotonic() < deadline, f"{len(got)} of {n} results"
        wait = min(jobs.due, deadline) - time.monotonic()
        if select.select([jobs.fd], [], [], max(0.0, wait))[0]:
            got += jobs.results()
        jobs.step()
    return got


def fail() -> None:
    raise SystemExit(3)


def test_results_and_exceptions_come_back_with_their_tags(jobs: Callable[..., Jobs]) -> None:
    made = jobs()
    made.put("anna", "fine", lambda: 5)
    made.put("anna", "fails", fail)
    (first, five), (second, error) = collect(made, 2)
    assert (first, five, second) == ("fine", 5, "fails")
    assert isinstance(error, SystemExit)


def test_of_one_user_one_runs_at_a_time_and_users_take_turns(jobs: Callable[..., Jobs]) -> None:
    made = jobs()
    go = threading.Event()
    made.put("anna", "a0", go.wait)
    for i in range(1, 40):
        made.put("anna", f"a{i}", lambda: None)
    for i in range(2):
        made.put("bert", f"b{i}", lambda: None)
    go.set()
    order = [tag for tag, _ in collect(made, 42)]
    assert order[:5] == ["a0", "a1", "b0", "a2", "b1"]
    assert order[5:] == [f"a{i}" for i in range(3, 40)]


def test_a_slow_one_of_one_user_leaves_room_for_another(jobs: Callable[..., Jobs]) -> None:
    made = jobs(at_once=2)
    go = threading.Event()
    made.put("anna", "slow", go.wait)
    made.put("anna", "behind it", lambda: None)
    made.put("bert", "quick", lambda: None)
    assert collect(made, 1) == [("quick", None)]
    go.set()
    assert [tag for tag, _ in collect(made, 2)] == ["slow", "behind it"]


def test_what_is_busy_is_tried_again_and_holds_nobody_up(jobs: Callable[..., Jobs]) -> None:
    made = jobs()
    calls = 0

    def busy() -> None:
        nonlocal calls
        calls += 1
        raise Later("it is busy")

    for i in range(40):
        made.put("anna", f"busy {i}", busy)
    made.put("anna", "her own", lambda: None)
    made.put("bert", "another's", lambda: None)
    first = collect(made, 2)
    assert {tag for tag, _ in first} == {"her own", "another's"}, "none of those that wait has come to its end"
    rest = collect(made, 40)
    assert all(isinstance(result, Later) for _, result in rest)
    assert calls == 40 * 7, "each is called again six times, not more"


def test_what_is_busy_for_a_moment_only_is_had(jobs: Callable[..., Jobs]) -> None:
    made = jobs()
    busy = [True, True, False]

    def open_it() -> str:
        if busy.pop(0):
            raise Later("it is busy")
        return "opened"

    made.put("anna", "open", open_it)
    assert collect(made, 1) == [("open", "opened")]


def test_what_nobody_waits_for_is_not_begun(jobs: Callable[..., Jobs]) -> None:
    made = jobs()
    go, begun = threading.Event(), []
    made.put("anna", "first", go.wait)
    for tag in ("gone", "stays", "gone"):
        made.put("anna", tag, lambda tag=tag: begun.append(tag))  # type: ignore[misc]
    made.put("bert", "gone", lambda: begun.append("bert's"))
    made.forget("gone")
    go.set()
    assert [tag for tag, _ in collect(made, 2)] == ["first", "stays"]
    assert begun == ["stays"]


def test_threads_are_kept_and_no_more_than_run_at_a_time(jobs: Callable[..., Jobs]) -> None:
    made = jobs(at_once=2)
    threads: set[int] = set()
    for i in range(20):
        for user in ("anna", "bert", "carl"):
            made.put(user, i, lambda: threads.add(threading.get_native_id()))
        collect(made, 3)
    assert 1 <= len(threads) <= 2


def test_threads_that_wait_keep_nothing_of_what_they_did(jobs: Callable[..., Jobs]) -> None:
    class Connection:
        pass

    made, connection = jobs(), Connection()
    gone = weakref.ref(connection)
    made.put("anna", connection, lambda: None)
    assert collect(made, 1) == [(connection, None)]
    del connection
    wait_until(lambda: gone() is None, what="the last reference to go")


def test_closing_leaves_what_takes_too_long_to_itself() -> None:
    made, go = Jobs(Later), threading.Event()
    made.put("anna", "runs", go.wait)
    made.close(0.0)
    go.set()
    assert {tag for tag, _ in collect(made, 1)} == {"runs"}, "it could still say that it is done"
    made.close()


def test_closing_waits_for_what_runs_and_begins_nothing() -> None:
    made, go, begun = Jobs(Later), threading.Event(), []
    made.put("anna", "runs", go.wait)
    made.put("anna", "waits", lambda: begun.append(1))
    go.set()
    made.close()
    assert not begun

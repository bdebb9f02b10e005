"""When a node may wait in the kernel for its disk (in_call.c), in virtual time; and that one does."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.apps._native import ffi, lib

US, MS, S = 1_000, 1_000_000, 1_000_000_000
LIMIT = 25 * MS


class Calls:
    """The rule, and a clock."""

    def __init__(self, limit_ns: int = LIMIT) -> None:
        self.c: Any = ffi.new("struct cl_raft_in_call *", {"limit_ns": limit_ns})
        self.now = 7 * S
        self.turn = 1

    def may(self) -> bool:
        return bool(lib.cl_raft_in_call_may(self.c, self.now))

    def call(self, took: int = 60 * US) -> None:
        lib.cl_raft_in_call_ended(self.c, self.now, self.now + took)
        self.now += took
        self.turn += 1

    def answered(self) -> None:
        lib.cl_raft_in_call_answered(self.c, self.turn)

    def work(self, after: int) -> None:
        self.now += after
        lib.cl_raft_in_call_work(self.c, self.now, self.turn)

    def rests(self) -> int:
        """How long until the next call, to the microsecond."""
        low, high = 0, 200 * S
        while high - low > US // 2:
            middle = (low + high) // 2
            low, high = (low, middle) if lib.cl_raft_in_call_may(self.c, self.now + middle) else (middle, high)
        return high


def test_one_client_that_waits_for_each_answer_has_all_its_writes_in_the_call() -> None:
    calls = Calls()
    for _ in range(1000):
        assert calls.may()
        calls.call()
        calls.work(after=4 * US)
    assert calls.c.calls == 1000
    assert calls.c.late == 0


def test_what_a_client_asks_once_it_was_answered_did_not_come_meanwhile() -> None:
    calls = Calls()
    for _ in range(1000):
        assert calls.may()
        calls.call()
        calls.answered()
        calls.turn += 1
        calls.work(after=US // 2)
    assert calls.c.late == 0


def test_what_is_handled_in_the_turn_of_the_answer_had_come_before_it() -> None:
    calls = Calls()
    calls.call()
    calls.answered()
    calls.work(after=US // 2)
    assert calls.c.late == 1
    calls.now += calls.rests()
    calls.call()  # the answer before it says nothing of what comes now
    calls.work(after=US // 2)
    assert calls.c.late == 2


def test_without_a_limit_there_are_none() -> None:
    assert not Calls(limit_ns=0).may()


@pytest.mark.parametrize(("election_ms", "limit_ms"), [(10, 0), (79, 0), (80, 20), (1000, 250)])
def test_the_limit_is_a_quarter_of_an_election_that_outlasts_a_stall(election_ms: int, limit_ms: int) -> None:
    assert lib.cl_raft_in_call_limit(election_ms * MS) == limit_ms * MS


def test_work_that_came_meanwhile_ends_them_for_longer_each_time() -> None:
    calls = Calls()
    for rest in (1, 2, 4, 8, 16, 32, 64, 64, 64):
        calls.call()
        calls.work(after=US)
        assert not calls.may()
        assert calls.rests() == pytest.approx(rest * MS, abs=US)
        calls.now += calls.rests()
        assert calls.may()
    assert calls.c.late == 9


def test_the_work_of_one_call_counts_once() -> None:
    calls = Calls()
    calls.call()
    for _ in range(5):
        calls.work(after=100)
    assert calls.c.late == 1
    assert calls.rests() < 2 * MS


def test_rests_begin_anew_once_calls_have_gone_well() -> None:
    calls = Calls()
    for _ in range(4):
        calls.call()
        calls.work(after=US)
        calls.now += calls.rests()
    calls.now += 20 * MS
    calls.call()
    calls.work(after=US)
    assert calls.rests() == pytest.approx(MS, abs=US)


def test_a_call_as_long_as_a_quarter_of_an_election_ends_them_for_a_second_and_more() -> None:
    calls = Calls()
    calls.call(took=LIMIT)
    assert calls.may()
    for rest in (1, 2, 4, 8, 16, 32, 64, 64):
        calls.call(took=LIMIT + 1)
        assert calls.rests() == pytest.approx(rest * S, abs=US)
        calls.now += calls.rests()
    assert calls.c.long_ones == 8
    calls.now += 129 * S
    calls.call(took=LIMIT + 1)
    assert calls.rests() == pytest.approx(S, abs=US)


def test_the_longer_rest_holds() -> None:
    calls = Calls()
    calls.call(took=LIMIT + 1)
    calls.work(after=US)
    assert calls.rests() > 900 * MS

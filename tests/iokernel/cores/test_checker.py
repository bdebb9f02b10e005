"""The checkers of the soak (cltest/moves.py) find what is wrong: logs and notes that no iokernel wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cltest.cores import Notes
from cltest.moves import (
    BLOCKED,
    CEDED,
    DIED,
    DONE,
    EVICTED,
    FOR_EVER,
    INTERRUPTED,
    LEFT,
    STALLED,
    WANTED,
    WOKEN,
    Move,
    MoveChecker,
    Span,
    ran_unowned,
)

CPU = 1
A, B, C = 1, 2, 3
RUN = np.dtype([("begin", "u8"), ("end", "u8"), ("stamps", "u8"), ("cpu", "u8")])
GAP, SKEW = 20, 2
GOOD = [
    Move(100, CPU, 0, A, WANTED),
    Move(110, CPU, A, A, DONE, after=1),
    Move(200, CPU, A, B, WANTED),
    Move(210, CPU, B, B, DONE, after=2),
    Move(300, CPU, B, A, WANTED),
    Move(310, CPU, A, A, DONE),
    Move(320, CPU, A, A, WOKEN),
    Move(330, CPU, A, A, DONE),
    Move(400, CPU, A, B, WANTED),
    Move(430, CPU, B, B, INTERRUPTED, about=A),
    Move(460, CPU, B, B, EVICTED, about=A),
    Move(470, CPU, B, B, DONE),
    Move(500, CPU, B, A, WANTED),
    Move(510, CPU, A, A, DONE, leaving=1),
    Move(530, CPU, A, A, CEDED, about=B),
    Move(600, CPU, A, 0, LEFT),
]


def checked(moves: list[Move], slots: tuple[int, ...] = (A, B)) -> MoveChecker:
    checker = MoveChecker()
    for slot in slots:
        checker.came(slot, 50)
    checker.feed(moves)
    checker.check_owners()
    return checker


def test_a_log_that_is_right() -> None:
    checker = checked(GOOD)
    assert checker.faults == []
    assert checker.seen == {WANTED: 5, DONE: 6, WOKEN: 1, INTERRUPTED: 1, EVICTED: 1, CEDED: 1, LEFT: 1}
    checker.went(A, 700)
    assert checker.faults == []


@pytest.mark.parametrize("at", range(len(GOOD)))
def test_an_entry_that_is_missing_is_noticed_if_it_changed_the_owner(at: int) -> None:
    """A gap: the next entry does not begin with the owner. (The last one: see the application that is gone.)"""
    checker = checked(GOOD[:at] + GOOD[at + 1 :])
    if GOOD[at].what == WANTED:
        assert checker.faults
    elif GOOD[at].what == LEFT:
        checker.went(A, 700)
        assert "the owner is gone" in checker.faults[0]


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (Move(700, CPU, B, A, WANTED), "does not begin with the owner"),
        (Move(700, CPU, A, B, DONE), "another owner, though nothing moved"),
        (Move(700, CPU, A, A, DONE), "begun without a move"),
        (Move(700, CPU, A, A, WANTED), "a second core for one kthread, or the same again"),
        (Move(700, CPU + 1, 0, A, WANTED), "a second core for one kthread"),
        (Move(700, CPU, A, C, WANTED), "an owner that is not registered"),
        (Move(700, CPU, A, 0, WANTED), "an owner where there is none"),
        (Move(700, CPU, A, B, STALLED), "an owner where there is none"),
        (Move(700, CPU + 1, 0, 0, DIED), "an owner where there is none"),
        (Move(700, CPU + 1, 0, 0, CEDED, about=A), "about nobody who had the core before"),
        (Move(700, CPU + 1, 0, 0, INTERRUPTED, about=A), "about nobody who had the core before"),
        (Move(700, CPU, A, A, EVICTED, about=A), "about nobody who had the core before"),  # it has it
        (Move(700, CPU + 1, 0, 0, WOKEN), "or nobody"),
        (Move(1, CPU, A, B, WANTED), "a stamp went back"),
        (Move(700, CPU, A, A, 99), "no such entry"),
    ],
)
def test_an_entry_that_cannot_be_is_noticed(entry: Move, fault: str) -> None:
    checker = checked([*GOOD[:-1], entry])
    assert any(fault in found for found in checker.faults), checker.faults


def test_a_slot_that_another_application_had_is_not_its_own() -> None:
    checker = checked(GOOD)
    checker.went(A, 700)
    checker.feed([Move(800, CPU, 0, A, WANTED)])
    checker.check_owners()
    assert "an owner that is not registered" in checker.faults[0]
    again = checked(GOOD)
    again.went(A, 700)
    again.came(A, 750)
    again.feed([Move(800, CPU, 0, A, WANTED)])
    again.check_owners()
    assert again.faults == []


def faults_of(slot: int, *runs: tuple[int, int], cpu: int = CPU) -> list[str]:
    """What is wrong if the application of this slot noted these runs beside the good log."""
    spans = checked(GOOD).went(slot, 700)
    noted = np.array([(begin, end, 2, cpu) for begin, end in runs], RUN)
    return ran_unowned(noted, spans, (50, 700), GAP, SKEW)


def test_runs_that_the_log_allows() -> None:
    assert faults_of(A, (101, 211), (300, 480), (485, 590)) == []  # evicted, it may go on beside the other
    assert faults_of(B, (200, 310), (420, 529)) == []  # until it ceded, which was later than the other began
    assert faults_of(A, (190, 213)) == []  # the loop saw the other one run at 212 only


@pytest.mark.parametrize(
    ("slot", "run"),
    [
        (A, (60, 90)),  # before it had the core
        (A, (190, 220)),  # after the other one was seen to run
        (A, (230, 240)),  # in the middle of the other one's time
        (A, (190, 320)),  # without a pause, though it was off for longer than a gap
        (B, (320, 390)),
        (B, (500, 540)),
    ],
)
def test_runs_that_the_log_does_not_allow(slot: int, run: tuple[int, int]) -> None:
    assert faults_of(slot, run)


def test_a_pause_too_short_to_be_seen_in_a_run_is_none() -> None:
    spans = checked([*GOOD[:2], Move(200, CPU, A, B, WANTED), Move(201, CPU, B, B, DONE), Move(215, CPU, B, A, WANTED)])
    noted = np.array([(150, 250, 9, CPU)], RUN)
    assert ran_unowned(noted, spans.went(A, 300), (50, 300), GAP, SKEW) == []


def spans_of(slot: int, *moves: Move) -> list[Span]:
    """By a log that begins with A on the core."""
    checker = checked([*GOOD[:2], *moves])
    assert checker.faults == []
    return checker.spans[slot]


def test_who_dies_before_it_has_let_go_may_run_beside_the_next_owner_until_then() -> None:
    """Its steps are not over, and no entry will say how they ended."""
    (span,) = spans_of(A, Move(200, CPU, A, B, WANTED), Move(290, CPU, B, B, DONE, leaving=1))
    assert span.end == FOR_EVER
    (span,) = spans_of(A, Move(200, CPU, A, B, WANTED), Move(290, CPU, B, B, DONE, after=2))
    assert span.end == 292


def test_a_new_owner_that_goes_leaves_the_old_one_its_steps() -> None:
    moves = [Move(200, CPU, A, B, WANTED), Move(230, CPU, B, 0, LEFT, leaving=1)]
    assert spans_of(A, *moves)[0].end == FOR_EVER
    assert spans_of(B, *moves)[0].end == 230
    assert spans_of(A, *moves, Move(240, CPU, 0, 0, CEDED, about=A))[0].end == 240
    evicted = spans_of(A, *moves, Move(260, CPU, 0, 0, EVICTED, about=A))[0]
    assert (evicted.end, evicted.evicted) == (FOR_EVER, True)
    assert spans_of(A, *moves, Move(250, CPU, 0, B, WANTED))[0].end == 250  # somebody has the core, so A had let go
    assert spans_of(A, moves[0], Move(230, CPU, B, 0, LEFT))[0].end == 230


def test_who_did_not_begin_and_got_up_after_all_may_run_until_it_has_ceded() -> None:
    moves = [Move(200, CPU, A, B, WANTED), Move(230, CPU, B, 0, STALLED, leaving=1)]
    assert spans_of(B, *moves)[0].end == 230
    assert spans_of(B, *moves, Move(240, CPU, 0, 0, CEDED, about=B))[0].end == 240
    up = [*moves, Move(240, CPU, 0, 0, INTERRUPTED, about=B)]
    assert spans_of(B, *up)[0].end == FOR_EVER
    assert spans_of(B, *up, Move(250, CPU, 0, 0, CEDED, about=B))[0].end == 250
    assert spans_of(B, *up, Move(260, CPU, 0, 0, EVICTED, about=B))[0].evicted


def test_steps_are_taken_for_who_was_found_blocked_and_goes_on_when_others_have_had_its_core_since() -> None:
    moves = [
        Move(200, CPU, A, A, BLOCKED),
        Move(210, CPU, A, B, WANTED),
        Move(220, CPU, B, B, DONE),
        Move(230, CPU, B, 0, LEFT),
        Move(240, CPU, 0, B, WANTED),
        Move(250, CPU, B, B, DONE),
        Move(260, CPU, B, B, INTERRUPTED, leaving=1, about=A),
        Move(270, CPU, B, B, CEDED, about=A),
    ]
    assert spans_of(A, *moves)[0].evicted_at == 210  # since then at what the kernel gives it
    wrong = checked([*GOOD[:2], *moves[1:]])  # it was not found so
    assert [fault.split(": ")[1] for fault in wrong.faults] == 2 * ["it is about nobody who had the core before"]


def test_a_cpu_that_was_never_its_own() -> None:
    assert faults_of(A, (120, 150), cpu=CPU + 1)


@pytest.mark.parametrize(("end", "wrong"), [(327, False), (350, True)])
def test_who_gets_another_core_had_let_go_of_its_own_when_that_was_decided_not_when_the_round_began(
    end: int, wrong: bool
) -> None:
    """It cedes in the middle of a round, which finds it so, and has another core for it."""
    moves = [Move(200, CPU, A, B, WANTED), Move(300, CPU + 1, 0, A, WANTED, after=25)]
    noted = np.array([(150, end, 9, CPU)], RUN)
    assert bool(ran_unowned(noted, spans_of(A, *moves), (50, 700), GAP, SKEW)) == wrong


def test_who_is_evicted_may_run_on_any_cpu_until_it_has_a_core_again() -> None:
    assert faults_of(A, (461, 509), cpu=CPU + 1) == []
    assert faults_of(A, (440, 509), cpu=CPU + 1)
    assert faults_of(A, (461, 550), cpu=CPU + 1)


@pytest.mark.parametrize(
    ("begin", "end", "noted"),
    [(0, 0, []), (230, 240, [(230, 240)]), (250, 240, [(250, 250)])],  # the last: it had stored its new begin only
)
def test_the_run_in_which_it_was_killed_counts(
    tmp_path: Path, begin: int, end: int, noted: list[tuple[int, int]]
) -> None:
    notes = Notes(tmp_path / "notes")
    notes.head["open"][0] = (begin, end, 2, CPU)
    assert len(notes.runs()) == 0  # it goes on
    last = notes.last_runs()
    assert [(run["begin"], run["end"]) for run in last] == noted
    assert bool(ran_unowned(last, checked(GOOD).went(A, 700), (50, 700), GAP, SKEW)) == (end > begin)

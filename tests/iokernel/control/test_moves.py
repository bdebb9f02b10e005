"""The log of moves outside of the iokernel: asking for it, its entries, and the stamps of a hand-over."""

from __future__ import annotations

import os

import pytest
from cltest.control import answer, connect, kind_of, moves, refusal

from corelane.iokernel._native import ffi, lib
from corelane.iokernel.control import moves as log
from corelane.iokernel.control.moves import Move

CPU = max(os.sched_getaffinity(0))


def said(message: bytes) -> tuple[object, list[Move]]:
    """MOVES_OK, and its entries."""
    assert kind_of(message) == lib.CL_CONTROL_MOVES_OK
    head = ffi.new("struct cl_control_moves_ok *")
    size = ffi.sizeof("struct cl_control_moves_ok")
    ffi.memmove(head, message[:size], size)
    assert head.entry_bytes == ffi.sizeof("struct cl_io_move")
    assert len(message) == size + head.n * head.entry_bytes == head.header.bytes
    return head, log.entries(message[size:]) if head.n else []


def test_a_log_is_answered_from_the_entry_that_was_asked_for(start, socket_path) -> None:
    """Before anything moved: nothing, at the beginning; beyond the end, where nothing is yet; no such loop."""
    start(worker_cpus=[CPU], policy="delay")
    with connect(socket_path) as sock:
        for first, then in ((0, 0), (lib.CL_CONTROL_FROM_NOW, 0), (10**9, 10**9)):
            sock.sendall(moves(0, first))
            head, found = said(answer(sock))
            assert (head.next, head.lost, found) == (then, 0, [])
            assert head.hz == lib.cl_clock_default().hz
            assert head.tsc <= lib.cl_tsc_read()
        sock.sendall(moves(1))
        assert "there is no loop 1 (1 run, counted from 0)" in refusal(sock)


def test_entries_are_what_the_loop_logged() -> None:
    raw = ffi.new("struct cl_io_move[2]")
    for i in range(2):
        for n, name in enumerate(("tsc", "core", "from", "to", "what", "step", "leaving"), 1):
            setattr(raw[i], name, 10 * i + n)
        for n, name in enumerate(("decided", "stored", "lost", "left", "back"), 1):
            setattr(raw[i], name, 2**32 - 10 * n - i)
        raw[i].about = 99 + i
    first, second = log.entries(ffi.buffer(raw))
    assert first == Move(1, 3, 4, 5, 6, *(2**32 - 10 * n for n in range(1, 6)), core=2, leaving=7, about=99)
    assert (second.tsc, second.core, second.back) == (11, 12, 2**32 - 51)
    assert log.entries(ffi.buffer(raw), 1) == [first]


@pytest.mark.parametrize("near", [0x5_0000_0010, 0x5_FFFF_FFF0])
def test_a_stamp_is_made_whole_from_one_nearby(near: int) -> None:
    for off in (-(2**31) + 1, -1000, -1, 0, 1, 1000, 2**31 - 1):
        assert log.whole((near + off) % log.WORD, near) == near + off


def test_an_answer_holds_as_much_as_a_log() -> None:
    assert lib.CL_IO_MOVES_LOG * ffi.sizeof("struct cl_io_move") < lib.CL_CONTROL_MAX_REPLY


@pytest.mark.parametrize("scenario", ["what_is_written_over_is_counted", "no_answer_has_a_gap"])
def test_a_reader_knows_what_it_missed_and_where(c_program, scenario) -> None:
    assert f"passed {scenario}" in c_program("tests/iokernel/cores/c/log.c")(scenario, timeout_s=90)

"""Typed values as a state machine alone: replicas stay the same, also from images, and epochs keep strangers out."""

from __future__ import annotations

from collections.abc import Callable

Make = Callable[..., Callable[..., str]]


def test_replicas_hold_what_was_executed_and_refuse_what_is_out_of_turn(c_program: Make, seed: int) -> None:
    run = c_program("tests/apps/raft/node/c/resp_replicas.c", one_thread=True)
    assert "4000 commands" in run(4000, seed)

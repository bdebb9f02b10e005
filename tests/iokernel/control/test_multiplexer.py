"""Descriptors of users, each of whom can be held back."""

import os
import selectors
from collections.abc import Iterator

import pytest
from cltest import open_descriptors

from corelane.iokernel.control.multiplexer import Multiplexer

READ = selectors.EVENT_READ


@pytest.fixture
def multiplexer() -> Iterator[Multiplexer]:
    made = Multiplexer()
    yield made
    made.close()


def ready(multiplexer: Multiplexer) -> list[str]:
    return sorted(key.data for key, _ in multiplexer.select(0))


def rung() -> int:
    """A descriptor that is readable."""
    return os.eventfd(1)


def test_all_that_is_ready_is_told(multiplexer: Multiplexer) -> None:
    multiplexer.register(rung(), "ours")
    multiplexer.add(1, rung(), READ, "his")
    multiplexer.add(1, rung(), READ, "his, too")
    multiplexer.add(2, rung(), READ, "hers")
    multiplexer.add(2, os.eventfd(0), READ, "not yet")
    assert ready(multiplexer) == ["hers", "his", "his, too", "ours"]


def test_nothing_is_told_of_who_is_held_back(multiplexer: Multiplexer) -> None:
    multiplexer.register(rung(), "ours")
    multiplexer.add(1, rung(), READ, "his")
    multiplexer.hold(1)
    multiplexer.hold(1)
    multiplexer.hold(2)
    multiplexer.add(1, rung(), READ, "his, later")
    multiplexer.add(2, rung(), READ, "hers, later")
    assert ready(multiplexer) == ["ours"]
    multiplexer.release(1)
    assert ready(multiplexer) == ["his", "his, later", "ours"]
    multiplexer.release(1)
    multiplexer.release(2)
    assert ready(multiplexer) == ["hers, later", "his", "his, later", "ours"]


@pytest.mark.parametrize("held", [False, True])
def test_who_has_nothing_left_costs_no_descriptor(multiplexer: Multiplexer, held: bool) -> None:
    before = open_descriptors()
    his = rung()
    for _ in range(3):
        multiplexer.add(1, his, READ, "his")
        if held:
            multiplexer.hold(1)
        multiplexer.remove(1, his)
    os.close(his)
    assert open_descriptors() == before
    multiplexer.release(1)
    multiplexer.add(1, rung(), READ, "again")
    assert ready(multiplexer) == ["again"]


def test_what_is_removed_by_what_came_before_it_is_not_told(multiplexer: Multiplexer) -> None:
    one, two = rung(), rung()
    multiplexer.add(1, one, READ, one)
    multiplexer.add(2, two, READ, two)
    told = multiplexer.select(0)
    first, _ = next(told)
    other, uid = (two, 2) if first.data == one else (one, 1)
    multiplexer.remove(uid, other)
    assert list(told) == []


def test_what_is_waited_for_can_change(multiplexer: Multiplexer) -> None:
    his = os.eventfd(0)  # writable, and not readable
    multiplexer.add(1, his, READ, "read")
    assert ready(multiplexer) == []
    multiplexer.modify(1, his, READ | selectors.EVENT_WRITE, "write")
    assert ready(multiplexer) == ["write"]

"""Exceptions of compiled code as events of a runtime. Each kind of handler has its own test beside its others."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host

from corelane import libos
from corelane.libos.handlers.handlers import HandlerWarning
from corelane.libos.numba import calls

Program = Callable[..., Callable[..., str]]
Serve = Callable[..., Any]
SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")


@pytest.mark.parametrize("kthreads", [1, 4])
def test_each_is_counted_and_a_place_is_told_once_a_second(c_program: Program, kthreads: int) -> None:
    assert c_program("tests/libos/c/raised.c")(kthreads) == "ok\n"


@numba.njit
def looked_up(n: int) -> int:
    if n == 2:
        raise LookupError("no such number")
    if n == 3:
        raise OverflowError("above", n)
    return n


@libos.udp(9000)
def asks(request: Any, reply: Any) -> int:
    if request[0] == 0:
        raise ValueError
    reply[0] = looked_up(request[0])
    return 1


@libos.udp(9001)
def uncached(request: Any, reply: Any) -> int:
    print(len(request)) if len(request) > 9 else None  # which only a process with numba can do
    if request[0] == 0:
        raise ValueError("told without a file of code")
    return 0


def line_of(text: str) -> int:
    """The line of this file that is this one."""
    with open(__file__, encoding="utf-8") as lines:
        return next(n for n, line in enumerate(lines, 1) if line.strip() == text)


def test_the_line_and_the_words_are_those_of_the_function_that_raised(serve: Serve) -> None:
    told: list[tuple[str, str]] = []
    with warnings.catch_warnings(category=HandlerWarning, action="ignore"):
        served = serve(asks, uncached, on_event=lambda event, text: told.append((event, text)))
    for n in (0, 2, 3):
        served.send(CLIENT.datagram(SERVER, bytes([n]), 5555, 9000))
    served.send(CLIENT.datagram(SERVER, b"\0", 5555, 9001))
    served.settled(lambda s: s.net["handler_faults"] == 4)
    wait_until(lambda: len(told) == 4, 60, "events")
    places = {
        "handler asks raised ValueError": ("raise ValueError", "asks"),
        "handler asks raised LookupError: no such number": ('raise LookupError("no such number")', "looked_up"),
        "handler asks raised OverflowError: ('above', ...)": ('raise OverflowError("above", n)', "looked_up"),
        "handler uncached raised ValueError: told without a file of code": (
            'raise ValueError("told without a file of code")',
            "uncached",
        ),
    }
    assert sorted(told) == sorted(
        ("raised", f'{words} (File "{__file__}", line {line_of(text)}, in {function})')
        for words, (text, function) in places.items()
    )


OF_A_CHILD = 'raise ValueError("of a child")'


@numba.njit
def child(n: int) -> None:
    if n == 7:
        raise ValueError("of a child")


@libos.udp(9000)
def starts(request: Any, reply: Any) -> int:
    scope = calls.scope_open(-1)
    calls.scope_spawn(scope, child, request[0])
    reply[0] = calls.scope_close(scope) & 255
    return 1


def test_what_a_scope_has_started_says_it_too(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is to be told, so it is logged."""
    with warnings.catch_warnings(category=HandlerWarning, action="ignore"), caplog.at_level(logging.ERROR):
        served = serve(starts)
        assert served.ask(b"\7") != served.ask(b"\1")
        wait_until(lambda: bool(caplog.records), 60, "a record")
    (record,) = caplog.records
    place = f'File "{__file__}", line {line_of(OF_A_CHILD)}'
    assert record.getMessage() == f"uthread child raised ValueError: of a child ({place}, in child)"
    assert record.name == "corelane.libos"


def test_exceptions_without_words(serve: Serve) -> None:
    """What is not raised by a line of Python's: the place is that of the handler."""
    told: list[tuple[str, str]] = []

    @libos.udp(9000, state=np.zeros(1))
    def shaped(request: Any, reply: Any, state: Any) -> int:
        return len(np.empty(np.int64(request[0]) - 5, np.uint8))

    with warnings.catch_warnings(category=HandlerWarning, action="ignore"):
        served = serve(shaped, on_event=lambda *event: told.append(event))
    served.send(CLIENT.datagram(SERVER, b"\1", 5555, 9000))
    served.settled(lambda s: s.net["handler_errors"] == 1)
    wait_until(lambda: bool(told), 60, "an event")
    assert "negative dimensions" in told[0][1]
    first = shaped.function.__code__.co_firstlineno
    assert f'(File "{__file__}", line {first}, in shaped)' in told[0][1]

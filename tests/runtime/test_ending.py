"""What is ended by a call or by signals, waited for once."""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from corelane.runtime.ending import SIGNALS, Ending


def when_let_go(act: Callable[[], Any]) -> threading.Thread:
    """A thread that acts once this one lets the interpreter go: about when it begins to wait."""
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_it_is_set_once_and_stays_so() -> None:
    ending = Ending()
    assert not ending.wait(0)
    assert not ending.wait(0.01)
    ending.set()
    ending.set()
    assert ending.wait(0)
    assert ending.wait()


def test_another_thread_ends_a_wait() -> None:
    ending = Ending()
    other = when_let_go(ending.set)
    assert ending.wait(60)
    other.join()


class PollWithASignal:
    """select.poll, but for a signal that comes when the interpreter has looked for signals for the last time: from the
    signal to the system call no Python code runs. (os.kill looks itself.)"""

    def __init__(self, number: signal.Signals) -> None:
        self._poll = _poll()
        self._signal: list[Callable[[], Any]] = [functools.partial(ctypes.PyDLL(None).kill, os.getpid(), int(number))]
        self.register = self._poll.register

    def poll(self, ms: float | None) -> list[tuple[int, int]]:
        steps = [*self._signal, functools.partial(self._poll.poll, ms)]
        self._signal.clear()
        found: list[tuple[int, int]] = list(map(operator.call, steps))[-1]
        return found


_poll = select.poll


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_just_before_the_system_call_ends_a_wait(number: signal.Signals, monkeypatch: Any) -> None:
    """A wait that misses its signal ends with its time, and says so."""
    monkeypatch.setattr(select, "poll", lambda: PollWithASignal(number))
    ending = Ending()
    with ending.by_signals():
        assert ending.wait(60)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_wait(number: signal.Signals) -> None:
    ending = Ending()
    with ending.by_signals():
        other = when_let_go(lambda: os.kill(os.getpid(), number))
        assert ending.wait(60)
    other.join()


def test_a_signal_before_the_wait_counts() -> None:
    ending = Ending()
    with ending.by_signals():
        signal.raise_signal(signal.SIGTERM)
        assert ending.wait(0)
    assert ending.wait(0)


def test_other_signals_do_not_end_it() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        ending = Ending()
        with ending.by_signals():
            other = when_let_go(lambda: os.kill(os.getpid(), signal.SIGUSR1))
            assert not ending.wait(0.05)
            other.join()
            assert not ending.wait(0)
            signal.raise_signal(signal.SIGINT)
            assert ending.wait(60)
        assert seen == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_handlers_and_the_wakeup_descriptor_are_put_back() -> None:
    taken, given = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    handlers = [signal.getsignal(n) for n in SIGNALS]
    before = signal.set_wakeup_fd(given)
    try:
        ending = Ending()
        with ending.by_signals(), ending.by_signals():
            assert [signal.getsignal(n) for n in SIGNALS] != handlers
        assert [signal.getsignal(n) for n in SIGNALS] == handlers
        assert signal.set_wakeup_fd(given) == given
    finally:
        signal.set_wakeup_fd(before)
        os.close(taken)
        os.close(given)


def test_another_thread_takes_no_signals() -> None:
    ending = Ending()
    handlers = [signal.getsignal(n) for n in SIGNALS]
    same: list[bool] = []

    def other() -> None:
        with ending.by_signals():
            same.append([signal.getsignal(n) for n in SIGNALS] == handlers)

    when_let_go(other).join()
    assert same == [True]

"""Signals of a test run are those of a command in a terminal, however it was started."""

from __future__ import annotations

import signal

_PYTHONS = {signal.SIGPIPE, signal.SIGXFSZ}  # which Python itself ignores, and subprocess gives back to what it starts
_MEANT = {signal.SIGHUP}  # of `nohup`: the run is to outlive its terminal


def heed_ignored() -> None:
    """Undo what whoever started this process had ignored or blocked: it is handed on to every child, and tests end
    processes by signals.

    A shell that runs a script starts `make test &` with SIGINT and SIGQUIT ignored. SIGHUP stays ignored: that is what
    `nohup` is for. Call it in the main thread.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - _PYTHONS - _MEANT:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

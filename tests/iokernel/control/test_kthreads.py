"""Which threads an application may have managed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cltest import sleeping_threads

from corelane.iokernel.control.kthreads import check_threads
from corelane.runtime.errors import Refused

SIGNAL = signal.SIGRTMIN + 3
ROOT = os.geteuid() == 0


@pytest.fixture
def handler() -> Iterator[None]:
    """This process has a handler for SIGNAL."""
    before = signal.signal(SIGNAL, lambda *_: None)
    yield
    signal.signal(SIGNAL, before)


@pytest.fixture
def sibling() -> Iterator[int]:
    """Another thread of this process."""
    with sleeping_threads(1) as tids:
        yield tids[0]


@pytest.mark.usefixtures("handler")
def test_own_threads_with_a_handler_are_accepted(sibling):
    check_threads(os.getpid(), [os.getpid(), sibling], SIGNAL)
    check_threads(os.getpid(), [sibling], 0)  # no signal: the step is left out


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize(
    ("tids", "number", "said"),
    [
        ((1,), SIGNAL, r"thread 1 is none of process \d+"),
        ((0,), SIGNAL, "thread 0 is none"),
        ((-1,), SIGNAL, "thread -1 is none"),
        ((2**31 - 1,), SIGNAL, "is none of process"),
        (None, SIGNAL, "is named twice"),
        ("self", signal.SIGKILL, "signal 9 is not one to interrupt kthreads with"),
        ("self", signal.SIGTERM, "signal 15 is not one"),
        ("self", 65, "signal 65 is not one"),
        ("self", -1, "signal -1 is not one"),
        ("self", SIGNAL + 1, r"has no handler for signal \d+ \(install it before"),
    ],
)
def test_others_are_refused(tids: Any, number: int, said: str):
    me = os.getpid()
    named = {None: (me, me), "self": (me,)}.get(tids, tids) if not isinstance(tids, tuple) else tids
    with pytest.raises(Refused, match=said):
        check_threads(me, named, number)


def test_processes_that_are_not_seen_or_have_ended_are_refused():
    with pytest.raises(Refused, match="cannot be seen from here"):
        check_threads(0, [1], SIGNAL)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(Refused, match=f"thread {ended.pid} is none of process {ended.pid}"):
        check_threads(ended.pid, [ended.pid], SIGNAL)


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="changes its user: run as root")
@pytest.mark.usefixtures("handler")
def test_threads_of_another_user_are_refused_with_what_to_do():
    code = (
        "import os, sys\n"
        "from corelane.iokernel.control.kthreads import check_threads; from corelane.runtime.errors import Refused\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: check_threads(int(sys.argv[1]), [int(sys.argv[1])], int(sys.argv[2]))\n"
        "except Refused as e: print(e, e.errno)"
    )
    args = [sys.executable, "-c", code, str(os.getpid()), str(int(SIGNAL))]
    said = subprocess.run(args, capture_output=True, text=True, check=True).stdout
    assert f"user 65534, may not signal and move threads of process {os.getpid()} (run both as the same user" in said

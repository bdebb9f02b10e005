"""System calls that the kernel's tracepoints tell (syscalls.py)."""

from __future__ import annotations

import errno
import os
import struct
import threading
import time

import pytest

from corelane.runtime import syscalls
from corelane.runtime.errors import SystemLimit
from corelane.runtime.syscalls import Call, Pairs

ENTER, EXIT = 43, 42
READ, EXECVE = 0, 59
SLEEP_S = 0.002


def told(event: int, call: int, ns: int) -> tuple[int, int, bytes]:
    """A record as perf.Ring.read gives it."""
    more = b"\0" * (48 if event == ENTER else 8)
    raw = struct.pack("<HHiq", event, 0, 7, call) + more
    return 9, 0, struct.pack("<IIQI", 7, 7, ns, len(raw) + 4) + raw + b"\0" * 4


def lost(n: int) -> tuple[int, int, bytes]:
    return 2, 0, struct.pack("<QQ", 1, n)


def test_an_enter_and_its_exit_are_a_call_also_across_two_looks() -> None:
    pairs = Pairs(3, ENTER, EXIT)
    assert pairs.calls([told(ENTER, READ, 10), told(EXIT, READ, 15), told(ENTER, 1, 20)]) == [Call(3, READ, 10, 15)]
    assert pairs.calls([told(EXIT, 1, 50)]) == [Call(3, 1, 20, 50)]


def test_what_was_seen_in_part_is_no_call() -> None:
    """One that began before the reader did, those around lost records, one that ends as another, a short record."""
    pairs = Pairs(3, ENTER, EXIT)
    assert pairs.calls([told(EXIT, READ, 5)]) == []
    assert pairs.calls([told(ENTER, READ, 10), lost(4), told(EXIT, READ, 20)]) == []
    assert pairs.lost == 4
    assert pairs.calls([told(ENTER, READ, 30), told(ENTER, 1, 31), told(EXIT, 1, 32)]) == [Call(3, 1, 31, 32)]
    assert pairs.calls([told(ENTER, EXECVE, 40), told(EXIT, READ, 41), told(EXIT, EXECVE, 42)]) == []
    assert pairs.calls([(9, 0, told(ENTER, READ, 50)[2][:20]), (1, 0, b"other"), told(EXIT, READ, 51)]) == []


def test_names_are_of_the_machine() -> None:
    assert [syscalls.names("x86_64")[n] for n in (0, 28, 35)] == ["read", "madvise", "nanosleep"]
    assert [syscalls.names("aarch64")[n] for n in (63, 233, 101)] == ["read", "madvise", "nanosleep"]
    assert syscalls.names("riscv128") == {}


def test_what_the_kernel_refuses_is_told_with_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(event: int, what: int, tid: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(syscalls, "open_tracepoint", refused)
    with pytest.raises(SystemLimit, match=r"time system calls: .*\(ask as root, with tracefs"):
        syscalls.SystemCalls({1: 0})


def test_a_read_that_waits_for_its_pipe_has_its_name_and_its_time() -> None:
    ends = os.pipe()

    def write_later() -> None:
        time.sleep(SLEEP_S)
        os.write(ends[1], b"x")

    writer = threading.Thread(target=write_later, daemon=True)
    before = time.monotonic_ns()
    try:
        calls = syscalls.SystemCalls({threading.get_native_id(): 7})
    except SystemLimit as error:
        pytest.skip(str(error))
    with calls:
        writer.start()
        begun = time.monotonic_ns()
        os.sched_yield()
        os.read(ends[0], 1)
        ended = time.monotonic_ns()
        found = calls.read()
        assert calls.lost == 0
    writer.join()
    for fd in ends:
        os.close(fd)
    assert {one.thread for one in found} == {7}
    assert all(before <= one.begin_ns <= one.end_ns for one in found)
    reads = [one for one in found if syscalls.names().get(one.call) == "read" and begun <= one.begin_ns <= ended]
    assert len(reads) == 1
    assert "sched_yield" not in {syscalls.names().get(one.call) for one in found}
    assert reads[0].end_ns <= ended
    assert reads[0].begin_ns >= begun

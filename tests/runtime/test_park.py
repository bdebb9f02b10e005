"""Park and wake: every interleaving of the hand-shake in a model, and the real one under stress."""

from __future__ import annotations

import os
import resource
import select
from collections.abc import Iterator

import pytest
from cltest import soak

from corelane.runtime._native import ffi, lib

# The hand-shake as both sides' programs: one memory access or fence an instruction. Register names are local.
SLEEPER = [
    ("store", "word", 1),  # cl_park_begin
    ("fence",),
    ("load", "work", "seen"),
    ("skip_if", "seen", 1, 1),  # work found: cl_park_cancel
    ("wait", "word", 1),  # futex: sleeps while word == 1, compares and queues in one step
    ("store", "word", 0),
    ("done",),
]
WAKER = [
    ("store", "work", 1),
    ("fence",),
    ("load", "word", "seen"),
    ("skip_if", "seen", 0, 3),
    ("exchange", "word", 0, "old"),
    ("skip_if", "old", 0, 1),
    ("wake",),
    ("done",),
]

# (pc, registers, store buffer) of each thread, memory, and whether the sleeper is queued in the kernel.
Thread = tuple[int, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]
State = tuple[tuple[Thread, ...], tuple[tuple[str, int], ...], bool]


def steps(state: State, programs: list[list[tuple]]) -> Iterator[State]:
    """Every state one step away: an instruction of a thread, or a store leaving a store buffer (x86-TSO)."""
    threads, memory_items, asleep = state
    for t, (pc, register_items, buffer) in enumerate(threads):
        memory, registers = dict(memory_items), dict(register_items)

        def after(pc, buffer=buffer, memory=memory, registers=registers, asleep=asleep, t=t):
            mine = (pc, tuple(sorted(registers.items())), buffer)
            return (*threads[:t], mine, *threads[t + 1 :]), tuple(sorted(memory.items())), asleep

        if buffer:
            (name, value), rest = buffer[0], buffer[1:]
            yield after(pc, rest, {**memory, name: value})
        if t == 0 and asleep:
            continue
        op, *args = programs[t][pc]
        if op == "store":
            yield after(pc + 1, (*buffer, (args[0], args[1])))
        elif op == "load":
            registers[args[1]] = dict([*memory.items(), *buffer])[args[0]]  # own stores are seen first
            yield after(pc + 1)
        elif op == "skip_if":
            yield after(pc + 1 + (args[2] if registers[args[0]] == args[1] else 0))
        elif buffer:
            continue  # fences, locked instructions and system calls wait for the store buffer to drain
        elif op == "fence":
            yield after(pc + 1)
        elif op == "exchange":
            registers[args[2]] = memory[args[0]]
            yield after(pc + 1, memory={**memory, args[0]: args[1]})
        elif op == "wait":
            yield after(pc + 1, asleep=memory[args[0]] == args[1])
        elif op == "wake":
            yield after(pc + 1, asleep=False)


def lost_wakeups(sleeper: list[tuple], waker: list[tuple], wakers: int = 1) -> tuple[int, list[State]]:
    """Explore everything; return how many states there are and those that end with a sleeper whom nobody will wake."""
    programs = [sleeper] + [waker] * wakers
    start: State = (((0, (), ()),) * (1 + wakers), (("word", 0), ("work", 0)), False)
    seen, todo, stuck = {start}, [start], []
    while todo:
        state = todo.pop()
        following = list(steps(state, programs))
        if not following and state[2]:
            stuck.append(state)
        for new in following:
            if new not in seen:
                seen.add(new)
                todo.append(new)
    return len(seen), stuck


@pytest.mark.parametrize("wakers", [1, 2])
def test_model_loses_no_wakeup(wakers):
    explored, stuck = lost_wakeups(SLEEPER, WAKER, wakers)
    assert explored > 50
    assert not stuck


@pytest.mark.parametrize("side", ["sleeper", "waker"])
def test_model_needs_both_fences(side):
    """The model can see the bug: without either fence a wake-up is lost."""
    pair = [SLEEPER, WAKER]
    at = ["sleeper", "waker"].index(side)
    pair[at] = [i for i in pair[at] if i != ("fence",)]
    assert lost_wakeups(*pair)[1]


def make_parker(event_fd=None):
    word = ffi.new("uint32_t *")
    fd = lib.CL_PARK_FUTEX if event_fd is None else event_fd
    return word, ffi.new("struct cl_parker *", {"word": word, "event_fd": fd})


def test_wake_without_a_sleeper_does_nothing():
    word, parker = make_parker()
    assert not lib.cl_park_wake(parker)
    lib.cl_park_begin(parker)
    assert word[0] == lib.CL_PARK_PARKED
    assert lib.cl_park_wake(parker)
    assert word[0] == lib.CL_PARK_RUNNING
    assert not lib.cl_park_wake(parker), "one wake-up a sleep"


@pytest.mark.parametrize("kind", ["CL_PARK_FUTEX", "CL_PARK_FUTEX_PRIVATE"])
def test_wait_returns_when_woken_before_it_slept(kind):
    word, parker = make_parker(getattr(lib, kind))
    lib.cl_park_begin(parker)
    assert lib.cl_park_wake(parker)
    lib.cl_park_wait(parker, -1)
    assert word[0] == lib.CL_PARK_RUNNING


def test_wait_ends_at_its_timeout():
    word, parker = make_parker()
    for timeout_ns in (0, 1000, 1_000_000):
        lib.cl_park_begin(parker)
        lib.cl_park_wait(parker, timeout_ns)
        assert word[0] == lib.CL_PARK_RUNNING


def test_a_word_that_lies_costs_nothing():
    word, parker = make_parker()
    word[0] = 0xDEADBEEF
    assert not lib.cl_park_wake(parker)
    lib.cl_park_begin(parker)
    word[0] = 7
    lib.cl_park_wait(parker, -1)
    assert word[0] == lib.CL_PARK_RUNNING


def test_event_fd_is_drained():
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        word, parker = make_parker(fd)
        lib.cl_park_begin(parker)
        assert lib.cl_park_wake(parker)
        assert select.select([fd], [], [], 0)[0] == [fd]
        assert lib.cl_park_wait_fd(parker, -1, -1) == 0
        assert select.select([fd], [], [], 0)[0] == []
        assert word[0] == lib.CL_PARK_RUNNING
        assert lib.cl_park_wait_fd(parker, -1, 1000) == 0
    finally:
        os.close(fd)


@pytest.mark.soak(short=True, takes_s=1)
@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize(
    ("kind", "between"),
    [
        ("futex", "threads"),
        ("futex", "processes"),
        ("private", "threads"),
        ("eventfd", "threads"),
        ("eventfd", "processes"),
    ],
)
def test_no_wakeup_is_lost(c_program, kind, between, extra):
    run = c_program("tests/runtime/c/park_stress.c", ["runtime/park.c"])
    assert "all data right" in run(kind, between, soak.examples(6_000, 20_000), extra, timeout_s=100)


@pytest.mark.parametrize("shows", ["hang-up", "error", "nothing of that number"])
def test_a_device_that_shows_an_error_for_ever_does_not_end_each_sleep_at_once(shows: str) -> None:
    """Each wait gives the CPU away; one that ends at once would not."""
    read, write = os.pipe()
    event = os.eventfd(0, os.EFD_NONBLOCK)
    word = ffi.new("uint32_t *")
    parker = ffi.new("struct cl_parker *", {"word": word, "event_fd": event})
    device = {"hang-up": read, "error": write, "nothing of that number": 2**20}[shows]
    if shows == "hang-up":
        os.close(write)
    elif shows == "error":
        os.close(read)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for _ in range(5):
        lib.cl_park_begin(parker)
        assert lib.cl_park_wait_fd(parker, device, -1) == 0
        assert word[0] == lib.CL_PARK_RUNNING
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw >= before + 5
    lib.cl_park_begin(parker)
    lib.cl_park_wake(parker)
    assert lib.cl_park_wait_fd(parker, device, -1) == 0
    assert not select.select([event], [], [], 0)[0], "the wake-up was taken"
    for fd in {read, write, event} - ({write} if shows == "hang-up" else {read} if shows == "error" else set()):
        os.close(fd)

"""The host of policies: swapping while the loop runs, and policies that misbehave in the loop's own thread.

The bad ones (c/bad_policies.c) are installed here past the trial, which refuses them (test_trial.py).
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.iokernel._native import ffi, lib
from corelane.iokernel.policy.verdict import signed, why_ejected
from corelane.runtime.errors import check

GUARDED = 1
LATE, OUTSIDE, FAULT = lib.CL_POLICY_LATE, lib.CL_POLICY_OUTSIDE, lib.CL_POLICY_FAULT


@pytest.fixture
def host() -> Iterator[Any]:
    """A host whose watch looks every millisecond; the test's thread is its loop."""
    out, err = ffi.new("struct cl_policy_host **"), ffi.new("char[256]")
    check(lib.cl_policy_host_new(0, 1_000_000, out, err), "make a host", err)
    yield out[0]
    lib.cl_policy_host_delete(out[0])


@pytest.fixture(scope="module")
def bad(bad_policies: Path) -> Callable[[str], Any]:
    """`fn = bad("loops")`: a policy of c/bad_policies.c."""
    library = ctypes.CDLL(str(bad_policies))
    return lambda name: ffi.cast("cl_policy_fn", ctypes.cast(getattr(library, name), ctypes.c_void_p).value)


def table(n: int = 3, cores: int = 4) -> tuple[Any, Any]:
    """A view, and n applications that hold one core each and may hold two."""
    view = ffi.new("struct cl_policy_view *")
    view.now_ns, view.interval_ns, view.n_apps, view.n_cores = 10**9, 5000, n, cores
    apps = ffi.new("struct cl_policy_app[]", n)
    for a in apps:
        a.cores, a.demand, a.maximum, a.weight, a.packet_delay_ns = 1, 2, 2, 1, 1
    return view, apps


def install(host: Any, fn: Any, guarded: int = GUARDED, params: tuple[int, ...] = ()) -> int:
    setting, err = ffi.new("struct cl_policy_setting *"), ffi.new("char[256]")
    setting.fn, setting.guarded = fn, guarded
    setting.params[0 : len(params)] = params
    return int(check(lib.cl_policy_host_set(host, setting, err), "set a policy", err))


def stats(host: Any) -> Any:
    out = ffi.new("struct cl_policy_stats *")
    lib.cl_policy_host_stats(host, out)
    return out


def current(host: Any) -> Any:
    out = ffi.new("struct cl_policy_setting *")
    lib.cl_policy_host_current(host, out)
    return out


def grants(apps: Any) -> list[int]:
    return [int(a.grant) for a in apps]


def test_static_decides_first(host: Any) -> None:
    view, apps = table()
    apps[1].guaranteed = 1
    assert lib.cl_policy_run(host, view, apps) == 0
    assert grants(apps) == [0, 1, 0]
    assert current(host).ticket == 0
    assert stats(host).decisions == 1


def test_a_swap_takes_effect_at_the_next_decision(host: Any) -> None:
    view, apps = table()
    apps[0].memory[2] = 5
    ticket = install(host, lib.cl_policy_find(b"shenango"), guarded=0)
    assert not lib.cl_policy_host_taken(host, ticket)
    lib.cl_policy_run(host, view, apps)
    assert lib.cl_policy_host_taken(host, ticket)
    assert current(host).fn == lib.cl_policy_find(b"shenango")
    assert apps[0].memory[2] == 0
    assert stats(host).swaps == 1


def test_what_was_replaced_before_it_was_seen_is_never_called(host: Any, bad: Callable[[str], Any]) -> None:
    view, apps = table()
    first = install(host, bad("illegal"))
    second = install(host, bad("headroom"), params=(1,))
    lib.cl_policy_run(host, view, apps)
    assert lib.cl_policy_host_taken(host, first)
    assert lib.cl_policy_host_taken(host, second)
    assert stats(host).ejected == 0
    assert view.params[0] == 1
    assert sorted(grants(apps)) == [1, 1, 2]  # two each were asked for, and there are four cores


def test_a_guarded_policy_keeps_its_memory(host: Any, bad: Callable[[str], Any]) -> None:
    view, apps = table()
    install(host, lib.cl_policy_find(b"delay"), params=(10_000, 2))
    for a in apps:
        a.packet_delay_ns, a.idle = 0, 1
    lib.cl_policy_run(host, view, apps)
    assert grants(apps) == [1, 1, 1]
    assert apps[0].memory[0] == 1
    lib.cl_policy_run(host, view, apps)
    assert grants(apps) == [0, 0, 0]


def test_a_policy_is_not_ejected_for_want_of_the_core(c_library: Callable[..., Path]) -> None:
    """It is found late, and has next to no time from then until the second signal."""
    library = ctypes.CDLL(str(c_library("tests/iokernel/policy/c/without_the_core.c")))
    fn = ffi.cast("cl_policy_fn", ctypes.cast(library.without_the_core, ctypes.c_void_p).value)
    out, err = ffi.new("struct cl_policy_host **"), ffi.new("char[256]")
    check(lib.cl_policy_host_new(50_000_000, 1_000_000, out, err), "make a host", err)
    view, apps = table()
    install(out[0], fn, params=(62_000_000, 80_000_000))
    lib.cl_policy_run(out[0], view, apps)
    assert grants(apps) == [1, 1, 1]
    assert stats(out[0]).ejected == 0
    lib.cl_policy_host_delete(out[0])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("loops", LATE),
        ("beyond", OUTSIDE),
        ("null_pointer", FAULT),
        ("divides", FAULT),
        ("illegal", FAULT),
        ("recurses", FAULT),
    ],
)
def test_a_policy_that_does_not_return_is_left_and_ejected(
    host: Any, bad: Callable[[str], Any], name: str, reason: int
) -> None:
    event = ffi.new("struct cl_policy_event *")
    assert not lib.cl_policy_host_event(host, event)
    for round_ in range(1, 4):  # again and again: the way out is there every time
        view, apps = table()
        apps[0].packet_delay_ns = 20_000
        before = bytes(ffi.buffer(apps))
        ticket = install(host, bad(name))
        lib.cl_policy_run(host, view, apps)
        assert grants(apps) == [2, 1, 1]  # by `delay`
        for a in apps:
            a.grant = 0
        assert bytes(ffi.buffer(apps)) == before
        assert lib.cl_policy_host_event(host, event)
        assert (event.reason, event.ticket) == (reason, ticket)
        assert current(host).fn == lib.cl_policy_find(b"delay")
        assert stats(host).ejected == round_
    if name == "beyond":
        assert event.offset == 3 * 128 + ffi.offsetof("struct cl_policy_app", "grant")
    lib.cl_policy_run(host, view, apps)
    assert stats(host).decisions == 4


def test_a_policy_that_writes_before_its_table_harms_nobody(host: Any, bad: Callable[[str], Any]) -> None:
    n = lib.CL_POLICY_MAX_APPS
    view, apps = table(n)
    install(host, bad("before"))
    lib.cl_policy_run(host, view, apps)
    assert stats(host).ejected == 1  # a full table has a guard page on either side
    view, apps = table(3)
    install(host, bad("before"))
    lib.cl_policy_run(host, view, apps)
    assert grants(apps) == [1, 1, 1]  # of a smaller one it hits the unused part of the copy


def test_a_loop_is_left_while_no_other_cpu_is_free(
    host: Any, bad: Callable[[str], Any], child: Callable[..., object]
) -> None:
    """All in one thread, with a load on every CPU: what ends the call comes to the thread that makes it."""
    for cpu in os.sched_getaffinity(0):
        child("spin.py", str(cpu))
    event = ffi.new("struct cl_policy_event *")
    threads = len(os.listdir("/proc/self/task"))
    for round_ in range(1, 6):
        view, apps = table()
        ticket = install(host, bad("loops"))
        assert len(os.listdir("/proc/self/task")) == threads
        lib.cl_policy_run(host, view, apps)
        assert lib.cl_policy_host_event(host, event)
        assert (event.reason, event.ticket) == (LATE, ticket)
        lib.cl_policy_run(host, view, apps)
        assert (stats(host).ejected, stats(host).decisions) == (round_, 2 * round_)


def test_looks_at_a_policy_that_is_well_do_not_end_it(host: Any, bad: Callable[[str], Any]) -> None:
    view, apps = table()
    install(host, bad("headroom"), params=(1,))
    begin = time.thread_time()
    while time.thread_time() < begin + 0.2:  # fifty ticks of the kernel, in each of which it is looked
        lib.cl_policy_run(host, view, apps)
    assert stats(host).ejected == 0
    assert current(host).fn == bad("headroom")


@pytest.mark.parametrize("guarded_next", [True, False])
def test_who_is_called_next_is_looked_at_too(host: Any, bad: Callable[[str], Any], guarded_next: bool) -> None:
    """The timers rest after a policy that was ejected, and after a built-in one."""
    view, apps = table()
    for round_ in range(1, 4):
        install(host, bad("divides") if guarded_next else lib.cl_policy_find(b"fair"), guarded=int(guarded_next))
        lib.cl_policy_run(host, view, apps)
        install(host, bad("loops"))
        lib.cl_policy_run(host, view, apps)
        assert stats(host).ejected == (2 * round_ if guarded_next else round_)


NO_SENSE = [
    ("nonsense", lib.CL_POLICY_NONSENSE, -2, "it granted -2 cores to apps[0], 100 decisions in a row"),
    ("one_less", lib.CL_POLICY_NONSENSE, -1, "it granted -1 cores to apps[0], 100 decisions in a row"),
    ("writes_nothing", lib.CL_POLICY_UNWRITTEN, None, "it left the grant of apps[0] unwritten, 100 decisions in a row"),
]


@pytest.mark.parametrize(("name", "reason", "grant", "said"), NO_SENSE)
def test_nonsense_changes_nothing_and_is_ejected_if_it_goes_on(
    host: Any, bad: Callable[[str], Any], name: str, reason: int, grant: int | None, said: str
) -> None:
    most = lib.CL_POLICY_MOST_NONSENSE
    view, apps = table()
    ticket = install(host, bad(name))
    for decision in range(1, most):
        lib.cl_policy_run(host, view, apps)
        assert grants(apps) == [1, 1, 1]
        assert stats(host).nonsense == 3 * decision
    assert stats(host).ejected == 0
    apps[0].packet_delay_ns = 20_000
    lib.cl_policy_run(host, view, apps)
    assert grants(apps) == [2, 1, 1]  # by `delay`, from this decision on
    event = ffi.new("struct cl_policy_event *")
    assert lib.cl_policy_host_event(host, event)
    assert (event.reason, event.ticket, event.app) == (reason, ticket, 0)
    assert grant is None or signed(event.grant) == grant
    assert why_ejected(event) == said
    assert stats(host).ejected == 1
    assert current(host).fn == lib.cl_policy_find(b"delay")
    lib.cl_policy_run(host, view, apps)
    assert (stats(host).nonsense, stats(host).ejected) == (3 * most, 1)


def test_nonsense_now_and_then_is_counted_alone(host: Any, bad: Callable[[str], Any]) -> None:
    view, apps = table()
    install(host, bad("sometimes_nonsense"))
    for decision in range(10 * lib.CL_POLICY_MOST_NONSENSE):
        view.now_ns = decision
        lib.cl_policy_run(host, view, apps)
    assert stats(host).ejected == 0
    assert stats(host).nonsense >= 3 * 9 * lib.CL_POLICY_MOST_NONSENSE


def test_what_a_policy_may_not_write_stays(host: Any, bad: Callable[[str], Any]) -> None:
    view, apps = table()
    install(host, bad("overwrites"))
    lib.cl_policy_run(host, view, apps)
    assert [(a.maximum, a.guaranteed) for a in apps] == [(2, 0)] * 3
    assert grants(apps) == [1, 1, 1]
    assert stats(host).overwritten == 3


def test_the_loop_lives_on_while_policies_are_swapped_under_it(host: Any, bad: Callable[[str], Any]) -> None:
    """A loop thread decides without a pause; the control thread installs good and bad policies by turns."""
    stop = threading.Event()
    wrong: list[list[int]] = []

    def loop() -> None:
        view, apps = table()
        while not stop.is_set():
            lib.cl_policy_run(host, view, apps)
            if sum(grants(apps)) > 4:
                wrong.append(grants(apps))

    thread = threading.Thread(target=loop)
    thread.start()
    names = ["headroom", "divides", "loops", "beyond", "overwrites", "null_pointer"]
    tickets = []
    for name in names * 5:
        tickets.append(install(host, bad(name), params=(1,)))
        if len(tickets) % 2:
            while not lib.cl_policy_host_taken(host, tickets[-1]):
                pass
    last = install(host, lib.cl_policy_find(b"static"), guarded=0)
    while not lib.cl_policy_host_taken(host, last):
        pass
    stop.set()
    thread.join()
    assert not wrong
    assert tickets == sorted(set(tickets))
    assert stats(host).ejected >= 1
    assert current(host).fn == lib.cl_policy_find(b"static")


def test_swapping_under_a_loop(c_program: Callable[..., Callable[..., str]]) -> None:
    assert "put aside" in c_program("tests/iokernel/policy/c/policy_swap.c")("3000")

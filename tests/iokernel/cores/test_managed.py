"""An iokernel that manages cores, as registration and its statistics show it. What cores do:
tests/iokernel/cores/c/."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from cltest import sleeping_threads, wait_until
from cltest.control import answer, connect, hello, kind_of, kthreads, policy, refusal
from cltest.switching import stats_of

from corelane.cli import top, watch
from corelane.iokernel import Allocation, Allowance, AppConfig, Iokernel, UserConfig, main
from corelane.iokernel._native import ffi, lib
from corelane.iokernel.control.report import GAUGES
from corelane.iokernel.policy import trial as policy_trial
from corelane.iokernel.policy.policy import load
from corelane.runtime import config
from corelane.runtime.errors import ConfigError, CorelaneError, Refused
from corelane.runtime.placement import Placement

SIGNAL = signal.SIGRTMIN + 4
CPU = min(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """This process plays the applications: it has a handler for the signal that interrupts kthreads."""
    before = signal.signal(SIGNAL, lambda *_: None)
    yield
    signal.signal(SIGNAL, before)


@pytest.fixture
def threads() -> Iterator[Callable[[int], list[int]]]:
    """`tids = threads(n)`: n threads that sleep until the test ends."""
    with ExitStack() as stack:
        yield lambda n: stack.enter_context(sleeping_threads(n))


ANY_WISH = Allowance(user_defaults=UserConfig(guaranteed_cores=64, weight=1000))  # as if it were configured


def register(path: str, name: bytes, **wishes: int) -> tuple[socket.socket, Any]:
    """A registered connection and its ACCEPT."""
    sock = connect(path)
    sock.sendall(hello(name, **wishes))
    message = answer(sock)
    assert kind_of(message) == lib.CL_CONTROL_ACCEPT, message
    accept = ffi.new("struct cl_control_accept *")
    ffi.memmove(accept, message, len(message))
    return sock, accept


def test_accept_says_where_kthreads_begin_and_which_slots_are_theirs(start, socket_path):
    start(worker_cpus=[3, 4], policy="delay")
    a, first = register(socket_path, b"a", n_kthreads=3)
    b, second = register(socket_path, b"b")
    with a, b:
        assert (first.managed, first.may_spin, list(first.cpus[0:4])) == (1, 1, [3, 4, 3, -1])
        assert (second.managed, second.cpus[0]) == (1, 3)
        assert second.slot not in range(first.slot, first.slot + 3)


def test_without_a_policy_nothing_is_managed(start, socket_path):
    io = start(worker_cpus=[3])
    sock, accept = register(socket_path, b"a")
    with sock:
        assert accept.managed == 0
        stats = io.stats()
        assert (stats["cores"], stats["apps"][0]["cores"]) == (None, None)
    with pytest.raises(Refused, match="start the iokernel with a policy"):
        io.set_policy("delay")
    with pytest.raises(ConfigError, match="no worker CPU is left"):
        Iokernel(socket_path, policy="delay")


def test_kthreads_are_managed_once_they_are_known(start, socket_path, threads):
    io = start(worker_cpus=[CPU], policy="delay", allocation=Allocation(interval_us=20), allowance=ANY_WISH)
    sock, _ = register(socket_path, b"a", n_kthreads=2, kind=lib.CL_CONTROL_BATCH, weight=3, quantum_us=100)
    with sock:
        sock.sendall(kthreads(threads(2), SIGNAL))
        assert kind_of(answer(sock)) == lib.CL_CONTROL_KTHREADS_OK
        wait_until(lambda: stats_of(io, "a")["cores"]["checks"] > 0)
        stats = json.loads(io.stats_json())
        cores = stats["apps"][0]["cores"]
        claimed = {k: cores[k] for k in ("class", "guaranteed", "maximum", "weight", "deadline_us", "quantum_us")}
        assert claimed == {
            "class": "batch",
            "guaranteed": 0,
            "maximum": 2,
            "weight": 3,
            "deadline_us": 0,
            "quantum_us": 100,
        }
        marks = ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")
        nothing = {"n": 0, "sum_ns": 0, "buckets_ns": []} | dict.fromkeys(marks)
        assert cores["detection"] == cores["actuation"] == nothing
        assert stats["cores"]["interval_us"] == 20
        assert [c["cpu"] for c in stats["cores"]["cpus"]] == [CPU]
        allocator = stats["cores"]["allocators"][0]
        assert allocator["decisions"] > 0
        assert set(allocator["actuation"]) == {"idle", "wake", "parked", "ask", "interrupt", "evict"}
        assert set(allocator["decision"]) == set(allocator["reading"]) == set(nothing)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (lambda tids: kthreads(tids[:1], SIGNAL), "1 kthreads are named (a registered 2)"),
        (lambda tids: kthreads([tids[0], 1], SIGNAL), "thread 1 is none of process"),
        (lambda tids: kthreads([tids[0]] * 2, SIGNAL), "is named twice"),
        (lambda tids: kthreads(tids, signal.SIGTERM), "signal 15 is not one"),
        (lambda tids: kthreads(tids, SIGNAL + 1), "has no handler for signal"),
    ],
)
def test_threads_that_are_not_its_own_to_name_end_the_registration(start, socket_path, threads, named, said):
    io = start(worker_cpus=[CPU], policy="delay")
    sock, _ = register(socket_path, b"a", n_kthreads=2)
    with sock:
        sock.sendall(named(threads(2)))
        assert said in refusal(sock)
    wait_until(lambda: io.apps == ())


def test_guarantees_are_promised_once(start, socket_path):
    held = AppConfig(guaranteed_cores=1, max_cores=1)
    start(worker_cpus=[3, 4], policy="delay", apps={"c": held}, allowance=ANY_WISH)
    first, _ = register(socket_path, b"a", n_kthreads=2, guaranteed=1)
    second, _ = register(socket_path, b"b", n_kthreads=2, guaranteed=1)
    with second:
        with connect(socket_path) as sock:
            sock.sendall(hello(b"c"))
            said = refusal(sock)
            assert "1 guaranteed cores for c cannot be kept: 2 cores are managed; guaranteed already: a 1, b 1" in said
        first.close()

        def accepted() -> bool:
            with connect(socket_path) as sock:
                sock.sendall(hello(b"c"))
                return kind_of(answer(sock)) == lib.CL_CONTROL_ACCEPT

        wait_until(accepted)


def test_slots_come_back_when_applications_leave(start, socket_path):
    io = start(worker_cpus=[CPU], policy="delay")
    most = lib.CL_SHM_MAX_SLOTS // 64
    small = {"n_rx": 64, "n_tx": 64, "rx_slots": 16, "tx_slots": 16}
    for _ in range(2):
        held = [register(socket_path, b"a%d" % i, n_kthreads=64, **small)[0] for i in range(most)]
        with connect(socket_path) as sock:
            sock.sendall(hello(b"more"))
            assert "kthreads are attached already" in refusal(sock)
        for sock in held:
            sock.close()
        wait_until(lambda: io.apps == ())


def test_an_application_is_homed_where_its_guarantee_can_be_kept(start, socket_path):
    io = start(loop_cpus=(-1, -1), worker_cpus=[3, 4, 5], policy="delay", allowance=ANY_WISH)
    a, first = register(socket_path, b"a", n_kthreads=2, guaranteed=2)
    b, second = register(socket_path, b"b", n_kthreads=2, guaranteed=1)
    with a, b:
        assert (first.loop, list(first.cpus[0:2])) == (0, [3, 5])
        assert (second.loop, list(second.cpus[0:2])) == (1, [4, 4])
        assert [(c["cpu"], c["loop"]) for c in io.stats()["cores"]["cpus"]] == [(3, 0), (4, 1), (5, 0)]


def test_policies_are_swapped_while_it_runs(start, socket_path, threads):
    io = start(worker_cpus=[CPU], policy="delay")
    sock, _ = register(socket_path, b"a")
    with sock:
        sock.sendall(kthreads(threads(1), SIGNAL))
        answer(sock)
        for name in ("fair", "static", "delay"):
            with connect(socket_path) as other:
                other.sendall(policy(name.encode()))
                assert kind_of(answer(other)) == lib.CL_CONTROL_POLICY_OK
            assert io.stats()["cores"]["policy"]["name"] == name
        wait_until(lambda: io.stats()["cores"]["allocators"][0]["policy"]["swaps"] >= 1)
        for words, said in ((b"nonsense", "there is none of that name"), (b"delay target_us", "name=number")):
            with connect(socket_path) as other:
                other.sendall(policy(*words.split()))
                assert said in refusal(other)
        assert io.stats()["cores"]["policy"]["name"] == "delay"


MISBEHAVING = """
def endless(view, apps):
    while view.n_apps >= 0:
        apps[0].grant = 1

def nonsense(view, apps):
    for i in range(view.n_apps):
        apps[i].grant = apps[i].cores - 1 - apps[i].maximum
"""


@pytest.mark.parametrize(
    ("name", "refused", "said"),
    [
        ("endless", "did not return within", "it had not returned after"),
        ("nonsense", "it granted -[0-9]+ cores to", "it granted -2 cores to apps[0], 100 decisions in a row"),
    ],
)
def test_a_policy_of_the_users_own_that_misbehaves_is_ejected(
    start, socket_path, threads, tmp_path, monkeypatch, child, name, refused, said
):
    """Its trial would refuse it; so it is installed without one, as if it had behaved until now. The loop goes on. The
    same beside jobs that have each CPU."""
    (tmp_path / "misbehaving_policy.py").write_text(MISBEHAVING)
    monkeypatch.syspath_prepend(tmp_path)
    spec = f"misbehaving_policy:{name}"
    io = start(worker_cpus=[CPU], policy="delay", poll="spin")  # so that it decides all the time
    misbehaving = load(spec, trial=False)
    sock, _ = register(socket_path, b"a")

    def is_ejected() -> None:
        assert io._manager is not None
        io._manager.install(io._io, misbehaving)
        wait_until(lambda: io.stats()["cores"]["policy"]["ejected"] is not None, 60)
        stats = io.stats()
        assert said in stats["cores"]["policy"]["ejected"]
        assert watch.policy_line(stats).startswith(f"policy delay, in place of {spec}: {said}")
        before = swaps()
        io.set_policy("fair")
        assert io.stats()["cores"]["policy"]["ejected"] is None
        wait_until(lambda: swaps() > before, 60)

    def swaps() -> int:
        return int(io.stats()["cores"]["allocators"][0]["policy"]["swaps"])

    with sock:
        sock.sendall(kthreads(threads(1), SIGNAL))
        answer(sock)
        with pytest.raises(Refused, match=refused):
            io.set_policy(spec)
        is_ejected()
        io.set_policy("delay")
        for cpu in os.sched_getaffinity(0):
            child("spin.py", str(cpu))
        is_ejected()


def refused_policy(path: str, spec: bytes) -> str:
    with connect(path) as sock:
        sock.sendall(policy(spec))
        return refusal(sock)


def test_a_module_that_never_ends_its_import_keeps_nobody_from_the_next_policy(socket_path, tmp_path, monkeypatch):
    (tmp_path / "endless_module.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(policy_trial, "PATIENCE_S", 2.0)
    with Iokernel(socket_path, worker_cpus=[CPU], policy="delay"):
        assert "did not come to an end in 2 s" in refused_policy(socket_path, b"endless_module:f")
        with connect(socket_path) as sock:
            sock.sendall(policy(b"fair"))
            assert kind_of(answer(sock)) == lib.CL_CONTROL_POLICY_OK
        monkeypatch.setattr(policy_trial, "PATIENCE_S", 3600.0)
        with connect(socket_path) as sock:
            sock.sendall(policy(b"endless_module:f"))  # and it ends while one is being loaded


def test_what_ends_a_thread_in_silence_is_an_answer_too(start, socket_path, monkeypatch):
    io = start(worker_cpus=[CPU], policy="delay")

    def leave(*_):
        raise SystemExit(3)

    with monkeypatch.context() as patched:
        patched.setattr(io, "set_policy", leave)
        assert "SystemExit: 3" in refused_policy(socket_path, b"mine:f")
    assert "there is none of that name" in refused_policy(socket_path, b"nonsense")


def test_an_iokernel_that_was_stopped_starts_with_the_policy_it_had(socket_path):
    io = Iokernel(socket_path, worker_cpus=[CPU], policy="delay")
    with io:
        assert io.set_policy("fair", "slice_us=20") == "fair (slice_us=20, credit_us=10000) decides"
    with io:
        assert io.stats()["cores"]["policy"] == {
            "name": "fair",
            "params": {"slice_us": 20, "credit_us": 10_000},
            "ejected": None,
        }


def test_wishes_of_a_user_are_granted_up_to_what_his_section_allows(start, socket_path):
    may = UserConfig(guaranteed_cores=2, weight=5)
    io = start(worker_cpus=[3, 4, 5], policy="delay", allowance=Allowance(users={str(os.geteuid()): may}))
    a, first = register(socket_path, b"a", n_kthreads=2, guaranteed=1, weight=4)
    b, second = register(socket_path, b"b", n_kthreads=2, guaranteed=2, weight=6)
    with a, b:
        cores = {name: stats_of(io, name)["cores"] for name in "ab"}
        assert [(cores[n]["guaranteed"], cores[n]["weight"]) for n in "ab"] == [(1, 4), (1, 5)]
        assert ffi.string(first.note) == b""
        said = ffi.string(second.note).decode()
        assert said.startswith("it has weight 5 instead of 6, guaranteed cores 1 instead of 2: to allow more")
        assert f"has weight, guaranteed_cores of [apps.b], and [users.{os.geteuid()}]" in said


def test_who_wishes_for_more_than_others_of_his_user_does_not_get_it(start, socket_path):
    io = start(worker_cpus=[CPU], policy="delay")
    a, _ = register(socket_path, b"a")
    b, accept = register(socket_path, b"b", weight=1000, guaranteed=1)
    with a, b:
        claims = [
            {k: stats_of(io, name)["cores"][k] for k in ("class", "guaranteed", "maximum", "weight")} for name in "ab"
        ]
        assert claims[0] == claims[1]
        assert b"weight 1 instead of 1000, guaranteed cores 0 instead of 1" in ffi.string(accept.note)


def test_what_top_shows_of_it(start, socket_path):
    io = start(worker_cpus=[CPU], policy="delay", allowance=ANY_WISH)
    sock, _ = register(socket_path, b"kv", guaranteed=1)
    with sock:
        before = watch.snapshot(socket_path)
        text = top.render(watch.rates(before, io.stats()))
        assert f"policy delay target_us=10 calm=1 moves_percent=10, worker core {CPU}" in text
        assert "kv    latency      0    0.0       1/1" in text
        assert f"{CPU}     nobody  free" in text


def test_what_is_no_counter_has_no_rate(start, socket_path):
    io = start(worker_cpus=[CPU], policy="delay")
    sock, _ = register(socket_path, b"kv", guaranteed=1)
    with sock:
        got = watch.rates(watch.snapshot(socket_path), io.stats())
        managed = got["cores"]
        rows = [*got["loops"], *got["apps"], got["apps"][0]["cores"], *managed["cpus"], *managed["allocators"]]
        rated = {name for row in rows for name in row["rates"]}
        assert {"rounds", "rx_delivered", "core_s", "moves", "busy_s", "decisions"} <= rated
        assert {name for row in rows for name in row} >= GAUGES, "each of them is somewhere"
        assert not rated & GAUGES
        assert all(rate >= 0 for row in rows for rate in row["rates"].values()), "counters go up"


def plan(*workers: int) -> Placement:
    return Placement(iokernel=[-1], kthreads=list(workers), reasons=[])


def test_the_configuration_arrives(socket_path):
    text = f"""
        [iokernel]
        socket = "{socket_path}"
        [cores]
        policy = "fair"
        interval_us = 7
        cede_us = 8
        interrupt_us = 9
        [apps.job]
        class = "batch"
        max_cores = 2
        [user_defaults]
        guaranteed_cores = 1
    """
    said = config.loads(text)

    def changed(option: str) -> config.Config:
        return config.loads(text, overrides=[option])

    with main.make(said, None, plan(3, 4)) as io:
        sock, accept = register(socket_path, b"job", n_kthreads=3, guaranteed=1, kind=lib.CL_CONTROL_LATENCY)
        with sock:
            assert accept.managed == 1
            stats = io.stats()
            assert {k: stats["cores"][k] for k in ("interval_us", "cede_us", "interrupt_us")} == {
                "interval_us": 7,
                "cede_us": 8,
                "interrupt_us": 9,
            }
            assert stats["cores"]["policy"]["name"] == "fair"
            cores = stats_of(io, "job")["cores"]
            assert (cores["class"], cores["guaranteed"], cores["maximum"]) == ("batch", 1, 2)
            assert ffi.string(accept.note) == b""
            facts = main.facts(io, "none")
            assert (facts["policy"], facts["worker_cpus"]) == ("fair", [3, 4])
    with main.make(said, None, plan()) as io:
        assert io.stats()["cores"] is None, "nothing is left to move"
    with main.make(changed("cores.policy=none"), None, plan(3)) as io:
        assert main.facts(io, "none")["policy"] is None
    with pytest.raises(ConfigError, match=r'apps\.job\.cores: the policy fair moves .* cores\.policy = "none"'):
        main.make(changed("apps.job.cores=[3]"), None, plan(3))
    with pytest.raises(CorelaneError, match="there is none of that name"):
        main.make(changed("cores.policy=nonsense"), None, plan(3))

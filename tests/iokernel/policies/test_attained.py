"""The policy `attained`: batch applications by the core time that they have had, in levels, on a clock of its own."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from cltest import soak
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.iokernel._native import ffi, lib

US, MS = 1_000, 1_000_000
STEP_NS = 100 * US  # between two calls here
attained, fair = (lib.cl_policy_find(name) for name in (b"attained", b"fair"))
some_loads = settings(max_examples=soak.examples(25, 2000))


@dataclass
class Box:
    """Applications under a policy, each of which has what it is granted from one call to the next. work: of each, what
    it still has to do; None: it never ends. wants: how many cores it can use."""

    wants: list[int]
    cores: int = 1
    policy: Any = attained
    params: tuple[int, ...] = ()
    work: list[int | None] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.wants)
        self.view, self.apps = ffi.new("struct cl_policy_view *"), ffi.new("struct cl_policy_app[]", n)
        self.view.now_ns, self.view.interval_ns, self.view.n_apps, self.view.n_cores = MS, STEP_NS, n, self.cores
        for i, word in enumerate(self.params):
            self.view.params[i] = word
        self.work = self.work or [None] * n
        for i, app in enumerate(self.apps):
            app.kind = self.kinds[i] if self.kinds else lib.CL_POLICY_BATCH
            app.weight = self.weights[i] if self.weights else 1
            app.maximum = app.demand = self.wants[i]
        self.done_ns: list[int | None] = [None] * n

    @property
    def granted(self) -> list[int]:
        return [int(app.grant) for app in self.apps]

    @property
    def had_ns(self) -> list[int]:
        return [int(app.attained_ns) for app in self.apps]

    def step(self) -> list[int]:
        """A call, and the time to the next one."""
        self.policy(self.view, self.apps)
        lib.cl_policy_settle(self.view, self.apps)
        granted = self.granted
        for app, cores in zip(self.apps, granted, strict=True):
            app.cores = cores
            app.attained_ns += cores * STEP_NS
        self.view.now_ns += STEP_NS
        for i, left in enumerate(self.work):
            if left is not None and self.done_ns[i] is None and self.apps[i].attained_ns >= left:
                self.done_ns[i] = int(self.view.now_ns)
                self.apps[i].demand = self.apps[i].cores = 0
        return granted

    def run(self, ns: int) -> None:
        for _ in range(ns // STEP_NS):
            self.step()


def test_who_has_had_least_goes_first_until_it_leaves_its_level() -> None:
    box = Box([1, 1], params=(MS, 10, 3, 100))
    assert [box.step() for _ in range(10)] == [[1, 0]] * 10  # the first level is over after 1 ms
    assert [box.step() for _ in range(10)] == [[0, 1]] * 10
    assert box.step() == [1, 0]  # both are in the second: first come, first served
    box.run(9 * MS)
    assert box.had_ns == [10 * MS, MS + 100 * US]


def test_what_comes_later_goes_before_what_has_had_much() -> None:
    box = Box([1, 1], params=(MS,))
    box.apps[1].demand = 0
    box.run(5 * MS)
    box.apps[1].demand = 1
    assert [box.step() for _ in range(10)] == [[0, 1]] * 10
    assert box.step() == [1, 0]


def test_cores_count_as_time_does() -> None:
    """On four cores an application leaves its level four times as soon."""
    box = Box([4, 4], cores=4, params=(MS,))
    turns = [tuple(box.step()) for _ in range(6)]
    assert turns == [(4, 0)] * 3 + [(0, 4)] * 3  # 4 x 0.3 ms are more than 1 ms


def test_weight_makes_a_level_last_longer() -> None:
    box = Box([1, 1], params=(MS,), weights=[3, 1])
    assert [box.step() for _ in range(31)] == [[1, 0]] * 30 + [[0, 1]]


def test_who_waited_for_long_counts_as_new() -> None:
    """After twice its core time without a core."""
    box = Box([1, 1], params=(MS, 10, 3, 2))
    box.run(2 * MS)  # a millisecond each
    turns = [box.step()[1] for _ in range(40)]
    assert sum(turns[:10]) == 0
    assert sum(turns) == 10  # and has another one of the first level
    assert turns[turns.index(1) :][:10] == [1] * 10


@pytest.mark.parametrize(("rests", "of"), [(1, 2), (1, 10), (10, 100)])
def test_an_application_that_rests_now_and_then_gains_nothing_by_that(rests: int, of: int) -> None:
    """Rest counts as waiting does: it comes to no more core time than without rest, however that is cut."""
    had = []
    for resting in (0, rests):
        box = Box([1, 1], params=(MS, 10, 3, 8))
        box.run(200 * MS)  # both are in the last level
        before = box.had_ns[1]
        for i in range(4000):
            box.apps[1].demand = int(i % of >= resting)
            box.step()
        had.append(box.had_ns[1] - before)
    assert 0 < had[1] <= had[0]


def test_latency_applications_go_before_whoever_has_had_least() -> None:
    box = Box([1, 1], kinds=[lib.CL_POLICY_BATCH, lib.CL_POLICY_LATENCY])
    box.apps[1].packet_delay_ns = 1
    assert box.step() == [0, 1]
    box.apps[1].packet_delay_ns, box.apps[1].demand, box.apps[1].idle = 0, 0, 1
    assert box.step() == [1, 0]


@pytest.mark.soak(short=True, takes_s=30)
@some_loads
@given(
    wants=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    cores=st.integers(1, 4),
    params=st.tuples(st.integers(1, 4 * MS), st.integers(1, 10), st.integers(1, 20), st.integers(1, 10)),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_core_is_left_over(wants: list[int], cores: int, params: tuple[int, ...], seed: int) -> None:
    rng = random.Random(seed)
    box = Box(wants, cores, params=params)
    for _ in range(100):
        i = rng.randrange(len(wants))
        box.apps[i].demand = rng.randint(0, wants[i])
        box.apps[i].cores = min(box.apps[i].cores, box.apps[i].demand)
        demanded = sum(app.demand for app in box.apps)
        assert sum(box.step()) == min(demanded, cores)


@pytest.mark.soak(short=True, takes_s=30)
@some_loads
@given(
    n=st.integers(2, 6),
    first=st.integers(3, 12),
    ratio=st.integers(1, 4),
    levels=st.integers(2, 3),
    promote=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_nobody_waits_for_longer_than_is_said(
    n: int, first: int, ratio: int, levels: int, promote: int, seed: int
) -> None:
    """On one core: `promote` times the last limit, and the first level of each of the others."""
    rng = random.Random(seed)
    box = Box([1] * n, params=(first * STEP_NS, ratio, levels, promote))
    bound = promote * first * ratio ** (levels - 2) + (n - 1) * first + n + 2  # in steps; each change is seen one late
    without, longest = [0] * n, 0
    for step in range(6 * bound):
        if step < 20 and rng.random() < 0.3:  # they come by and by
            box.apps[rng.randrange(n)].demand = rng.randint(0, 1)
        elif step == 20:
            for app in box.apps:
                app.demand = 1
        granted = box.step()
        for i, app in enumerate(box.apps):
            without[i] = 0 if granted[i] or not app.demand else without[i] + 1
        longest = max(longest, *without)
    assert longest <= bound


def test_mean_completion_is_less_than_by_fair_shares_where_most_jobs_are_short() -> None:
    """What it is for: 40 jobs of one core on two, all there from the start, one in eight of them forty times as long as
    the others."""
    rng = random.Random(1)
    work: list[int | None] = [rng.choice([1] * 7 + [40]) * 2 * MS for _ in range(40)]
    means = {}
    for name, policy in (("attained", attained), ("fair", fair)):
        box = Box([1] * len(work), 2, policy, params=(3 * MS, 10, 3, 8) if name == "attained" else (), work=list(work))
        while any(done is None for done in box.done_ns):
            box.step()
        means[name] = sum(done for done in box.done_ns if done) / len(work)
    assert means["attained"] < 0.8 * means["fair"]


def test_words_that_make_no_sense_are_withstood() -> None:
    """Settings and accounts at their ends: no division, no overflow decides."""
    most = 2**64 - 1
    for params in itertools.product((0, 1, most), repeat=4):
        box = Box([1, 1, 1], params=params)
        box.apps[0].attained_ns, box.apps[1].weight = most - 10 * MS, 0
        for _ in range(5):
            assert sum(box.step()) == 1

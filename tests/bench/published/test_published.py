"""Planners against exact answers, papers' claims run again, and requests that are served in batches."""

import importlib
import io
import sys
from dataclasses import replace

import numpy as np
import pytest
from cltest.cbuild import ROOT

from corelane.bench.harness.session import Session
from corelane.bench.lab import policy
from corelane.bench.published import brute_force, claim_loads, claims, held_out, published, scaling, serving, together
from corelane.runtime.errors import CorelaneError

PAGE = ROOT / "docs" / "lab-scaling.md"


@pytest.mark.parametrize("name", brute_force.PLANNERS)
def test_planners_are_near_the_exact_answer(name):
    found = brute_force.check(name, 40, seed=1)
    assert found.gap <= 0.05, str(found)
    assert found.equal >= 30, str(found)


def test_without_scipy_exact_answers_say_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(CorelaneError, match=r"pip install 'corelane\[lab\]'"):
        brute_force.check("synergy", 1, seed=1)


@pytest.mark.soak(takes_s=60)
@pytest.mark.parametrize("name", brute_force.PLANNERS)
def test_planners_on_a_thousand_cases(name):
    found = brute_force.check(name, 1000, seed=1)
    print(found)
    assert found.gap <= 0.05, str(found)


def test_every_published_policy_has_its_claim():
    sources = {n: importlib.import_module(f"corelane.bench.lab.policies.{n}").SOURCE for n in policy.names()}
    baselines = {n for n, source in sources.items() if source.startswith(("a baseline", "the baseline"))}
    assert {claim.policy for claim in claims.CLAIMS} == set(policy.names()) - baselines
    loads = {x.load for claim in claims.CLAIMS for x, *_ in claims.settings_of(claim)}
    assert loads == set(claim_loads.LOADS)
    for claim in claims.CLAIMS:
        assert claim.against in baselines | {claim.policy, "optimus"}


@pytest.mark.parametrize("name", ["optimus", "nexus", "darc"])
def test_a_setting_chosen_after_results_is_run_as_it_was_before_too(name):
    claim = next(claim for claim in claims.CLAIMS if claim.policy == name)
    assert claim.first
    assert claim.why
    *_, (before, speeds, where) = claims.settings_of(claim)
    assert where == claims.FIRST
    assert speeds == claims.EQUAL
    assert before != claim


def test_what_came_before_is_said_beside_what_was_chosen(monkeypatch):
    """Two loads had been chosen once results were seen, and nothing in the output said so."""

    def check(claim, seeds, speeds, strongest):
        ours = 0.88 if claim.load == "training" else 1.74
        over = claims.Over(ours, ours - 0.05, ours + 0.05, "fair", {})
        return claims.Row(claim, "equal cores", over, over if strongest else None, undone=0, n=10)

    of = {claim.policy: claim for claim in claims.CLAIMS}
    monkeypatch.setattr(claims, "CLAIMS", (of["optimus"], of["nexus"], of["zeus"]))
    monkeypatch.setattr(claims, "check", check)
    monkeypatch.setattr(claims, "nexus_rates", lambda cores, seed: {"planned": 2.0, "fixed": 1.0, "one": 1.0})
    session = Session("published", seconds=0.1, progress=io.StringIO())
    published._claims(session, range(1, 3))
    before = {arm["name"]: arm["ours"] for arm in session.arms if arm.get("before_results")}
    assert before == {
        "optimus, equal cores, at first: load training": 0.88,
        "nexus, equal cores, at first: load few_sessions": 1.74,
    }
    note = next(note for note in session.notes if "after results were seen" in note)
    assert "optimus: 0.88 (0.83 to 0.93) over fair with load training" in note
    assert "nexus: 1.74" in note
    figure = session.figures["lab.claims"]
    assert figure["value"] == 0
    assert figure["beside"]["set after results"] == 2
    assert figure["beside"]["of these not seen before"] == 1


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.policy)
def test_what_a_claim_is_held_against_is_swept(claim):
    """Some baselines had one setting, and not their best. A setting that is not swept is what makes it a baseline."""
    load = claim_loads.LOADS[claim.load](np.random.default_rng(1), claims.CORES)
    paper, beside = claims.candidates(claim, load)
    swept = {key for arm in paper for key in arm.settings}
    elastic = any(kind.max_cores > kind.min_cores for kind in load.kinds)
    batches = any(kind.max_batch > 1 or kind.batch_item_ns for kind in load.kinds)
    for key, values in policy.known(claim.against).sweep.items():
        says = {"each": elastic, "grow": elastic, "batch": batches}.get(key, True)
        if says and key not in claim.baseline:
            tried = {arm.settings.get(key) for arm in paper} - {None}
            assert tried == set(values), f"{claim.against}: {key}"
    assert set(claim.baseline) <= swept
    assert {repr(arm.machine) for arm in beside} == {repr(claim.mine), repr(claim.theirs)}
    names = {arm.policy for arm in beside}
    assert names - {claim.against} == set(claims.BASELINES if not load.kinds[0].batch_item_ns else ()) - {claim.against}


@pytest.mark.soak(takes_s=60)
@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.policy)
def test_claims_are_seen_in_their_own_setting(claim):
    speeds = claims.UNEQUAL if claim.unequal else claims.EQUAL
    row = claims.check(claim, range(1, 5), speeds, strongest=False)
    print(row)
    assert row.verdict in ("agrees", "direction"), str(row)
    assert row.undone == 0


def test_a_claim_is_held_against_the_best_of_its_sweep():
    """Zeus over eight cores for each job was 1.7. The best static setting leaves a tenth."""
    zeus = next(claim for claim in claims.CLAIMS if claim.policy == "zeus")
    row = claims.check(zeus, [1, 2], strongest=False)
    one = replace(zeus, baseline={"each": 8, "batch": 0.0})
    assert row.paper.ours < claims.check(one, [1, 2], strongest=False).paper.ours


def test_pollux_and_optimus_fit_what_they_have_not_seen():
    """How jobs scale, from the rates on the cores and batches that they had: on others, which no job had, it is right
    within a twentieth. No event told of a rate once, so nothing was fitted."""
    found = held_out.check(seed=1)
    print(found)
    assert found.points > 100
    assert found.median < 0.05
    assert found.median < 0.5 * found.without


def test_all_policies_run_on_the_same_jobs(monkeypatch):
    monkeypatch.setattr(together, "LOADS", {"exponential": {"jobs": 50, "load": 0.9}})
    monkeypatch.setattr(together, "PACKS", ("fifo",))
    monkeypatch.setattr(policy, "names", lambda: ["fifo", "priority"])
    rows = together.every([1, 2])
    assert sorted((row.policy, row.seats) for row in rows) == [("fifo", 1), ("fifo", together.SEATS), ("priority", 1)]
    means = [row.numbers["mean_completion_us"] for row in rows]
    assert means == sorted(means)
    plain = {row.policy: row.numbers["mean_completion_us"] for row in rows if row.seats == 1}
    assert plain["fifo"] == plain["priority"]  # there is one class
    assert together.table(rows).count("exponential") == 3


@pytest.mark.soak(takes_s=30)
@pytest.mark.parametrize("loops", scaling.LOOPS)
def test_where_policies_end_is_what_the_page_says(loops):
    """A policy that gives out one core a call, one that gives out all idle ones, and one that preempts."""
    names = ("fifo", "fair", "shinjuku")
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    said = {row[0].strip("| `"): row[1 + scaling.LOOPS.index(loops)].removesuffix(" |") for row in rows}
    assert said.keys() == set(policy.names())
    assert scaling.stops(names, loops) == {name: said[name] for name in names}


def sessions(*rows):
    return [serving.Session(*row) for row in rows]


def test_one_at_a_time_and_in_batches():
    s = sessions((1.0, 10.0, 1.0, 100.0))
    at = np.array([0, 1, 2, 3])
    alone = serving.serve(s, at, np.zeros(4, np.int64), 1, serving.fixed(s, 1, 1))
    assert alone.finish_ns.tolist() == [11, 22, 33, 44]
    batched = serving.serve(s, at, np.zeros(4, np.int64), 1, serving.fixed(s, 1, 4, 0.2))
    assert batched.finish_ns.tolist() == [17] * 4  # at 3 the batch is full
    waits = serving.serve(s, at[:3], np.zeros(3, np.int64), 1, serving.fixed(s, 1, 4, 0.2))
    assert waits.finish_ns.tolist() == [33] * 3  # the first has waited for 20


def test_who_cannot_be_in_time_is_dropped_early():
    s = sessions((1e9, 10.0, 1.0, 30.0))
    plan = serving.Plan(np.ones((1, 1), np.bool_), np.full((1, 1), 8), np.zeros(1, np.int64))
    at = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8])
    served = serving.serve(s, at, np.zeros(9, np.int64), 1, plan, early=True)
    assert served.finish_ns.tolist() == [11, *[29] * 8]  # in the batch of 8 the first has waited for 28 of 30
    tight = serving.serve(s, at, np.zeros(9, np.int64), 1, plan, early=False)
    assert tight.good == served.good == 1.0
    s = sessions((1e9, 10.0, 1.0, 25.0))
    served = serving.serve(s, at, np.zeros(9, np.int64), 1, plan, early=True)
    assert (served.finish_ns == -1).sum() > 0
    assert served.good == (served.finish_ns >= 0).mean()


def test_a_plan_serves_its_rates_within_the_limits():
    s = [serving.Session(20e3, f * 1e3, i * 1e3, limit * 1e3) for f, i, limit in claims.SESSIONS]
    plan = serving.planned(s, 8)
    assert plan.rows.any(axis=0).all()
    rng = np.random.default_rng(1)
    at = np.cumsum(rng.exponential(1e9 / 100e3, 5000)).astype(np.int64)
    served = serving.serve(s, at, rng.integers(0, 5, 5000), 8, plan, early=True)
    assert served.good > 0.99


def test_sessions_that_cannot_be_are_refused():
    with pytest.raises(CorelaneError, match="limit"):
        serving.Session(1.0, 10.0, 1.0, 5.0)
    with pytest.raises(CorelaneError, match="above 0"):
        serving.Session(0.0, 10.0, 1.0, 50.0)


@pytest.mark.soak(takes_s=10)
def test_batches_by_plan_serve_more_than_one_at_a_time():
    rates = claims.nexus_rates(4, seed=1)
    print(rates)
    assert rates["planned"] > 1.5 * rates["one"]

"""`corelane bench batch`: the model's batches and single requests agree, loads are right, and how it is judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corelane.bench.batch import batch, loads, model, rules
from corelane.bench.batch.serving import Slot
from corelane.bench.harness.session import Session
from corelane.bench.harness.stops import Evidence, Stop, stop_of_missed
from corelane.libos.handlers.batching import batching_of


def requests_of(n: int, seed: int) -> list[Any]:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 256, model.PAYLOAD_BYTES, dtype=np.uint8) for _ in range(n)]


def by_numpy(state: Any, request: Any) -> int:
    """The class that the network finds."""
    x = request[model.AT :].astype(np.float32) / np.float32(256)
    at = 0
    for rows, columns in model.LAYERS:
        x = np.maximum(state[at : at + rows * columns].reshape(rows, columns) @ x, 0)
        at += rows * columns
    return int(np.argmax(x))


def test_a_batch_finds_what_numpy_and_single_requests_find(seed: int) -> None:
    requests = requests_of(9, seed)
    together, alone = model.words(seed), model.words(seed)
    lengths = np.zeros(len(requests), np.int64)
    replies = [np.zeros(model.PAYLOAD_BYTES, np.uint8) for _ in requests]
    model.infer(requests, replies, lengths, together)
    for request in requests:
        model.infer([request], [np.zeros(model.PAYLOAD_BYTES, np.uint8)], np.zeros(1, np.int64), alone)
    right = np.bincount([by_numpy(together, request) for request in requests], minlength=model.CLASSES)
    assert model.found(together).tolist() == model.found(alone).tolist() == right.tolist()
    assert lengths.tolist() == [model.PAYLOAD_BYTES] * len(requests)
    assert all((reply == request).all() for reply, request in zip(replies, requests, strict=True))


@pytest.mark.parametrize("bursty", [False, True])
def test_a_load_has_its_rate(bursty: bool, seed: int) -> None:
    at_ns = loads.Load(5000, bursty).at_ns(40.0, seed)
    assert (np.diff(at_ns.astype(np.int64)) >= 0).all()
    assert len(at_ns) / 40.0 == pytest.approx(5000, rel=0.15 if bursty else 0.02)
    windows = np.bincount((at_ns // 10_000_000).astype(np.int64))
    spread = windows.var() / windows.mean()
    assert spread > 10 if bursty else spread == pytest.approx(1, abs=0.2), "a Poisson process has 1"


def test_every_fixed_rule_can_be_set() -> None:
    made = rules.fixed_rules(2000.0)
    assert len({rule.name for rule in made}) == len(made)
    assert all(batching_of(**rule.how) is not None and rule.fixed for rule in made)
    assert {rule.how["batch"] for rule in made} == set(rules.SIZES)
    assert any(rule.alone for rule in made)
    assert not any(rule.fixed for rule in rules.policies(2000.0))


def test_load_one_is_what_half_of_the_limit_allows() -> None:
    takes = {n: 100.0 + 50.0 * n for n in (1, 2, 10, 11)}
    assert batch.full_rps(takes, 1200.0) == pytest.approx(1e6 * 10 / 600)
    assert batch.full_rps(takes, 200.0) == pytest.approx(1e6 / 150)
    assert batch.full_rps({1: 100.0, 2: 400.0}, 1200.0) == pytest.approx(1e6 / 100), "where a batch gains nothing"


def test_a_profile_is_told_as_a_line() -> None:
    known = batch.within({n: 90.0 + 30.0 * n - (n == 1) * 20 for n in batch.PROFILED}, 3.0)
    assert known.line == pytest.approx((90.0, 30.0))
    assert (known.one_us, known.limit_us) == (100.0, 300.0)


class Overloaded:
    """In a service's place."""

    def explain(self, rule: rules.Rule, load: loads.Load, *_: Any) -> tuple[Slot, Stop]:
        slot = Slot(load.rate, 0.1 * load.rate, 100, 10, 1.0, 2.0, 4.0, 90, 0)
        return slot, stop_of_missed(Evidence(worker=0.99 if rule.alone else 0.5, loop=0.95))


def test_each_curve_names_what_is_used_up_at_its_end() -> None:
    session = Session("batch", seconds=0.1)
    known = batch.within(dict.fromkeys(batch.PROFILED, 100.0), 3.0)
    arms = {rule.name: rule for rule in rules.policies(300.0)} | {"alone": rules.fixed_rules(300.0)[0]}
    assert arms["alone"].alone
    batch.say_why_curves_stop(session, Overloaded(), known, arms)  # type: ignore[arg-type]
    assert session.stops_because.keys() == {f"{name}, {shape}" for name in arms for shape in batch.SHAPES}
    assert {
        name: found["resource"] for name, found in session.stops_because.items() if "alone" in name
    } == dict.fromkeys([f"alone, {shape}" for shape in batch.SHAPES], "worker busy")
    assert session.stops_because[f"{rules.POLICY}, steady"]["resource"] == "loop busy"
    assert "at the highest load offered: loop busy (" in session.stops[f"{rules.POLICY}, steady"]


def curve(good_rps: float) -> batch.Curves:
    slot = Slot(1000.0, good_rps, 100, 90, 1.0, 2.0, 4.0, 5, 5)
    return {(shape, times): slot for shape in batch.SHAPES for times in (1.0, 2.0)} | {
        ("steady", 0.5): Slot(1000.0, 2 * good_rps, 100, 90, 1.0, 2.0, 4.0, 5, 5)
    }


def test_the_figure_is_the_worse_of_both_ratios() -> None:
    session = Session("batch", seconds=0.1)
    fixed = rules.Rule("8 at a time", {"batch": 8})
    other = rules.Rule("4 at a time", {"batch": 4})
    alone = rules.Rule("one at a time", {"batch": 1})
    got = {name: [curve(good)] * 3 for name, good in ((rules.POLICY, 600.0), (rules.NO_DROP, 300.0))}
    got |= {rules.WAITS_TOO: [curve(500.0)] * 3, alone.name: [curve(200.0)] * 3}
    got |= {fixed.name: [curve(300.0)] * 3, other.name: [curve(400.0)] * 3}
    chosen = {shape: [fixed, other, alone] for shape in batch.SHAPES}
    batch.judge(session, chosen, got, {"bursts": (1.1, 1.2)}, dict.fromkeys(batch.SHAPES, [800.0] * 3))
    figure = session.figures["batch.goodput"]
    assert figure["value"] == pytest.approx(1.5), "over the better of two fixed batches, which is the worse ratio"
    assert figure["beside"]["bursts, over one at a time"] == pytest.approx(3.0)
    assert figure["beside"]["bound: an oracle, bursts, over the best fixed batch"] == pytest.approx(2.0)
    assert figure["beside"]["bound: an oracle, bursts, over one at a time"] == pytest.approx(4.0)
    assert batch.by_load(got, [fixed.name, other.name], "bursts") == "1: 1.5, 2: 1.5"
    batch.add_rows(session, rules.POLICY, got[rules.POLICY])
    assert [(row["shape"], row["load"], row["achieved_rps"]) for row in session.arms][-1] == ("steady", 0.5, 1200.0)

"""Many runs, what they come to, and the document of them."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from corelane.bench.harness import document as doc
from corelane.bench.harness.session import Session
from corelane.bench.lab import comparing, measures, plots, policy, runs
from corelane.bench.lab import table as t
from corelane.bench.lab.world import Costs, Machine
from corelane.runtime.errors import CorelaneError

LOAD = runs.Wanted("cluster", {"jobs": 300})


def tasks(policies=(("fifo", {}),), cores=(4,), seeds=(1, 2), load=LOAD):
    return runs.tasks_of(policies, load, [Machine(c, seats=2) for c in cores], 0, 4096, seeds)


def test_numbers_of_a_run(run):
    ran = run([0, 0, 0, 50], [100.0, 100.0, 100.0, 50.0], cores=2, deadline_ns=[150, 150, 150, 0], weight=[1, 1, 2, 1])
    numbers = measures.measured(ran)
    # Completions: 100, 100, 200, 100 ns (from 50 on it waits until 100).
    assert numbers["mean_completion_us"] == pytest.approx(0.125)
    assert numbers["mean_slowdown"] == pytest.approx((1 + 1 + 2 + 2) / 4)
    assert numbers["utilisation"] == pytest.approx(350 / 400)
    assert numbers["deadlines_kept"] == pytest.approx(2 / 3)
    assert numbers["makespan_us"] == pytest.approx(0.2)
    assert numbers["weighted_completion_us"] == pytest.approx((0.1 + 0.1 + 0.4 + 0.1) / 5)
    assert numbers["jain_cores"] == pytest.approx((200 + 150) ** 2 / (2 * (200**2 + 150**2)))
    shape = measures.shape(ran)
    assert shape["quantiles_us"][0] == pytest.approx(0.1)
    assert shape["quantiles_us"][-1] == pytest.approx(0.2)
    width = shape["bucket_us"][0]
    assert sum(shape["waiting"][:-1]) * width <= 0.15 + 1e-9


def test_refused_jobs_are_told_and_not_averaged(run, write_policy):
    text = (
        "from corelane.bench.lab.acts import *\n"
        "def mine(view, jobs, cores, kinds, memory):\n"
        "    if view.n_waiting:\n"
        "        if jobs[view.waiting[0]].id == 1:\n            refuse(view, jobs, view.waiting[0])\n"
        "        elif view.idle >= 0:\n            give(view, cores, view.idle, view.waiting[0])\n"
    )
    ran = run([0, 5, 300], [100.0, 1e6, 100.0], chosen=write_policy(text), deadline_ns=100)
    numbers = measures.measured(ran)
    assert (numbers["done"], numbers["refused"], numbers["not_done"]) == (2, 1, 0)
    assert numbers["mean_completion_us"] == pytest.approx(0.1)
    assert numbers["deadlines_kept"] == pytest.approx(2 / 3)
    assert ran.jobs["outcome"][1] == t.TURNED_AWAY


def test_intervals_over_seeds():
    assert math.isnan(measures.interval([1.0]))
    assert measures.interval([1.0, 3.0]) == pytest.approx(12.71 * 2**0.5 / 2**0.5)
    rows = measures.over_seeds([{"a": 1.0, "b": 1.0}, {"a": 3.0}])
    assert rows == {"a": 2.0, "a_pm": pytest.approx(12.71)}


def test_the_same_in_processes_as_here():
    wanted = tasks()
    here = [runs.one(task) for task in wanted]
    there = runs.every(wanted, 2)
    assert [one.numbers for one in there] == [one.numbers for one in here]
    assert [one.task for one in there] == wanted


def test_a_policy_that_ends_its_process_is_told_so(write_policy, tmp_path):
    far = "def mine(view, jobs, cores, kinds, memory):\n    view.changed = 1 << 40\n"
    spec = write_policy(far)
    with pytest.raises(CorelaneError, match="ended the process"):
        runs.every(tasks([(spec, {})]), 1)
    with pytest.raises(CorelaneError, match="ended the process"):
        runs.in_a_child(spec, runs.one, tasks([(spec, {})])[0])


def test_cores_given_to_who_cannot_have_them_are_told(write_policy):
    text = (
        "from corelane.bench.lab.acts import give\n"
        "def mine(view, jobs, cores, kinds, memory):\n"
        "    if view.n_waiting and view.idle >= 0:\n"
        "        give(view, cores, view.idle, view.room + 7 if jobs[view.first].id % 2 else view.waiting[0])\n"
    )
    wanted = tasks([(write_policy(text), {})], load=runs.Wanted("exponential", {"jobs": 50}))
    with Session("lab", seconds=0.1) as session:
        comparing.fill(session, [runs.one(task) for task in wanted])
    assert "cores a run to jobs that could not have them" in " ".join(session.document()["settings"]["notes"])


def test_ray_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CorelaneError, match="pip install ray"):
        runs.every(tasks(), 1, ray=True)


class StandInForRay:
    """What runs.py calls of Ray. The call that was made last ends first."""

    class Ref:
        def __init__(self, function, task):
            self.call = lambda: function(task)

    def __init__(self):
        self.init_words = []

    def init(self, **words):
        self.init_words.append(words)

    def remote(self, function):
        return SimpleNamespace(remote=lambda task: self.Ref(function, task))

    def wait(self, refs, num_returns):
        return refs[-num_returns:], refs[:-num_returns]

    def get(self, ref):
        return ref.call()


def test_on_ray_each_run_is_a_remote_call_and_keeps_its_place(monkeypatch):
    ray = StandInForRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    wanted = tasks()
    done = runs.every(wanted, 1, ray=True)
    assert ray.init_words == [{"ignore_reinit_error": True}]
    assert [one.task for one in done] == wanted
    assert [one.numbers for one in done] == [runs.one(task).numbers for task in wanted]


@pytest.mark.soak(takes_s=60)
def test_on_ray_itself():
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    wanted = tasks()
    assert [one.numbers for one in runs.every(wanted, 1, ray=True)] == [runs.one(task).numbers for task in wanted]


def test_a_sweep_has_all_settings_and_keeps_the_best():
    assert runs.swept("priority") == [{}, {"preempt": 0}, {"preempt": 1}]
    (task,) = tasks(seeds=(1,))
    from dataclasses import replace

    tried = [replace(task, settings={"x": float(i)}) for i in range(3)]
    done = [
        runs.Done(one, {"not_done": left, "mean_completion_us": mean}, {})
        for one, left, mean in zip(tried, (0.0, 0.0, 1.0), (5.0, 4.0, 1.0), strict=True)
    ]
    assert runs.best(tried, done, "mean_completion_us") == [tried[1]]


def test_the_build_is_of_all_that_a_policy_is_made_of():
    """The mechanisms were once left out."""
    policy.known("tiresias")
    made_of = {name for name in sys.modules if name.startswith(("corelane.bench.lab.", "corelane.bench.sim."))}
    assert "corelane.bench.lab.mechanisms.ranking" in made_of
    files = {Path(sys.modules[name].__file__).resolve() for name in made_of}
    assert files <= {path.resolve() for path in runs.sources()}


@pytest.fixture(scope="module")
def document():
    wanted = tasks([("fifo", {}), ("priority", {"preempt": 1.0})], cores=(4, 8))
    with Session("lab", seconds=0.1) as session:
        comparing.fill(session, [runs.one(task) for task in wanted])
    return session.document()


def test_a_document_says_what_a_reviewer_asks(document, tmp_path):
    doc.write(document, tmp_path / "lab.json")
    assert json.loads((tmp_path / "lab.json").read_text())["settings"]["simulated"] is True
    settings = document["settings"]
    assert settings["lab_seeds"] == [1, 2]
    assert settings["build"] == runs.stamp()
    assert settings["stops"].keys() == {"fifo", "priority (preempt=1)"}
    assert len(document["arms"]) == 4
    assert all(row["mean_completion_us_pm"] > 0 for row in document["arms"])
    text = comparing.table(document)
    assert "seeds 1, 2" in text
    assert "95 % interval" in text
    assert "\nsimulated; " in text
    counts = [line.count("+-") for line in text.splitlines()]
    assert [count for count in counts if count > 1] == [len(comparing.COLUMNS)] * 4


def done_in(name, settings, seed, mean_us):
    (task,) = tasks([(name, settings)], seeds=(seed,))
    return runs.Done(task, {"mean_completion_us": mean_us}, {})


def test_ratios_are_of_the_same_seeds_and_have_intervals():
    """A baseline with settings of a sweep was none, by its name, and nothing was said."""
    found = [done_in("static", {"each": 2}, 1, 10.0), done_in("static", {"each": 2}, 2, 1000.0)]
    found += [done_in("fair", {}, 1, 20.0), done_in("fair", {}, 2, 2000.0)]
    found += [done_in("fifo", {}, 1, 5.0), done_in("fifo", {}, 2, 2000.0)]
    fair, fifo = comparing.pairs(found, "static")
    assert (fair["policy"], fair["cores"]) == ("fair", 4)
    assert [fair[key] for key in ("over", "from", "to")] == pytest.approx([2, 2, 2])
    assert fifo["over"] == pytest.approx(1)
    assert fifo["from"] == pytest.approx(1 / fifo["to"])
    (alone,) = comparing.pairs([found[0], found[2]], "static")
    assert (alone["over"], alone["from"]) == (pytest.approx(2), None)
    assert comparing.pairs(found, "edf") == []
    for ended in (found[2:4], found[:2]):  # nobody ended any job, whom the other is held against, or who is
        none = [runs.Done(one.task, {}, {}) for one in found[:4] if one not in ended]
        assert comparing.pairs([*ended, *none], "static") == []


def test_an_oracle_is_labelled(write_policy, run):
    text = (
        "from corelane.bench.lab.acts import *\ndef mine(view, jobs, cores, kinds, memory, future):\n"
        "    if view.n_waiting and view.idle >= 0:\n        give(view, cores, view.idle, waits_longest(view, jobs))\n"
        "        wake_at(view, view.now_ns)\n"
    )
    wanted = tasks([(write_policy(text), {})], load=runs.Wanted("exponential", {"jobs": 50}))
    with Session("lab", seconds=0.1) as session:
        comparing.fill(session, [runs.one(task) for task in wanted])
    assert session.arms[0]["oracle"] is True
    assert "an oracle" in " ".join(session.document()["settings"]["notes"])
    assert "(oracle)" in comparing.table(session.document())


def test_where_curves_end():
    row = {"loop_busy": 0.1, "loop_decides": 0.1, "not_done": 0.0, "utilisation": 0.5}
    assert measures.why_it_stops(row) == ""
    full = measures.why_it_stops(row | {"loop_busy": 0.99, "loop_decides": 0.6})
    assert full == "the iokernel's loop is full: decisions take 60 % and moves 39 % of its time"
    assert "3 jobs are left" in measures.why_it_stops(row | {"not_done": 3.0})
    assert "all cores" in measures.why_it_stops(row | {"utilisation": 0.98})


def ended(*tails, busy=0.5):
    """Where a curve on 4, 8, .. cores ends, with these p99 slowdowns, and a loop that is so busy on the most."""
    numbers = {"done": 1.0, "not_done": 0.0, "utilisation": 0.5, "gifts_refused": 0.0, "loop_decides": 0.25}
    done = []
    for i, tail in enumerate(tails):
        (task,) = tasks(cores=(4 << i,), seeds=(1,))
        row = numbers | {"p99_slowdown": tail, "loop_busy": busy if i == len(tails) - 1 else 0.25}
        done.append(runs.Done(task, row, {"quantiles_us": []}))
    with Session("lab", seconds=0.1) as session:
        comparing.fill(session, done)
    return session.document()["settings"]["stops"]["fifo"]


def test_a_tail_that_rises_ends_a_curve_even_where_queues_of_few_cores_are_long():
    """It was held against that on the fewest cores, where jobs wait most: a tail five times its least was no end."""
    why = "its p99 slowdown is over 2 times that on 8; of the loop decisions take 25 % and moves 25 % of its time"
    assert ended(40.0, 8.0, 38.0) == f"between 8 and 16 cores: {why}"
    assert ended(40.0, 8.0, 15.0) == "at 16 cores, the most that were asked for"
    assert ended(40.0, 8.0, 38.0, busy=0.29) == "at 16 cores, the most that were asked for"  # the load differs


def test_a_curve_ends_where_the_first_of_its_ends_is():
    assert ended(9.0, 9.0, 9.0, busy=0.98).startswith("at 16 cores: the iokernel's loop is full")
    assert ended(9.0, 80.0, 90.0, busy=0.98).startswith("at 16 cores: the iokernel's loop is full")
    assert ended(1.0, 9.0, busy=0.9).startswith("between 4 and 8 cores")


def test_a_loop_that_is_full_is_where_it_stops(run):
    ran = run(list(range(0, 4000, 10)), [20.0] * 400, cores=8, costs=Costs(decide_ns=5, actuate_ns=30))
    assert measures.measured(ran)["loop_busy"] > 0.9


def test_the_plot_keeps_the_rules(document):
    pytest.importorskip("matplotlib")
    canvas = plots.draw(document)
    figure = canvas.complete(document)
    canvas.close()
    assert len(figure.panels) == 7
    assert policy.load("fifo").name in figure.expect
    for name, why in document["settings"]["stops"].items():
        assert f"{name}: {why}." in canvas.captions  # where it stops scaling, and why
    assert any(caption.startswith("Simulated.") for caption in canvas.captions)
    one = document | {"arms": [row for row in document["arms"] if row["cores"] == 4]}
    canvas = plots.draw(one)
    figure = canvas.complete(one)
    canvas.close()
    assert len(figure.panels) == 7
    assert {"fifo", "priority (preempt=1)"} <= figure.expect


def test_a_load_of_one_kind_has_a_plot():
    """Jain's index is 1 then, but for the last bit, which broke the rules of plots."""
    pytest.importorskip("matplotlib")
    load = runs.Wanted("poisson", {"jobs": 300, "load": 0.9, "sigma": 2})
    with Session("lab", seconds=0.1) as session:
        comparing.fill(session, [runs.one(task) for task in tasks(cores=(1, 4), seeds=(1, 2, 3), load=load)])
    document = session.document()
    canvas = plots.draw(document)
    assert len(canvas.complete(document).panels) == 5
    canvas.close()

"""`corelane lab`: what it runs, writes and refuses."""

import argparse
import json
import os
import sys

import pytest

from corelane.bench.lab import loads
from corelane.cli.lab import add_arguments
from corelane.cli.lab.running import cores, named
from corelane.cli.main import main

SMALL = "exponential:jobs=200"


def said(capsys, *words, code=0):
    here = ["--processes", "1"] if words[0] in ("run", "compare") else []
    assert main(["lab", *words, *here]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def test_the_list_has_policies_and_generators(capsys):
    text = said(capsys, "list")
    assert "fifo (batch=1): the baseline" in text
    assert "cluster: The mix of a production cluster" in text
    found = json.loads(said(capsys, "list", "--json"))
    assert {"fifo", "priority"} <= {p["name"] for p in found["policies"]}
    assert {g["name"] for g in found["generators"]} >= {"cluster", "poisson"}


def test_a_run_prints_a_table_and_writes_what_was_asked_for(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    out = {name: str(tmp_path / name) for name in ("a.json", "a.png", "page")}
    words = [
        "run",
        "--policy",
        "fifo,priority",
        "--load",
        SMALL,
        "--cores",
        "2,4",
        "--seeds",
        "2",
        "--set",
        "preempt=1",
    ]
    text = said(capsys, *words, "--json", out["a.json"], "--plot", out["a.png"], "--report", out["page"])
    assert "priority (preempt=1)" in text
    assert "seeds 1, 2" in text
    document = json.loads((tmp_path / "a.json").read_text())
    assert len(document["arms"]) == 4
    assert document["settings"]["load"] == {"generator": "exponential", "jobs": 200.0}
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert "fifo" in (tmp_path / "page" / "index.html").read_text()


def test_without_the_extra_all_but_plots_is_there(capsys, monkeypatch, tmp_path):
    """What is missing was told once all had run."""
    for name in ("matplotlib", "ray"):
        monkeypatch.setitem(sys.modules, name, None)
    words = ["run", "--policy", "fifo", "--load", SMALL, "--cores", "2", "--seeds", "1"]
    assert "fifo" in said(capsys, *words)
    err = said(capsys, *words, "--plot", str(tmp_path / "a.png"), code=1)
    assert "pip install 'corelane[plot]'" in err
    assert "1 of 1" not in err


def test_the_document_alone_on_stdout(capsys):
    document = json.loads(said(capsys, "run", "--policy", "fifo", "--load", SMALL, "--cores", "2", "--json"))
    assert document["settings"]["lab_seeds"] == [1, 2, 3, 4, 5]


def test_compare_sweeps_with_seeds_of_its_own(capsys):
    load = "bimodal:jobs=400,long_share=0.05,long_us=20"
    words = ["compare", "--policy", "fifo,priority", "--alone", "--load", load, "--cores", "2", "--seeds", "2"]
    text = said(capsys, *words)
    assert "priority (preempt=1)" in text
    assert "times the mean completion of fifo" in text


def test_a_load_file(capsys, tmp_path):
    loads.write(tmp_path / "mine.load", loads.Load((loads.Kind(),), loads.jobs([0, 10], [1000.0, 1000.0])))
    words = ["--load", str(tmp_path / "mine.load"), "--cores", "1"]
    text = said(capsys, "run", "--policy", "fifo", *words)
    assert "fifo" in text
    text = said(capsys, "compare", "--policy", "fifo,priority", "--alone", *words)
    assert "settings were chosen on the load that is shown: mine.load" in text
    assert "1 times the mean completion of fifo" in text


@pytest.mark.soak(takes_s=40)  # the box's loop is compiled
def test_a_load_file_on_the_box(capsys, tmp_path):
    core, count = str(min(os.sched_getaffinity(0))), 50
    rows = loads.jobs([20_000 * i for i in range(count)], [10_000.0] * count)
    loads.write(tmp_path / "seen.load", loads.Load((loads.Kind(),), rows, {"recorded": "requests"}))
    words = ["box", "--policy", "fifo", "--load", str(tmp_path / "seen.load"), "--cores", core, "--rounds", "2"]
    row = json.loads(said(capsys, *words, "--json"))
    assert (row["n"], row["rounds"], row["cores"]) == (2 * count, 2, [int(core)])
    assert row["box_p50_us"] >= 10
    assert row["model_p99_us"] >= row["model_p50_us"] >= 10
    text = said(capsys, *words)
    assert f"fifo (batch=1) on cores {core}: {2 * count} jobs in 2 rounds" in text
    assert "simulated without losses" in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["run", "--policy", "fofi"], "there is none of that name"),
        (["run", "--policy", "fifo", "--load", "none"], "there is no such file or generator"),
        (["run", "--policy", "fifo", "--load", "poisson:x=1"], "this generator has no such setting"),
        (["run", "--policy", "fifo", "--load", "poisson:jobs"], "write it as name=number"),
        (["run", "--policy", "fifo", "--cores", "0"], "write 64, or 4,16,64, or 4..256"),
        (["run", "--policy", "fifo", "--set", "a=1"], "none of these policies has it"),
        (["run", "--policy", "fifo", "--costs", "a=1"], "there is none of that name"),
        (["run", "--policy", "fifo", "--speeds", "a"], "it is no list of numbers"),
        (["run", "--policy", ","], "it names none"),
        (["compare", "--policy", "fifo", "--alone", "--baseline", "fair"], "it does not run"),
        (["box", "--cores", "4095"], "may not be used"),
        (["box", "--load", "none"], "there is no such file or generator"),
    ],
)
def test_words_that_are_wrong(capsys, words, why):
    assert why in said(capsys, *words, code=2)


def test_baselines_stand_beside_what_is_compared():
    parser = argparse.ArgumentParser()
    add_arguments(parser)

    def names(*words):
        return named(parser.parse_args([*words, "--policy", "fair,mine:mine"]))

    assert names("run") == names("compare", "--alone") == ["fair", "mine:mine"]
    assert names("compare") == ["fair", "mine:mine", "fifo", "round_robin", "srpt", "edf", "static"]


def test_ranges_of_cores():
    assert cores("4..64") == (4, 8, 16, 32, 64)
    assert cores("3,5") == (3, 5)

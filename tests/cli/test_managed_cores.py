"""up, run, policy and trace where an iokernel moves cores, as a user starts them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from cltest.commands import ask

from corelane.cli import watch

from .test_streams import commands


def assert_traced(path: str, out: Path) -> None:
    """Moves between the two are recorded, in a summary and in a file that says the same; an ask is among them soon."""
    for _ in range(8):
        shown = ask("trace", "--socket", path, "--seconds", "0.3", "--out", str(out), "--json")
        assert shown.returncode == 0, shown.stdout
        document = json.loads(shown.stdout)
        assert (document["out"], document["policy"]) == (str(out), "delay")
        assert document["seconds"] > 0.2
        assert document["moves"] == sum(step["moves"] for step in document["steps"].values())
        events = json.loads(out.read_text())["traceEvents"]
        assert all(e["ts"] <= 1e6 * document["seconds"] for e in events if e["ph"] != "M")  # none from before
        assert sum(e["ph"] == "X" and e["pid"] == 2 for e in events) == document["moves"]
        assert {e["name"] for e in events if e["ph"] == "X" and e["pid"] == 1} <= {"echo.0", "batch.0"}
        if any(e["name"] == "ask: batch.0 to echo.0" for e in events):
            break
    else:
        pytest.fail(f"no ask was seen: {document}")
    owners = document["cores"][0]["owners"]
    assert set(owners) == {"echo.0", "batch.0"}
    assert 0 < sum(owners.values()) <= 1
    nowhere = ask("trace", "--socket", path, "--out", str(out.parent / "none" / "x.json"))
    assert nowhere.returncode == 1
    assert "give --out a file that can be written" in nowhere.stderr


@contextlib.contextmanager
def two_cpus() -> Iterator[None]:
    """What is started in the block may run on two of our CPUs alone."""
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(ours)[-2:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: none is left to be managed")
def test_a_server_and_batch_work_share_a_core(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    with two_cpus():
        held = ("--set", "apps.echo.guaranteed_cores=1")
        up = start("up", "--socket", path, "--nic", "loadgen:echo,rate=2e3,seconds=100", *held, "--json")
    begun = up.event("iokernel")
    assert (begun["policy"], len(begun["worker_cpus"])) == ("delay", 1)  # or nobody had to give way
    job = start("run", "batch", "--socket", path, "--option", "size=32", "--every", "0.1", "--json")
    assert job.event("serving")["ports"] == []
    assert job.event("work")["kernel"] == "matmul"
    run = start("run", "echo", "--socket", path, "--weight", "7", "--deadline-us", "100", "--json")
    assert "it has weight 1 instead of 7: to allow more" in run.event("limited")["text"]
    run.event("serving")

    def answered_asks() -> int:
        """Moves that the job's probes answered, before any signal."""
        return sum(a["actuation"]["ask"]["n"] for a in watch.snapshot(path)["cores"]["allocators"])

    wait_until(lambda: answered_asks() > 0, 60, lambda: f"an ask to be answered: {watch.snapshot(path)['cores']}")
    top = ask("top", "--socket", path, "-d", "0.2", "--once", "--json")
    apps = {a["name"]: a["cores"] for a in json.loads(top.stdout)["apps"]}
    assert {name: (c["class"], c["guaranteed"], c["deadline_us"]) for name, c in apps.items()} == {
        "batch": ("batch", 0, 0),
        "echo": ("latency", 1, 100),
    }
    assert apps["batch"]["moves_in"] > 0
    assert_traced(path, tmp_path / "trace.json")
    for times in (apps["echo"]["detection"], apps["echo"]["actuation"], apps["batch"]["actuation"]):
        assert times["n"] == sum(n for _, _, n in times["buckets_ns"]) > 0
        lows = [low for low, _, _ in times["buckets_ns"]]
        assert lows == sorted(set(lows))
        assert lows[0] <= 1000 * times["p50_us"] <= 1000 * times["p99_us"]
    wait_until(lambda: watch.snapshot(path)["uplinks"][0]["rx_frames"] > 1000)
    up.process.send_signal(signal.SIGTERM)
    run.event("gone")
    assert job.event("gone")["text"]
    assert run.stop() == 0
    assert job.stop() == 0
    assert up.process.wait(60) == 0


POLICY = """
def spare(view, apps, cores=1):
    for i in range(view.n_apps):
        apps[i].grant = min(apps[i].cores - apps[i].idle + cores, apps[i].maximum)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: none is left to be managed")
def test_another_policy_while_it_runs(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "broken.py").write_text("def f(view, apps:\n")
    up = start("up", "--socket", path, "--policy", "delay", "--set", "policy.target_us=20", "--json")
    begun = up.event("iokernel")
    assert begun["policy"] == "delay"
    assert len(begun["worker_cpus"]) >= 1
    right = (
        (["fair", "--set", "slice_us=20"], "fair", {"slice_us": 20, "credit_us": 10_000}),
        (["mine:spare", "--set", "cores=2"], "mine:spare", {"cores": 2}),
    )
    wrong = (
        (["fair", "--set", "slice=1"], "this policy has no such setting"),
        (["fair", "--set", "slice_us"], "name=number"),
        (["./none.so:f"], str(tmp_path / "none.so")),
        (["broken:f"], "cannot import broken: SyntaxError"),
        (["x" * 300 + ":f"], "239"),
    )
    lines = [
        ["policy"],
        *(["policy", *words, "--json"] for words, _, _ in right),
        ["ps", "--interval", "0"],
        *(["policy", *words] for words, _ in wrong),
        ["policy", "--json"],
    ]
    cases = [{"args": [*line, "--socket", path], "cwd": str(tmp_path)} for line in lines]
    first, fair, mine, shown, *refused, last = commands(cases)
    assert first["out"].startswith("policy delay target_us=20 calm=1 moves_percent=10, worker core")
    for (_, name, settings), answer in zip(right, (fair, mine), strict=True):
        assert answer["code"] == 0, answer["err"]
        assert json.loads(answer["out"]) == {"name": name, "params": settings, "ejected": None}
    assert "policy mine:spare cores=2, worker core" in shown["out"]
    for (words, said), answer in zip(wrong, refused, strict=True):
        assert answer["code"] == 1, words
        assert said in answer["err"], words
        assert len(answer["err"].strip().splitlines()) == 1, words
    assert json.loads(last["out"])["name"] == "mine:spare"
    assert up.stop() == 0
    told = ask("up", "--socket", path, "--policy", "broken:f", cwd=tmp_path)
    assert told.returncode == 1
    assert "cannot import broken: SyntaxError" in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1

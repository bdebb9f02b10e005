"""up, run and ps as a user starts them: processes of their own on a socket of the test's own, ended by their pids.

With managed cores: test_managed_cores.py; with uplinks: test_uplinks.py; what `run` serves: test_served.py.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from cltest.commands import DEADLINE_S, ask

from corelane.cli import watch

from .test_streams import commands


def test_up_run_ps(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    # The application is started first: it waits for the iokernel, as `corelane up & corelane run` needs.
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    up = start("up", "--socket", path, "--json")
    begun = up.event("iokernel")
    assert (begun["socket"], begun["pid"], begun["uplink"]) == (path, up.process.pid, None)
    assert len(begun["cpus"]) == 1
    assert up.event("placement")["text"], "after what whoever starts it looks for"
    serving = run.event("serving")
    assert (serving["app"], serving["attached"], serving["pid"]) == ("echo", True, run.process.pid)
    assert (serving["port"], serving["ports"]) == (9000, [9000])

    shown = ask("ps", "--socket", path, "--interval", "0.05")
    assert shown.returncode == 0, shown.stderr
    assert "echo" in shown.stdout
    assert serving["address"] in shown.stdout
    stats = json.loads(ask("ps", "--socket", path, "--interval", "0.05", "--json").stdout)
    assert [a["name"] for a in stats["apps"]] == ["echo"]
    assert stats["apps"][0]["pid"] == run.process.pid
    assert "rates" in stats["apps"][0]
    wait_until(lambda: "echo" in ask("metrics", "--socket", path).stdout)
    wait_until(lambda: watch.snapshot(path)["apps"][0]["counters"])
    assert {k: serving[k] for k in ("address", "mac", "cpus")} == {
        "address": stats["apps"][0]["ipv4"],
        "mac": stats["apps"][0]["mac"],
        "cpus": stats["apps"][0]["cpus"],
    }

    shown = ask("top", "--socket", path, "-d", "0.05", "--once")
    assert shown.returncode == 0, shown.stderr
    assert "echo" in shown.stdout
    top = [
        json.loads(line) for line in ask("top", "--socket", path, "-d", "0.05", "-n", "2", "--json").stdout.splitlines()
    ]
    assert [[a["name"] for a in stats["apps"]] for stats in top] == [["echo"], ["echo"]]

    second = ask("up", "--socket", path)
    assert second.returncode == 1
    assert f"pid {up.process.pid}" in second.stderr
    twin = ask("run", "echo", "--socket", path)
    assert twin.returncode == 1
    assert f"the name echo is taken: process {run.process.pid} is attached under it" in twin.stderr
    assert "corelane run --name NAME, Runtime(..., name=NAME)" in twin.stderr
    assert not twin.stderr.rstrip().endswith("]"), "the sentence has said it all, and errno's words stay away"

    assert run.stop() == 0
    assert up.stop() == 0
    gone = ask("ps", "--socket", path)
    assert gone.returncode == 1
    assert "corelane up" in gone.stderr


def test_an_application_outlives_its_iokernel(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    first = start("up", "--socket", path, "--json")
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    run.event("serving")
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait(60)
    assert path in run.event("gone")["text"]
    second = start("up", "--socket", path, "--json")
    run.event("attached")
    names: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    while names != ["echo"] and time.monotonic() < deadline:
        got = ask("ps", "--socket", path, "--interval", "0", "--json")
        names = [a["name"] for a in json.loads(got.stdout)["apps"]] if got.returncode == 0 else []
    assert names == ["echo"]
    assert run.stop() == 0
    assert second.stop() == 0


def test_an_iokernel_loads_its_application(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    # Longer than a machine is away: a loop that gets no CPU until all that was due is long overdue sends none of it.
    up = start("up", "--socket", path, "--nic", "loadgen:echo,rate=2e3,seconds=3", "--json")
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    run.event("serving")
    load = up.event("load")
    # How many are answered in time is the machine's affair; that answers come and each request is accounted for, ours.
    assert load["sent"] > 400
    assert 0 < load["answered"] <= load["sent"]
    assert up.process.wait(60) == 0
    run.event("gone")
    run.process.send_signal(signal.SIGTERM)
    net = run.event("stopped")["net"]
    assert load["answered"] <= net["replied"] <= net["handled"]
    assert run.process.wait(60) == 0


@pytest.mark.parametrize("nic", ["none", "loadgen:echo"])
def test_an_iokernel_gives_out_the_areas_of_its_configuration(start: Any, tmp_path: Path, nic: str) -> None:
    path = str(tmp_path / "io.sock")
    (tmp_path / "up.toml").write_text('[storage]\ndirectory = "areas"\n')
    start("up", "--config", "up.toml", "--socket", path, "--nic", nic, "--json").event("iokernel")
    made = ask("areas", "create", "log", "1M", "--socket", path)
    assert made.returncode == 0, made.stderr
    assert [file.name for file in (tmp_path / "areas").iterdir()] == [f"log@{os.geteuid()}.area"]


@pytest.mark.parametrize("nic", ["socket", "loadgen:echo,rate=100,seconds=600"])
def test_an_application_ends_promptly_when_asked(start: Any, tmp_path: Path, nic: str) -> None:
    path = str(tmp_path / "io.sock")
    if nic == "socket":
        up = start("up", "--socket", path, "--json")
        run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
        run.event("serving")
        os.kill(up.process.pid, signal.SIGKILL)  # it tries to attach again from now on
        run.event("gone")
    else:
        run = start("run", "echo", "--nic", nic, "--json")
        run.event("serving")
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(60) in (0, -signal.SIGTERM)


def test_errors_are_one_sentence(tmp_path: Path) -> None:
    wrong = (
        (["up", "--set", "iokernel.pol=spin"], "did you mean 'poll'"),
        (["up", "--nic", "quantum:q0"], "--nic af_xdp:q0"),
        (["up", "--config", "/nonexistent.toml"], "/nonexistent.toml"),
        (["up", "--cores", "4000", "--socket", "SOCK"], "CPU 4000"),
        (["run", "echo", "--socket", "SOCK", "--wait", "0"], "corelane up"),
        (["run", "echo", "--nic", "loadgen:quic"], "loadgen:echo"),
        (["run", "echo", "--nic", "loadgen:echo,speed=1"], "no option 'speed'"),
        (["run", "echo", "--nic", "af_xdp:lo"], "--address"),
        (["run", "echo", "--nic", "loadgen:echo", "--spin-us", "-1"], "from 0 to 1000000"),
        (["run", "echo", "--nic", "loadgen:echo", "--spin-us", "nan"], "from 0 to 1000000"),
        (["run", "echo", "--nic", "loadgen:echo", "--seconds", "-1"], "from 0 to a day"),
        (["run", "echo", "--kthreads", "0"], "whole number from 1 to 64"),
        (["ps", "--socket", "SOCK"], "corelane up"),
        (["top", "--socket", "SOCK"], "corelane up"),
        (["top", "--socket", "SOCK", "-n", "0"], "whole number from 1 on"),
        (["trace", "--socket", "SOCK"], "corelane up"),
        (["trace", "--socket", "SOCK", "--seconds", "-1"], "from 0 to a day"),
        (["policy", "--socket", "SOCK"], "corelane up"),
        (["policy", "fair", "--socket", "SOCK"], "corelane up"),
        (["policy", "--set", "target_us=1", "--socket", "SOCK"], "name it: corelane policy"),
        (["ps", "--interval", "-1"], "from 0 to a day"),
    )
    none = str(tmp_path / "none.sock")
    answers = commands([{"args": [none if a == "SOCK" else a for a in args]} for args, _ in wrong])
    for (args, finding), answer in zip(wrong, answers, strict=True):
        assert answer["code"] in (1, 2), args
        assert finding in answer["err"], args
        assert len(answer["err"].strip().splitlines()) == 1, args


def test_sample_configuration_is_a_configuration(tmp_path: Path) -> None:
    sample = ask("up", "--sample")
    assert sample.returncode == 0
    from corelane.runtime.config import loads

    assert loads(sample.stdout).iokernel.poll == "adaptive"

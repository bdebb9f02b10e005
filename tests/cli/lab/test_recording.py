"""From moves of cores, and from traces of requests, to a load: arrivals, work, classes, and no names."""

import json
import os

import numpy as np
import pytest
from maderequests import HZ as STAMPS_HZ
from maderequests import NAMES, Made

from corelane.bench.lab import loads, policy
from corelane.bench.lab.recorded import Stretch, load_of, load_of_requests
from corelane.bench.lab.world import Machine, World
from corelane.cli.lab.recording import stretches
from corelane.cli.main import main
from corelane.cli.trace.recording import Recording
from corelane.iokernel import Iokernel
from corelane.iokernel._native import lib
from corelane.iokernel.control.moves import Move
from corelane.libos import Runtime
from corelane.libos.trace.pieces import joined
from corelane.libos.trace.stages import table
from corelane.runtime._native import lib as traces
from corelane.runtime.errors import CorelaneError

HZ = 1_000_000_000


def test_stretches_become_jobs_without_names(tmp_path):
    load = load_of([Stretch(50, 400, "b"), Stretch(10, 30, "secret"), Stretch(90, 200, "b")], 1.0)
    assert load.jobs["at_ns"].tolist() == [0, 40, 80]
    assert load.jobs["work_ns"].tolist() == [30, 400, 200]
    assert load.classes.tolist() == [1, 0, 0]
    loads.write(tmp_path / "a", load)
    assert b"secret" not in (tmp_path / "a").read_bytes()
    assert "secret" not in repr(loads.read(tmp_path / "a"))


def test_many_applications_share_the_last_class():
    load = load_of([Stretch(i, 100 - i, f"a{i}") for i in range(20)], 1.0)
    assert load.classes.max() == 15
    assert np.bincount(load.classes)[15] == 5


def test_nothing_to_record():
    with pytest.raises(CorelaneError, match="no core changed hands in 2 s"):
        load_of([Stretch(0, 0, "a")], 2)


def test_who_had_a_core_from_when_it_was_decided():
    """A job had it, then kv for 38 us, then the job again."""
    made = Recording(0, 100_000, HZ)

    def moved(at, old, new):
        wanted = Move(at, old, new, lib.CL_IO_LOG_WANTED, lib.CL_IO_STEP_REQUEST, core=5)
        steps = {"decided": at + 100, "stored": at + 150, "lost": at + 900, "left": at + 1000, "back": at + 2100}
        return [wanted, Move(at + 2200, new, new, lib.CL_IO_LOG_DONE, lib.CL_IO_STEP_REQUEST, core=5, **steps)]

    made.add([*moved(10_000, 7, 3), *moved(50_000, 3, 7)], 0)
    for slot, name in ((3, "kv.0"), (7, "job.0")):
        made.learn(slot, 0, name)
    found = [(one.at_ns, one.length_ns, one.owner) for one in stretches(made)]
    assert found == [(0, 10_100, "job"), (10_100, 38_000, "kv"), (50_100, 47_900, "job")]


def queued(n=3000, seed=1):
    """Requests of a known load, as the one kthread that serves them in order writes them down: us between them, and us
    in their handlers."""
    made = Made(n, seed)
    made.kthread[:] = 0
    gaps = made.random.exponential(140, n).round()
    took = np.where(made.random.random(n) < 0.1, 550.0, 50.0)
    records = made.records()
    at, ends = np.cumsum(gaps), np.zeros(n)
    for i in range(n):
        ends[i] = max(at[i], ends[i - 1] if i else 0) + took[i]
    us = STAMPS_HZ // 10**6
    messages = records.messages
    messages["begin"] = 10**9 + at.astype(np.uint64) * us
    messages["pickup"], messages["start"] = 0, (ends - took - at) * us
    messages["end"] = messages["sent"] = (ends - at) * us
    return records, at, took, ends - at


def test_a_known_load_is_recorded_and_simulated_with_the_latencies_that_it_had():
    records, at, took, latency = queued()
    load = load_of_requests(table(records, NAMES, STAMPS_HZ), 1.0)
    assert (load.jobs["at_ns"] / 1e3 == at - at[0]).all()
    assert load.jobs["work_ns"] / 1e3 == pytest.approx(took)
    ran = World(load, Machine(1)).run(policy.load("fifo"))
    quantiles = (50, 90, 99, 99.9)
    seen = np.percentile(latency, quantiles)
    assert np.percentile(ran.completion_ns / 1e3, quantiles) == pytest.approx(seen, rel=1e-4)  # of whole ns
    assert load.said["p99_us"] == pytest.approx(np.percentile(latency, 99))
    assert (load.said["kthreads"], load.said["waited"], load.said["besides_ns"]) == (1, 0.0, 0)


def test_work_is_what_handlers_ran_and_services_are_classes(tmp_path):
    waits = Made(50, 1, service=1)
    waits.us["blocked"][:], waits.what[:] = 30, traces.CL_TRACE_WAITS_LOG
    runs = Made(50, 2, service=2)
    runs.us["runs"][:] = 10
    burst = Made(5, 3, service=3)
    burst.flags[:] |= traces.CL_TRACE_SHARED | traces.CL_TRACE_GUESSED
    stall = Made(5, 4, service=4)
    stall.flags[:] |= traces.CL_TRACE_STALLED
    calls = Made(5, 5, service=5)
    names = [*NAMES, "UDP 9001", "TCP 81", "Raft 7000"]
    records = joined([made.records() for made in (waits, runs, burst, stall, calls)])
    load = load_of_requests(table(records, names, STAMPS_HZ), 1.0)
    assert np.bincount(load.classes).tolist() == [50, 50]
    assert load.jobs["work_ns"][load.classes == 0] == pytest.approx(10_000, rel=1e-3)
    assert load.jobs["work_ns"][load.classes == 1].max() < 5_000
    assert 0.5 < load.said["waited"] < 0.9
    loads.write(tmp_path / "a", load)
    assert "UDP" not in repr(loads.read(tmp_path / "a"))


def test_no_requests():
    with pytest.raises(CorelaneError, match="no request was answered in 2 s"):
        load_of_requests(table(Made(0, 1).records(), NAMES, STAMPS_HZ), 2)


class Asked:
    """Stands for the trace segment of a process: one reading."""

    mode, hz = "full", STAMPS_HZ

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def skip(self):
        pass

    def services(self):
        return NAMES

    def read(self, most=None):
        return Made(40, 1).records()


def test_the_command_writes_requests_and_says_what_became_of_them(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("corelane.runtime.trace.Segment.of_process", lambda pid: Asked())
    words = ["lab", "record", str(tmp_path / "a"), "--pid", "42", "--seconds", "0.01"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "requests of 1 service\n" in said
    assert "there, on 2 kthreads: p50 2." in said
    assert "give it as --costs switch_ns=" in said
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recorded"] == "requests"
    assert len(loads.read(tmp_path / "a")) == document["jobs"]


def test_an_application_writes_down_all_of_them_only_meanwhile(socket_path, capsys, tmp_path):
    file = str(tmp_path / "a")
    with Iokernel(socket_path), Runtime(socket_path, name="kept", poll="block") as runtime:
        runtime.start()
        assert main(["lab", "record", file, "--pid", str(os.getpid()), "--seconds", "0.01"]) == 1
        assert "are not all written down (trace: sampled)" in capsys.readouterr().err
        assert main(["lab", "record", file, "--socket", socket_path, "--app", "kept", "--seconds", "0.01"]) == 1
        assert "no request was answered" in capsys.readouterr().err
        assert runtime.trace == "sampled"

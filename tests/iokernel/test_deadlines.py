"""Deadlines between a runtime and an iokernel that runs: asked for, measured, refused, admitted, shown, withdrawn."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from cltest import wait_until
from cltest.control import answer, attached, kind_of
from cltest.switching import stats_of

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.iokernel import Allowance, AppConfig, Iokernel, UserConfig
from corelane.iokernel._native import ffi, lib
from corelane.iokernel.control.messages import message_of
from corelane.runtime.errors import CorelaneError

CPU = max(os.sched_getaffinity(0))
HOUR_S = 3600.0


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    """Set, the job ends."""
    event = threading.Event()
    yield event
    event.set()


class Job:
    """Batch work in plain Python, which counts."""

    def __init__(self, socket_path: str, ended: threading.Event, **options: object) -> None:
        self.units = 0
        self._ended = ended
        self.runtime = libos.Runtime(socket_path, name="job", **{"kind": "batch", **options})  # type: ignore[arg-type]
        self.runtime.publish(lambda: {"units": self.units})
        self.runtime.batch(libos.batch(compiled=False)(self.work))
        self.runtime.start()

    def work(self) -> None:
        while not self._ended.is_set():
            self.units += 1

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.runtime.close()

    def wait_for(self, state: str) -> libos.Promised:
        said: list[libos.Promised] = []

        def is_so() -> bool:
            said.append(self.runtime.promised(self.units))
            return said[-1].state == state

        wait_until(is_so, 60, lambda: f"{state}, and not {said[-1]}")
        return said[-1]


def allowing(cores: float) -> Allowance:
    return Allowance(user_defaults=UserConfig(deadline_cores=cores))


def test_one_is_refused_with_what_is_possible_and_then_admitted(start, socket_path, ended):
    io = start(worker_cpus=[CPU], policy="delay", allowance=allowing(0.5))
    with Job(socket_path, ended) as job:
        assert job.runtime.promised().state == "none"
        asked = job.runtime.promise(10**15, HOUR_S, done=job.units)
        assert (asked.state, asked.ends_in_s) == ("measuring", None)
        refused = job.wait_for("refused")
        assert "of 0.5 cores that may be promised, too few are left" in refused.text
        assert "could be done within" in refused.text
        job.runtime.promise(10**8, HOUR_S, done=job.units)
        admitted = job.wait_for("admitted")
        assert "cores, at" in admitted.text
        wait_until(lambda: 0 < job.runtime.promised().cores <= 0.5)
        shown = stats_of(io, "job")
        assert shown["deadline"]["state"] == "admitted"
        assert shown["deadline"]["units_per_core_s"] > 0
        wait_until(lambda: stats_of(io, "job")["cores"]["promised_ns"] > 0)
        job.runtime.promised(done=10**12)  # by its own word it is done
        assert job.wait_for("met").done == 10**8
        assert stats_of(io, "job")["deadline"]["promised_cores"] == 0
        job.runtime.promise(10**8, HOUR_S, done=job.units)
    wait_until(lambda: io.stats()["deadlines"]["withdrawn"] == 1)
    assert {k: io.stats()["deadlines"][k] for k in ("asked", "admitted", "refused", "met", "missed")} == {
        "asked": 3,
        "admitted": 1,
        "refused": 1,
        "met": 1,
        "missed": 0,
    }


ALLOWED = {"policy": "delay", "allowance": allowing(1)}


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"policy": None}, "batch", "no policy moves cores here"),
        ({"policy": "delay"}, "latency", "job is of latency class"),
        ({"policy": "delay"}, "batch", "no cores may be promised to it"),
        (ALLOWED | {"apps": {"job": AppConfig(guaranteed_cores=1)}}, "batch", "job has 1 guaranteed cores"),
        (ALLOWED | {"apps": {"job": AppConfig(deadline_cores=0)}}, "batch", "[apps.job]"),
    ],
)
def test_who_is_promised_nothing_stays_attached(start, socket_path, options, kind, said):
    io = start(worker_cpus=[CPU], **options)
    with libos.Runtime(socket_path, name="job", kind=kind) as runtime:
        runtime.start()
        refused = runtime.promise(10, 10.0)
        assert refused.state == "refused"
        assert said in refused.text
        assert io.apps == ("job",)


def test_embedded_there_is_nobody_to_promise(ended):
    inner, outer = memory_link()
    with inner, outer, libos.Runtime(nic=inner, address="10.77.0.9") as runtime:
        with pytest.raises(CorelaneError, match="attach to one"):
            runtime.promise(10, 10.0)
        with pytest.raises(CorelaneError, match="cannot be"):
            runtime.promise(0, 10.0)


def test_hostile_words_of_a_client(start, socket_path):
    """Whatever stands in the message, the answer is one, and the connection stays."""
    io = start(worker_cpus=[CPU], policy="delay", allowance=allowing(1))
    with attached(socket_path, kind=lib.CL_CONTROL_BATCH) as sock:
        for ask in (
            {"work": 2**64 - 1, "done": 2**64 - 1, "within_us": 2**64 - 1, "counter": b"\xff" * 32},
            {"work": 1, "done": 0, "within_us": 0, "counter": b"units"},
            {"work": 0, "done": 2**64 - 1, "within_us": 0, "counter": b""},
            {"work": 1, "done": 2**62, "within_us": 2**40, "counter": b"../etc"},
        ):
            body = bytes(ffi.buffer(ffi.new("struct cl_promise *", ask)))
            sock.sendall(message_of(lib.CL_CONTROL_PROMISE, body))
            got = answer(sock)
            assert kind_of(got) == lib.CL_CONTROL_PROMISE_OK
            told = ffi.new("struct cl_control_promise_ok *")
            ffi.memmove(told, got, len(got))
            assert told.answer.state == lib.CL_PROMISE_REFUSED
            assert ffi.string(told.answer.text)
    assert isinstance(io, Iokernel)
    assert io.stats()["control"]["last_error"] == ""

"""Limits of latency that a Runtime is given, and the recorder that it has then (libos/traced.py)."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Trace
from corelane.libos.numba import calls
from corelane.libos.trace.kept import load, names
from corelane.runtime._native import lib
from corelane.runtime.errors import ConfigError
from corelane.runtime.trace import links


def sleeps_if_asked(request, reply):  # type: ignore[no-untyped-def]  # numba types it
    if request[0] == 115:  # an s
        calls.sleep_ns(3_000_000)
    reply[0] = request[0]
    return 1


def test_a_request_over_the_limit_is_kept_with_its_waits(serve: Any, tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    told = threading.Event()

    def listens(event: str, text: str) -> None:
        said.append((event, text))
        told.set()

    trace = Trace(mode="full", folder=str(tmp_path))
    served = serve(libos.udp(9000)(sleeps_if_asked), name="slept", trace=trace, slo="2ms", on_event=listens)
    for word in (b"x", b"s", b"x"):
        assert served.ask(word) == word
    assert told.wait(60)
    assert said[0][0] == "recorded"
    assert served.runtime.recorded["kept"] == 1
    (name,) = names(tmp_path)
    head, records = load(tmp_path / name)
    assert (head.name, head.pid, head.broken.service) == ("slept", os.getpid(), "UDP 9000")
    slow = records.messages[records.messages["id"] == head.broken.id]
    assert len(slow) == 1
    assert list(records.waits["what"][records.waits["id"] == head.broken.id]) == [lib.CL_TRACE_WAITS_SLEEP]


def test_each_runtime_of_a_process_has_its_own(serve: Any, tmp_path: Path) -> None:
    """Of the same name, too."""
    folders = [tmp_path / "a", tmp_path / "b"]
    two = [
        serve(echo_handler("c"), name="same", trace=Trace(mode="full", folder=str(folder)), slo=("1ns",))
        for folder in folders
    ]
    assert two[1].ask(b"x") == b"x"
    for served in two:
        served.runtime.stop()
    assert [len(names(folder)) for folder in folders] == [0, 1]
    assert [served.runtime.recorded.get("broken", 0) > 0 for served in two] == [False, True]


def test_without_limits_there_is_no_recorder(serve: Any) -> None:
    assert serve(echo_handler("c"), name="free").runtime.recorded == {}


def test_a_runtime_that_is_forgotten_is_closed_although_its_recorder_runs(tmp_path: Path) -> None:
    nic, end = memory_link(ipv4=("10.0.0.1", None), ipv4_prefix=24)
    with nic, end:
        before = set(links(os.getpid()))
        runtime = libos.Runtime(nic=nic, name="forgotten", trace=Trace(folder=str(tmp_path)), slo="1ms")
        runtime.start()
        (segment,) = set(links(os.getpid())) - before
        gone = weakref.ref(runtime)
        del runtime
        gc.collect()
        assert gone() is None
        assert segment not in links(os.getpid())


def test_a_restarted_one_has_a_recorder_again(tmp_path: Path) -> None:
    nic, end = memory_link(ipv4=("10.0.0.1", None), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, trace=Trace(folder=str(tmp_path)), slo="1ms") as runtime:
        runtime.start()
        with runtime.restart() as again:
            assert again._recorder is not None
            assert again._recorder is not runtime._recorder


def test_limits_that_cannot_be_are_refused() -> None:
    nic, end = memory_link(ipv4=("10.0.0.1", None), ipv4_prefix=24)
    with nic, end:
        with pytest.raises(ConfigError, match='expected limits of latency as in "1ms"'):
            libos.Runtime(nic=nic, slo="soon")
        with pytest.raises(ConfigError, match=r"make a runtime: limits \(slo\) need a trace"):
            libos.Runtime(nic=nic, trace="off", slo="1ms")

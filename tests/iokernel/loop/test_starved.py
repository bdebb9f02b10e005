"""A loop that does not run, as if its core were taken away: what it holds up is finished once it runs again."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from cltest import wait_until
from cltest.switching import between, collect

from corelane.drivers._native import ffi
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic
from corelane.drivers.port.port import Port, PortMemory, open_port
from corelane.iokernel import Patience
from corelane.runtime.errors import CorelaneError

REFUSED = re.compile("does not (answer|take commands)|still leaving: try again")
SMALL = PortMemory(rx_buffers=16, tx_buffers=16)


class Gate:
    """An uplink whose rx_burst waits while the gate is shut, and so the loop that polls it."""

    def __init__(self, nic: Nic) -> None:
        self.nic = nic
        self._open, self._waits = threading.Event(), threading.Event()
        self._open.set()
        self._ops = ffi.new("struct cl_nic_ops *", nic.ptr.ops[0])
        self._old = nic.ptr.ops

        @ffi.callback("unsigned(struct cl_nic *, unsigned, struct cl_frame *, unsigned)")
        def rx_burst(*_args: object) -> int:
            if not self._open.is_set():
                self._waits.set()
                self._open.wait(60)
            return 0

        self._ops.rx_burst = self._callback = rx_burst
        nic.ptr.ops = self._ops

    def shut(self) -> None:
        """Return when the loop waits."""
        self._waits.clear()
        self._open.clear()
        assert self._waits.wait(60)

    def open(self) -> None:
        self._open.set()

    def remove(self) -> None:
        self._open.set()
        self.nic.ptr.ops = self._old


@pytest.fixture
def gate() -> Iterator[Gate]:
    with ExitStack() as stack:
        inner, outer = memory_link()
        stack.enter_context(inner)
        stack.enter_context(outer)
        made = Gate(inner)
        stack.callback(made.remove)
        yield made


@pytest.fixture
def starved(gate: Gate, start: Callable[..., object]) -> Iterator[object]:
    # "spin": the gate is asked all the time. The loop is freed before the iokernel is stopped.
    yield start(uplinks=[gate.nic], poll="spin", patience=Patience(loop_s=0.05), worker_cpus=[5, 6])
    gate.open()


@pytest.fixture
def join(starved: object, attach: Callable[..., Port]) -> Callable[..., Port]:
    """`port = join("name", **options)`: attached, while the gate is open. A loop without a CPU for these 50 ms does not
    answer either: then it is asked again."""

    def answered(name: str, **options: Any) -> Port | None:
        try:
            return attach(name, **options)
        except CorelaneError as error:
            if not REFUSED.search(str(error)):
                raise
            return None

    return lambda name, **options: wait_until(partial(answered, name, **options), what=f"{name} to be taken")


def test_an_application_that_leaves_meanwhile_is_removed_later(gate, starved, join, socket_path):
    a, b = join("a"), join("b")
    before, left = b.info().cpus, starved.stats()["departed"]["apps"]
    gate.shut()
    b.close()
    wait_until(lambda: starved.stats()["leaving"] == ["b"])
    assert starved.apps == ("a",)
    assert starved.stats()["control"]["unregister_failed"] == 1
    for _ in range(3):  # its address is not free yet
        with pytest.raises(CorelaneError, match="still leaving: try again"):
            open_port(socket_path, name="b")
    gate.open()
    wait_until(lambda: starved.stats()["leaving"] == [])
    assert {"apps": left + 1, "buffers_lost": 0}.items() <= starved.stats()["departed"].items()
    again = join("b")
    assert again.info().cpus == before, "its CPU was given back"
    frame = between(a, again, b"hello")
    assert a.send(frame) == 1
    assert collect(again, 1) == [frame]


def test_an_application_that_comes_meanwhile_is_refused_and_forgotten(gate, starved, join, socket_path):
    a = join("a")
    gate.shut()
    with pytest.raises(CorelaneError, match=r"loop 0 does not answer: is its core taken away\?"):
        open_port(socket_path, name="b")
    assert starved.stats()["leaving"] == ["b"]
    assert starved.apps == ("a",)
    gate.open()
    wait_until(lambda: starved.stats()["leaving"] == [])
    b = join("b")
    frame = between(a, b, b"hello")
    assert a.send(frame) == 1
    assert collect(b, 1) == [frame]


def test_more_commands_than_fit_are_carried_out_in_the_end(gate, starved, join, socket_path):
    """The command ring of a loop has 64 slots: 40 that leave and 40 that come need more."""
    ports = [join(f"old{i}", memory=SMALL) for i in range(40)]
    left = starved.stats()["departed"]["apps"]
    gate.shut()
    for port in ports:
        port.close()
    wait_until(lambda: len(starved.stats()["leaving"]) == 40)
    refused = 0
    for i in range(40):
        with pytest.raises(CorelaneError, match=r"does not (answer|take commands)"):
            open_port(socket_path, name=f"new{i}", memory=SMALL)
        refused += 1
    gate.open()
    wait_until(lambda: starved.stats()["leaving"] == [])
    assert refused == 40
    assert starved.apps == ()
    assert {"apps": left + 80, "buffers_lost": 0}.items() <= starved.stats()["departed"].items()
    join("old0")


def test_stopping_with_commands_under_way_leaves_nothing_behind(gate, starved, join, socket_path):
    join("a")
    gate.shut()
    with pytest.raises(CorelaneError, match="does not answer"):
        open_port(socket_path, name="b")
    gate.open()
    starved.stop()
    starved.start()  # a new set of loops: nothing of the old one is left
    assert starved.stats()["leaving"] == []
    join("b").close()

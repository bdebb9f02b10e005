"""Code that never comes back does not keep a process from ending.

It is named, and the process ends; where the runtime is a part of somebody's process, an error says so."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cltest import die_with_parent, wait_until
from cltest.packets import Host

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime, Scheduler
from corelane.libos.numba import atomics
from corelane.runtime.errors import CorelaneError

SERVER = Host("02:00:00:00:00:01", "10.0.0.1")
CLIENT = Host("02:00:00:00:00:02", "10.0.0.2")
gate = np.zeros(1, np.uint32)
signed_gate = np.zeros(2, np.int64)  # the second: it has been entered
entered = threading.Event()


@libos.udp(port=9000, compiled=False)
def python_handler(request: Any) -> int:
    while not gate[0]:
        pass
    return 0


@libos.udp(port=9000, state=signed_gate, cache=False)
def compiled_handler(request: Any, reply: Any, state: Any) -> int:
    while atomics.load_atomic(state, 0) == 0:
        pass
    return 0


@libos.batch(compiled=False)
def python_job() -> None:
    while not gate[0]:
        pass


@libos.tcp(port=7000, compiled=False)
def python_stream(data: Any) -> tuple[int, None]:
    entered.set()
    while not gate[0]:
        pass
    return len(data), None


@libos.tcp(port=7000, state=signed_gate, cache=False)
def compiled_stream(data: Any, reply: Any, state: Any) -> tuple[int, int]:
    atomics.store_atomic(state, 1, 1)
    while atomics.load_atomic(state, 0) == 0:
        pass
    return len(data), 0


@libos.every(ms=1, compiled=False)
def python_work() -> None:
    entered.set()
    while not gate[0]:
        pass


@libos.every(ms=1, state=signed_gate, cache=False)
def compiled_work(state: Any) -> None:
    atomics.store_atomic(state, 1, 1)
    while atomics.load_atomic(state, 0) == 0:
        pass


@pytest.fixture
def endless(c_library: Callable[..., Path]) -> Path:
    return c_library("tests/libos/c/endless.c")


class Place:
    """A runtime in this process, and the code in which its only kthread gets stuck."""

    def __init__(self, library: Path) -> None:
        self.nic, self.end = memory_link(
            (1, 1), ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24, mac=(SERVER.mac, CLIENT.mac)
        )
        self.full = self.nic.buffers_free
        self.runtime = Runtime(nic=self.nic, scheduler=Scheduler(stop_s=0.1))
        self.c = ctypes.CDLL(str(library))
        self.stream: libos.TcpStream | None = None
        gate[:] = signed_gate[:] = 0
        entered.clear()

    def handle(self, handler: Any) -> None:
        self.runtime.bind(handler)
        self.runtime.start()
        self.end.send(CLIENT.datagram(SERVER, b"x", 5555, 9000))
        self.runtime.wait_until(lambda s: s.net["handled"] > 0, 60)

    def enter_named(self, handler: Any) -> str:
        """Of a TCP port, which is then asked, or periodic work."""
        self.runtime.bind(handler)
        self.runtime.start()
        if isinstance(handler, libos.StreamHandler):
            self.stream = self.runtime.connect_tcp((SERVER.ip, 7000), timeout_s=20)
            self.stream.write(b"x")
        wait_until(lambda: entered.is_set() or signed_gate[1], 60, "it to be called")
        what = "the handler of TCP port 7000" if self.stream else "periodic work"
        return f"in {what}, {handler.function.__name__} at 0x"

    def spawn(self, start: Callable[[], object]) -> None:
        start()
        self.runtime.start()
        self.runtime.wait_until(lambda s: s.sched["switches"] > 0, 60)

    def enter(self, kind: str) -> str:
        """Have the kthread stuck; returns what is said of where."""
        named = {f.function.__name__: f for f in (python_stream, compiled_stream, python_work, compiled_work)}
        if kind in named:
            return self.enter_named(named[kind])
        if kind == "uthread":
            function = ctypes.cast(self.c.endless_uthread, ctypes.c_void_p).value
            self.spawn(lambda: self.runtime.spawn(function, gate.ctypes.data))
            return "in a uthread, endless_uthread"
        if kind == "job":
            self.spawn(lambda: self.runtime.batch(python_job))
            return "in batch job python_job"
        handlers = {
            "python": (python_handler, "python_handler"),
            "compiled": (compiled_handler, "compiled_handler"),
            "C": (libos.c_handler(self.c.endless_handler, port=9000, arg=gate), "endless_handler"),
            "C burst": (libos.c_handler(self.c.endless_burst, port=9000, arg=gate, burst=True), "endless_burst"),
        }
        handler, name = handlers[kind]
        self.handle(handler)
        return f"in the handler of UDP port 9000, {name}"

    def stopped(self) -> bool:
        try:
            self.runtime.stop()
            return True
        except CorelaneError:
            return False

    def close(self) -> None:
        gate[:] = signed_gate[:] = 1
        wait_until(self.stopped, 60, "the kthread to come back")
        if self.stream:
            self.stream.close()
        self.runtime.close()
        while self.end.recv():
            pass
        self.nic.recv()
        assert self.nic.buffers_free == self.full
        self.nic.close()
        self.end.close()


@pytest.fixture
def place(endless: Path) -> Iterator[Place]:
    made = Place(endless)
    yield made
    made.close()


@pytest.mark.parametrize(
    "kind",
    [
        *("python", "compiled", "C", "C burst", "uthread", "job"),
        *("python_stream", "compiled_stream", "python_work", "compiled_work"),
    ],
)
def test_a_stop_says_what_does_not_come_back(place: Place, kind: str) -> None:
    where = place.enter(kind)
    for _ in range(2):
        with pytest.raises(CorelaneError) as caught:
            place.runtime.stop(0.01)
        assert caught.value.errno == errno.ETIMEDOUT
        assert "kthread 0 (thread " in str(caught.value)
        assert where in str(caught.value)
        assert "does not come back" in str(caught.value)
        assert "end the process" in str(caught.value)
    assert not place.runtime.stopped


def test_a_close_says_so_too(place: Place) -> None:
    where = place.enter("C")
    with pytest.raises(CorelaneError) as caught:
        place.runtime.close()
    assert where in str(caught.value)


class Server:
    """programs/endless.py in a process of its own, whose handler is in its first request."""

    def __init__(self, kind: str, library: Path, **environment: str) -> None:
        program = Path(__file__).parent / "programs" / "endless.py"
        code = "import runpy, signal, sys; signal.signal(signal.SIGUSR1, lambda *_: None); runpy.run_path(sys.argv[3])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, kind, str(library), str(program)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **environment},
            preexec_fn=die_with_parent,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", self.process.communicate()

    def end_by(self, number: signal.Signals) -> str:
        """What it says on stderr, having ended with status 1."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 1, errors
        return errors


@pytest.mark.parametrize(
    ("kind", "number", "says"),
    [
        ("python", signal.SIGTERM, "python"),
        ("sleeping", signal.SIGINT, "sleeping"),
        ("locked", signal.SIGTERM, "locked"),
        ("compiled", signal.SIGTERM, "compiled.<locals>.loops"),
        ("C", signal.SIGTERM, "endless_handler"),
    ],
)
def test_a_server_ends_by_a_signal(endless: Path, kind: str, number: signal.Signals, says: str) -> None:
    hurry = {"HURRY": "1"} if kind == "locked" else {}  # or it computes for two seconds more
    errors = Server(kind, endless, **hurry).end_by(number)
    assert f"in the handler of UDP port 9000, {says}" in errors
    assert "does not come back" in errors


def test_other_signals_end_nothing(endless: Path) -> None:
    """They come by the same socket, and wait in it while the main thread does not get to run."""
    server = Server("locked", endless, HURRY="1")
    server.process.send_signal(signal.SIGUSR1)
    with pytest.raises(subprocess.TimeoutExpired):  # longer than it would take
        server.process.wait(0.6)
    assert "does not come back" in server.end_by(signal.SIGTERM)

"""A runtime that a thread of the caller's drives, from Python: turns in a plain selectors loop, and who may do what."""

from __future__ import annotations

import errno
import os
import select
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from cltest import wait_until
from cltest.packets import Host, read_datagram

from corelane import libos
from corelane.drivers.linux import ethtool
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.fault import FaultNic, Faults
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos.adopted import _turn as in_c
from corelane.runtime.errors import CorelaneError

SERVER = Host("02:00:00:00:00:01", "10.0.0.1")
CLIENT = Host("02:00:00:00:00:02", "10.0.0.2")


def python_echo(request: memoryview) -> bytes:
    return bytes(request)


@contextmanager
def adopted(handler: Any = python_echo, wrap: Callable[[Any], Any] = lambda nic: nic, **options: Any):
    """A started runtime of one adopted kthread, and the other end of its wire."""
    nic, end = memory_link((1, 1), ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24, mac=(SERVER.mac, CLIENT.mac))
    with nic, end, wrap(nic) as outer:
        options = {"poll": "block", **options}
        with libos.Runtime(nic=outer, adopted=1, **options) as runtime:
            if handler is not None:
                runtime.bind(libos.udp(port=9000, compiled=False)(handler))
            runtime.start()
            runtime.turn()
            end.recv(8)  # its announcement
            yield runtime, end


def readable(runtime: libos.Runtime, timeout_s: float = 0) -> bool:
    return bool(select.select([runtime], [], [], timeout_s)[0])


def rest(runtime: libos.Runtime) -> None:
    """Turn until it sleeps."""
    while runtime.turn():
        pass


def send(end: Any, payload: bytes) -> None:
    assert end.send([CLIENT.datagram(SERVER, payload, 5555, 9000)]) == 1


def test_a_frame_makes_it_readable_and_a_turn_answers() -> None:
    with adopted() as (runtime, end):
        for n in range(20):
            rest(runtime)
            assert not readable(runtime)
            send(end, b"request %d" % n)
            assert readable(runtime, 10)
            rest(runtime)
            assert read_datagram(end.recv(1)[0]).payload == b"request %d" % n
            assert not readable(runtime)
        stats = runtime.stats()
        assert stats.balanced
        assert stats.sched["parks"] >= 20


def test_a_selectors_loop_serves_beside_its_own_descriptors() -> None:
    with adopted() as (runtime, end), selectors.DefaultSelector() as selector:
        ours, theirs = os.pipe()
        served, other, stopping = [], [], threading.Event()
        selector.register(runtime, selectors.EVENT_READ)
        selector.register(ours, selectors.EVENT_READ)

        def ask() -> None:
            for n in range(200):
                send(end, b"%d" % n)
                got: list[bytes] = []
                wait_until(lambda got=got: got.extend(end.recv(1)) or got, 60, "a reply")
                served.append(read_datagram(got[0]).payload)
                os.write(theirs, b"x")
            stopping.set()
            os.write(theirs, b"x")

        asker = threading.Thread(target=ask)
        asker.start()
        while not stopping.is_set():
            again = runtime.turn()
            for key, _ in selector.select(0 if again else None):
                if key.fileobj == ours:
                    other.append(os.read(ours, 64))
        asker.join()
        os.close(ours)
        os.close(theirs)
    assert served == [b"%d" % n for n in range(200)]
    assert len(b"".join(other)) >= 200


def test_an_idle_loop_does_not_wake() -> None:
    with adopted() as (runtime, _end):
        rest(runtime)
        time.sleep(0.1)  # longer than an ordinary kthread watches
        assert not readable(runtime)
        assert not runtime.turn()


def test_timers_and_frames_that_nobody_announces_wake_it() -> None:
    calls: list[float] = []
    work = libos.every(ms=2, compiled=False)(lambda: calls.append(time.monotonic()))
    with adopted(wrap=lambda nic: FaultNic(nic, rx=Faults(delay=1.0), delay_us=(3000, 3000))) as (runtime, end):
        rest(runtime)
        send(end, b"late")
        got: list[bytes] = []
        while not got:
            assert readable(runtime, 10)
            rest(runtime)
            got = end.recv(1)
        assert read_datagram(got[0]).payload == b"late"
        runtime.bind(work)
        while len(calls) < 3:
            assert readable(runtime, 10)
            rest(runtime)


def test_it_is_stopped_and_closed_by_the_loop_itself() -> None:
    with adopted() as (runtime, end):
        send(end, b"last")
        assert runtime.stop() == 0
        with pytest.raises(CorelaneError, match="has stopped") as caught:
            runtime.turn()
        assert caught.value.errno == errno.ESHUTDOWN
        assert readable(runtime), "a loop that sleeps on it learns of the end"
    with pytest.raises(CorelaneError, match="has stopped"):
        runtime.turn()
    with pytest.raises(CorelaneError, match="has stopped"):
        runtime.fileno()


def test_a_loop_that_sleeps_learns_that_another_thread_closed_it() -> None:
    ended: list[int] = []
    with adopted() as (runtime, end):

        def loop() -> None:
            try:
                while True:
                    if not runtime.turn():
                        select.select([fd], [], [])
            except CorelaneError as error:
                ended.append(error.errno)

        runtime.let_go()  # by this thread, which has started it
        fd = runtime.fileno()
        thread = threading.Thread(target=loop)
        thread.start()
        parks = runtime.stats().sched["parks"]
        send(end, b"x")
        wait_until(lambda: runtime.stats().sched["parks"] > parks, 60, "the loop to serve and sleep")
        runtime.stop()
        thread.join()
    assert ended == [errno.ESHUTDOWN]


def test_wrong_callers_are_told_so() -> None:
    said: list[str] = []

    def reenters(request: memoryview) -> bytes:
        for call in (runtime.turn, runtime.let_go, runtime.stop):
            with pytest.raises(CorelaneError) as caught:
                call()
            said.append(str(caught.value))
        return b"said"

    def elsewhere() -> None:
        with pytest.raises(CorelaneError, match="another thread has adopted"):
            runtime.turn()
        with pytest.raises(CorelaneError, match="has not adopted"):
            runtime.let_go()
        said.append("elsewhere")

    with adopted(reenters) as (runtime, end):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert said == ["elsewhere"]
        send(end, b"x")
        rest(runtime)
        assert read_datagram(end.recv(1)[0]).payload == b"said"
        assert len(said) == 4
        assert "from inside a turn" in said[1]
        assert "from inside a turn" in said[2]
        with pytest.raises(CorelaneError, match="its kthreads are adopted"):
            runtime.serve()
        with pytest.raises(CorelaneError, match="no such kthread"):
            runtime.turn(1)
        with pytest.raises(CorelaneError, match="no such kthread"):
            runtime.fileno(1)
        for number in (-1, 2**40, "first"):
            for call in (runtime.turn, runtime.fileno, runtime.let_go):
                with pytest.raises(CorelaneError):
                    call(number)  # type: ignore[arg-type]


def test_a_forked_child_is_refused() -> None:
    with adopted() as (runtime, _end):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                runtime.turn()
            except CorelaneError as error:
                status = 0 if error.errno == errno.ECHILD else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert not runtime.turn(), "the parent goes on"


def test_an_interrupt_in_a_handler_comes_out_of_the_turn() -> None:
    def interrupted(request: memoryview) -> bytes:
        signal.raise_signal(signal.SIGINT)
        return b"not reached"

    with adopted(interrupted) as (runtime, end):
        send(end, b"x")
        with pytest.raises(KeyboardInterrupt):
            rest(runtime)
        rest(runtime)
        assert runtime.stats().net["handler_errors"] == 1


def test_an_interrupt_ends_the_sleep_of_the_loop() -> None:
    with adopted() as (runtime, _end):
        rest(runtime)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            select.select([runtime], [], [], 20)
        assert not runtime.turn()


def test_other_threads_run_while_it_is_asleep() -> None:
    counted = 0
    with adopted() as (runtime, end):
        rest(runtime)

        def answer() -> None:
            nonlocal counted
            for _ in range(1000):
                counted += 1
            send(end, b"now")

        thread = threading.Thread(target=answer)
        thread.start()
        assert readable(runtime, 10)
        rest(runtime)
        thread.join()
    assert counted == 1000


def test_nothing_is_freed_under_a_turn_that_has_just_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is put aside as it has let go of the interpreter's lock, and another one closes the runtime."""
    begun, go_on, said = threading.Event(), threading.Event(), []

    def put_aside(sched: Any, kthread: int) -> int:
        begun.set()
        assert go_on.wait(60)
        return int(in_c(sched, kthread))

    def turn() -> None:
        with pytest.raises(CorelaneError, match="stopped") as caught:
            runtime.turn()
        said.append(caught.value.errno)

    with adopted() as (runtime, _end):
        runtime.let_go()
        monkeypatch.setattr("corelane.libos.adopted._turn", put_aside)
        turner, closer = threading.Thread(target=turn), threading.Thread(target=runtime.close)
        turner.start()
        assert begun.wait(60)
        closer.start()
        closer.join(0.05)
        assert closer.is_alive(), "what the turn is about to use was freed"
        go_on.set()
        turner.join(60)
        closer.join(60)
        assert said == [errno.ESHUTDOWN]


def answer(runtime: libos.Runtime, client: socket.socket) -> bytes:
    """What comes for the client, while a loop sleeps and turns when the descriptor says so."""
    while client not in (ready := select.select([runtime, client], [], [], 10)[0]):
        assert ready, "nothing comes, and nothing is to be done"
        rest(runtime)
    return client.recv(64)


def a_tap(space: Any) -> Any:
    nic = Tap("cl0", 1)
    space.ip("address", "add", "10.0.0.2/24", "dev", "cl0")
    space.ip("link", "set", "cl0", "up")
    return nic


def an_interface(space: Any) -> Any:
    space.ip("link", "add", "cl0", "type", "veth", "peer", "name", "cl1")
    space.ip("address", "add", "10.0.0.2/24", "dev", "cl1")
    for name in ("cl0", "cl1"):
        space.ip("link", "set", name, "up")
    ethtool.offloads_off("cl1")
    return AfXdp("cl0", steer="all")


@pytest.mark.root
@pytest.mark.parametrize("make", [a_tap, an_interface])
def test_a_device_of_the_kernel_wakes_it_and_may_go(netns: Any, make: Callable[[Any], Any]) -> None:
    space = netns.add("device")
    with space.entered():
        nic = make(space)
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    events: list[str] = []
    with (
        nic,
        client,
        libos.Runtime(
            nic=nic, adopted=1, poll="block", address="10.0.0.1/24", on_event=lambda event, _text: events.append(event)
        ) as runtime,
    ):
        runtime.bind(libos.udp(port=9000, compiled=False)(python_echo))
        runtime.start()
        client.connect(("10.0.0.1", 9000))
        client.setblocking(False)
        for n in range(20):
            client.send(b"%d" % n)
            assert answer(runtime, client) == b"%d" % n
        rest(runtime)
        space.ip("link", "delete", "cl0")
        if make is an_interface:
            nic.stats()  # its socket shows no error: the kthread looks when the NIC is asked for its statistics
        while not runtime.gone:
            assert readable(runtime, 10)
            rest(runtime)
        woken = 0
        until = time.monotonic() + 0.1
        while (left := until - time.monotonic()) > 0:
            woken += readable(runtime, left)
            rest(runtime)
        assert woken < 100, "a device that shows an error for ever does not keep the loop awake"
    assert events.count("gone") == 1

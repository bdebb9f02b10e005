"""The runtime as an object: life, refusals, signals, stealing, what happens when the NIC goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host, read_datagram

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers.nic.memory import memory_link
from corelane.libos import CoreShare, Network, Scheduler
from corelane.libos.numba import atomics
from corelane.runtime.errors import CorelaneError

SERVER = Host("02:00:00:00:00:01", "10.0.0.1")
CLIENT = Host("02:00:00:00:00:02", "10.0.0.2")
Serve = Callable[..., Any]


def link(queues: int = 1, address: bool = True) -> Any:
    return memory_link((queues, 1), ipv4=(SERVER.ip if address else None, None), ipv4_prefix=24)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"poll": "turbo"}, "one of: spin, adaptive, block"),
        ({"kthreads": 0}, "at least 1"),
        ({"kthreads": 2}, "fewer queues than kthreads"),
        ({"kthreads": 65}, "at most 64"),
        ({"cpus": [0, 1], "kthreads": 1}, "one CPU a kthread"),
        ({"address": "10.0.0"}, "addresses as in"),
        ({"address": "224.0.0.1"}, "unicast"),
        ({"address": "10.0.0.1/0"}, "1 to 32 bits"),
        ({"kind": "fast"}, "one of: latency, batch"),
        ({"scheduler": Scheduler(stack_bytes=100)}, "stack_bytes is 100: expected 16384"),
    ],
)
def test_wrong_options_are_refused_with_the_reason(options: dict[str, Any], says: str) -> None:
    nic, end = link()
    with nic, end:
        with pytest.raises(CorelaneError, match=says):
            libos.Runtime(nic=nic, **options)
        assert nic.buffers_free == nic.buffers


@pytest.mark.parametrize(
    ("group", "options", "says"),
    [
        (Scheduler, {"quantum_us": -1}, "Scheduler: quantum_us: is -1 (expected a whole number from 0 to 4294967295)"),
        (Scheduler, {"quantum_us": 2.5}, "Scheduler: quantum_us: is 2.5"),
        (Scheduler, {"stack_bytes": 1 << 32}, "Scheduler: stack_bytes: is 4294967296"),
        (Scheduler, {"spin_us": -1}, "Scheduler: spin_us: is -1"),
        (Scheduler, {"spin_us": float("nan")}, "Scheduler: spin_us: is nan (expected a number from 0 to 1000000.0)"),
        (Scheduler, {"spin_us": 1e7}, "Scheduler: spin_us: is 10000000.0"),
        (Scheduler, {"steal": 1}, "Scheduler: steal: is 1 (expected true or false)"),
        (Network, {"gateway": "nowhere"}, "Network: gateway: is \"nowhere\" (expected a gateway as in '10.77.0.1'"),
        (Network, {"udp_checksums": "no"}, "Network: udp_checksums"),
        (CoreShare, {"weight": 0}, "CoreShare: weight: is 0 (expected a whole number from 1 to 4294967295)"),
        (CoreShare, {"guaranteed": -1}, "CoreShare: guaranteed: is -1"),
        (CoreShare, {"max_cores": -1}, "CoreShare: max_cores: is -1"),
        (CoreShare, {"deadline_us": "soon"}, 'CoreShare: deadline_us: is "soon"'),
    ],
)
def test_a_group_of_options_has_limits(group: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(CorelaneError) as refused:
        group(**options)
    assert str(refused.value).startswith(says)


def test_a_cpu_that_cannot_be_used_is_named() -> None:
    nic, end = link()
    says = "kthread 0 cannot run on CPU 99999: it does not exist"
    with nic, end, libos.Runtime(nic=nic, cpus=[99999]) as runtime, pytest.raises(CorelaneError, match=says):
        runtime.start()


def test_a_place_is_needed_and_only_one() -> None:
    with pytest.raises(CorelaneError, match="needs a place"):
        libos.Runtime()
    with pytest.raises(CorelaneError, match="no iokernel listens on /nonexistent"):
        libos.Runtime("/nonexistent/corelane.sock")
    nic, end = link(address=False)
    with nic, end:
        with pytest.raises(CorelaneError, match="so give one"):
            libos.Runtime(nic=nic)
        with libos.Runtime(nic=nic, address="10.1.2.3/16") as runtime:
            assert (runtime.address, runtime.mac, runtime.kthreads) == ("10.1.2.3", nic.mac, 1)
            assert not runtime.attached
            assert not runtime.gone
        with pytest.raises(CorelaneError, match="an iokernel sends the signal at the end of a quantum: attach to one"):
            libos.Runtime(nic=nic, address="10.1.2.3/16", scheduler=Scheduler(quantum_us=5, quantum_signal=True))
    nic, end = link(queues=2)
    with nic, end, pytest.raises(CorelaneError, match="more queues than the runtime kthreads"):
        libos.Runtime(nic=nic, kthreads=1)


def test_life_in_every_order() -> None:
    nic, end = link()
    with nic, end:
        full = nic.buffers_free
        libos.Runtime(nic=nic).close()
        runtime = libos.Runtime(nic=nic)
        assert runtime.stop() == 0, "never started"
        runtime.close()
        runtime.close()
        with pytest.raises(CorelaneError, match="closed"):
            runtime.start()
        with libos.Runtime(nic=nic) as runtime:
            runtime.start()
            with pytest.raises(CorelaneError, match="started before"):
                runtime.start()
            assert runtime.stop() == runtime.stop() == 0
            assert runtime.wait(0.0), "stopped is the end of waiting"
        while end.recv():
            pass
        assert nic.buffers_free == full


def test_a_restart_keeps_handlers_and_state_and_ends_what_was_open(serve: Serve) -> None:
    state, ticks = np.zeros(1, np.uint64), np.zeros(1, np.uint64)

    @libos.udp(9000, state=state)
    def count(request: Any, reply: Any, state: Any) -> int:
        reply[0] = atomics.atomic_add(state, 0, 1)
        return 1

    @libos.every(ms=1, state=ticks)
    def tick(state: Any) -> None:
        atomics.atomic_add(state, 0, 1)

    served = serve(count, tick)
    old = served.runtime
    assert [served.ask(b"?") for _ in range(3)] == [b"\0", b"\1", b"\2"]
    socket, channel = old.open_udp(7000), old.channel(np.uint8, 1)
    for before in (3, 4):
        served.runtime = served.runtime.restart()
        served.receive()  # it announces its address again
        assert served.ask(b"?") == bytes([before])
        served.settled(lambda s: s.net["handled"] == 1)  # its counters begin anew
        seen = int(ticks[0])
        wait_until(lambda seen=seen: ticks[0] > seen, what="periodic work to go on")
    with pytest.raises(CorelaneError, match="it is closed"):
        old.restart()
    with pytest.raises(CorelaneError, match="it is closed"):
        socket.connect((CLIENT.ip, 1))
    with pytest.raises(CorelaneError, match="its runtime is closed"):
        channel.send(1)


def test_two_runtimes_in_one_process(serve: Serve) -> None:
    one, two = serve(echo_handler("c")), serve(echo_handler("numba"))
    assert one.ask(b"to one") == b"to one"
    assert two.ask(b"to two") == b"to two"
    for served in (one, two):
        served.settled(lambda s: s.net["replied"] == 1)


def test_in_the_child_of_a_fork_a_runtime_is_over(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of later Pythons: the child only asks and ends
        child = os.fork()
    if child == 0:
        try:
            served.runtime.stats()
        except CorelaneError as error:
            os.write(writes, str(error).encode())
        served.runtime.close()
        os.write(writes, b" closed" if served.runtime.ended else b"")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    said = os.read(reads, 4096).decode()
    os.close(reads)
    os.close(writes)
    assert "a fork of the one that made it" in said
    assert said.endswith("closed")
    assert served.ask(b"still here") == b"still here"


def test_a_handler_does_not_end_its_own_runtime(serve: Serve) -> None:
    """Its thread would have to wait for itself, and free the stack that it runs on."""

    @libos.udp(9000, compiled=False)
    def ends(request: memoryview) -> bytes:
        said = []
        for call in (served.runtime.stop, served.runtime.close):
            with pytest.raises(CorelaneError) as refused:
                call()
            said.append(refused.value.what)
        return ", ".join(said).encode()

    served = serve(ends)
    assert served.ask(b"x") == b"stop the runtime, close the runtime"


def test_wait_ends_when_another_thread_stops(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    assert not served.runtime.wait(0.001)
    thread = threading.Thread(target=served.runtime.stop)
    thread.start()
    assert served.runtime.wait(60)
    thread.join()


def test_serve_ends_when_another_thread_closes() -> None:
    raised: list[BaseException] = []
    serving = threading.Event()
    nic, end = memory_link()
    runtime = libos.Runtime(nic=nic, address="10.0.0.1/24", on_event=lambda *_: serving.set())

    def serves() -> None:
        try:
            runtime.serve(echo_handler("c"))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=serves)
    with nic, end:
        thread.start()
        assert serving.wait(60)
        runtime.close()
        thread.join()
    assert raised == []


@pytest.mark.parametrize("at", ["bind", "start", "wait"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_serve(number: signal.Signals, at: str) -> None:
    """`serve` in a process of its own ends by Ctrl-C or SIGTERM, with status 0 and nothing on stderr, whether it comes
    while a handler is compiled, as soon as requests are answered, or later."""
    code = (
        "from corelane import libos\n"
        "from corelane.apps.echo import handler\n"
        "from corelane.drivers.nic.memory import memory_link\n"
        "a, b = memory_link(ipv4=('10.0.0.1', None))\n"
        "class Loud(libos.Runtime):\n"
        "    def wait(self, timeout_s=None):\n"
        "        import threading\n"
        "        threading.Timer(0.05, print, ['serving'], {'flush': True}).start()\n"
        "        return super().wait(timeout_s)\n"
        "    def bind(self, handler, port=None):\n"
        "        import os\n"
        f"        {at == 'bind'} and os.kill(os.getpid(), {int(number)})\n"
        "        return super().bind(handler, port)\n"
        "    def start(self):\n"
        "        import os\n"
        "        super().start()\n"
        f"        {at == 'start'} and os.kill(os.getpid(), {int(number)})\n"
        "        return self\n"
        "Loud(nic=a).serve(handler('python'), quiet=True)\n"
        "print('over')\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert child.stdout is not None
    if at == "wait":
        assert child.stdout.readline() == "serving\n"
        child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, set(out.split()) - {"serving"}, err) == (0, {"over"}, "")


gate = np.zeros(4, np.uint64)


@libos.udp(9000, state=gate)
def holds(request: Any, reply: Any, state: Any) -> int:
    """Byte 0 = 1: burn the core until the gate opens; else answer at once."""
    if request[0] == 1:
        atomics.store_atomic(state, 1, 1)
        while atomics.load_atomic(state, 0) == 0:
            pass
    reply[0] = request[0]
    return 1


def test_a_long_handler_strands_nothing(serve: Serve) -> None:
    """While a handler burns its kthread, a sibling answers what waits behind it, in queue and inbox."""
    gate[:] = 0
    served = serve(holds, kthreads=2)
    try:
        served.send(*[CLIENT.datagram(SERVER, bytes([n])) for n in (1, 2, 3, 4)])
        wait_until(lambda: gate[1] == 1, 60, "the long handler to start")
        served.send(*[CLIENT.datagram(SERVER, bytes([n])) for n in (5, 6)])
        assert sorted(d.payload[0] for d in served.datagrams(5)) == [2, 3, 4, 5, 6]
        # All five if the queue's own kthread took the long one; one, the long one itself, if the sibling stole that.
        assert served.runtime.stats().net["stolen"] >= 1
    finally:
        gate[0] = 1
    assert served.datagrams(1)[0].payload == b"\1"


def test_without_spinning_a_kthread_sleeps_at_once(serve: Serve) -> None:
    """0 is a time, not the default of 20 us."""
    served = serve(echo_handler("c"), scheduler=Scheduler(spin_us=0))
    for _ in range(50):
        assert served.ask(b"?") == b"?"
    sched = served.runtime.stats().sched
    # It reads the clock at every sixteenth look; 20 us are some thousand looks.
    assert sched["polls"] <= 40 * (sched["parks"] + sched["parks_cancelled"] + sched["frames"])


def test_no_stealing_when_told_so(serve: Serve) -> None:
    gate[:] = 0
    served = serve(holds, kthreads=2, scheduler=Scheduler(steal=False))
    try:
        served.send(CLIENT.datagram(SERVER, b"\1"), CLIENT.datagram(SERVER, b"\2"))
        wait_until(lambda: gate[1] == 1, 60, "the long handler to start")
    finally:
        gate[0] = 1
    assert [d.payload for d in served.datagrams(2)] == [b"\1", b"\2"]
    assert served.runtime.stats().net["stolen"] == 0


def test_requests_that_wait_when_it_stops_are_counted(serve: Serve) -> None:
    """Each is handled or counted as unhandled, and no buffer is lost (the fixture looks)."""
    served = serve(echo_handler("c"))
    for _ in range(20):
        served.send(*[CLIENT.datagram(SERVER, b"x" * 20) for _ in range(20)])
    served.runtime.stop()
    stats = served.runtime.stats()
    assert stats.balanced
    assert stats.net["delivered"] == stats.net["handled"] + stats.net["unhandled"]


def test_the_other_end_of_the_link_goes_away(serve: Serve) -> None:
    nic, end = link()
    with nic, libos.Runtime(nic=nic) as runtime:
        runtime.bind(echo_handler("c"))
        runtime.start()
        wait_until(lambda: end.recv(), 60, "the announcement")
        end.send([CLIENT.datagram(SERVER, b"last words")] * 5)
        runtime.wait_until(lambda s: s.net["replied"] == 5)
        end.close()
        wait_until(lambda: runtime.gone, 60, "the runtime to notice")
        assert runtime.stop() == 0
        assert runtime.stats().balanced
        runtime.close()
        assert nic.buffers_free == nic.buffers


def test_no_buffer_for_a_reply(serve: Serve) -> None:
    """With every buffer in the client's hands the handler runs without room, and the failure is counted."""
    served = serve(echo_handler("c"), link={"buffers": 160})
    held = []
    from corelane.drivers._native import ffi, lib

    frames = ffi.new("struct cl_frame[]", 64)
    request = CLIENT.datagram(SERVER, b"x" * 30)
    served.ask(b"warm")
    served.send(*[request] * 8)
    while n := lib.cl_nic_alloc(served.end.ptr, 0, frames, 64):
        held += [(frames[i].data, frames[i].buf, frames[i].tag) for i in range(n)]
    stats = served.done_with(9)
    assert stats.net["replied"] + stats.net["handler_errors"] == 9
    for data, buf, tag in held:
        frames[0].data, frames[0].buf, frames[0].tag = data, buf, tag
        lib.cl_nic_free(served.end.ptr, 0, frames, 1)
    served.receive(stats.net["replied"] - 1)
    assert served.ask(b"and on") == b"and on"


def test_system_calls_of_a_busy_loop(serve: Serve) -> None:
    """In mode spin a request costs no system call: the NIC counts its own, and the kernel sees no voluntary switch."""
    served = serve(echo_handler("c"), poll="spin")
    for _ in range(10):
        served.ask(b"warm")
    tasks = f"/proc/self/task/{_kthread_tid()}/status"
    before, calls = _voluntary(tasks), served.nic.stats().syscalls
    for _ in range(300):
        served.send(*[CLIENT.datagram(SERVER, b"x" * 20) for _ in range(10)])
        served.receive(10)
    assert served.nic.stats().syscalls == calls
    assert _voluntary(tasks) - before <= 2


def _kthread_tid() -> int:
    tasks = Path("/proc/self/task").iterdir()
    (tid,) = [int(t.name) for t in tasks if (t / "comm").read_text().startswith("cl-kthread")]
    return tid


def _voluntary(path: str) -> int:
    with open(path) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt"))


def test_read_datagram_is_strict() -> None:
    frame = bytearray(CLIENT.datagram(SERVER, b"hello"))
    assert read_datagram(bytes(frame)).payload == b"hello"
    frame[-1] ^= 1
    with pytest.raises(AssertionError, match="checksum"):
        read_datagram(bytes(frame))


@pytest.mark.parametrize("how", ["stderr", "event", "quiet"])
def test_serve_says_where(how: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(libos.Runtime, "wait", lambda *_: True)  # then it stops
    nic, end = memory_link()
    with nic, end:
        on_event = (lambda *event: told.append(event)) if how == "event" else None
        runtime = libos.Runtime(nic=nic, address="10.0.0.1/24", on_event=on_event)
        runtime.serve(echo_handler("c"), quiet=how == "quiet")
    line = f"corelane: process {os.getpid()} serves UDP port 9000 at 10.0.0.1 (embedded); ^C ends it"
    assert told == ([("serving", line)] if how == "event" else [])
    assert capfd.readouterr().err == (f"{line}\n" if how == "stderr" else "")

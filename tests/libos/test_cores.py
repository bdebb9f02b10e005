"""Runtimes whose cores an iokernel manages: two of them and one worker core."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import selectors
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest
from cltest import die_with_parent, wait_until
from cltest.packets import BROADCAST, Host, arp, ethernet, read_datagram

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic
from corelane.iokernel import Iokernel
from corelane.libos.batch_work.thread_pools import WISHES
from corelane.libos.numba.atomics import atomic_add, load_atomic
from corelane.runtime.errors import CorelaneError

CLIENT = Host("02:00:00:00:00:99", "10.77.0.99")
CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def managed(socket_path: str) -> Iterator[tuple[Nic, str, Iokernel]]:
    """The wire, the control socket, and an iokernel that manages one worker core."""
    inner, outer = memory_link()
    kernel = Iokernel(
        socket_path, uplinks=[inner], poll="adaptive", loop_cpus=[CPUS[0]], worker_cpus=[CPUS[-1]], policy="delay"
    )
    kernel.start()
    yield outer, socket_path, kernel
    kernel.stop()
    inner.close()
    outer.close()


pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs a CPU for the iokernel's loop and one to give away")


def replies(wire: Nic, request: bytes, kind: bytes) -> list[bytes]:
    """Send until frames of this Ethernet type come back: a datagram may be lost, as anywhere."""
    found: list[bytes] = []

    def look() -> bool:
        if request:
            wire.send(request)
        found.extend(f for f in wire.recv(timeout_s=0.05) if f[12:14] == kind)
        return bool(found)

    wait_until(look, 60, "a reply")
    return found


def ask(wire: Nic, server: Host, payload: bytes) -> None:
    """A request, again until it is answered; answers to earlier ones that were sent twice may come before."""
    request = CLIENT.datagram(server, payload)
    while payload not in [bytes(read_datagram(f).payload) for f in replies(wire, request, b"\x08\x00")]:
        pass


def resolve(wire: Nic, address: str) -> Host:
    """Ask by ARP until the application answers, so it has got a core."""
    ask = ethernet(arp(1, CLIENT.mac, CLIENT.ip, "00:00:00:00:00:00", address), CLIENT.mac, BROADCAST, 0x0806)
    while True:
        for f in replies(wire, ask, b"\x08\x06"):
            if f[20:22] == b"\0\2" and ".".join(map(str, f[28:32])) == address:
                return Host(f[22:28].hex(":"), address)


def test_one_core_goes_to_whom_a_request_is_for(managed: Any) -> None:
    wire, path, kernel = managed
    with libos.Runtime(path, name="a", kthreads=2) as a, libos.Runtime(path, name="b") as b:
        servers = []
        for runtime in (a, b):
            runtime.bind(echo_handler("c"))
            runtime.start()
            servers.append(resolve(wire, runtime.address))
        for n in range(200):
            ask(wire, servers[n % 2], n.to_bytes(4))
        cores = kernel.stats()["cores"]
        assert sum(cpu["moves"] for cpu in cores["cpus"]) >= 100, cores
        assert a.stop() == 0
        assert b.stop() == 0


def moves_of(kernel: Iokernel) -> int:
    return sum(cpu["moves"] for cpu in kernel.stats()["cores"]["cpus"])


def asked(udp: Any, server: tuple[str, int], payload: bytes) -> bytes:
    """An answer, if not to this request then to one that was sent twice."""
    while True:
        udp.send(payload, server)
        with contextlib.suppress(TimeoutError):
            return bytes(udp.receive(1.0)[0])


def count_for_ever(arg):
    words = numba.carray(arg, 2, np.int64)
    while load_atomic(words, 1) == 0:
        atomic_add(words, 0, 1)


def test_batch_that_never_looks_gives_the_core_to_requests_and_goes_on(managed: Any) -> None:
    wire, path, kernel = managed
    words = np.zeros(2, np.int64)
    never_looks = numba.cfunc("void(voidptr)")(count_for_ever)
    with libos.Runtime(path, name="kv") as kv, libos.Runtime(path, name="batch", kind="batch") as batch:
        batch.start()
        batch.spawn(never_looks.address, words.ctypes.data)
        wait_until(lambda: words[0] > 0, 60, "the batch job to run")
        kv.bind(echo_handler("c"))
        kv.start()
        server = resolve(wire, kv.address)
        for n in range(50):
            before = int(words[0])
            ask(wire, server, n.to_bytes(4))
            wait_until(lambda b=before: int(words[0]) > b, 60, "the batch job to go on")
        print(kernel.stats()["cores"])
        assert batch.stats().sched["interrupts"] > 0
        words[1] = 1
        assert batch.stop() == 0
        assert kv.stop() == 0


# A process of its own: what waits in the signal's handler may hold the interpreter's lock.
FOREIGN_BATCH = """
import json, sys
import numpy as np
from corelane import libos
from threadpoolctl import threadpool_info

@libos.batch(compiled=False)
def python(stop):
    n = total = 0
    print("begun", flush=True)
    while not stop:
        n += 1
        total += n
    return n > 0 and 2 * total == n * (n + 1)

@libos.batch(compiled=False)
def numpy(stop):
    a, right, n = np.arange(400.0) * np.ones((400, 1)), True, 0
    print("begun", flush=True)
    while not stop:
        right &= bool((np.dot(a, a)[:, 3] == 3 * a[0].sum()).all())
        n += 1
    return n > 0 and right

path, name = sys.argv[1:]
stop = []
with libos.Runtime(path, name="batch", kind="batch") as runtime:
    job = runtime.start().batch(globals()[name], stop)
    while sys.stdin.readline().startswith("interrupts"):
        print(runtime.stats().sched["interrupts"], flush=True)
    stop.append(True)
    said = {"right": job.result(60), "threads": [pool["num_threads"] for pool in threadpool_info()]}
    assert runtime.stop() == 0
print(json.dumps(said))
"""


@pytest.mark.parametrize("job", ["python", "numpy"])
def test_batch_in_plain_python_or_numpy_moves_by_the_signal(managed: Any, job: str) -> None:
    """It has no probes; requests are answered beside it, and what it computes is right."""
    wire, path, kernel = managed
    process = subprocess.Popen(
        [sys.executable, "-c", FOREIGN_BATCH, path, job],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in WISHES},
        preexec_fn=die_with_parent,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begun\n"
        with libos.Runtime(path, name="kv") as kv:
            kv.bind(echo_handler("c"))
            kv.start()
            server = resolve(wire, kv.address)
            sent = itertools.count()

            def interrupted() -> bool:
                ask(wire, server, next(sent).to_bytes(4))
                return int(kernel.stats()["cores"]["allocators"][0]["actuation"]["interrupt"]["n"]) >= 10

            def noticed() -> bool:
                """By its own count: a signal may reach it when the core is its own again, the move long over."""
                ask(wire, server, next(sent).to_bytes(4))
                process.stdin.write("interrupts\n")
                process.stdin.flush()
                return int(process.stdout.readline()) >= 10

            wait_until(interrupted, 60, lambda: f"ten interrupts: {kernel.stats()['cores']}")
            wait_until(noticed, 60, lambda: f"the job to notice ten: {kernel.stats()['cores']}")
            said = json.loads(process.communicate("stop\n", timeout=60)[0])
            assert said["right"]
            assert set(said["threads"]) == {1}, "the iokernel moves no threads of BLAS"
            assert process.returncode == 0
            assert kv.stop() == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"kind": "fast"}, "kind 'fast'"),
        ({"kthreads": 2, "share": libos.CoreShare(max_cores=3)}, "max_cores 3 is more than its kthreads: 2"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(managed: Any, wish: dict[str, Any], said: str) -> None:
    with pytest.raises(CorelaneError, match=said):
        libos.Runtime(managed[1], **wish)


FLOWS = 8


def numbered(request, reply, state):  # type: ignore[no-untyped-def]  # numba types it
    """Bytes: flow, number (2), how long to compute. state: last number of each flow, then how many were late."""
    flow, number = int(request[0]), np.uint64(request[1]) << np.uint64(8) | np.uint64(request[2])
    if number <= state[flow]:
        atomic_add(state, 8, 1)
    state[flow] = number
    for _ in range(np.uint64(request[3]) * np.uint64(1000)):
        load_atomic(state, 9)
    return 0


def test_flows_keep_their_order_while_cores_move(managed: Any) -> None:
    """An application loses its core in the middle of bursts, again and again."""
    wire, path, kernel = managed
    state = np.zeros(16, np.uint64)
    with libos.Runtime(path, name="a", kthreads=3) as a, libos.Runtime(path, name="b") as b:
        a.bind(libos.udp(9000, state=state, ordered=True)(numbered))
        b.bind(echo_handler("c"))
        servers = []
        for runtime in (a, b):
            runtime.start()
            servers.append(resolve(wire, runtime.address))
        sent, number = 0, itertools.count(1)
        for n in range(150):
            busy = 100 if n % 4 == 0 else 1
            for i in range(20):
                payload = bytes([i % FLOWS, *divmod(next(number), 256), busy])
                sent += wire.send(CLIENT.datagram(servers[0], payload, 5000 + i % FLOWS))
            ask(wire, servers[1], n.to_bytes(4))

        def dropped() -> int:
            (app,) = (app for app in kernel.stats()["apps"] if app["name"] == "a")
            return sum(n for name, n in app.items() if name.startswith("rx_dropped"))

        def all_are_known(s: libos.RuntimeStats) -> bool:
            late = sum(s.dropped[f"flow_{why}"] for why in ("queue_full", "table_full", "budget"))
            return s.net["handled"] + late + dropped() == sent

        stats = a.wait_until(all_are_known, 60.0)
        assert stats.net["handled"] > 0
        assert state[FLOWS] == 0, "datagrams came out of order"
        assert sum(cpu["moves"] for cpu in kernel.stats()["cores"]["cpus"]) >= 50
        assert a.stop() == 0
        assert b.stop() == 0


ROUNDS, PIECE = 40, 2000


def test_streams_keep_their_order_while_cores_move(managed: Any, seed: int) -> None:
    """Both ways: what comes is sent back. The application loses its core in each round, with segments under way."""
    wire, path, kernel = managed
    data = [random.Random(seed + i).randbytes(ROUNDS * PIECE) for i in range(FLOWS)]
    with (
        libos.Runtime(path, name="a", kthreads=3) as a,
        libos.Runtime(path, name="b") as b,
        libos.Runtime(nic=wire, address=f"{CLIENT.ip}/16") as peer,
    ):
        b.bind(echo_handler("c"))
        for runtime in (a, b, peer):
            runtime.start()
        listener, udp = a.listen_tcp(7000), peer.open_udp()
        pairs = [(peer.connect_tcp((a.address, 7000), timeout_s=20), listener.accept(20)) for _ in range(FLOWS)]
        moves, back = moves_of(kernel), [b""] * FLOWS
        for n in range(ROUNDS):
            for i, (near, _) in enumerate(pairs):
                near.write(data[i][n * PIECE : (n + 1) * PIECE], timeout_s=20)
            while asked(udp, (b.address, 9000), n.to_bytes(4)) != n.to_bytes(4):
                pass
            far = pairs[n % FLOWS][1]
            far.write(far.read(timeout_s=20), timeout_s=20)
        for near, far in pairs:
            near.shutdown()
            while part := far.read(timeout_s=20):
                far.write(part, timeout_s=20)
            far.shutdown()
        for i, (near, _) in enumerate(pairs):
            while part := near.read(timeout_s=20):
                back[i] += part
        assert back == data
        assert moves_of(kernel) - moves >= ROUNDS
        assert all(runtime.stop() == 0 for runtime in (a, b, peer))


# A process of its own: a loop that is interrupted in Python holds the interpreter's lock while it waits for a core.
SELECTORS_LOOP = """
import json, selectors, sys, time
from corelane import libos

@libos.udp(port=9000, compiled=False)
def echo(request):
    if bytes(request) == b"compute":
        print("computes", flush=True)
        until = time.thread_time() + 0.3  # of its own: others may have the CPU
        while time.thread_time() < until:
            pass
    return bytes(request)

over = False
runtime = libos.Runtime(sys.argv[1], name="adopted", adopted=1, poll="block")
with runtime, selectors.DefaultSelector() as loop:
    runtime.bind(echo)
    runtime.start()
    print(runtime.address, flush=True)
    loop.register(runtime, selectors.EVENT_READ)
    loop.register(sys.stdin.fileno(), selectors.EVENT_READ)
    while not over:
        again = runtime.turn()
        for key, _ in loop.select(0 if again else None):
            over |= key.fd == sys.stdin.fileno()
    assert runtime.stop() == 0
    print(json.dumps({"balanced": runtime.stats().balanced, "sched": dict(runtime.stats().sched)}))
"""


def test_a_selectors_loop_and_another_application_pass_one_core_to_each_other(managed: Any) -> None:
    wire, path, kernel = managed
    process = subprocess.Popen(
        [sys.executable, "-c", SELECTORS_LOOP, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def moves() -> int:
        return sum(cpu["moves"] for cpu in kernel.stats()["cores"]["cpus"])

    try:
        address = process.stdout.readline().strip()
        with libos.Runtime(path, name="kv") as kv:
            kv.bind(echo_handler("c"))
            kv.start()
            servers = [resolve(wire, address), resolve(wire, kv.address)]
            before = moves()
            for n in range(200):
                ask(wire, servers[n % 2], n.to_bytes(4))
            assert moves() - before >= 100, kernel.stats()["cores"]
            # A handler that polls nothing is interrupted, and goes on when the core is free again.
            wire.send(CLIENT.datagram(servers[0], b"compute"))
            assert process.stdout.readline() == "computes\n"
            for n in range(50):
                ask(wire, servers[1], n.to_bytes(4))
            ask(wire, servers[0], b"after that")
            said = process.communicate("end\n", timeout=60)[0].splitlines()[-1]
            assert kv.stop() == 0
        assert process.returncode == 0
        facts = json.loads(said)
        assert facts["balanced"]
        assert facts["sched"]["interrupts"] > 0, facts
    finally:
        process.kill()
        process.communicate()


def test_a_thread_that_was_lent_has_its_cpus_and_class_again_when_the_runtime_is_closed(managed: Any) -> None:
    """It may be that of a program that only wants to end, and it was demoted for it: beside busy processes that took
    half a minute."""
    _, path, _ = managed

    def lend() -> None:
        def bound() -> bool:
            if not runtime.turn():
                loop.select(0.01)
            return os.sched_getaffinity(0) == {CPUS[-1]}

        with libos.Runtime(path, name="adopted", adopted=1, poll="block") as runtime:
            runtime.start()
            with selectors.DefaultSelector() as loop:
                loop.register(runtime, selectors.EVENT_READ)
                wait_until(bound, what="its thread to be bound to a core")
            assert runtime.stop() == 0

        def facts() -> tuple[list[int], int]:
            return sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0)

        wait_until(lambda: facts() == (CPUS, os.SCHED_OTHER), what=lambda: f"what it had, instead of {facts()}")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lend).result()


# What it publishes takes long, and the loop is named to the iokernel meanwhile.
LOOP_THAT_COUNTS = """
import asyncio, sys, threading, time
from corelane import libos
from corelane.libos.asyncio import loop_factory

counts = threading.Event()

def count():
    counts.set()
    time.sleep(0.2)
    return {"counted": 1}

with libos.Runtime(sys.argv[1], name="adopted", adopted=1, poll="block") as runtime:
    runtime.publish(count)
    runtime.start()
    counts.wait()
    with asyncio.Runner(loop_factory=loop_factory(runtime=runtime)) as runner:
        runner.run(asyncio.sleep(0.01))
print("over")
"""


def test_a_loop_comes_to_its_core_while_what_its_program_counts_is_read(managed: Any) -> None:
    """One waited for the interpreter's lock, and the other one, which had it, for the port's."""
    _, path, _ = managed
    command = [sys.executable, "-c", LOOP_THAT_COUNTS, path]
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout == "over\n"

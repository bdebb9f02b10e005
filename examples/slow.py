"""A service that is slow for one of eight reasons, to practise on: docs/slow.md looks at each.

python examples/slow.py lock [--seconds 10] [--seed 1] [--rate 3000] [--burst 8]

A load generator takes the place of a wire. In each case most requests are quick, and some wait for what the word says.
At the end it tells in JSON how often that was, and how long it took each time.
"""

import argparse
import contextlib
import gc
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numba
import numpy as np

from corelane import libos
from corelane.drivers.nic.link.link import Link, LinkNic
from corelane.drivers.nic.loadgen.loadgen import Bursty, Echo, Loadgen, Phase
from corelane.drivers.nic.memory import memory_link
from corelane.iokernel import Iokernel
from corelane.libos.numba.calls import log_append, mutex_lock, mutex_unlock, now_ns, sleep_ns, stopping
from corelane.libos.storage.log.log import Log

UDP, TCP = 9000, 7000
PAGE, ARENA = 4096, 1 << 30
GREEDY_MS, EVERY_MS = 4, 40  # so long of so long the core is another application's

REQUESTS, STRUCK, TOOK_NS, OBJECT, AT = range(5)  # counts, time that the cause took, what it is about, where it is
state = np.zeros(8, np.int64)


@numba.njit
def answer(request, reply):  # type: ignore[no-untyped-def]
    reply[: len(request)] = request
    return len(request)


@numba.njit
def computes(ns):  # type: ignore[no-untyped-def]
    begun = now_ns()
    while now_ns() - begun < ns:
        pass


@numba.njit
def is_turn(state, one_in):  # type: ignore[no-untyped-def]
    state[REQUESTS] += 1
    return state[REQUESTS] % one_in == 0


@numba.njit
def struck(state, begun):  # type: ignore[no-untyped-def]
    state[STRUCK] += 1
    state[TOOK_NS] += now_ns() - begun


# lock: periodic work holds for 5 ms what each request needs.


def takes_lock(request, reply, state):  # type: ignore[no-untyped-def]
    mutex_lock(np.uint64(state[OBJECT]))
    n = answer(request, reply)
    mutex_unlock(np.uint64(state[OBJECT]))
    return n


def tidies_up(state):  # type: ignore[no-untyped-def]
    mutex_lock(np.uint64(state[OBJECT]))
    begun = now_ns()
    sleep_ns(5_000_000)
    struck(state, begun)
    mutex_unlock(np.uint64(state[OBJECT]))


def lock(options, stack, runtime):  # type: ignore[no-untyped-def]
    mutex = np.zeros(8, np.uint64)  # a struct cl_mutex of zeros is free
    stack.callback(mutex.fill, 0)  # and lives as long as the runtime
    state[OBJECT] = mutex.ctypes.data
    return libos.udp(port=UDP, state=state)(takes_lock), libos.every(ms=50, state=state)(tidies_up)


# long: one request of 64 computes for 2 ms, and the others of its burst are behind it.


def is_sometimes_long(request, reply, state):  # type: ignore[no-untyped-def]
    if is_turn(state, 64):
        begun = now_ns()
        computes(2_000_000)
        struck(state, begun)
    return answer(request, reply)


def long(options, stack, runtime):  # type: ignore[no-untyped-def]
    return (libos.udp(port=UDP, state=state)(is_sometimes_long),)


# neighbour: a process of somebody else computes on the kthread's CPU for 6 ms of each 36.

HOG = """
import os, time
parent = os.getppid()
while os.getppid() == parent:
    end = time.monotonic() + 0.006
    while time.monotonic() < end:
        pass
    time.sleep(0.03)
"""


def takes_some_time(request, reply, state):  # type: ignore[no-untyped-def]
    computes(100_000)
    return answer(request, reply)


def neighbour(options, stack, runtime):  # type: ignore[no-untyped-def]
    hog = subprocess.Popen(["taskset", "-c", str(options.cpu), sys.executable, "-c", HOG])
    stack.callback(hog.wait)
    stack.callback(hog.kill)
    state[STRUCK], state[TOOK_NS] = options.seconds / 0.036, options.seconds / 6 * 1e9
    return (libos.udp(port=UDP, state=state)(takes_some_time),)


# log: one request of 32 is made durable before it is answered.


def is_sometimes_durable(request, reply, state):  # type: ignore[no-untyped-def]
    if is_turn(state, 32):
        begun = now_ns()
        if log_append(np.uint64(state[OBJECT]), request) < 0:
            return -1
        struck(state, begun)
    return answer(request, reply)


def log(options, stack, runtime):  # type: ignore[no-untyped-def]
    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=os.getcwd()))
    path = os.path.join(folder, "slow.log")
    Log.create(path, 16 << 20)
    journal = stack.enter_context(Log.open(path))
    stack.callback(runtime.close)  # which has the log until then
    state[OBJECT] = runtime.share(journal).address
    return (libos.udp(port=UDP, state=state)(is_sometimes_durable),)


# gc: a handler of plain Python, in a program with many objects, makes garbage: one of 64 brings a collection of all.


def makes_garbage(request):  # type: ignore[no-untyped-def]
    state[REQUESTS] += 1
    if state[REQUESTS] % 64 == 0:  # sooner or later it comes by itself
        begun = time.monotonic_ns()
        gc.collect()
        state[STRUCK] += 1
        state[TOOK_NS] += time.monotonic_ns() - begun
    return request


def garbage(options, stack, runtime):  # type: ignore[no-untyped-def]
    objects = [{"number": [number]} for number in range(20_000)]
    stack.callback(objects.clear)
    return (libos.udp(port=UDP, compiled=False)(makes_garbage),)


# faults: one of 64 touches 4 MiB for the first time, page by page.


def needs_memory(request, reply, both):  # type: ignore[no-untyped-def]
    state, arena = both
    if is_turn(state, 64):
        begun = now_ns()
        for _ in range(1024):
            state[AT] = (state[AT] + PAGE) % len(arena)
            arena[state[AT]] = 1
        struck(state, begun)
    return answer(request, reply)


def faults(options, stack, runtime):  # type: ignore[no-untyped-def]
    arena, over = mmap.mmap(-1, ARENA), threading.Event()
    arena.madvise(mmap.MADV_NOHUGEPAGE)

    def gives_back() -> None:
        while not over.wait(0.5):
            arena.madvise(mmap.MADV_DONTNEED)

    giver = threading.Thread(target=gives_back)
    giver.start()
    stack.callback(giver.join)
    stack.callback(over.set)
    return (libos.udp(port=UDP, state=(state, np.frombuffer(arena, np.uint8)))(needs_memory),)


# core: the iokernel gives the core to batch work for 4 ms of each 40. A burst of requests takes less than that.


def takes_little_time(request, reply, state):  # type: ignore[no-untyped-def]
    computes(20_000)
    return answer(request, reply)


def takes_turns(view, apps):  # type: ignore[no-untyped-def]
    """A policy. It is no good one."""
    greedy = view.now_ns % (EVERY_MS * 1_000_000) < GREEDY_MS * 1_000_000
    for i in range(view.n_apps):
        apps[i].grant = 1 if (apps[i].kind == 1) == greedy else 0


@libos.batch
def burns():  # type: ignore[no-untyped-def]
    n = 0
    while not stopping():
        n += 1
    return n


def with_iokernel(options, load, trace):  # type: ignore[no-untyped-def]
    """Attached: batch work beside the service, and the load is the iokernel's uplink."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slow-"))
        path = os.path.join(folder, "io.sock")
        others = [cpu for cpu in sorted(os.sched_getaffinity(0)) if cpu != options.cpu]
        if not others:
            sys.exit("slow core: the iokernel needs a CPU beside that of the service")
        policy = f"{os.path.splitext(os.path.basename(__file__))[0]}:takes_turns"
        places = {"loop_cpus": others[:1], "worker_cpus": [options.cpu], "policy": policy}
        kernel = Iokernel(path, uplinks=[load.nic()], **places)
        kernel.start()
        stack.callback(kernel.stop)
        batch = stack.enter_context(libos.Runtime(path, name="greedy", kind="batch", trace="off"))
        batch.start()
        batch.batch(burns)
        service = libos.Runtime(path, name="slow-core", address="10.77.0.2", poll="spin", trace=trace)
        stack.enter_context(service)
        service.bind(libos.udp(port=UDP, state=state)(takes_little_time))
        service.start()
        run_load(options, load, f" --socket {path}")
        state[STRUCK], state[TOOK_NS] = options.seconds * 1e3 / EVERY_MS, options.seconds * 1e9 * GREEDY_MS / EVERY_MS


# loss: a connection over a wire that loses three frames of a thousand.


def echoes(data, reply):  # type: ignore[no-untyped-def]
    return len(data), answer(data, reply)


def over_a_bad_wire(options, trace):  # type: ignore[no-untyped-def]
    client_nic, server_nic = memory_link(ipv4=("10.0.0.1", "10.0.0.2"), ipv4_prefix=24)
    wire = LinkNic(server_nic, tx=Link(loss=0.003), seed=options.seed)
    with (
        wire,
        client_nic,
        libos.Runtime(nic=wire, name="slow-loss", trace=trace) as server,
        libos.Runtime(nic=client_nic, name="client", trace="off") as client,
    ):
        server.bind(libos.tcp(TCP)(echoes))
        server.start()
        client.start()
        say_ready(options)
        end = time.monotonic() + options.seconds
        with client.connect_tcp(("10.0.0.2", TCP), timeout_s=10) as stream:
            while time.monotonic() < end:
                stream.write(b"x" * 64)
                left = 64
                while left:
                    left -= len(stream.read(left, timeout_s=10))
                state[REQUESTS] += 1
        state[STRUCK] = wire.link("tx").dropped_lost


UDP_CAUSES = {"lock": lock, "long": long, "neighbour": neighbour, "log": log, "gc": garbage, "faults": faults}
WORDS = (*UDP_CAUSES, "core", "loss")


def say_ready(options, whose: str = "") -> None:  # type: ignore[no-untyped-def]
    ask = f"corelane trace --pid {os.getpid()}{whose} --blame"
    print(f"process {os.getpid()} is slow: {ask}", file=sys.stderr, flush=True)


def run_load(options, load, whose: str = "") -> None:  # type: ignore[no-untyped-def]
    say_ready(options, whose)
    load.start([Phase(options.seconds, options.rate)])
    load.wait()
    state[REQUESTS] = load.result().answered


def run(options) -> None:  # type: ignore[no-untyped-def]
    trace = libos.Trace(mode="full", records=1 << 15)
    if options.cause == "loss":
        over_a_bad_wire(options, trace)
        return
    with (
        Loadgen(Echo(), arrivals=Bursty(burst=options.burst), seed=options.seed) as load,
        contextlib.ExitStack() as stack,
    ):
        if options.cause == "core":
            with_iokernel(options, load, trace)
            return
        name = f"slow-{options.cause}"
        place = {"nic": load.nic(), "address": "10.77.0.2/16", "cpus": [options.cpu], "poll": "spin"}
        runtime = stack.enter_context(libos.Runtime(name=name, trace=trace, **place))
        for handler in UDP_CAUSES[options.cause](options, stack, runtime):
            runtime.bind(handler)
        runtime.start()
        run_load(options, load)
        runtime.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="a service that is slow for one of eight reasons")
    parser.add_argument("cause", choices=WORDS)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1, help="of the load, and of what the wire loses")
    parser.add_argument("--rate", type=float, default=3000, help="requests a second, but for loss (default 3000)")
    parser.add_argument("--burst", type=int, default=8, help="of which so many come at a time (default 8)")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="of the service")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was begun is ended, and files go
    run(given)
    n = int(state[STRUCK])
    told = {"cause": given.cause, "seed": given.seed, "requests": int(state[REQUESTS]), "struck": n}
    print(json.dumps(told | {"us_each": round(int(state[TOOK_NS]) / 1e3 / max(n, 1), 1)}))

"""Applications over a control connection: how they name their kthreads, and when they end."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading

import pytest
from cltest import die_with_parent, open_descriptors, wait_until
from cltest.control import (
    HEADER,
    STATS,
    answer,
    attached,
    connect,
    garbled,
    hello,
    kind_of,
    kthreads,
    policy,
    refusal,
    send_in_pieces,
)

from corelane.iokernel._native import lib
from corelane.iokernel.control import registrations
from corelane.runtime.errors import Refused


def test_kthreads_are_named_once_a_registration(serve, socket_path):
    server, registry = serve()
    for attempt in range(2):  # the second is a registration of its own, as after a new iokernel
        with attached(socket_path) as sock:
            sock.sendall(kthreads([3, 4], 40))
            got = answer(sock)
            assert (kind_of(got), len(got)) == (lib.CL_CONTROL_KTHREADS_OK, HEADER.size)
            assert registry.managed == [(7, os.getpid(), [3, 4], 40)] * (attempt + 1)
            sock.sendall(kthreads([3, 4], 40))
            assert "kthreads are known already" in refusal(sock)
        wait_until(lambda attempt=attempt: len(registry.left) == attempt + 1)
    assert server.counts["managed"] == 2


def test_a_refusal_of_kthreads_ends_the_registration(serve, socket_path):
    _, registry = serve()
    registry.refusal = Refused("thread 3 is none of process 5", hint="name threads that run")
    with attached(socket_path) as sock:
        sock.sendall(kthreads([3], 40))
        assert refusal(sock) == "thread 3 is none of process 5 (name threads that run)"
    wait_until(lambda: registry.left == [7])


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (kthreads([], 40), "0 kthreads are not 1 to 64"),
        (kthreads([3], 40, n=65), "65 kthreads are not"),
        (kthreads([3], 40, n=2**32 - 1), "4294967295 kthreads are not"),
    ],
)
def test_impossible_numbers_of_kthreads_are_refused(serve, socket_path, message, said):
    serve()
    with attached(socket_path) as sock:
        sock.sendall(message)
        assert said in refusal(sock)


def test_kthreads_without_a_registration_are_refused(serve, socket_path):
    serve()
    with connect(socket_path) as sock:
        sock.sendall(kthreads([3], 40))
        assert "kthreads belong to a registered application" in refusal(sock)


@pytest.mark.parametrize("managed", [False, True])
def test_the_end_of_a_process_counts_even_if_a_child_holds_its_connection(serve, socket_path, managed):
    """Its name is free, and its thread ids may be another's a moment later: nobody may be signalled by them."""
    server, registry = serve()
    code = (
        "import os, sys\n"
        "from cltest.control import answer, connect, hello, kthreads\n"
        "sock = connect(sys.argv[1]); sock.sendall(hello()); answer(sock)\n"
        f"if {managed}: sock.sendall(kthreads([os.getpid()], 40)); answer(sock)\n"
        "if os.fork() == 0: sys.stdin.read(); os._exit(0)\n"
        "os._exit(0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", code, socket_path], stdin=subprocess.PIPE, env=environment, preexec_fn=die_with_parent
    ) as process:
        process.wait()
        wait_until(lambda: registry.left == [7])
        assert server.counts["process_ended"] == 1


def test_who_was_closed_in_a_turn_registers_nothing_more_in_it(serve, socket_path, monkeypatch):
    """Somebody else gets its name, since it has gone; its own next request, sent before, is not handled any more."""
    server, registry = serve()
    asked, go_on = threading.Event(), threading.Event()

    def stats() -> bytes:
        asked.set()
        go_on.wait(60)
        return b"{}"

    monkeypatch.setattr(registry, "named", lambda _name: (7,))
    monkeypatch.setattr(registry, "stats_json", stats)
    old = attached(socket_path)
    with connect(socket_path) as asking, connect(socket_path) as new:
        asking.sendall(STATS)
        assert asked.wait(60)
        new.sendall(hello())
        old.sendall(hello(b"another"))
        old.close()
        go_on.set()
        assert kind_of(answer(new)) == lib.CL_CONTROL_ACCEPT
    wait_until(lambda: registry.left == [7, 7])
    assert (server.counts["accepted"], server.counts["accept_lost"]) == (2, 0)


def test_one_that_gives_up_says_so_before_it_lets_anybody_go(serve, socket_path):
    server, registry = serve()
    with attached(socket_path) as sock:
        server.stop()
        assert sock.recv(1) == b""
        assert registry.left == [7]
        assert registry.ended_before


def test_processes_whose_kthreads_are_managed_are_looked_at_whether_they_linger(serve, socket_path, monkeypatch):
    looked: list[int] = []

    def let_end(pid: int) -> int:
        looked.append(pid)
        return len(looked) == 1

    monkeypatch.setattr(registrations, "let_end", let_end)
    monkeypatch.setattr(registrations, "_LINGERS_S", 0.001)
    server, _ = serve()
    with attached(socket_path) as sock:
        sock.sendall(kthreads([3], 40))
        answer(sock)
        wait_until(lambda: len(looked) > 2)  # again and again, though nothing else happens
    assert set(looked) == {os.getpid()}
    assert server.counts["lingering"] == 1


def test_random_messages_about_cores_never_end_the_server(serve, socket_path, seed):
    server, _registry = serve()
    rng = random.Random(seed)
    messages = [kthreads([3, 4], 40), kthreads([], 40), policy(b"fair", b"x=1"), policy(b"x" * 239, b"y" * 255)]
    for _ in range(300):
        message = garbled(rng.choice(messages), rng)
        with connect(socket_path) as sock:
            if rng.random() < 0.5:
                sock.sendall(hello(b"f%d" % rng.randrange(9)))
            send_in_pieces(sock, message, rng)
    wait_until(lambda: len(server._connections) == 0)
    with attached(socket_path) as sock:
        sock.sendall(kthreads([3], 40))
        assert kind_of(answer(sock)) == lib.CL_CONTROL_KTHREADS_OK
    assert server.counts.get("internal_error", 0) == 0, server.last_error
    assert open_descriptors() < 200

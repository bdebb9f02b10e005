"""The load engine against servers in this process: what is sent when, what is counted, what happens when they fail."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cltest import open_descriptors, wait_until
from cltest.ports import free_port
from cltest.waiting import MOST_RUNS
from threaded import serving

from corelane.bench.load.reference.reference import Reference
from corelane.bench.load.sockload.sockload import Asked, Result, SockLoad
from corelane.bench.load.trust import UNANSWERED, latencies
from corelane.runtime.errors import CorelaneError

RATE, SECONDS = 2000.0, 0.1


def asked(port: int, **options: Any) -> Asked:
    return Asked(**{"protocol": "echo", "address": "127.0.0.1", "port": port, "connections": 4} | options)


def run(port: int, rate: float = RATE, seconds: float = SECONDS, warm_s: float = 0.0, **options: Any) -> Result:
    """One run, whose counts must balance."""
    with SockLoad(asked(port, **options)) as load:
        load.connect()
        result = load.run(rate, seconds, warm_s)
        balanced(result)
        return result


def balanced(result: Result) -> None:
    c = result.counts
    assert c["offered"] == c["sent"] + c["dropped"]
    assert c["answered"] == c["hits"] + c["misses"] + c["stored"]
    assert c["answered"] + c["wrong"] + c["errors"] + c["broken"] <= c["sent"]
    assert result.latency.count == c["offered"]
    assert result.latency.infinite == c["offered"] - c["answered"]
    assert result.from_send.count == c["answered"]


@pytest.fixture(params=[False, True], ids=["tcp", "udp"])
def reference(request: pytest.FixtureRequest) -> Iterator[Reference]:
    with Reference(udp=request.param) as server:
        yield server


def test_an_interrupt_ends_connecting():
    """To a server that takes no more."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        with SockLoad(asked(server.getsockname()[1], connect_s=600.0)) as load:

            def interrupt() -> None:
                wait_until(lambda: load.open, what="a connection")
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                load.connect()
            thread.join(60)


def test_an_interrupt_while_the_thread_begins_leaves_none_that_connects(monkeypatch: pytest.MonkeyPatch):
    """It would go on when the load is closed, and its memory freed."""

    def start(thread: threading.Thread) -> None:
        begin(thread)
        time.sleep(0.05)  # so long it may connect
        raise KeyboardInterrupt

    begin = threading.Thread.start
    with socket.create_server(("127.0.0.1", 0)) as server, SockLoad(asked(server.getsockname()[1])) as load:
        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            load.connect()
        monkeypatch.undo()
        assert load.open == 0


def test_everything_is_answered_and_counted(reference: Reference):
    result = run(reference.port, udp=reference.udp, records=1 << 14, drain_s=20.0)
    c = result.counts
    assert c["offered"] == c["answered"] == len(latencies(result.records)) > 0
    assert reference.counts()["answers"] == c["answered"]
    assert c["bytes_out"] == c["bytes_in"] == 64 * c["answered"]
    assert not any(c[name] for name in ("wrong", "errors", "broken", "stray", "reconnects", "refused", "timeouts"))
    assert 0 < c["first_ns"] < c["last_ns"]
    assert result.heard == ""
    assert c["cpu_ns"] > 0


def test_latency_holds_what_the_server_kept(reference: Reference):
    kept_ns = 3_000_000
    result = run(reference.port, udp=reference.udp, hold_ns=(kept_ns,), connections=64, drain_s=20.0)
    assert result.counts["answered"] == result.counts["offered"]
    assert result.latency.min >= kept_ns
    assert reference.kept.min >= kept_ns
    assert result.latency.percentile(50) >= reference.kept.percentile(50)


def test_the_warm_up_is_not_measured(reference: Reference):
    result = run(reference.port, udp=reference.udp, arrivals="uniform", warm_s=0.05, records=1 << 14, drain_s=20.0)
    assert result.counts["offered"] == pytest.approx(RATE * SECONDS, abs=2)
    # On a busy machine some of the warm-up come too late to be asked.
    assert RATE * SECONDS + 2 < reference.counts()["requests"] <= RATE * (SECONDS + 0.05) + 2
    assert latencies(result.records)["due_ns"].min() >= 50_000_000 - 2  # ticks in ns


def test_uniform_arrivals_are_due_at_equal_distances():
    with Reference(udp=True) as server:
        found = latencies(run(server.port, udp=True, arrivals="uniform", threads=2, records=1 << 14).records)
    due = np.sort(found["due_ns"].astype(np.int64))
    assert set(found["worker"]) == {0, 1}
    assert np.abs(np.diff(due) - 1e9 / RATE).max() <= 2


@pytest.mark.parametrize(("kind", "variation"), [("poisson", 1.0), ("bursty", 5.57)])
def test_drawn_arrivals_have_their_mean_and_their_variation(kind: str, variation: float):
    rate = 40_000.0
    with Reference(udp=True) as server:
        found = latencies(run(server.port, rate, udp=True, arrivals=kind, records=1 << 14).records)
    gaps = np.diff(np.sort(found["due_ns"].astype(np.int64)))
    assert gaps.mean() == pytest.approx(1e9 / rate, rel=0.25)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.3)


def test_the_same_seed_draws_the_same_arrivals():
    def due(seed: int) -> list[int]:
        with Reference(udp=True) as server:
            return list(latencies(run(server.port, udp=True, seed=seed, records=1 << 14).records)["due_ns"])

    first = due(7)
    again = due(7)
    assert np.abs(np.array(first, dtype=np.int64) - np.array(again, dtype=np.int64)).max() <= 2  # ticks in ns
    assert due(8) != first


def test_given_arrivals_are_replayed(reference: Reference):
    given = [1_000_000 * k + 300 * k * k for k in range(60)]
    result = run(reference.port, udp=reference.udp, replay_ns=given, threads=2, records=1 << 14, drain_s=20.0)
    due = np.sort(latencies(result.records)["due_ns"].astype(np.int64))
    assert np.abs(due - np.array(given)).max() <= 2


def test_late_requests_are_sent_and_charged():
    """One connection and a server that keeps each request 10 ms, at ten times the rate that this carries."""
    with Reference(udp=False) as server:
        result = run(
            server.port, 1000, 0.1, connections=1, hold_ns=(10_000_000,), arrivals="uniform", drain_s=5.0, records=2048
        )
    c = result.counts
    assert c["answered"] == c["offered"] == pytest.approx(100, abs=2)
    assert c["held"] >= 90
    assert c["held"] <= c["late"]
    found = latencies(result.records)
    assert (found["latency_ns"][50:] > 400_000_000).all()  # request k waits for k others
    assert result.from_send.percentile(50) < result.latency.percentile(50)
    assert result.lag.count <= c["sent"] - c["held"] + 1


def test_what_was_never_sent_is_infinite():
    with Reference(udp=False) as server:
        result = run(server.port, 1000, 0.1, connections=1, hold_ns=(10_000_000,), arrivals="uniform", drain_s=0.05)
    assert result.counts["dropped"] > 50
    assert result.latency.percentile(99) == float("inf")


def test_a_closed_loop_keeps_its_window():
    with Reference(udp=False) as server, SockLoad(asked(server.port, connections=8)) as load:
        load.connect()
        result = load.run(0, 0.1, window=4)
    assert result.counts["answered"] == result.counts["sent"] > 10
    assert server.udp is False


def test_runs_follow_each_other_on_the_same_connections():
    with Reference(udp=False) as server, SockLoad(asked(server.port, drain_s=20.0)) as load:
        load.connect()
        for _ in range(3):
            balanced(load.run(RATE, 0.05))
        assert server.counts()["connections"] == 4
        assert load.open == 4


def test_fresh_connections():
    with Reference(udp=False) as server:
        result = run(server.port, 500, 0.1, fresh=True, connections=32, drain_s=20.0)
        assert result.counts["answered"] == result.counts["offered"] > 0
        assert server.counts()["connections"] == result.counts["answered"]
        assert result.counts["reconnects"] == 0


def test_progress_is_told_meanwhile(reference: Reference):
    told: list[tuple[float, int, int]] = []
    with SockLoad(asked(reference.port, udp=reference.udp)) as load:
        load.connect()
        result = load.run(RATE, 0.3, tick=lambda *seen: told.append(seen))
    assert told == sorted(told)
    assert 0 < told[-1][1] <= result.counts["sent"]


def test_sleeping_clients_measure_too(reference: Reference):
    result = run(reference.port, 200, udp=reference.udp, spin=False, drain_s=20.0)
    assert result.counts["answered"] == result.counts["offered"]


@pytest.mark.parametrize("over", [0, 1], ids=["sockets", "dataplane"])
@pytest.mark.parametrize(("udp", "fresh"), [(0, 0), (1, 0), (0, 1)], ids=["tcp", "udp", "fresh"])
def test_runs_aborts_and_ends_balance(c_program: Callable[..., Callable[..., str]], udp: int, fresh: int, over: int):
    run = c_program("tests/bench/load/sockload/c/loaded.c")
    assert "balanced" in run(udp, fresh, 2000 if not fresh else 500, over)


# Servers that fail.


def echo_some(some: int) -> Callable[[socket.socket, int], None]:
    """Echoes so many requests of 64 bytes, takes one more, and ends the connection."""

    def serve(peer: socket.socket, number: int) -> None:
        for _ in range(some):
            if not (got := peer.recv(64, socket.MSG_WAITALL)):
                return
            peer.sendall(got)
        peer.recv(64, socket.MSG_WAITALL)

    return serve


def answer_by_eights(peer: socket.socket, number: int) -> None:
    """Answers requests of 64 bytes once eight of them are there."""
    while got := peer.recv(8 * 64, socket.MSG_WAITALL):
        peer.sendall(got)


@pytest.mark.parametrize(("depth", "answered"), [(8, 64), (7, 0)])
def test_as_many_requests_share_a_connection_as_may(depth: int, answered: int):
    with serving(answer_by_eights) as port:
        given = [1000 * k for k in range(64)]
        counts = run(port, connections=1, depth=depth, replay_ns=given, drain_s=20.0 if answered else 0.05).counts
    assert counts["answered"] == answered
    assert counts["sent"] == max(answered, depth)


def test_connections_that_end_are_opened_again():
    with serving(echo_some(5)) as port:
        result = run(port, 500, 0.2)
    c = result.counts
    assert c["reconnects"] == c["broken"] >= 5
    assert c["answered"] > c["offered"] / 2
    assert c["answered"] + c["broken"] == c["offered"]


def test_wrong_answers_are_none():
    def serve(peer: socket.socket, number: int) -> None:
        while got := peer.recv(64, socket.MSG_WAITALL):
            peer.sendall(got if number % 2 else b"no such thing".ljust(64))

    with serving(serve) as port:
        result = run(port, 500, 0.1)
    assert result.counts["wrong"] > 0
    assert result.latency.infinite >= result.counts["wrong"]
    assert result.heard.startswith("no such thing")


def test_answers_that_nobody_asked_for():
    def serve(peer: socket.socket, number: int) -> None:
        while got := peer.recv(64, socket.MSG_WAITALL):
            peer.sendall(got + got)

    with serving(serve) as port:
        result = run(port, 500, 0.1)
    assert result.counts["stray"] + result.counts["wrong"] > 0


def test_silent_servers_time_out():
    def serve(peer: socket.socket, number: int) -> None:
        while peer.recv(1 << 16):
            pass

    with serving(serve) as port:
        result = run(port, 200, 0.2, timeout_s=0.02, drain_s=0.05, records=2048)
    assert result.counts["answered"] == 0
    assert result.counts["timeouts"] > 0
    assert (latencies(result.records)["latency_ns"] == UNANSWERED).all()
    assert result.latency.percentile(1) == float("inf")


def test_answers_that_stop_in_the_middle_are_told_of():
    def serve(peer: socket.socket, number: int) -> None:
        while peer.recv(4096):
            peer.sendall(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n")  # by LF alone it has no end

    with serving(serve) as port:
        result = run(port, rate=100, protocol="http", drain_s=0.05)
    assert result.counts["answered"] == 0
    assert result.heard == "HTTP/1.1 200 OK"


def test_halves_of_answers_come_together():
    def serve(peer: socket.socket, number: int) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while got := peer.recv(64, socket.MSG_WAITALL):
            peer.sendall(got[:7])
            peer.sendall(got[7:40])
            peer.sendall(got[40:])

    with serving(serve) as port:
        result = run(port, 500, 0.1)
    assert result.counts["answered"] == result.counts["offered"]


def test_a_server_that_dies_in_the_middle():
    """Its listener and its connections are closed once it has answered so many."""
    answered = 20

    def serve(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, listener:
            for _ in range(answered):
                if not (asked := peer.recv(64, socket.MSG_WAITALL)):
                    break
                peer.sendall(asked)

    for _ in range(10):  # one that had no CPU for as long as the load has answered fewer
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        result = run(listener.getsockname()[1], 1000, 0.2, connections=1, drain_s=0.05)
        thread.join(60)
        c = result.counts
        if c["answered"] == answered:
            break
    assert c["answered"] == answered
    assert c["offered"] == answered + result.latency.infinite
    assert c["refused"] > 0  # nobody listens there any more
    assert c["dropped"] > 0


def connect_again_and_again(load: SockLoad) -> None:
    """Until it is seen that connections end: one that was opened counts as open until its end has come."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        load.connect()
        time.sleep(0.001)


def test_a_server_that_ends_connections_at_once_is_told_of():
    why = r"of 16 connections are open, the next one failed: the server ended a connection as soon as it was open"
    with (
        serving(lambda peer, number: None) as port,
        SockLoad(asked(port, connections=16)) as load,
        pytest.raises(CorelaneError, match=why),
    ):
        connect_again_and_again(load)


def test_a_server_that_is_slow_to_accept_loses_nothing():
    """The backlog holds who waits. It accepts once the first has waited for its answer."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threads: list[threading.Thread] = []

    def echo(peer: socket.socket) -> None:
        with peer:
            while got := peer.recv(64, socket.MSG_WAITALL):
                peer.sendall(got)

    def serve(begin: threading.Event) -> None:
        begin.wait(60)
        for _ in range(8):
            peer, _address = listener.accept()
            threads.append(threading.Thread(target=echo, args=(peer,)))
            threads[-1].start()

    begin = threading.Event()
    threads.append(threading.Thread(target=serve, args=(begin,)))
    threads[0].start()

    def tick(seconds: float, sent: int, answered: int) -> None:
        if sent == 8:  # on each connection one
            begin.set()

    with listener, SockLoad(asked(listener.getsockname()[1], connections=8, drain_s=20.0)) as load:
        load.connect()
        counts = load.run(1000, 0.1, tick=tick).counts
    for thread in threads:
        thread.join(60)
    assert counts["answered"] == counts["offered"] > 0
    assert counts["held"] > 0


def test_more_connections_than_open_files_are_told_of():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(answer_by_eights) as port:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + 40, hard))
        try:
            with (
                SockLoad(asked(port, connections=100)) as load,
                pytest.raises(CorelaneError, match=r"of 100 connections are open.*Too many open files.*ulimit -n"),
            ):
                load.connect()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_address_of_ipv6_is_loaded():
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")

    def serve() -> None:
        peer, _ = listener.accept()
        with peer, listener:
            while got := peer.recv(64, socket.MSG_WAITALL):
                peer.sendall(got)

    thread = threading.Thread(target=serve)
    thread.start()
    counts = run(listener.getsockname()[1], address="::1", connections=1, drain_s=20.0).counts
    thread.join(60)
    assert counts["answered"] == counts["offered"] > 0


def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with (
            SockLoad(asked(taken.getsockname()[1])) as load,
            pytest.raises(CorelaneError, match=r"connect to 127.0.0.1 port \d+: .*[Rr]efused"),
        ):
            load.connect()


def test_udp_without_a_server_is_unanswered():
    result = run(free_port(), udp=True, drain_s=0.05)
    assert result.counts["answered"] == 0
    assert result.counts["offered"] > 0


def test_udp_answers_that_are_lost_twice_or_none():
    for _ in range(MOST_RUNS):  # a server without a CPU is late, and its answers are not waited for
        c, in_time = lost_twice_or_none()
        if in_time:
            break
    assert c["answered"] == pytest.approx(0.75 * c["offered"], abs=3)
    assert c["stray"] == pytest.approx(0.5 * c["offered"], abs=4)


def lost_twice_or_none() -> tuple[dict[str, int], bool]:
    """Of four requests one has two answers, one has a wrong one before its own, one has none. Counts of the run, and
    whether the server had seen all that was sent by its end."""
    seen = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.5)

        def serve() -> None:
            nonlocal seen
            with contextlib.suppress(TimeoutError):
                for number in range(1 << 20):
                    got, peer = server.recvfrom(2048)
                    if number % 4 == 1:
                        server.sendto(got, peer)
                    if number % 4 == 2:
                        server.sendto(b"short", peer)
                    if number % 4 != 3:
                        server.sendto(got, peer)
                    seen = number + 1

        thread = threading.Thread(target=serve)
        thread.start()
        result = run(server.getsockname()[1], 1000, 0.2, udp=True, drain_s=0.1)
        in_time = seen >= result.counts["sent"]
        thread.join(60)
    return result.counts, in_time

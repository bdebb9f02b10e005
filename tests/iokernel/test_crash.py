"""Applications that die, stop, or write all over their arena: it costs them their packets, and nobody else anything."""

from __future__ import annotations

import os
import signal

import pytest
from cltest import stop_process, wait_until
from cltest.switching import between, collect, stats_of, udp_frame

from corelane.drivers.nic.nic import ipv4_to_int, mac_to_bytes


def address_of(io, name: str) -> tuple[bytes, int]:
    app = stats_of(io, name)
    return mac_to_bytes(app["mac"]), ipv4_to_int(app["ipv4"])


def to_name(io, src, name: str, payload: bytes, flow: int = 0) -> bytes:
    me = (mac_to_bytes(src.mac), ipv4_to_int(src.ipv4))
    return udp_frame(me, address_of(io, name), payload, (20000 + flow, 9000))


def exchange(a, b, n: int = 100) -> None:
    """Two honest applications; every frame arrives."""
    frames = [between(a, b, os.urandom(30), i) for i in range(n)]
    assert a.send(frames) == n
    assert sorted(collect(b, n)) == sorted(frames)


def test_a_killed_application_is_gone_at_once(start, attach, child, socket_path):
    io = start()
    a, b = attach("a"), attach("b")
    for _ in range(5):
        echo = child("app.py", socket_path, "echo")
        request = to_name(io, a, "echo", b"ping")
        assert a.send([request] * 50) == 50
        collect(a, 50)
        a.send([request] * 200)  # still under way when it dies
        echo.kill()
        echo.wait()
        wait_until(lambda: "echo" not in io.apps)
        exchange(a, b)
        while a.recv():
            pass
    assert {"apps": 5, "buffers_lost": 0}.items() <= io.stats()["departed"].items()
    a.send(request)
    wait_until(lambda: stats_of(io, "a")["tx_dropped_no_route"] > 0)


def test_a_stopped_application_loses_its_own_packets_only(start, attach, child, socket_path):
    io = start()
    a, b = attach("a"), attach("b")
    echo = child("app.py", socket_path, "echo")
    request = to_name(io, a, "echo", b"ping")
    assert a.send(request) == 1
    collect(a, 1)
    stop_process(echo.pid)
    offered = stats_of(io, "echo")["rx_offered"]
    total = 0
    while total < 5000:
        total += a.send([request] * 64)
    wait_until(lambda: stats_of(io, "echo")["rx_offered"] == offered + total)
    stopped = stats_of(io, "echo")
    assert stopped["rx_dropped_ring_full"] >= 5000 - 4096 - 64
    exchange(a, b)
    echo.send_signal(signal.SIGCONT)
    collect(a, 900)  # it answers what was in its ring
    while a.recv(timeout_s=0.05):
        pass
    assert a.send(request) == 1
    assert collect(a, 1)


@pytest.mark.parametrize("poll", ["spin", "block"])
def test_an_application_that_scribbles_over_its_arena(start, attach, child, socket_path, seed, poll):
    io = start(poll=poll)
    a, b = attach("a"), attach("b", kthreads=2)
    hostile = child("scribbler.py", socket_path, "hostile", str(seed))
    request = to_name(io, a, "hostile", b"x" * 1000)
    deadline_rounds = 60
    for i in range(deadline_rounds):
        a.send([request] * 32)  # keeps the iokernel writing into the scribbled rings
        exchange(a, b)
        if stats_of(io, "hostile")["lies"] > 100 and i >= 10:
            break
    assert stats_of(io, "hostile")["lies"] > 0
    assert hostile.poll() is None
    hostile.kill()
    hostile.wait()
    wait_until(lambda: "hostile" not in io.apps)
    exchange(a, b)
    assert {"apps": 1, "buffers_lost": 0}.items() <= io.stats()["departed"].items()


def test_an_application_that_punches_holes_into_its_arena(start, attach, child, socket_path):
    """The loop waits for a page now and then, as it reads and writes there; it goes on, and so does everybody else."""
    io = start()
    a, b = attach("a"), attach("b")
    hostile = child("puncher.py", socket_path, "hostile")
    request = to_name(io, a, "hostile", b"x" * 1000)
    for _ in range(20):
        assert a.send([request] * 32) == 32
        exchange(a, b)
    wait_until(lambda: stats_of(io, "hostile")["rx_offered"] == 20 * 32)
    assert hostile.poll() is None
    hostile.kill()
    hostile.wait()
    wait_until(lambda: "hostile" not in io.apps)
    exchange(a, b)
    assert {"apps": 1, "buffers_lost": 0}.items() <= io.stats()["departed"].items()


def test_nothing_a_scribbler_sends_reaches_others_under_a_false_name(start, attach, child, socket_path, seed):
    io = start()
    b = attach("b")
    child("scribbler.py", socket_path, "hostile", str(seed + 1))
    mac = address_of(io, "hostile")[0]
    for _ in range(50):
        for frame in b.recv(timeout_s=0.01):
            assert frame[6:12] == mac
    assert stats_of(io, "hostile")["lies"] > 0

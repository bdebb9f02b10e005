"""The load generator as a NIC, and as a client thread over another."""

from __future__ import annotations

import threading

import pytest
from cltest import wait_until

from corelane.drivers._native import ffi, lib
from corelane.drivers.nic.loadgen.loadgen import Echo, Limits, Loadgen, Phase
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import BURST, Nic
from corelane.runtime.clock import VirtualClock
from corelane.runtime.errors import CorelaneError


def echo_once(nic: Nic, burst, queue: int = 0) -> int:
    """One turn of an echo server's poll loop."""
    n = lib.cl_nic_rx(nic.ptr, queue, burst, BURST)
    for i in range(n):
        f = ffi.buffer(burst[i].data, burst[i].len)
        f[26:34] = bytes(f[30:34]) + bytes(f[26:30])
        f[34:38] = bytes(f[36:38]) + bytes(f[34:36])
    sent = 0

    def all_sent() -> bool:
        nonlocal sent
        sent += lib.cl_nic_tx(nic.ptr, queue, burst + sent, n - sent) if sent < n else 0
        return sent == n

    wait_until(all_sent, what="a place for the answers")
    return n


@pytest.mark.parametrize("queues", [1, 3])
@pytest.mark.parametrize("spin", [0, 1])
def test_client_thread_server_threads_and_controller(c_program, queues, spin):
    run = c_program("tests/drivers/nic/loadgen/c/client.c")
    assert "buffers free" in run(queues, 50_000, spin, 6, timeout_s=60)


def test_as_a_nic_in_a_poll_loop():
    with Loadgen(Echo(), server_mac="02:00:00:00:00:02", limits=Limits(drain_s=10)) as load:
        nic = load.nic()
        assert nic.name == "loadgen"
        assert load.nic() is nic
        burst = ffi.new("struct cl_frame[64]")
        load.start([Phase(0.02, 20_000)])
        served = 0
        while load.running:
            served += echo_once(nic, burst)
        result = load.result()
        assert result.answered == result.sent == result.offered == served > 300
        stats = nic.stats()
        assert stats.rx_frames == stats.tx_frames == served
        assert stats.dropped == 0
        assert nic.buffers_free == nic.buffers


def test_the_nic_counts_what_it_cannot_use():
    with Loadgen(Echo(), server_mac="02:00:00:00:00:02") as load:
        nic, burst = load.nic(buffers=64), ffi.new("struct cl_frame[64]")
        assert lib.cl_nic_alloc(nic.ptr, 0, burst, 64) == 64
        for i in range(64):
            burst[i].len = 60 if i % 2 else 5
        assert lib.cl_nic_tx(nic.ptr, 0, burst, 64) == 64
        assert nic.stats().tx_dropped_malformed == 32
        assert nic.stats().tx_frames == load.other()["foreign"] == 32
        assert nic.buffers_free == 64


def test_waiting_on_the_nic_ends_when_a_request_is_due():
    """Without this, a loop that sleeps on its NIC would sleep through its load."""
    with Loadgen(Echo(), server_mac="02:00:00:00:00:02") as load:
        nic, burst = load.nic(), ffi.new("struct cl_frame[64]")
        load.start([Phase(0.02, 2_000)])
        seen = 0
        while load.running:
            parker = nic.ptr.ops.parker(nic.ptr, 0)
            lib.cl_park_begin(parker)
            n = echo_once(nic, burst)
            if n or not load.running:
                lib.cl_park_cancel(parker)
            else:
                lib.cl_nic_wait(nic.ptr, 0, -1)
            seen += n
        assert load.result().answered == seen > 10


def test_a_sleeping_loop_is_woken_by_the_start_of_a_run():
    with Loadgen(Echo(), server_mac="02:00:00:00:00:02", arrivals="uniform") as load:
        nic = load.nic()
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(nic.recv(timeout_s=30)))
        thread.start()
        wait_until(lambda: nic.ptr.ops.parker(nic.ptr, 0).word[0] == lib.CL_PARK_PARKED, what="the receiver to sleep")
        load.start([Phase(0.01, 1e6)])
        thread.join(60)
        assert got
        load.abort()


@pytest.mark.parametrize("spin", [True, False])
def test_client_resolves_the_server_by_arp(spin):
    a, b = memory_link()
    with a, b, Loadgen(Echo(), limits=Limits(drain_s=10)) as load:
        load.start_client(a, spin=spin)
        load.start([Phase(0.01, 10_000)])
        (question,) = b.recv(timeout_s=10)
        assert question[12:14] == b"\x08\x06"
        me = b"\2\0\0\0\0\x63"
        b.send(question[6:12] + me + question[12:20] + b"\0\2" + me + question[38:42] + question[22:32])
        burst = ffi.new("struct cl_frame[64]")
        while load.running:
            echo_once(b, burst)
        result = load.result()
        assert result.answered == result.sent > 50
        cpu_s = load.stop_client()
        assert 0 < cpu_s < 30


def test_a_full_link_makes_requests_late_and_loses_none():
    a, b = memory_link(ring_slots=16)
    with a, b, Loadgen(Echo(), server_mac="02:00:00:00:00:02", arrivals="uniform", limits=Limits(drain_s=20)) as load:
        load.start_client(a)
        load.start([Phase(0.010005, 100_000)])  # half a gap more: the clock's rate decides on one at the very end
        wait_until(lambda: a.stats().tx_full > 0, what="the ring to be full")
        burst = ffi.new("struct cl_frame[64]")
        while load.running:
            echo_once(b, burst)
        result = load.result()
        assert result.offered == result.sent == result.answered == 1000
        assert result.late > 0
    assert a.closed


def test_stopping_the_client_ends_the_run_however_young_it_is():
    a, b = memory_link()
    with a, b, Loadgen(Echo(), server_mac="02:00:00:00:00:02") as load:
        for spin in (True, False) * 10:
            load.start_client(a, spin=spin)
            load.start([Phase(60, 1000)])
            load.stop_client()
            assert not load.running
            assert load.result().answered == 0


def test_misuse_is_refused():
    a, b = memory_link(mtu=600)
    with a, b, Loadgen(Echo(payload_bytes=1000), server_mac="02:00:00:00:00:02") as load:
        with pytest.raises(CorelaneError, match="longer than"):
            load.start_client(a)
        with pytest.raises(CorelaneError, match="no queue"):
            load.start_client(a, queue=1)
        load.start([Phase(1, 1)])
        with pytest.raises(CorelaneError, match="anybody polling"):
            load.wait(0.05)
    with pytest.raises(CorelaneError, match="closed"):
        load.start([Phase(1, 1)])
    clock = VirtualClock()
    with (
        memory_link()[0] as c,
        Loadgen(Echo(), server_mac="02:00:00:00:00:02", clock=clock.ptr) as load,
        pytest.raises(CorelaneError, match="no virtual clock wakes"),
    ):
        load.start_client(c)
    with memory_link()[0] as c, Loadgen(Echo(), server_mac="02:00:00:00:00:02") as load:
        load.start_client(c)
        with pytest.raises(CorelaneError, match="already has"):
            load.start_client(c)

"""The memory link: what is its own, beyond the common driver tests."""

from __future__ import annotations

import pytest

from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import BURST
from corelane.runtime.errors import CorelaneError


@pytest.mark.parametrize("queues", [(1, 1), (2, 3), (4, 4)])
@pytest.mark.parametrize(("slots", "drop"), [(2, 0), (16, 0), (512, 0), (16, 1)])
def test_all_queues_at_once(c_program, seed, queues, slots, drop):
    run = c_program("tests/drivers/nic/c/memory_stress.c")
    frames = 20_000 if slots > 2 else 1_000
    assert "received" in run(*queues, frames // max(queues), slots, drop, seed, timeout_s=60)


def test_a_full_ring_drops_as_hardware_does():
    a, b = memory_link(ring_slots=16, drop_when_full=True)
    with a, b:
        frame = b"\2" * 60
        assert a.send([frame] * 50) == 50
        assert b.stats().rx_dropped_ring_full == 34
        assert len(b.recv()) == 16
        assert a.stats().tx_frames == 50
        assert a.stats().tx_full == 0
        assert a.buffers_free == a.buffers


def test_frames_start_on_a_cache_line_and_spread_over_the_sets():
    from corelane.drivers._native import ffi, lib

    a, b = memory_link()
    with a, b:
        burst = ffi.new("struct cl_frame[64]")
        assert lib.cl_nic_alloc(a.ptr, 0, burst, BURST) == BURST
        starts = [int(ffi.cast("uintptr_t", burst[i].data)) for i in range(BURST)]
        assert all(s % 64 == 0 for s in starts)
        assert len({s // 64 % 64 for s in starts}) == 64
        lib.cl_nic_free(a.ptr, 0, burst, BURST)


@pytest.mark.parametrize("queues", [(1, 1), (1, 3)])
def test_the_hint_before_a_frame_changes_nothing_that_can_be_seen(queues):
    a, b = memory_link(queues=queues, ring_slots=4)
    with a, b:
        for round_number in range(4):  # an empty ring, and one that is full
            a.ptr.ops.prepare(a.ptr, 0)
            assert a.send([bytes([2, round_number]) * 30]) == 1
        a.ptr.ops.prepare(a.ptr, 0)
        got = [frame for queue in range(queues[1]) for frame in b.recv(queue=queue)]
        assert got == [bytes([2, n]) * 30 for n in range(4)]
        assert a.buffers_free == a.buffers


@pytest.mark.parametrize("queues", [(1, 1), (1, 3), (3, 1)])
def test_the_hint_about_frames_ahead_changes_nothing_that_can_be_seen(queues):
    a, b = memory_link(queues=queues, ring_slots=4)
    with a, b:
        for waiting in (0, 1, 3, 4):
            sent = [bytes([2, waiting, n]) * 20 for n in range(waiting)]
            assert a.send(sent) == waiting
            for at in range(9):  # beyond what waits, and beyond the ring
                b.ptr.ops.ahead(b.ptr, 0, at)
            assert [frame for queue in range(queues[1]) for frame in b.recv(queue=queue)] == sent
        assert a.buffers_free == a.buffers


def test_what_lies_in_the_rings_of_a_closed_end_is_not_lost():
    a, b = memory_link()
    with a, b:
        assert a.send([b"\2" * 60] * 20) == 20
        b.close()
        assert a.gone
        assert a.buffers_free == a.buffers
        assert a.send([b"\2" * 60] * 20) == 20
        assert a.stats().tx_dropped_error == 20
        assert a.buffers_free == a.buffers


def test_addresses_and_sizes():
    a, b = memory_link(mac=("02:01:02:03:04:05", None), ipv4=("10.0.0.1", None), ipv4_prefix=24, buffers=777, mtu=900)
    with a, b:
        assert (a.mac, a.ipv4, a.ipv4_prefix) == ("02:01:02:03:04:05", "10.0.0.1", 24)
        assert (b.mac, b.ipv4) == ("02:00:00:00:00:02", None)
        assert a.buffers == b.buffers == 777
        assert (a.mtu, a.name) == (900, "memory")
        assert "memory" in repr(a)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queues": (65, 1)}, "at most 64 queues"),
        ({"buffer_bytes": 100}, "buffer_bytes"),
        ({"buffer_bytes": 20000}, "buffer_bytes"),
        ({"ring_slots": 100}, "ring_slots"),
        ({"mtu": 60}, "mtu"),
        ({"mtu": 2048}, "mtu"),
        ({"buffers": 2**24 + 1}, "buffers"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(CorelaneError, match=message):
        memory_link(**options)

"""NICs of one queue as one: frames keep their queue, buffers go back where they came from."""

from __future__ import annotations

import pytest

from corelane.drivers._native import ffi, lib
from corelane.drivers.nic.joined import JoinedNic
from corelane.drivers.nic.loadgen.loadgen import Echo, Loadgen, Phase
from corelane.drivers.nic.memory import memory_link
from corelane.runtime.errors import CorelaneError


def test_frames_come_on_the_queue_of_their_nic_and_leave_by_it_from_any_queue() -> None:
    (a, near_a), (b, near_b) = memory_link(), memory_link()
    with a, b, JoinedNic([near_a, near_b]) as joined:
        assert (joined.queues, joined.buffers, joined.mac) == (2, a.buffers + b.buffers, near_mac(joined))
        before = joined.buffers_free
        a.send(b"a" * 60)
        b.send([b"b" * 60, b"c" * 60])
        assert [joined.recv(queue=q) for q in (0, 1)] == [[b"a" * 60], [b"b" * 60, b"c" * 60]]
        burst = ffi.new("struct cl_frame[64]")
        for i, queue in enumerate((0, 1, 0, 1)):  # one NIC's between two of the other
            assert lib.cl_nic_alloc(joined.ptr, queue, burst + i, 1) == 1
            burst[i].len = 60
            ffi.memmove(burst[i].data, bytes([i]) * 60, 60)
        assert lib.cl_nic_tx(joined.ptr, 1, burst, 3) == 3
        lib.cl_nic_free(joined.ptr, 0, burst + 3, 1)
        assert [f[0] for f in a.recv()] == [0, 2]
        assert [f[0] for f in b.recv()] == [1]
        assert joined.buffers_free == before


def near_mac(joined: JoinedNic) -> str:
    return bytes(ffi.buffer(joined.ptr.mac)).hex(":")


def test_an_answer_goes_to_who_asked_from_a_buffer_of_another() -> None:
    (a, near_a), (b, near_b) = memory_link(), memory_link()
    asker_a, asker_b = b"\2aaaaa", b"\2bbbbb"
    with a, b, JoinedNic([near_a, near_b]) as joined:
        free = joined.buffers_free
        a.send(b"\2nnnnn" + asker_a + b"?" * 48)
        b.send(b"\2nnnnn" + asker_b + b"?" * 48)
        assert [len(joined.recv(queue=q)) for q in (0, 1)] == [1, 1]
        joined.send([asker_b + b"!" * 54, asker_a + b"." * 54], queue=0)  # buffers of the first
        assert a.recv() == [asker_a + b"." * 54]
        assert b.recv() == [asker_b + b"!" * 54]
        assert joined.buffers_free == free


def test_what_a_full_nic_does_not_take_stays_the_callers() -> None:
    (far, near), (other_far, other_near) = memory_link(ring_slots=16), memory_link()
    with far, other_far, JoinedNic([near, other_near]) as joined:
        free = joined.buffers_free
        burst = ffi.new("struct cl_frame[64]")
        n = lib.cl_nic_alloc(joined.ptr, 0, burst, 40)
        for i in range(n):
            burst[i].len = 60
        sent = lib.cl_nic_tx(joined.ptr, 0, burst, n)
        assert 0 < sent < n
        lib.cl_nic_free(joined.ptr, 1, burst + sent, n - sent)
        assert len(far.recv()) == sent
        assert joined.buffers_free == free


def test_a_generator_for_each_queue_loads_it_alone() -> None:
    made = [Loadgen(Echo(), server_mac="02:00:00:00:00:01", arrivals="uniform", seed=s) for s in (1, 2)]
    with made[0] as idle, made[1] as busy, JoinedNic([idle.nic(), busy.nic()]) as nic:
        busy.start([Phase(0.005, 10_000)])
        seen = [0, 0]
        while busy.running:
            for queue in (0, 1):
                frames = nic.recv(queue=queue)
                seen[queue] += len(frames)
                nic.send([f[:26] + f[30:34] + f[26:30] + f[36:38] + f[34:36] + f[38:] for f in frames], queue=1)
        assert seen == [0, busy.result().sent]
        assert nic.stats(1).rx_frames == seen[1]
        assert nic.buffers_free == nic.buffers


def test_what_cannot_be_joined() -> None:
    a, b = memory_link((2, 1))
    with a, b:
        with pytest.raises(CorelaneError, match="with one queue"):
            JoinedNic([b, a])
        with pytest.raises(CorelaneError, match="twice"):
            JoinedNic([b, b])
        with pytest.raises(CorelaneError, match="1 to 64"):
            JoinedNic([])
        assert not b.closed

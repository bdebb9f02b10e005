"""What every NIC does, whatever it is made of (the contract in corelane/drivers/nic.h). Pairs are registered in
conftest.py."""

from __future__ import annotations

import random
import threading
from dataclasses import fields

import pytest
from cltest import wait_until

from corelane.drivers._native import ffi, lib
from corelane.drivers.nic.nic import BURST, Nic, NicStats
from corelane.runtime.errors import CorelaneError


def frames_of(rng: random.Random, pair, count: int, largest: int | None = None) -> list[bytes]:
    """Datagrams of random sizes and flows, each different."""
    top = (largest or pair.a.mtu) - 28
    low = 4 if pair.short_frames else 20
    sizes = [rng.choice((low, 22, 23, 64, 300, top, rng.randint(low, top))) for _ in range(count)]
    return [
        pair.frame(i.to_bytes(4, "big") + rng.randbytes(size - 4), flow=rng.randrange(50))
        for i, size in enumerate(sizes)
    ]


def balance(pair) -> None:
    """What one end sent is what the other received or dropped."""
    for src, dst in ((pair.a, pair.b), (pair.b, pair.a)):
        sent, got = src.stats(), dst.stats()
        dropped = got.rx_dropped_no_buffer + got.rx_dropped_ring_full + got.rx_dropped_malformed
        if pair.lossless:
            assert sent.tx_frames == got.rx_frames + dropped
            assert sent.tx_bytes == got.rx_bytes or dropped


@pytest.mark.parametrize("count", [1, 2, BURST - 1, BURST, BURST + 1, 200])
def test_frames_arrive_as_they_were_sent(pair, rng, count):
    sent = frames_of(rng, pair, count)
    assert pair.a.send(sent) == count
    got = pair.collect(pair.b, count)
    assert pair.same(got) == pair.same(sent)
    balance(pair)


def test_both_directions_at_once(pair, rng):
    there = [pair.frame(b"there" + bytes([i])) for i in range(100)]
    back = [pair.frame(b"back!" + bytes([i]), back=True) for i in range(100)]
    assert pair.a.send(there) == pair.b.send(back) == 100
    assert pair.same(pair.collect(pair.b, 100)) == pair.same(there)
    assert pair.same(pair.collect(pair.a, 100)) == pair.same(back)
    balance(pair)


def test_a_flow_keeps_its_order_and_its_queue(pair):
    sent = [pair.frame(i.to_bytes(4, "big"), flow=i % 7) for i in range(140)]
    assert pair.a.send(sent) == 140
    seen: dict[bytes, tuple[int, int]] = {}
    arrived = 0

    def receive() -> bool:
        nonlocal arrived
        for queue in range(pair.b.queues):
            for frame in pair.b.recv(queue=queue):
                if frame[36:38] != b"\x23\x28":
                    continue
                flow, number = frame[34:36], int.from_bytes(frame[42:46], "big")
                before = seen.get(flow, (queue, -1))
                assert before[0] == queue
                assert before[1] < number
                seen[flow] = (queue, number)
                arrived += 1
        return arrived == 140

    wait_until(receive, what=lambda: f"140 frames, {arrived} came")


def test_a_received_frame_can_be_sent_back_in_place(pair):
    sent = [pair.frame(b"echo" + bytes([i]), flow=i) for i in range(32)]
    assert pair.a.send(sent) == 32
    burst = ffi.new("struct cl_frame[64]")
    echoed = 0

    def echo() -> bool:
        nonlocal echoed
        for queue in range(pair.b.queues):
            got = lib.cl_nic_rx(pair.b.ptr, queue, burst, BURST)
            for i in range(got):
                frame = ffi.buffer(burst[i].data, burst[i].len)
                assert burst[i].room >= burst[i].len
                src, dst = bytes(frame[6:12]), bytes(frame[0:6])
                frame[0:12] = src + dst
                frame[26:34] = bytes(frame[30:34]) + bytes(frame[26:30])
                frame[34:38] = bytes(frame[36:38]) + bytes(frame[34:36])
            echoed += lib.cl_nic_tx(pair.b.ptr, queue, burst, got)
        return echoed >= 32

    wait_until(echo)
    back: list[bytes] = []
    wait_until(
        lambda: back.extend(f for q in range(pair.a.queues) for f in pair.a.recv(queue=q)) or len(back) >= 32  # type: ignore[func-returns-value]
    )
    assert sorted(f[42:47] for f in back if f[34:36] == b"\x23\x28") == sorted(f[42:47] for f in sent)


def test_a_full_queue_takes_a_part_and_loses_nothing_of_it(pair):
    frame = pair.frame(b"x" * 30)
    taken = 0
    for _ in range(200):
        step = pair.a.send([frame] * BURST)
        taken += step
        if step < BURST:
            break
    assert pair.a.stats().tx_frames == taken
    got = len(pair.collect(pair.b, taken, deadline_s=10 if pair.lossless else 0.5))
    if pair.lossless:
        assert got == taken
        assert pair.a.stats().tx_full + pair.a.stats().alloc_short >= 1
    assert 0 < got <= taken
    wait_until(lambda: pair.a.send(frame) == 1, what="a place in the queue again")
    assert pair.collect(pair.b, 1)
    balance(pair)


def test_an_empty_pool_is_counted_and_recovers(pair):
    nic, burst, held = pair.a, ffi.new("struct cl_frame[64]"), []
    while got := lib.cl_nic_alloc(nic.ptr, 0, burst, BURST):
        held += [(burst[i].data, burst[i].buf, burst[i].tag) for i in range(got)]
    assert len(held) <= nic.buffers
    assert len({buf for _, buf, _ in held}) == len(held), "a buffer given twice"
    assert nic.stats(0).alloc_short >= 1
    assert nic.send(pair.frame(b"none left")) == 0
    for data, buf, tag in held:
        burst[0].data, burst[0].buf, burst[0].tag = data, buf, tag
        lib.cl_nic_free(nic.ptr, 0, burst, 1)
    assert nic.send(pair.frame(b"enough again")) == 1
    assert len(pair.collect(pair.b, 1)) == 1


@pytest.mark.parametrize("length", [0, 13, "mtu + 15"])
def test_a_frame_of_impossible_length_is_dropped_and_counted(pair, length):
    nic, burst = pair.a, ffi.new("struct cl_frame[3]")
    good = pair.frame(b"good")
    assert lib.cl_nic_alloc(nic.ptr, 0, burst, 3) == 3
    for i in range(3):
        assert burst[i].room >= nic.mtu + 14
        ffi.memmove(burst[i].data, good, len(good))
        burst[i].len = len(good)
    burst[1].len = nic.mtu + 15 if length == "mtu + 15" else length
    assert lib.cl_nic_tx(nic.ptr, 0, burst, 3) == 3
    assert len(pair.collect(pair.b, 2)) == 2
    assert nic.stats(0).tx_dropped_malformed == 1
    assert nic.stats(0).tx_frames == 2


def test_random_traffic_returns_every_buffer(pair, rng):
    """Sends, receipts, frees without sending and held frames in random order; the fixture then counts the buffers."""
    held: list[tuple[Nic, int, object]] = []
    for _ in range(300):
        src = rng.choice((pair.a, pair.b))
        queue = rng.randrange(src.queues)
        burst = ffi.new("struct cl_frame[64]")
        if rng.random() < 0.5:
            frame = pair.frame(rng.randbytes(rng.randint(20, 200)), rng.randrange(9), back=src is pair.b)
            got = lib.cl_nic_alloc(src.ptr, queue, burst, rng.randint(1, BURST))
            for i in range(got):
                ffi.memmove(burst[i].data, frame, len(frame))
                burst[i].len = len(frame)
            taken = lib.cl_nic_tx(src.ptr, queue, burst, rng.randint(0, got))
            lib.cl_nic_free(src.ptr, queue, burst + taken, got - taken)
        else:
            got = lib.cl_nic_rx(src.ptr, queue, burst, rng.randint(1, BURST))
            for i in range(got):
                held.append((src, queue, ffi.new("struct cl_frame *", burst[i])))
        while len(held) > 100:
            nic, queue, frame_held = held.pop(rng.randrange(len(held)))
            lib.cl_nic_free(nic.ptr, queue, frame_held, 1)
    for nic, queue, frame_held in held:
        lib.cl_nic_free(nic.ptr, queue, frame_held, 1)


def test_statistics_of_the_queues_add_up(pair, rng):
    for queue in range(pair.a.queues):
        pair.a.send(frames_of(rng, pair, 20, largest=500), queue=queue)
    n = 20 * pair.a.queues
    pair.collect(pair.b, n)
    total = pair.a.stats()
    assert total.tx_frames == n
    assert total.tx_frames == sum(pair.a.stats(q).tx_frames for q in range(pair.a.queues))
    assert total.dropped == 0
    balance(pair)


def test_a_waiting_receiver_is_woken_by_a_frame(pair):
    """With one receiver a queue, whichever queue RSS chooses."""
    got: list[bytes] = []
    ready = threading.Barrier(pair.b.queues + 1)

    def receiver(queue: int) -> None:
        mine = Receiver(pair.b)
        ready.wait()
        got.extend(mine.recv_one(queue, lambda: bool(got)))

    threads = [threading.Thread(target=receiver, args=(q,)) for q in range(pair.b.queues)]
    for thread in threads:
        thread.start()
    ready.wait()
    assert pair.a.send(pair.frame(b"wake up")) == 1
    wait_until(lambda: got, what="the frame at a sleeping receiver")
    for thread, queue in zip(threads, range(pair.b.queues), strict=True):
        wait_until(lambda t=thread, q=queue: pair.b.wake(q) or not t.is_alive(), what="a receiver to end")
        thread.join()
    assert got[0][42:49] == b"wake up"


class Receiver:
    """The sleeping protocol of park.h with frames of its own, as a kthread does it; sleeps without a time limit."""

    def __init__(self, nic: Nic) -> None:
        self.nic = nic
        self.burst = ffi.new("struct cl_frame[64]")

    def take(self, queue: int) -> list[bytes]:
        got = lib.cl_nic_rx(self.nic.ptr, queue, self.burst, BURST)
        out = [bytes(ffi.buffer(self.burst[i].data, self.burst[i].len)) for i in range(got)]
        lib.cl_nic_free(self.nic.ptr, queue, self.burst, got)
        return [f for f in out if f[36:38] == b"\x23\x28"]

    def recv_one(self, queue: int, stop) -> list[bytes]:
        parker = self.nic.ptr.ops.parker(self.nic.ptr, queue)
        while True:
            lib.cl_park_begin(parker)
            out = self.take(queue)
            if out or stop():
                lib.cl_park_cancel(parker)
                return out
            assert lib.cl_nic_wait(self.nic.ptr, queue, -1) == 0


def test_wait_ends_at_its_time_and_by_wake(pair):
    nic = pair.b
    parker = nic.ptr.ops.parker(nic.ptr, 0)
    lib.cl_park_begin(parker)
    while nic.recv():  # a device may hold frames of others
        pass
    assert lib.cl_nic_wait(nic.ptr, 0, 1000) == 0
    done = threading.Event()

    def sleeper() -> None:
        while not done.is_set():
            lib.cl_park_begin(parker)
            lib.cl_nic_wait(nic.ptr, 0, -1)

    thread = threading.Thread(target=sleeper)
    thread.start()
    wait_until(lambda: nic.wake(0), what="a parked receiver")
    done.set()
    wait_until(lambda: nic.wake(0) or not thread.is_alive(), what="the receiver to end")
    thread.join()
    assert nic.stats(0).syscalls >= 2


def test_one_end_closes(pair):
    assert pair.a.send(pair.frame(b"last words")) == 1
    if pair.lossless:
        pair.a.close()
        assert len(pair.collect(pair.b, 1)) == 1
    pair.a.close()
    pair.a.close()
    assert pair.a.closed
    with pytest.raises(CorelaneError, match="closed"):
        pair.a.send(b"x" * 60)
    if pair.hears_close:
        assert pair.b.gone
        assert pair.b.recv() == []
        n = 3 * BURST
        assert pair.b.send([pair.frame(b"anybody there?", back=True)] * n) == n
        assert pair.b.stats().tx_dropped_error == n


def test_arguments_are_checked(pair):
    with pytest.raises(CorelaneError, match="queue 64 of a NIC"):
        pair.a.recv(queue=64)
    with pytest.raises(CorelaneError, match="buffers of this NIC hold"):
        pair.a.send(b"x" * (pair.a.buffer_bytes + 1))


def test_the_python_statistics_are_the_c_ones():
    struct = [name for name, _ in ffi.typeof("struct cl_nic_stats").fields]
    assert struct == [f.name for f in fields(NicStats)]

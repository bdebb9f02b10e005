"""The bad wire: rates, determinism, and that it loses no buffer and no account of a frame."""

from __future__ import annotations

import math
import random
import threading

import pytest
from cltest import wait_until

from corelane.drivers.nic.fault import FaultNic, Faults
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic
from corelane.runtime.clock import VirtualClock
from corelane.runtime.errors import CorelaneError


def numbered(count: int) -> list[bytes]:
    """Frames that say which they are, with a body that shows a flipped bit."""
    return [i.to_bytes(4, "big") * 16 for i in range(count)]


def pump(src: Nic, dst: Nic, frames: list[bytes]) -> list[bytes]:
    """Send all and receive all that comes; held frames come out at the latest when their time is up."""
    out: list[bytes] = []
    for at in range(0, len(frames), 32):
        part = frames[at : at + 32]
        assert src.send(part) == len(part)
        out += dst.recv(1000)
    wait_until(lambda: [out.extend(dst.recv(1000)), src.recv()] and src.buffers_free == src.buffers, what="held frames")
    return out


def check_accounts(nic: FaultNic, direction: str, sent: int, arrived: int) -> None:
    counts = nic.faults(direction)
    assert counts.seen == sent
    assert counts.held == 0
    assert counts.seen + counts.duplicated == counts.passed + counts.lost
    assert counts.passed == arrived


@pytest.fixture(params=["rx", "tx"])
def wire(request):
    """A function that makes a link with faults on one side: (faulty NIC, sender, receiver, direction)."""
    made: list[Nic] = []

    def make(faults: Faults, **options):
        a, b = memory_link(buffers=4096)
        if request.param == "rx":
            nic = FaultNic(b, rx=faults, **options)
            ends = (nic, a, nic, "rx")
        else:
            nic = FaultNic(a, tx=faults, **options)
            ends = (nic, nic, b, "tx")
        made.extend((ends[1], ends[2]))
        return ends

    yield make
    for nic in made:
        nic.close()


N = 5000


def near(count: int, rate: float) -> bool:
    return abs(count - N * rate) < 5 * math.sqrt(N * rate * (1 - rate))


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
def test_loss(wire, rate):
    nic, src, dst, direction = wire(Faults(loss=rate))
    got = pump(src, dst, numbered(N))
    counts = nic.faults(direction)
    assert near(counts.lost, rate) or rate == 1.0 == counts.lost / N
    assert len(got) == N - counts.lost
    assert got == sorted(got)
    check_accounts(nic, direction, N, len(got))


def test_duplication(wire):
    nic, src, dst, direction = wire(Faults(duplicate=0.2))
    got = pump(src, dst, numbered(N))
    counts = nic.faults(direction)
    assert near(counts.duplicated, 0.2)
    assert len(got) == N + counts.duplicated
    assert sorted(set(got)) == numbered(N)
    assert got == sorted(got), "a copy follows at once"
    check_accounts(nic, direction, N, len(got))


def test_corruption(wire):
    nic, src, dst, direction = wire(Faults(corrupt=0.25))
    sent = numbered(N)
    got = pump(src, dst, sent)
    changed = [(a, b) for a, b in zip(sent, got, strict=True) if a != b]
    assert near(len(changed), 0.25)
    assert nic.faults(direction).corrupted == len(changed)
    bits = set()
    for a, b in changed:
        difference = int.from_bytes(a, "big") ^ int.from_bytes(b, "big")
        assert difference.bit_count() == 1
        bits.add(difference.bit_length())
    assert len(bits) > 400, "any bit of the 512"
    check_accounts(nic, direction, N, len(got))


@pytest.mark.parametrize("by", [1, 3, 20])
def test_reordering(wire, by):
    nic, src, dst, direction = wire(Faults(reorder=0.1), reorder_by=by)
    got = pump(src, dst, numbered(N))
    assert sorted(got) == numbered(N)
    numbers = [int.from_bytes(f[:4], "big") for f in got]
    place = {n: i for i, n in enumerate(numbers)}
    late = [n for n in numbers if any(m > n for m in numbers[max(0, place[n] - 40) : place[n]])]
    counts = nic.faults(direction)
    assert near(counts.reordered, 0.1)
    assert len(late) == pytest.approx(counts.reordered, rel=0.25)
    check_accounts(nic, direction, N, len(got))


def test_delay(wire):
    """Frames of one burst with delays from 1 to 50 ms arrive in the order of their delays."""
    nic, src, dst, direction = wire(Faults(delay=1.0), delay_us=(1000, 50_000))
    assert src.send(numbered(100)) == 100
    assert nic.faults(direction).seen in (0, 100)
    got: list[bytes] = []

    def receive() -> bool:
        src.recv()
        got.extend(dst.recv(1000))
        return len(got) == 100

    wait_until(receive, what="delayed frames", poll_s=0.0005)
    assert sorted(got) == numbered(100)
    assert got != sorted(got)
    assert nic.faults(direction).delayed == 100


@pytest.mark.parametrize("direction", ["rx", "tx"])
def test_delays_are_of_the_clock_of_the_nic(direction: str) -> None:
    clock = VirtualClock()
    a, b = memory_link(clock=clock)
    faults = {direction: Faults(delay=1.0)}
    nic = FaultNic(b if direction == "rx" else a, delay_us=(1000, 1000), **faults)
    src, dst = (a, nic) if direction == "rx" else (nic, b)

    def come() -> list[bytes]:
        src.recv()
        return dst.recv()

    with src, dst:
        sent = numbered(3)
        assert src.send(sent) == 3
        assert come() == []
        clock.advance(999_999)
        assert come() == []
        assert nic.ptr.ops.next_tsc(nic.ptr, 0) == (VirtualClock.START_NS + 1_000_000)
        clock.advance(1)
        assert come() == sent


def test_a_sleeping_receiver_gets_delayed_frames():
    a, b = memory_link()
    with a, FaultNic(b, rx=Faults(delay=1.0), delay_us=(20_000, 20_000)) as nic:
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(nic.recv(timeout_s=30)))
        thread.start()
        a.send(numbered(1))
        thread.join(20)
        assert got == numbered(1)


def test_everything_at_once(wire):
    faults = Faults(loss=0.1, duplicate=0.1, reorder=0.1, delay=0.1, corrupt=0.1)
    nic, src, dst, direction = wire(faults, delay_us=(0, 500))
    got = pump(src, dst, numbered(N))
    check_accounts(nic, direction, N, len(got))
    counts = nic.faults(direction)
    for count in (counts.lost, counts.duplicated / 0.9, counts.corrupted / 0.9):
        assert near(int(count), 0.1)


def fates(seed: int, faults: Faults) -> list[bytes]:
    a, b = memory_link(buffers=4096)
    with a, FaultNic(b, rx=faults, seed=seed) as nic:
        return pump(a, nic, numbered(1000))


def test_the_seed_decides():
    faults = Faults(loss=0.1, duplicate=0.1, corrupt=0.1)
    assert fates(1, faults) == fates(1, faults)
    assert fates(1, faults) != fates(2, faults)
    # The same frames are lost whatever else befalls the others.
    alone = {f[:4] for f in fates(1, Faults(loss=0.1))}
    among = fates(1, Faults(loss=0.1, duplicate=0.5))
    assert alone == {f[:4] for f in among}


def test_more_held_than_there_is_room_for():
    a, b = memory_link(buffers=4096)
    with a, FaultNic(b, rx=Faults(delay=1.0), delay_us=(60_000_000, 60_000_000)) as nic:
        got: list[bytes] = []
        for at in range(0, 1000, 50):
            a.send(numbered(1000)[at : at + 50])
            got += nic.recv(100)
        counts = nic.faults("rx")
        assert counts.held == counts.delayed == 512
        assert counts.not_held == len(got) == 488
        assert a.buffers_free == a.buffers - 512
    # Closing gave the held frames back: the other end's pool was whole when it closed, or the sanitizers would say so.


def test_closing_returns_what_is_held():
    a, b = memory_link(buffers=4096)
    with a:
        nic = FaultNic(b, rx=Faults(delay=1.0), delay_us=(60_000_000, 60_000_000))
        a.send(numbered(100))
        nic.recv()
        assert a.buffers_free == a.buffers - 100
        nic.close()
        assert b.closed
        assert a.gone
        assert a.buffers_free == a.buffers


def test_a_sender_is_told_to_wait_and_nothing_is_lost():
    """The NIC below is full, and full of held-up frames: all accepted ones arrive, in order."""
    a, b = memory_link(ring_slots=16, buffers=4096)
    with FaultNic(a, tx=Faults(corrupt=1e-9)) as nic, b:
        taken, sent = 0, numbered(2000)
        for at in range(0, 2000, 50):
            step = nic.send(sent[at : at + 50])
            taken += step
            if step < 50:
                break
        assert 16 <= taken < 2000
        assert nic.stats().tx_full == 1
        got: list[bytes] = []
        wait_until(lambda: got.extend(b.recv()) or nic.recv() or len(got) == taken)
        assert got == sent[:taken]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rx": Faults(loss=1.1)}, "probabilities"),
        ({"tx": Faults(delay=-0.1)}, "probabilities"),
        ({"tx": Faults(corrupt=math.nan)}, "probabilities"),
        ({"delay_us": (5, 1)}, "delays"),
        ({"delay_us": (-1, 1)}, "delays"),
        ({"delay_us": (1, math.nan)}, "delays"),
        ({"rx": Faults(ipv4="10.0.0")}, "as in '10.77.0.9'"),
        ({"reorder_by": 65}, "reorder_by"),
        ({"reorder_by": 0}, "reorder_by"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    a, b = memory_link()
    with a, b:
        with pytest.raises(CorelaneError, match=message):
            FaultNic(a, **options)
        assert not a.closed


def test_several_queues_have_fates_of_their_own():
    a, b = memory_link((1, 4), buffers=4096)
    rng = random.Random(5)
    with a, FaultNic(b, rx=Faults(loss=0.5)) as nic:
        frames = []
        for _ in range(400):
            header = b"\2" * 12 + b"\x08\0\x45" + bytes(8) + b"\x11\0\0" + rng.randbytes(8) + rng.randbytes(4)
            frames.append(header + bytes(24))
        a.send(frames)
        got = sum(len(nic.recv(1000, queue=q)) for q in range(4))
        per_queue = [nic.faults("rx", q) for q in range(4)]
        assert sum(c.seen for c in per_queue) == 400
        assert sum(c.passed for c in per_queue) == got
        assert all(c.seen > 50 and 0.2 < c.lost / c.seen < 0.8 for c in per_queue)
        assert nic.faults("rx").lost == 400 - got


@pytest.mark.parametrize("direction", ["rx", "tx"])
def test_an_adjustable_wire_is_cut_and_mended(direction: str) -> None:
    a, b = memory_link(buffers=4096)
    wire = FaultNic(b if direction == "rx" else a, adjustable=True)
    src, dst = (a, wire) if direction == "rx" else (wire, b)
    with src, dst:
        frames = numbered(64)
        assert pump(src, dst, frames) == frames
        wire.set(**{direction: Faults(loss=1.0)})
        assert pump(src, dst, frames) == []
        wire.set()
        assert pump(src, dst, frames) == frames
        check_accounts(wire, direction, 192, 128)
        with pytest.raises(CorelaneError, match="from 0 to 1"):
            wire.set(tx=Faults(loss=2.0))


@pytest.mark.parametrize(("direction", "at"), [("rx", 26), ("tx", 30)])
def test_faults_of_one_address_leave_the_others_alone(direction: str, at: int) -> None:
    a, b = memory_link(buffers=4096)
    faults = {direction: Faults(loss=1.0, ipv4="10.0.0.2")}
    wire = FaultNic(b if direction == "rx" else a, adjustable=True, **faults)
    src, dst = (a, wire) if direction == "rx" else (wire, b)
    frames = [bytearray(frame) for frame in numbered(64)]
    for i, frame in enumerate(frames):
        frame[12:14] = b"\x08\x06" if i % 4 == 0 else b"\x08\x00"  # ARP, IPv4
        frame[26:34] = bytes((10, 0, 0, 9) * 2)
        frame[at : at + 4] = bytes((10, 0, 0, 1 + i % 2))
    sent = [bytes(frame) for frame in frames]
    with src, dst:
        assert pump(src, dst, sent) == [frame for i, frame in enumerate(sent) if i % 4 in (0, 2)]
        check_accounts(wire, direction, 64, 32)


def test_a_wire_that_is_not_adjustable_says_so() -> None:
    a, b = memory_link(buffers=64)
    with FaultNic(a, rx=Faults(loss=0.5)) as wire, b, pytest.raises(CorelaneError, match="not made adjustable"):
        wire.set()

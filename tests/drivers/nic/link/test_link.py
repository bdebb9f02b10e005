"""What a link does to frames, by a virtual clock: to the nanosecond and the same in each run."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import pytest

from corelane.drivers._native import ffi, lib
from corelane.drivers.nic.fault import FaultNic, Faults
from corelane.drivers.nic.link.link import Link, LinkCounts, LinkNic
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic
from corelane.runtime.clock import VirtualClock
from corelane.runtime.errors import CorelaneError

MS, US = 1_000_000, 1000


def numbered(count: int, length: int = 64) -> list[bytes]:
    return [i.to_bytes(4, "big") + bytes(length - 4) for i in range(count)]


def number(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big")


def datagram(tos: int, length: int = 100, tag: int = 0) -> bytes:
    """An IPv4 frame with that type of service, and a right header checksum."""
    head = bytearray.fromhex("45000000000040004011000006060606 0a4d0001".replace(" ", ""))
    head[1], head[2:4] = tos, (length - 14).to_bytes(2, "big")
    head[10:12] = ones(head).to_bytes(2, "big")
    vlan = b"\x81\x00" + (tag << 13).to_bytes(2, "big") if tag else b""
    return bytes(12) + vlan + b"\x08\x00" + bytes(head) + bytes(length - 34)


def ones(data: bytes) -> int:
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass
class Line:
    """A memory link with a Link in one direction: what is sent, and when what came."""

    nic: LinkNic
    src: Nic
    dst: Nic
    clock: VirtualClock
    direction: str
    came: list[tuple[int, bytes]] = field(default_factory=list)

    def send(self, frames: list[bytes]) -> None:
        for at in range(0, len(frames), 32):
            assert self.src.send(frames[at : at + 32]) == len(frames[at : at + 32])
            self.look()

    def look(self) -> None:
        self.src.recv()
        while got := self.dst.recv(64):
            now = self.clock.now_ns()
            self.came += [(now, frame) for frame in got]

    def run(self, ns: int) -> None:
        """Let time pass, from event to event."""
        end = self.clock.now_ns() + ns
        self.look()
        while (next_ns := int(self.nic.ptr.ops.next_tsc(self.nic.ptr, 0))) <= end:
            self.clock.advance(max(0, next_ns - self.clock.now_ns()))
            self.look()
        self.clock.advance(end - self.clock.now_ns())
        self.look()

    @property
    def counts(self) -> LinkCounts:
        counts = self.nic.link(self.direction)
        assert counts.offered == counts.delivered + counts.dropped + counts.held
        return counts

    @property
    def numbers(self) -> list[int]:
        return [number(frame) for _, frame in self.came]


@pytest.fixture(params=["rx", "tx"])
def line(request):
    """Line(Link(...)), in one of the two directions of the NIC that has it."""
    made: list[Nic] = []

    def make(link: Link, seed: int = 1) -> Line:
        clock = VirtualClock()
        a, b = memory_link(buffers=4096, buffer_bytes=2048, ring_slots=2048, clock=clock)
        nic = LinkNic(b if request.param == "rx" else a, **{request.param: link}, seed=seed)
        ends = (a, nic) if request.param == "rx" else (nic, b)
        made.extend(ends)
        return Line(nic, *ends, clock, request.param)

    yield make
    for nic in made:
        if not nic.closed:  # else it belonged to another
            assert nic.buffers_free == nic.buffers
            nic.close()


def test_a_link_without_settings_passes_all_at_once(line):
    made = line(Link())
    sent = numbered(200)
    made.send(sent)
    assert [frame for _, frame in made.came] == sent
    assert {at for at, _ in made.came} == {VirtualClock.START_NS}
    assert made.counts.delivered == 200
    assert made.counts.delivered_bytes == 200 * 64


@pytest.mark.parametrize("rate_bps", [64_000, 10e6, 1e9, 3.7e9, 400e9])
def test_the_rate_is_held(line, rate_bps):
    made = line(Link(rate_bps=rate_bps, overhead_bytes=24, queue_bytes=1 << 24))
    count, length = 1000, 1000
    start = made.clock.now_ns()
    made.send(numbered(count, length))
    made.run(int(2 * count * (length + 24) * 8 / rate_bps * 1e9))
    assert made.numbers == list(range(count))
    took_s = (made.came[-1][0] - start) / 1e9
    assert took_s * rate_bps == pytest.approx(count * (length + 24) * 8, rel=0.01)
    gaps = {b - a for (a, _), (b, _) in itertools.pairwise(made.came)}
    assert max(gaps) - min(gaps) <= 1, "what is rounded off one gap is in the next"


def test_an_idle_line_saves_nothing_up(line):
    made = line(Link(rate_bps=8e6))  # a byte a microsecond
    made.send(numbered(1, 1000))
    made.run(10 * MS)
    began = made.clock.now_ns()
    made.send(numbered(2, 1000))
    made.run(10 * MS)
    assert [at - began for at, _ in made.came[1:]] == [MS, 2 * MS]


def test_who_looks_late_finds_the_same_schedule(line):
    """A path that nobody polls delivers late, and by then all that its rate allows."""
    made = line(Link(rate_bps=8e6, queue_bytes=1 << 20))
    made.send(numbered(100, 1000))
    made.clock.advance(50 * MS + 500 * US)
    made.look()
    assert made.numbers == list(range(50))


def test_the_queue_drops_at_its_tail(line):
    made = line(Link(rate_bps=8e6, queue_bytes=10_000))
    made.send(numbered(30, 1000))
    made.run(100 * MS)
    assert made.numbers == list(range(11)), "one on the line, ten in the queue"
    assert made.counts.dropped_tail == 19
    made.send(numbered(5, 1000))
    made.run(100 * MS)
    assert len(made.came) == 16, "there is room again"


def test_what_does_not_fit_the_path_is_counted(line):
    made = line(Link(delay_us=1000, frames=10))
    made.send(numbered(30))
    made.run(10 * MS)
    assert made.numbers == list(range(10))
    assert made.counts.dropped_store == 20


@pytest.mark.parametrize("tagged", [False, True])
def test_the_highest_priority_goes_first(line, tagged):
    def of(priority: int) -> bytes:
        return datagram(0, 1000, priority) if tagged else datagram(priority << 5, 1000)

    made = line(Link(rate_bps=8e6, priorities=8))
    made.send([of(1)] + [of(i) for i in (2, 7, 3, 7, 5, 1)])
    made.run(100 * MS)
    seen = [frame[14] >> 5 if tagged else frame[15] >> 5 for _, frame in made.came]
    assert seen == [1, 7, 7, 5, 3, 2, 1], "what is on the line stays there"
    assert made.counts.sent_of == (0, 2, 1, 1, 0, 1, 0, 2)


def test_priorities_have_queues_of_their_own(line):
    made = line(Link(rate_bps=8e6, priorities=2, queue_bytes=3000))
    made.send([datagram(0, 1000)] * 10 + [datagram(7 << 5, 1000)] * 2)
    made.run(100 * MS)
    assert made.counts.sent_of[:2] == (4, 2)
    assert made.counts.tail_of[:2] == (6, 0)


def test_an_arp_frame_is_of_the_highest_class(line):
    made = line(Link(rate_bps=8e6, priorities=4))
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    made.send([datagram(0, 1000), datagram(5 << 5, 1000), arp])
    made.run(100 * MS)
    assert made.came[1][1] == arp


@pytest.mark.parametrize(("ecn", "marks"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_long_queue_marks_who_understands(line, ecn, marks):
    made = line(Link(rate_bps=8e6, ecn_bytes=3000, queue_bytes=1 << 20))
    made.send([datagram(0x28 | ecn, 1000)] * 10)
    made.run(100 * MS)
    seen = [frame[15] for _, frame in made.came]
    # The first goes to the line at once, and the next three find less than 3000 bytes.
    assert seen == [0x28 | ecn] * 4 + [0x28 | (3 if marks else ecn)] * 6
    assert made.counts.marked == (6 if marks else 0)
    assert all(ones(frame[14:34]) == 0 for _, frame in made.came), "the header's checksum is right"


def test_ipv6_is_marked_too(line):
    made = line(Link(rate_bps=8e6, ecn_bytes=1))
    frame = bytes(12) + b"\x86\xdd" + b"\x60\x20" + bytes(100)  # traffic class 2
    made.send([frame] * 3)
    made.run(100 * MS)
    assert [f[15] >> 4 & 3 for _, f in made.came] == [2, 2, 3]


def runs_of_losses(numbers: list[int], count: int) -> list[int]:
    """Lengths of the runs of what is missing."""
    came = set(numbers)
    return [len(list(group)) for gone, group in itertools.groupby(range(count), lambda i: i not in came) if gone]


@pytest.mark.parametrize(("loss", "burst"), [(0.05, 1.0), (0.02, 4.0), (0.2, 10.0)])
def test_losses_come_in_bursts_of_that_length(line, loss, burst):
    count = 40_000
    made = line(Link(loss=loss, burst=burst))
    made.send(numbered(count))
    bursts = runs_of_losses(made.numbers, count)
    # Independent losses: runs of 1 / (1 - loss). In bursts: geometric, of mean `burst`. Five standard errors.
    mean = burst if burst > 1 else 1 / (1 - loss)
    assert abs(sum(bursts) / len(bursts) - mean) < 5 * mean / math.sqrt(len(bursts))
    expected = count * loss / mean
    assert abs(len(bursts) - expected) < 5 * math.sqrt(2 * expected)
    assert made.counts.dropped_lost == sum(bursts)


def test_equal_seeds_lose_the_same(line):
    lost = []
    for seed in (7, 7, 8):
        made = line(Link(loss=0.3, jitter_us=100), seed)
        made.send(numbered(500))
        made.run(10 * MS)
        lost.append(made.came)
    assert lost[0] == lost[1] != lost[2]


def test_delay_and_jitter_have_their_bounds(line):
    made = line(Link(delay_us=5000, jitter_us=2000))
    sent: list[int] = []
    for i in range(300):
        sent.append(made.clock.now_ns())
        made.send([i.to_bytes(4, "big") + bytes(60)])
        made.run(37 * US)
    made.run(100 * MS)
    delays = [at - sent[number(frame)] for at, frame in made.came]
    assert made.numbers == list(range(300)), "jitter changes no order"
    assert min(delays) >= 5000 * US
    assert max(delays) <= 7000 * US
    assert max(delays) - min(delays) > 1000 * US


@pytest.mark.parametrize("by", [1, 3, 50])
def test_a_frame_is_passed_by_as_many_as_was_said(line, by):
    count = 4000
    made = line(Link(reorder=0.05, reorder_by=by, delay_us=100))
    made.send(numbered(count))
    made.run(100 * MS)
    assert sorted(made.numbers) == list(range(count))
    place = {n: i for i, n in enumerate(made.numbers)}
    highest, extents = -1, []
    for n in made.numbers:  # RFC 4737: how many with a higher number came before it
        if n < highest:
            extents.append(sum(place[m] < place[n] for m in range(n + 1, min(n + 3 * by + 2, count))))
        highest = max(highest, n)
    assert max(extents) == by
    assert made.counts.reordered > count * 0.03


def test_a_frame_that_nobody_passes_goes_on_by_itself(line):
    made = line(Link(reorder=1.0, reorder_by=3, delay_us=50))
    made.send(numbered(2))
    made.run(MS)
    assert made.came == []
    made.run(20 * MS)
    assert made.numbers == [0, 1]
    assert made.came[0][0] == VirtualClock.START_NS + 50 * US + 10 * MS


def test_faults_and_a_link_together(line):
    """Duplicates and flipped bits around a link; both live by the NIC's clock."""
    made = line(Link(delay_us=1000))
    over = FaultNic(made.nic, **{made.direction: Faults(duplicate=1.0)})
    if made.direction == "rx":
        made.dst = over
    else:
        made.src = over
    made.send(numbered(10))
    made.clock.advance(2 * MS)
    made.look()
    assert made.numbers == [i for i in range(10) for _ in (0, 1)]
    assert over.buffers_free == over.buffers
    over.close()


def test_a_frame_longer_than_the_nic_takes_is_refused_below():
    a, b = memory_link(buffer_bytes=2048, mtu=1000)
    with LinkNic(a, tx=Link(delay_us=1)) as nic, b:
        assert nic.send(bytes(1500)) == 1
        assert nic.stats().tx_dropped_malformed == 1
        assert nic.link("tx").offered == 0
        assert nic.link("rx") == LinkCounts.of(ffi.new("struct cl_link_counts *"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"loss": 1.5}, "loss 0..1"),
        ({"loss": 0.9, "burst": 2.0}, "longer bursts"),
        ({"priorities": 9}, "1 to 8 priorities"),
        ({"priorities": 0}, "1 or more"),
        ({"reorder": -0.1}, "probabilities"),
        ({"reorder_by": 2000}, "1 to 1024"),
        ({"rate_bps": 10.0}, "1000 to 10"),
        ({"delay_us": 1e9}, "a minute"),
        ({"delay_us": -1.0}, "0 or more"),
        ({"delay_us": math.nan}, "0 or more"),
        ({"rate_bps": math.inf}, "within its limits"),
        ({"loss": 0.5, "burst": math.nan}, "burst 1 or more"),
        ({"frames": 1}, "2 to 2"),
        ({"overhead_bytes": 2000}, "1024 bytes"),
        ({"speed": 1}, "speed"),
    ],
)
def test_what_is_no_link_is_refused(settings, why):
    a, b = memory_link()
    with a, b, pytest.raises(CorelaneError, match=why):
        LinkNic(a, tx=Link(**settings))


def test_no_stamp_is_given_by_an_idle_link():
    a, b = memory_link(clock=VirtualClock())
    with LinkNic(a, rx=Link(), tx=Link()) as nic, b:
        assert nic.ptr.ops.next_tsc(nic.ptr, 0) == 2**64 - 1
        assert lib.cl_nic_wait(nic.ptr, 0, 0) == 0

"""The bad disk: what a crash may leave, that every fault happens as configured and is counted, that a seed repeats."""

from __future__ import annotations

import errno
import random

import pytest

from corelane.drivers.blk.blk import FLUSH, READ, WRITE, BlkError, BlkFaults, FaultBlk, Request, memory_blk
from corelane.runtime.errors import CorelaneError

UNIT, PIECE, BLOCKS = 4096, 512, 32
SIZE = BLOCKS * UNIT


def fault(faults: BlkFaults | None = None, *, seed: int = 1, virtual_clock: bool = False, queues: int = 1) -> FaultBlk:
    return FaultBlk(memory_blk(SIZE, queues=queues), faults, seed=seed, virtual_clock=virtual_clock)


def stamp(number: int, blocks: int = 1) -> bytes:
    """Data of which each piece says whose it is."""
    return number.to_bytes(8, "big") * (blocks * UNIT // 8)


def pieces(data: bytes) -> list[int]:
    """Whose the pieces are; a piece is never a mixture."""
    out = []
    for at in range(0, len(data), PIECE):
        words = {data[i : i + 8] for i in range(at, at + PIECE, 8)}
        assert len(words) == 1, f"the piece at {at} is torn"
        out.append(int.from_bytes(words.pop(), "big"))
    return out


def balance(blk: FaultBlk) -> None:
    c = blk.counts()
    assert c.pieces_written == (
        c.pieces_stored + c.pieces_superseded + c.pieces_dropped + c.pieces_lost + c.pieces_cached
    )
    s = blk.stats()
    assert c.seen == s.submitted
    assert s.submitted == s.completed + c.vanished


class Model:
    """What each piece may be: its durable content, and what was written since."""

    def __init__(self) -> None:
        n = SIZE // PIECE
        self.durable = [0] * n
        self.since: list[list[int]] = [[] for _ in range(n)]

    def write(self, offset: int, number: int, blocks: int, durable: bool) -> None:
        for i in range(offset // PIECE, (offset + blocks * UNIT) // PIECE):
            if durable:
                self.durable[i], self.since[i] = number, []
            else:
                self.since[i].append(number)

    def flush(self) -> None:
        for i, since in enumerate(self.since):
            if since:
                self.durable[i], self.since[i] = since[-1], []

    def now(self) -> list[int]:
        return [since[-1] if since else durable for durable, since in zip(self.durable, self.since, strict=True)]

    def check_crash(self, found: list[int]) -> None:
        for i, number in enumerate(found):
            assert number in (self.durable[i], *self.since[i]), f"piece {i}"
        self.durable, self.since = found, [[] for _ in found]

    def check_kill(self, found: list[int], before: list[int], flying: set[int]) -> None:
        """What was in flight is there or not, and nobody can say what of it is durable."""
        for i, number in enumerate(found):
            assert number == before[i] or number in flying, f"piece {i}"
            self.since[i].append(number)


@pytest.mark.parametrize("case", range(20))
def test_a_crash_leaves_what_is_durable_and_any_of_the_rest(seed, case):
    rng = random.Random(seed + case)
    number = 0
    with fault(seed=seed + case, queues=2) as blk:
        model = Model()
        for _ in range(6):
            for _ in range(rng.randint(1, 40)):
                queue = rng.randrange(2)
                if rng.random() < 0.1:
                    blk.flush(queue)
                    model.flush()
                    continue
                number += 1
                start, durable = rng.randrange(BLOCKS), rng.random() < 0.3
                n = rng.randint(1, min(4, BLOCKS - start))
                blk.write(start * UNIT, stamp(number, n), queue, durable=durable)
                model.write(start * UNIT, number, n, durable)
            assert pieces(blk.read(0, SIZE)) == model.now()
            flying = rng.sample(range(BLOCKS), 5)
            before, first = model.now(), number + 1
            for start in flying:  # whatever they ask for, they may have happened or not
                number += 1
                blk.submit([Request(WRITE, start * UNIT, stamp(number), durable=rng.random() < 0.5)])
                model.write(start * UNIT, number, 1, False)
            if rng.random() < 0.5:
                blk.kill()
                model.check_kill(pieces(blk.read(0, SIZE)), before, set(range(first, number + 1)))
                continue
            blk.crash()
            model.check_crash(pieces(blk.read(0, SIZE)))
        blk.crash()
        model.check_crash(pieces(blk.read(0, SIZE)))
        assert blk.counts().pieces_cached == 0
        balance(blk)


def test_a_killed_process_leaves_its_disk_with_power():
    with fault(BlkFaults(survive=0)) as blk:
        blk.write(0, stamp(1))
        blk.kill()
        assert pieces(blk.read(0, UNIT)) == [1] * 8
        assert blk.counts().pieces_cached == 8
        assert blk.crash() == 8
        assert pieces(blk.read(0, UNIT)) == [0] * 8
        assert (blk.counts().kills, blk.counts().crashes) == (1, 1)
        balance(blk)


def test_what_was_in_flight_at_a_kill_is_done_or_not_and_not_later():
    """A durable write may be in the cache alone; a flush in flight may have happened."""
    seen = set()
    for seed in range(60):
        with fault(seed=seed, virtual_clock=True) as blk:
            blk.write(UNIT, stamp(2))
            blk.set(BlkFaults(latency_min_ns=10, latency_max_ns=10))
            blk.submit([Request(WRITE, 0, stamp(1), durable=True), Request(FLUSH)])
            blk.kill()
            blk.set(BlkFaults(survive=0))
            blk.now_ns = 20
            assert blk.poll() == []
            found = pieces(blk.read(0, 2 * UNIT))
            assert found[8:] == [2] * 8
            blk.crash()
            left = pieces(blk.read(0, 2 * UNIT))
            kind = "all" if found[:8] == [1] * 8 else "part" if any(found[:8]) else "none"
            seen |= {(kind, "durable" if left[:8] == found[:8] else "cached"), "flush" if left[8] else "no flush"}
            balance(blk)
    writes = {("none", "durable"), ("part", "cached"), ("all", "cached"), ("all", "durable")}
    assert seen == writes | {"flush", "no flush"}


def test_a_kill_brings_no_power_back_and_mends_no_device():
    for faults in (BlkFaults(cut_after=3), BlkFaults(fail_after=1)):
        with fault(faults) as blk:
            blk.submit([Request(WRITE, 0, stamp(1), durable=True)])
            blk.poll()
            with pytest.raises(BlkError):
                blk.write(0, stamp(2), durable=True)
            blk.submit([Request(WRITE, 0, stamp(3))])
            blk.kill()
            assert blk.gone
            blk.set(BlkFaults())
            assert 3 not in pieces(blk.read(0, UNIT))
            balance(blk)


def test_crashes_leave_earlier_ones_later_ones_parts_all_and_none():
    seen = set()
    for seed in range(60):
        with fault(seed=seed) as blk:
            blk.write(0, stamp(1))
            blk.write(UNIT, stamp(2))
            blk.crash()
            left = pieces(blk.read(0, 2 * UNIT))
            kinds = []
            for part, whole in ((left[:8], [1] * 8), (left[8:], [2] * 8)):
                kinds.append("all" if part == whole else "part" if any(part) else "none")
                if kinds[-1] == "part":
                    seen.add("first" if part[0] else "last" if part[-1] else "middle")
            seen.add(tuple(kinds))
    assert {("all", "none"), ("none", "all"), ("all", "all"), ("none", "none"), ("part", "none")} <= seen
    assert {"first", "last"} <= seen


def test_a_seed_repeats_and_another_differs():
    def run(seed: int) -> tuple[object, bytes]:
        faults = BlkFaults(write_error=0.1, drop=0.1, write_rot=0.1, flush_error=0.3, read_rot=0.1)
        with fault(faults, seed=seed) as blk:
            results = []
            for i in range(60):
                blk.submit([Request(WRITE, (i % BLOCKS) * UNIT, stamp(i)), Request(FLUSH)][: 1 + (i % 7 == 0)])
                results += [r.result for r in blk.finish(1 + (i % 7 == 0))]
            blk.crash()
            blk.set(BlkFaults())
            return (results, blk.counts()), blk.read(0, SIZE)

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_without_faults_nothing_is_lost_but_the_cache():
    with fault(BlkFaults(survive=0)) as blk:
        blk.write(0, stamp(1))
        blk.write(UNIT, stamp(2), durable=True)
        blk.flush()
        blk.write(0, stamp(3))
        assert pieces(blk.read(0, UNIT)) == [3] * 8
        assert blk.crash() == 8
        assert pieces(blk.read(0, 2 * UNIT)) == [1] * 8 + [2] * 8
        balance(blk)


def test_a_flush_covers_only_what_was_done_when_it_was_submitted():
    with fault(BlkFaults(survive=0, latency_min_ns=10, latency_max_ns=10), virtual_clock=True) as blk:
        blk.submit([Request(WRITE, 0, stamp(1))])
        blk.now_ns = 10
        assert len(blk.poll()) == 1
        blk.submit([Request(WRITE, UNIT, stamp(2)), Request(FLUSH)])
        blk.now_ns = 20
        assert len(blk.poll()) == 2
        blk.crash()
        blk.set(BlkFaults())
        assert pieces(blk.read(0, 2 * UNIT)) == [1] * 8 + [0] * 8


def test_a_failed_flush_is_not_made_good_by_the_next_one():
    lost = 0
    for seed in range(20):
        with fault(BlkFaults(survive=1, torn=0, flush_error=1), seed=seed) as blk:
            blk.write(0, stamp(1))
            with pytest.raises(BlkError, match="flush"):
                blk.flush()
            blk.set(BlkFaults(survive=1, torn=0))
            assert pieces(blk.read(0, UNIT)) == [1] * 8
            blk.flush()
            assert pieces(blk.read(0, UNIT)) == [1] * 8
            blk.crash()
            lost += pieces(blk.read(0, UNIT)) == [0] * 8
            assert blk.counts().flush_errors == 1
            balance(blk)
    assert 0 < lost < 20


def test_what_was_given_up_does_not_come_back_over_newer_data():
    for seed in range(10):
        with fault(BlkFaults(flush_error=1), seed=seed) as blk:
            blk.write(0, stamp(1))
            with pytest.raises(BlkError):
                blk.flush()
            blk.set(BlkFaults())
            blk.write(0, stamp(2))
            blk.flush()
            assert pieces(blk.read(0, UNIT)) == [2] * 8
            balance(blk)


def test_a_failed_write_leaves_old_and_new_pieces():
    mixed = 0
    for seed in range(20):
        with fault(BlkFaults(write_error=1), seed=seed) as blk:
            with pytest.raises(BlkError) as caught:
                blk.write(0, stamp(7, 2), durable=True)
            assert caught.value.errno == errno.EIO
            found = set(pieces(blk.read(0, 2 * UNIT)))
            assert found <= {0, 7}
            mixed += len(found) == 2
            balance(blk)
    assert mixed > 5


def test_space_runs_out_and_nothing_is_written():
    with fault(BlkFaults(full_from=4 * UNIT)) as blk:
        blk.write(3 * UNIT, stamp(1))
        with pytest.raises(BlkError) as caught:
            blk.write(3 * UNIT, stamp(2, 2))
        assert caught.value.errno == errno.ENOSPC
        assert pieces(blk.read(3 * UNIT, 2 * UNIT)) == [1] * 8 + [0] * 8
        assert blk.counts().no_space == 1
        blk.set(BlkFaults(no_space=1))
        with pytest.raises(BlkError):
            blk.write(0, stamp(1), durable=True)
        balance(blk)


def test_dropped_writes_are_reported_done():
    with fault(BlkFaults(drop=1)) as blk:
        blk.write(0, stamp(1), durable=True)
        blk.write(UNIT, stamp(1))
        blk.flush()
        assert pieces(blk.read(0, 2 * UNIT)) == [0] * 16
        assert blk.counts().dropped == 2
        balance(blk)


def ones(a: bytes, b: bytes) -> int:
    return sum((x ^ y).bit_count() for x, y in zip(a, b, strict=True))


def test_bits_rot_as_they_are_read_as_they_are_written_and_at_rest():
    with fault(BlkFaults(read_rot=1)) as blk:
        blk.write(0, stamp(1), durable=True)
        assert ones(blk.read(0, UNIT), stamp(1)) == 1
        blk.set(BlkFaults())
        assert blk.read(0, UNIT) == stamp(1)
        blk.set(BlkFaults(write_rot=1))
        blk.write(0, stamp(2), durable=True)
        assert ones(blk.read(0, UNIT), stamp(2)) == 1
        assert blk.read(0, UNIT) == blk.read(0, UNIT)
        blk.set(BlkFaults())
        blk.write(0, stamp(3, 2), durable=True)
        blk.rot(UNIT, UNIT, bits=1)
        assert ones(blk.read(UNIT, UNIT), stamp(3)) == 1
        assert blk.read(0, UNIT) == stamp(3)
        assert (blk.counts().read_rotted, blk.counts().write_rotted) == (1, 1)


def test_a_failed_read_is_an_error():
    with fault(BlkFaults(read_error=1)) as blk, pytest.raises(BlkError) as caught:
        blk.read(0, UNIT)
    assert caught.value.errno == errno.EIO


def test_unreadable_blocks_can_be_read_once_they_are_written():
    with fault(BlkFaults()) as blk:
        blk.write(0, stamp(1, 4), durable=True)
        blk.unreadable(UNIT, 2 * UNIT)
        for offset, size in ((0, 2 * UNIT), (UNIT, UNIT), (2 * UNIT, 2 * UNIT)):
            with pytest.raises(BlkError) as caught:
                blk.read(offset, size)
            assert caught.value.errno == errno.EIO
        assert blk.counts().unreadable == 3
        assert blk.read(3 * UNIT, UNIT) == stamp(1)
        blk.write(UNIT, stamp(2), durable=True)
        assert blk.read(0, 2 * UNIT) == stamp(1) + stamp(2)
        blk.crash()
        with pytest.raises(BlkError):
            blk.read(2 * UNIT, UNIT)
        blk.unreadable(2 * UNIT, UNIT, on=False)
        assert blk.read(2 * UNIT, UNIT) == stamp(1)
        with pytest.raises(BlkError, match="unreadable"):
            blk.unreadable(blk.size_bytes, 1)


def test_a_device_fails_for_good_after_so_many_requests():
    with fault(BlkFaults(fail_after=3)) as blk:
        for _ in range(3):
            blk.write(0, stamp(1), durable=True)
        for attempt in (lambda: blk.write(0, stamp(2)), blk.flush, lambda: blk.read(0, UNIT)):
            with pytest.raises(BlkError):
                attempt()
        assert blk.gone
        blk.crash()
        assert blk.gone
        blk.set(BlkFaults())
        assert pieces(blk.read(0, UNIT)) == [1] * 8
        assert blk.counts().refused == 3
        balance(blk)


@pytest.mark.parametrize("durable", [True, False])
def test_the_power_goes_after_each_piece_in_turn(durable):
    for cut in range(1, 33):
        with fault(BlkFaults(cut_after=cut, survive=1, torn=0)) as blk:
            done = 0
            for i in range(4):
                try:
                    blk.write(i * UNIT, stamp(i + 1), durable=durable)
                    if not durable:
                        blk.flush()
                    done += 1
                except BlkError as error:
                    assert error.errno == errno.EIO
            assert done == cut // 8
            assert blk.gone
            blk.crash()
            assert not blk.gone
            whole = [i + 1 for i in range(4) for _ in range(8)]
            assert pieces(blk.read(0, 4 * UNIT)) == whole[:cut] + [0] * (32 - cut)
            balance(blk)


def test_requests_are_done_when_their_time_comes():
    with fault(BlkFaults(latency_min_ns=100, latency_max_ns=900), virtual_clock=True) as blk:
        requests = [Request(READ, i * UNIT, UNIT) for i in range(BLOCKS)]
        assert blk.submit(requests) == BLOCKS
        order = []
        while len(order) < BLOCKS:
            assert blk.poll() == []
            next_ns = blk.ptr.ops.next_ns(blk.ptr, 0)
            assert blk.now_ns < next_ns <= 900
            assert next_ns >= 100
            blk.now_ns = next_ns
            order += blk.poll()
        assert order != requests
        assert {id(r) for r in order} == {id(r) for r in requests}
        assert blk.ptr.ops.next_ns(blk.ptr, 0) == 2**64 - 1


def test_a_disk_that_hangs_takes_requests_and_goes_on_where_it_was():
    with fault(virtual_clock=True) as blk:
        blk.write(0, stamp(1))
        blk.set(BlkFaults(hang=1))
        before = blk.counts()
        write = Request(WRITE, 0, stamp(2))
        assert blk.submit([write]) == 1
        blk.now_ns += 10**12
        assert blk.poll() == []
        assert blk.ptr.ops.next_ns(blk.ptr, 0) == 2**64 - 1
        blk.set(BlkFaults())
        assert blk.poll() == [write]
        assert blk.counts().seen == before.seen + 1
        assert pieces(blk.read(0, UNIT)) == [2] * (UNIT // PIECE)
        balance(blk)


def test_the_oldest_leave_a_full_cache_and_are_then_durable():
    with fault(BlkFaults(survive=0, cache_bytes=4 * UNIT)) as blk:
        for i in range(10):
            blk.write(i * UNIT, stamp(i + 1))
        blk.crash()
        assert pieces(blk.read(0, 10 * UNIT)) == [i + 1 for i in range(6) for _ in range(8)] + [0] * 32
        balance(blk)


def test_faults_outside_their_limits_are_refused():
    with memory_blk(SIZE) as inner:
        for bad in (
            BlkFaults(drop=1.1),
            BlkFaults(torn=-1),
            BlkFaults(drop=0.6, write_rot=0.6),
            BlkFaults(latency_min_ns=1),
        ):
            with pytest.raises(CorelaneError, match="fault device: "):
                FaultBlk(inner, bad)
        inner.write(0, stamp(1))

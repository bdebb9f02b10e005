"""What every block device does, whatever it is made of (the contract in corelane/drivers/blk.h).

A new driver joins by one entry in DEVICES: a context manager that yields an open device of at least 4 MiB. The tests
then run on it unchanged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import tempfile
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from corelane.drivers._native import ffi, lib
from corelane.drivers.blk import blk as blk_module
from corelane.drivers.blk import loop as blk_loop
from corelane.drivers.blk.blk import FLUSH, READ, WRITE, Blk, BlkError, BlkFaults, FaultBlk, Request, memory_blk
from corelane.drivers.blk.file import FileBlk, FileIo, create
from corelane.runtime.errors import CorelaneError

MIB = 1 << 20


@contextlib.contextmanager
def file_device(**options: object) -> Iterator[Blk]:
    """A file of its own, opened as asked for, or a reason to skip."""
    with tempfile.TemporaryDirectory(prefix="cl-blk-") as folder:
        path = f"{folder}/file"
        create(path, 8 * MIB)
        try:
            blk = FileBlk(path, **options)  # type: ignore[arg-type]
        except CorelaneError as error:
            if "io_uring is refused" not in str(error) and "direct I/O" not in str(error):
                raise
            pytest.skip(str(error))
        with blk:
            yield blk


@contextlib.contextmanager
def raw_device() -> Iterator[Blk]:
    """A loop device over a part of a file."""
    if why := blk_loop.missing():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="cl-blk-") as folder:
        create(f"{folder}/file", 10 * MIB)
        with open(f"{folder}/file", "rb+") as file:
            fd, path = blk_loop.attach(file.fileno(), MIB, 8 * MIB)
            try:
                with FileBlk(path, depth=64) as blk:
                    assert blk.info().raw
                    assert blk.size_bytes == 8 * MIB
                    yield blk
            finally:
                os.close(fd)


@contextlib.contextmanager
def fault_file() -> Iterator[Blk]:
    """A fault device around a file."""
    with file_device(depth=64, queues=2) as inner, FaultBlk(inner) as blk:
        yield blk


DEVICES: dict[str, Callable[[], contextlib.AbstractContextManager[Blk]]] = {
    "memory": lambda: memory_blk(8 * MIB),
    "file-uring": lambda: file_device(depth=64, io=FileIo(engine="uring")),
    "file-linked": lambda: file_device(queues=2, depth=64, io=FileIo(engine="uring", no_dsync=True)),
    "file-sqpoll": lambda: file_device(depth=64, sqpoll=True, io=FileIo(engine="uring")),
    "file-threads": lambda: file_device(queues=2, depth=64, io=FileIo(engine="threads")),
    "file-threads-linked": lambda: file_device(depth=64, io=FileIo(engine="threads", no_dsync=True, threads=1)),
    "file-buffered": lambda: file_device(depth=64, io=FileIo(direct=False)),
    "raw": raw_device,
    "fault-file": fault_file,
    "fault": lambda: FaultBlk(memory_blk(8 * MIB, queues=2, depth=64), BlkFaults()),
    "fault-late": lambda: FaultBlk(
        memory_blk(8 * MIB, depth=64), BlkFaults(latency_min_ns=1000, latency_max_ns=300_000)
    ),
    "memory-3": lambda: memory_blk(8 * MIB, queues=3, depth=64, block_bytes=512),
}


@pytest.fixture(params=sorted(DEVICES))
def blk(request: pytest.FixtureRequest) -> Iterator[Blk]:
    """Each registered device in turn; afterwards every request must be accounted for."""
    with DEVICES[request.param]() as device:
        yield device
        if not device.closed:
            for queue in range(device.queues):
                s = device.stats(queue)
                assert s.submitted == s.completed == s.reads + s.writes + s.flushes + s.failed


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)


def blocks(blk: Blk, rng: random.Random, n: int) -> bytes:
    return rng.randbytes(n * blk.block_bytes)


def test_what_was_written_is_read(blk, rng):
    unit = blk.block_bytes
    for offset, n, durable in ((0, 1, False), (7 * unit, 3, True), (blk.size_bytes - unit, 1, True), (MIB, 64, False)):
        data = blocks(blk, rng, n)
        blk.write(offset, data, durable=durable)
        assert blk.read(offset, len(data)) == data
    blk.flush()
    stats = blk.stats()
    assert (stats.writes, stats.reads, stats.flushes, stats.failed) == (4, 4, 1, 0)
    assert stats.write_bytes == stats.read_bytes == 69 * unit


def test_a_batch_is_taken_by_one_doorbell_and_comes_back_whole(blk, rng):
    unit, n = blk.block_bytes, min(48, blk.depth)
    data = [blocks(blk, rng, 1) for _ in range(n)]
    before = blk.stats(0).syscalls
    requests = [Request(WRITE, i * unit, d, durable=i % 3 == 0) for i, d in enumerate(data)]
    assert blk.submit(requests) == n
    assert blk.stats(0).syscalls - before <= 1
    done = blk.finish(n)
    assert {id(r) for r in done} == {id(r) for r in requests}
    assert all(r.result == 0 for r in done)
    reads = [Request(READ, i * unit, unit) for i in range(n)]
    assert blk.submit(reads) == n
    assert len(blk.finish(n)) == n
    assert [r.data for r in reads] == data


def test_random_requests_against_a_model(blk, rng):
    unit, span = blk.block_bytes, 256
    model = bytearray(span * unit)
    blk.write(0, bytes(model))
    for _ in range(60):
        free, batch = set(range(span)), []
        for _ in range(rng.randint(1, min(12, blk.depth))):
            start, n = rng.randrange(span), rng.randint(1, 8)
            if not set(range(start, start + n)) <= free:
                continue  # in flight together means in no order
            free -= set(range(start, start + n))
            kind = rng.choice((READ, WRITE, WRITE, FLUSH))
            if kind == WRITE:
                batch.append(Request(WRITE, start * unit, rng.randbytes(n * unit), durable=rng.random() < 0.3))
            else:
                batch.append(Request(kind, start * unit, n * unit) if kind == READ else Request(FLUSH))
        queue = rng.randrange(blk.queues)
        assert blk.submit(batch, queue) == len(batch)
        for r in blk.finish(len(batch), queue):
            assert r.result == 0
            where = slice(r.c.offset, r.c.offset + r.c.bytes)
            if r.c.op == WRITE:
                model[where] = r.data
            elif r.c.op == READ:
                assert r.data == model[where]
    assert blk.read(0, len(model)) == model


def test_no_more_than_depth_are_taken_and_none_is_lost(blk):
    unit, more = blk.block_bytes, blk.depth + 5
    requests = [Request(READ, (i % 64) * unit, unit) for i in range(more)]
    assert blk.submit(requests) == blk.depth
    assert blk.stats(0).full == 1
    assert len(blk.finish(blk.depth)) == blk.depth
    assert blk.submit(requests[blk.depth :]) == 5
    assert len(blk.finish(5)) == 5
    assert blk.poll() == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda blk, c: setattr(c, "offset", 1), errno.EINVAL),
        (lambda blk, c: setattr(c, "bytes", blk.block_bytes - 1), errno.EINVAL),
        (lambda blk, c: setattr(c, "bytes", 0), errno.EINVAL),
        (lambda blk, c: setattr(c, "buf", c.buf + 1), errno.EINVAL),
        (lambda blk, c: setattr(c, "op", 3), errno.EINVAL),
        (lambda blk, c: setattr(c, "flags", 2), errno.EINVAL),
        (lambda blk, c: setattr(c, "offset", blk.size_bytes), errno.ERANGE),
        (lambda blk, c: setattr(c, "offset", 2**64 - blk.block_bytes), errno.ERANGE),
    ],
)
def test_nonsense_comes_back_as_an_error_and_touches_nothing(blk, rng, change, code):
    data = blocks(blk, rng, 1)
    blk.write(0, data)
    bad, good = Request(WRITE, 0, bytes(2 * blk.block_bytes)), Request(READ, 0, blk.block_bytes)
    change(blk, bad.c)
    assert blk.submit([bad]) == 1
    assert blk.finish(1)[0].result == -code
    assert blk.submit([good]) == 1
    assert blk.finish(1)[0].data == data
    assert blk.stats(0).failed == 1


def test_a_read_may_not_be_durable(blk):
    assert blk.submit([Request(READ, 0, blk.block_bytes, durable=True)]) == 1
    assert blk.finish(1)[0].result == -errno.EINVAL


def test_queues_see_each_others_writes(blk, rng):
    data = blocks(blk, rng, 2)
    blk.write(0, data, queue=0, durable=True)
    for queue in range(blk.queues):
        assert blk.read(0, len(data), queue) == data
        blk.flush(queue)


def readable(fd: int, timeout_ms: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout_ms))


def test_an_armed_queue_tells_of_completions(blk):
    fd = lib.cl_blk_fd(blk.ptr, 0)
    assert fd >= 0
    lib.cl_blk_arm(blk.ptr, 0, True)
    assert not readable(fd, 0)
    for _ in range(3):
        assert blk.submit([Request(READ, 0, blk.block_bytes)]) == 1
        assert readable(fd, 30_000)
        os.read(fd, 8)
        assert len(blk.finish(1)) == 1
    lib.cl_blk_arm(blk.ptr, 0, False)


def test_arming_tells_of_what_is_done_already(blk):
    fd = lib.cl_blk_fd(blk.ptr, 0)
    assert blk.submit([Request(READ, 0, blk.block_bytes)]) == 1
    lib.cl_blk_wait(blk.ptr, 0, -1)
    lib.cl_blk_arm(blk.ptr, 0, True)
    assert readable(fd, 30_000)
    os.read(fd, 8)
    assert len(blk.poll()) == 1
    lib.cl_blk_arm(blk.ptr, 0, False)
    assert blk.submit([Request(READ, 0, blk.block_bytes)]) == 1
    assert len(blk.finish(1)) == 1


def test_waiting_with_nothing_in_flight_returns(blk):
    blk.wait()


def test_registered_memory_works_as_any_other(blk, rng):
    data = blocks(blk, rng, 4)
    inside = Request(WRITE, 0, data, durable=True)
    memory = ffi.cast("void *", inside.c.buf)
    rc = lib.cl_blk_register_memory(blk.ptr, 0, memory, len(inside.view))
    assert rc == 0 or rc == -errno.EOPNOTSUPP
    outside = Request(READ, 0, len(data))
    assert blk.submit([inside]) == 1
    assert blk.finish(1)[0].result == 0
    assert blk.submit([outside]) == 1
    assert blk.finish(1)[0].data == data
    inside.c.op, inside.c.flags = READ, 0
    assert blk.submit([inside]) == 1
    assert blk.finish(1)[0].data == data
    used = blk.stats().fixed
    assert used == (2 if rc == 0 else 0)
    lib.cl_blk_unregister_memory(blk.ptr, 0, memory)
    lib.cl_blk_unregister_memory(blk.ptr, 0, memory)  # which is not there any more
    assert blk.submit([inside]) == 1
    assert blk.finish(1)[0].data == data
    assert blk.stats().fixed == used


def test_closing_waits_for_what_is_in_flight(blk, rng):
    requests = [Request(WRITE, i * blk.block_bytes, blocks(blk, rng, 1)) for i in range(min(32, blk.depth))]
    blk.submit(requests)
    blk.close()
    with pytest.raises(CorelaneError, match="closed"):
        blk.read(0, 512)


def test_what_does_not_come_back_is_kept_for_good(monkeypatch):
    blk, request = memory_blk(1 << 20), Request(WRITE, 0, bytes(4096))
    blk.submit([request])
    ptr = blk.ptr
    kept: list[dict[int, Request]] = []
    monkeypatch.setattr(blk_module, "_KEPT", kept)
    monkeypatch.setattr(blk_module, "lib", SimpleNamespace(cl_blk_close=lambda _ptr: -errno.EBUSY))
    with pytest.raises(BlkError, match="1 requests in flight do not come back"):
        blk.close()
    assert blk.closed
    assert [list(flying.values()) for flying in kept] == [[request]]
    lib.cl_blk_close(ptr)


def test_a_failed_request_raises(blk):
    with pytest.raises(BlkError, match="cannot read") as caught:
        blk.read(blk.size_bytes, blk.block_bytes)
    assert caught.value.errno == errno.ERANGE


@pytest.mark.parametrize(
    "options",
    [{"queues": 65}, {"depth": 70000}, {"block_bytes": 256}, {"block_bytes": 5000}, {"atomic_bytes": 8192}],
)
def test_memory_refuses_what_makes_no_sense(options):
    with pytest.raises(CorelaneError, match="block device in memory: "):
        memory_blk(MIB, **options)
    with pytest.raises(CorelaneError, match="multiple of block_bytes"):
        memory_blk(MIB + 1)


def test_bytes_of_a_memory_device_are_those_written(rng):
    with memory_blk(MIB) as blk:
        data = rng.randbytes(4096)
        blk.write(8192, data)
        assert bytes(ffi.buffer(lib.cl_blk_memory_data(blk.ptr), MIB))[8192:12288] == data


@pytest.mark.parametrize(("kind", "rounds"), [("memory", 3000), ("fault", 3000), ("uring", 150), ("threads", 150)])
def test_all_queues_at_once(c_program, tmp_path, seed, kind, rounds):
    files = [tmp_path / "f"] if kind in ("uring", "threads") else []
    out = c_program("tests/drivers/blk/c/stress.c")(kind, rounds, seed, *files)
    if out.startswith("skip"):
        pytest.skip(out[5:])
    assert int(out.split()[1]) > rounds

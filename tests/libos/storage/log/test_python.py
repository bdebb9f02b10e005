"""libos/storage/log/log.py: the log from Python on real files, and a process that is killed while it appends."""

from __future__ import annotations

import errno
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import die_with_parent, wait_until
from slowlog import Slow, in_threads, opened_log

from corelane.drivers.blk.blk import BlkFaults, FaultBlk, memory_blk
from corelane.drivers.blk.file import FileBlk
from corelane.libos._native import ffi, lib
from corelane.libos.storage.log.log import Log, LogDamaged, format_area
from corelane.runtime.errors import CorelaneError

MIB = 1 << 20

APPENDER = """
import os, random, sys
from corelane.libos.storage.log.log import Log
seed = int(sys.argv[2])
rng = random.Random(seed)
with Log.open(sys.argv[1]) as log:
    os.write(1, b"open %d\\n" % log.durable_index)
    while True:
        if log.free_bytes < 100_000:
            log.trim(log.durable_index)
        n = rng.choice((1, 1, 1, 20))
        first = log.durable_index + 1
        datas = [b"%d:" % (first + i) + b"x" * ((first + i) * 37 % 3000) for i in range(n)]
        os.write(1, b"%d\\n" % log.extend(datas, tag=seed)[-1])
"""


def appended(index: int) -> bytes:
    return b"%d:" % index + b"x" * (index * 37 % 3000)


def test_a_record_that_rots_under_an_open_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Log.create(path, MIB)
    with Log.open(path) as log:
        log.extend([b"one", b"two", b"three"])
        _, second, _ = log.records()
        data = path.read_bytes()
        at = data.index(b"two", second.offset)
        with path.open("rb+") as file:
            file.seek(at)
            file.write(b"twO")
            os.fsync(file.fileno())
        left = log.records()
        assert next(left).data == b"one"
        with pytest.raises(CorelaneError, match=f"the record of index 2 at offset {second.offset} is damaged"):
            next(left)


def test_indexes_that_no_record_has_are_refused(tmp_path: Path) -> None:
    """They wrapped: what was appended behind the last one was acknowledged, and the log did not open again."""
    path, last = tmp_path / "log", 2**63 - 1
    Log.create(path, MIB)
    with Log.open(path) as log:
        for bad in (-1, 2**63 + 1, 2**64 - 1, 2**64):
            for call in (log.restart, log.truncate, log.trim, lambda bad: list(log.records(bad))):
                with pytest.raises(CorelaneError) as raised:
                    call(bad)
                assert raised.value.errno == errno.ERANGE
        for save in (log.restart, lambda bad: log.save_snapshot(bad, [b"x"])):
            for bad in (-1, last + 1, 2**64 - 1, 2**64):
                with pytest.raises(CorelaneError, match=f"indexes go from 1 to {last}") as raised:
                    save(bad)
                assert raised.value.errno == errno.ERANGE
        log.restart(last)
        assert log.append(b"last") == last
        with pytest.raises(CorelaneError, match="no index is left for another record"):
            log.append(b"one more")
    with Log.open(path) as log:
        assert [(r.index, r.data) for r in log.records()] == [(last, b"last")]


def test_all_that_fails_after_a_failure_says_what_it_was() -> None:
    with FaultBlk(memory_blk(MIB), seed=1) as disk:
        format_area(disk)
        log = Log(disk)
        disk.set(BlkFaults(no_space=1))

        def save() -> None:
            log.save_snapshot(1, [b"a"])

        calls = (lambda: log.append(b"a"), lambda: log.append(b"b"), lambda: log.trim(1), save, log.close)
        for call in calls:
            with pytest.raises(CorelaneError, match=os.strerror(errno.ENOSPC)) as raised:
                call()
            assert raised.value.errno == errno.EIO


def test_a_close_that_fails_says_why() -> None:
    with FaultBlk(memory_blk(MIB), seed=1) as disk:
        format_area(disk)
        log = Log(disk)
        disk.set(BlkFaults(no_space=1))
        with pytest.raises(CorelaneError, match=f"close the log: .*{os.strerror(errno.ENOSPC)}"):
            log.close()


def test_a_log_that_fails_while_a_snapshot_is_saved_says_why() -> None:
    with FaultBlk(memory_blk(16 * MIB), seed=1) as disk:
        format_area(disk, snapshot_bytes=4 * MIB)
        log = Log(disk)

        def chunks() -> Iterator[bytes]:
            yield b"a" * MIB
            disk.set(BlkFaults(no_space=1))
            yield b"b" * MIB

        with pytest.raises(CorelaneError, match=f"write a snapshot: .*{os.strerror(errno.ENOSPC)}"):
            log.save_snapshot(1, chunks())
        with pytest.raises(CorelaneError):
            log.close()


def test_what_is_appended_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Log.create(path, MIB, snapshot_bytes=100_000)
    with Log.open(path) as log:
        assert log.append(b"one", tag=7, kind=3) == 1
        assert log.extend([b"two", b"", b"four"]) == [2, 3, 4]
        log.set_meta(b"term 1")
        log.truncate(4)
        assert log.append(b"vier") == 4
        log.save_snapshot(2, [b"a" * 70_000, b"b" * 10], tag=5)
        log.trim(2)
    with Log.open(path) as log:
        assert log.report.tail == "clean"
        assert [(r.index, r.data) for r in log.records()] == [(2, b"two"), (3, b""), (4, b"vier")]
        assert log.meta() == b"term 1"
        kept = log.snapshot()
        assert kept is not None
        assert (kept.index, kept.tag, kept.bytes) == (2, 5, 70_010)
        assert b"".join(log.read_snapshot()) == b"a" * 70_000 + b"b" * 10
        log.restart(10)
        assert log.append(b"ten") == 10
        assert (log.first_index, log.durable_index) == (10, 10)


def test_many_at_once_wait_for_buffers() -> None:
    with memory_blk(4 * MIB) as blk:
        format_area(blk, flush_bytes=8192)
        with Log(blk) as log:
            datas = [bytes([i % 251]) * 1000 for i in range(900)]
            assert log.extend(datas) == list(range(1, 901))
            assert [r.data for r in log.records()] == datas


def flushes(log: Log) -> int:
    stats = ffi.new("struct cl_log_stats *")
    lib.cl_log_stats(log._open, stats)
    return int(stats.flushes)


def test_a_lone_append_goes_at_once_and_a_burst_shares_a_flush() -> None:
    with memory_blk(4 * MIB) as blk:
        format_area(blk, flush_bytes=65536)
        with Log(blk) as log:
            op, _held = log._op(b"alone")
            assert lib.cl_log_append(log._open, op) == 0
            lib.cl_log_pump(log._open)  # sends it: nothing else was appended, and no time has passed
            lib.cl_log_pump(log._open)  # the device has done it
            assert op.result == 0
            assert flushes(log) == 1
            log.extend([b"x" * 256] * 64)
            assert flushes(log) == 2
            log.extend([b"x" * 1000] * 200)  # four flushes' worth
            assert flushes(log) == 6


def test_why_a_log_failed_is_not_asked_of_one_that_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a lock and copies the sentence: not for each record that is durable."""
    asked: list[Log] = []
    monkeypatch.setattr(Log, "_why", asked.append)
    with memory_blk(MIB) as blk:
        format_area(blk)
        with Log(blk) as log:
            assert log.append(b"1") == 1
            assert log.extend([b"2", b"3"]) == [2, 3]
            assert log.append_async(b"4").result(60) == 4
            log.set_meta(b"m")
            log.truncate(4)
            log.trim(2)
            log.restart(9)
    assert not asked


def test_errors_are_sentences() -> None:
    with memory_blk(256 << 10) as blk:
        with pytest.raises(CorelaneError, match="neither of the superblocks"):
            Log(blk)
        format_area(blk)
        with Log(blk) as log:
            with pytest.raises(CorelaneError, match="full: trim it"):
                log.extend([b"x" * 4000] * 100)
            assert log.durable_index > 10
            with pytest.raises(CorelaneError, match="read the log from index 999"):
                next(log.records(999))
        with pytest.raises(CorelaneError, match="it is closed"):
            log.append(b"x")


def test_which_superblock_is_bad_and_why_is_said() -> None:
    with memory_blk(256 << 10) as blk:
        format_area(blk)
        with Log(blk):
            pass
        for at in (8, 4096 + 200):
            block = bytearray(blk.read(at & ~4095, 4096))
            block[at % 4096] ^= 1
            blk.write(at & ~4095, bytes(block))
        match = r"at offset 0 \(its checksum is wrong\) and at offset 4096 \(its checksum is wrong\)"
        with pytest.raises(CorelaneError, match=match):
            Log(blk)
    with FaultBlk(memory_blk(256 << 10)) as disk:
        format_area(disk)
        disk.write(4096, b"x" * 4096)
        disk.unreadable(0, 4096)
        with pytest.raises(
            CorelaneError, match=r"0 \(it cannot be read\) and at offset 4096 \(it is something else\): In"
        ):
            Log(disk)


def test_a_snapshot_that_could_not_be_read_once_is_read_again() -> None:
    with FaultBlk(memory_blk(MIB)) as disk:
        format_area(disk, snapshot_bytes=128 << 10)
        with Log(disk) as log:
            log.append(b"a")
            log.save_snapshot(1, [b"s" * 100_000])  # of two pieces
            slots = range(8192, 8192 + 2 * (192 << 10), 4096)
            for bad in slots:
                disk.unreadable(bad, 4096)
            for _ in range(2):
                with pytest.raises(CorelaneError, match="Input/output error"):
                    list(log.read_snapshot())
            for bad in slots:
                disk.unreadable(bad, 4096, False)
            assert b"".join(log.read_snapshot()) == b"s" * 100_000


def test_damage_is_refused_and_can_be_cut() -> None:
    with memory_blk(MIB) as blk:
        format_area(blk)
        with Log(blk) as log:
            for i in range(10):
                log.append(b"%d" % i)
            offset = next(log.records(4)).offset
        block = bytearray(blk.read(offset // 4096 * 4096, 4096))
        block[offset % 4096 + 32] ^= 1
        blk.write(offset // 4096 * 4096, bytes(block))
        with pytest.raises(LogDamaged, match=f"damage at offset {offset}, where index 4") as raised:
            Log(blk)
        assert raised.value.report.acknowledged_index == 10
        with Log(blk, on_damage="read-only") as log:
            assert [r.data for r in log.records()] == [b"0", b"1", b"2"]
            with pytest.raises(CorelaneError):
                log.append(b"x")
        with Log(blk, on_damage="cut") as log:
            assert log.append(b"new") == 4
        with Log(blk) as log:
            assert [r.data for r in log.records()] == [b"0", b"1", b"2", b"new"]


def test_killed_while_it_appends(tmp_path: Path, seed: int) -> None:
    """What a process had been told is durable, and had told us, is there after kill -9."""
    path, rng = tmp_path / "log", random.Random(seed)
    Log.create(path, 2 * MIB)
    last = 0
    for round_ in range(6):
        command = [sys.executable, "-c", APPENDER, str(path), str(round_)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent) as process:
            assert process.stdout is not None
            opened = process.stdout.readline().split()
            assert opened[0] == b"open"
            assert int(opened[1]) >= last
            for _ in range(rng.randrange(1, 300)):
                last = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            for line in process.stdout.read().splitlines(keepends=True):
                last = int(line) if line.endswith(b"\n") else last
        # The kernel takes a moment to let go of a killed process's ring, and with it of the lock.
        with wait_until(lambda: opened_log(path), 60.0, "the lock of the killed process") as log:
            assert log.report.tail != "damaged"
            assert log.durable_index >= last
            for record in log.records():
                assert record.data == appended(record.index)


@pytest.mark.parametrize("sqpoll", [False, True], ids=["entering", "sqpoll"])
def test_flushes_go_from_registered_memory(tmp_path: Path, sqpoll: bool) -> None:
    Log.create(tmp_path / "log", MIB)
    for _ in range(20):  # more often than a ring has room for regions: closing the log gives its own back
        with FileBlk(tmp_path / "log", sqpoll=sqpoll) as blk:
            if blk.info().engine != "uring":
                pytest.skip(blk.info().why)
            with Log(blk) as log:
                log.append(b"x" * 1000)
                assert log.stats()["registered"] > 0
                assert blk.stats().fixed == log.stats()["flushes"] == 1
    with FileBlk(tmp_path / "log") as blk:
        for i in range(20):
            with Log(blk) as log:
                log.append(b"x" * 1000)
            assert blk.stats().fixed == i + 1


# The kernel pins no memory for us: a user's limit.
NO_LOCKED_MEMORY = """
import os, resource, sys
from corelane.drivers.blk.file import FileBlk
from corelane.libos.storage.log.log import Log
fd = os.open(sys.argv[1], os.O_RDWR)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 16, 1 << 16))
os.setresuid(65534, 65534, 65534)
with FileBlk(fd) as blk, Log(blk) as log:
    print(log.append(b"x"), log.stats()["registered"], blk.stats().fixed, len(list(log.records())))
"""


def test_without_locked_memory_the_log_does_without_and_says_so(tmp_path: Path) -> None:
    Log.create(tmp_path / "log", 4 * MIB)
    with FileBlk(tmp_path / "log") as blk:
        if os.geteuid() or blk.info().engine != "uring":
            pytest.skip("it takes root, to become another user, and io_uring")
    done = subprocess.run(
        [sys.executable, "-c", NO_LOCKED_MEMORY, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", str(-errno.ENOMEM), "0", "1"]


def test_a_polling_thread_is_to_be_had_by_option(tmp_path: Path) -> None:
    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log", sqpoll=True) as log:
        assert log.extend([b"a", b"b"]) == [1, 2]
    with Log.open(tmp_path / "log") as log:
        assert [record.data for record in log.records()] == [b"a", b"b"]


def test_an_interrupted_wait_leaves_the_log_what_it_points_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log") as log:
        asked: list[weakref.ref[object]] = []
        keep, pump = log._keep, log._group._pump

        def remembered(op: Any) -> None:
            asked.append(weakref.ref(op))
            keep(op)

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(log, "_keep", remembered)
        monkeypatch.setattr(log._group, "_pump", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.extend([b"a", b"b"])
        gc.collect()
        assert all(ref() is not None for ref in asked)
        monkeypatch.setattr(log._group, "_pump", pump)
        assert log.append(b"c") == 3
        log.append(b"d")
        gc.collect()
        assert sum(ref() is not None for ref in asked) <= 1
    with Log.open(tmp_path / "log") as log:
        assert [record.data for record in log.records()] == [b"a", b"b", b"c", b"d"]


# Files that nobody may write are no obstacle for root.
LOOKER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
from corelane.libos.storage.log.log import Log
os.setresuid(65534, 65534, 65534)
os.fchdir(fd)
with Log.open("log", on_damage="read-only") as log:
    print([record.data for record in log.records()])
Log.open("log")
"""


def test_who_may_not_write_it_may_look(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("becoming another user takes root")
    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log") as log:
        log.append(b"first")
    tmp_path.chmod(0o755)
    (tmp_path / "log").chmod(0o444)
    done = subprocess.run(
        [sys.executable, "-c", LOOKER, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "[b'first']\n", done.stderr
    assert "open log: Permission denied" in done.stderr


def test_threads_that_append_share_flushes() -> None:
    n, each = 16, 8
    blk = Slow(virtual=True)
    log = blk.log
    indexes: list[list[int]] = [[] for _ in range(n)]
    left = n
    lock = threading.Lock()

    def work(i: int) -> None:
        nonlocal left
        for k in range(each):
            indexes[i].append(log.append(b"%d:%d" % (i, k), tag=i))
        with lock:
            left -= 1

    def gather() -> None:
        wait_until(lambda: len(log._group) >= left, 60, "those that append to come")

    blk.gather = gather
    for thread in in_threads(n, work):
        thread.join(60)
        assert not thread.is_alive()
    blk.gather = lambda: None
    assert log.stats()["flushes"] < n * each / 4
    assert sorted(index for mine in indexes for index in mine) == list(range(1, n * each + 1))
    found = {r.index: r.data for r in log.records()}
    for i, mine in enumerate(indexes):
        assert [found[index] for index in mine] == [b"%d:%d" % (i, k) for k in range(each)]
    blk.end()


def test_one_that_is_refused_does_not_keep_others_from_being_durable() -> None:
    blk = Slow(virtual=True)
    log = blk.log
    large = bytes(lib.cl_log_max_bytes(log._ptr) + 1)
    ended: dict[int, object] = {}

    def work(i: int) -> None:
        try:
            ended[i] = log.extend([b"good", large] if i % 2 else [b"good"])
        except CorelaneError as error:
            ended[i] = error.errno

    blk.gather = lambda: wait_until(lambda: len(log._group) + len(ended) >= 8, 60, "all to come")
    for thread in in_threads(8, work):
        thread.join(60)
        assert not thread.is_alive()
    blk.gather = lambda: None
    assert [ended[i] for i in (1, 3, 5, 7)] == [errno.EMSGSIZE] * 4
    assert len({ended[i][0] for i in (0, 2, 4, 6)}) == 4  # type: ignore[index]
    assert [r.data for r in log.records()] == [b"good"] * 8
    blk.end()


def test_closing_ends_the_appends_that_wait() -> None:
    blk = Slow(virtual=False)
    log = blk.log
    flies = threading.Event()
    ended: list[object] = []

    def work(_: int) -> None:
        try:
            while True:
                log.trim(log.append(b"x"))
        except CorelaneError as error:
            ended.append(error.why)

    blk.gather = flies.set
    threads = in_threads(8, work)
    assert flies.wait(60)
    log.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert ended == ["it is closed"] * 8
    blk.close()


def test_who_looks_beside_a_close_sees_the_log_or_that_it_is_closed(tmp_path: Path) -> None:
    """Under a debugging allocator, or unlucky, a look at a log that is being freed would crash."""
    Log.create(tmp_path / "log", MIB)
    for _ in range(30):
        log, ready = Log.open(tmp_path / "log"), threading.Barrier(3)
        ended: list[str] = []

        def look(log: Log = log, ready: threading.Barrier = ready, ended: list[str] = ended) -> None:
            ready.wait()
            try:
                while log.durable_index >= 0 and log.stats()["flushes"] >= 0 and log.meta() == b"" and log.free_bytes:
                    pass
            except CorelaneError as error:
                ended.append(error.why)

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        ready.wait()
        log.append(b"x")
        log.close()
        for thread in threads:
            thread.join()
        assert ended == ["it is closed"] * 2


def test_a_meta_blob_that_a_full_log_took_survives_the_loss_of_either_superblock(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Log.create(path, 1 << 20)
    with Log.open(path) as log:
        log.set_meta(b"vote 1")
        with pytest.raises(CorelaneError, match="full"):
            log.extend([bytes(20_000)] * 60)
        log.set_meta(b"vote 2")
        whole = path.read_bytes()
    for slot in (0, 4096):
        path.write_bytes(whole[:slot] + bytes(4096) + whole[slot + 4096 :])
        with Log.open(path, on_damage="read-only") as log:
            assert log.meta() == b"vote 2"


def test_no_number_of_truncations_fills_a_log(tmp_path: Path) -> None:
    """One of 1 MiB with one record of two bytes was full after 119 rounds."""
    path = tmp_path / "log"
    Log.create(path, MIB)
    with Log.open(path) as log:
        log.append(b"e1")
        for round in range(600):
            log.append(b"no-op of a term %d" % round)
            log.truncate(2)
        usage = log.usage()
        assert usage["kept_bytes"] < 100 < usage["free_bytes"]
        assert sum(usage[f"{n}_bytes"] for n in ("kept", "dead", "free", "reserved")) == usage["ring_bytes"]
        assert log.stats()["repacks"] > 0
    with Log.open(path) as log:
        assert [r.data for r in log.records()] == [b"e1"]
        log.append(b"x")


def test_a_log_that_is_full_of_records_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Log.create(path, MIB)
    with Log.open(path) as log:
        with pytest.raises(CorelaneError, match="the area is full: trim it"):
            log.extend([bytes(3000)] * 400)
        usage = log.usage()
        assert usage["kept_bytes"] > usage["ring_bytes"] * 3 // 4
        log.trim(log.durable_index)
        log.append(bytes(3000))

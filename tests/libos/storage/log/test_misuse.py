"""libos/storage/log/log.py against programs that do the unforeseen: fork, give wide items, make a snapshot of the log
itself."""

from __future__ import annotations

import array
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corelane.drivers.blk.blk import memory_blk
from corelane.drivers.blk.file import FileBlk
from corelane.libos._native import lib
from corelane.libos.storage.log.group import operation
from corelane.libos.storage.log.log import Log, format_area
from corelane.runtime.errors import CorelaneError

MIB = 1 << 20


def test_of_wide_items_every_byte_is_kept(tmp_path: Path) -> None:
    """Of a buffer whose items are larger than a byte: `len` says how many of them there are."""
    Log.create(tmp_path / "log", MIB, snapshot_bytes=1000)
    wide = array.array("I", range(100))
    with Log.open(tmp_path / "log") as log:
        log.append(wide)  # type: ignore[arg-type]
        log.set_meta(wide[:10])  # type: ignore[arg-type]
        log.save_snapshot(1, [wide])  # type: ignore[list-item]
        assert [r.data for r in log.records()] == [wide.tobytes()]
        assert (log.meta(), b"".join(log.read_snapshot())) == (wide[:10].tobytes(), wide.tobytes())


def test_a_truncation_and_a_meta_blob_wait_for_buffers() -> None:
    """While all of the log's are on their way, with what somebody has asked for who waits no longer."""
    with memory_blk(4 * MIB) as blk:
        format_area(blk, flush_bytes=8192)
        with Log(blk) as log:
            for call in (lambda: log.set_meta(b"m"), lambda: log.truncate(11), lambda: log.restart(100)):
                asked = []
                while True:
                    asked.append(operation(bytes(lib.cl_log_max_bytes(log._ptr))))
                    if rc := log._take(asked[-1][0], lib.cl_log_append):
                        break
                assert (rc, len(asked)) == (-errno.EAGAIN, 17)
                call()
                assert all(op.result == 0 for op, _ in asked)
            assert (log.meta(), log.first_index) == (b"m", 100)


def test_what_is_out_of_range_is_said_with_the_range(tmp_path: Path) -> None:
    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log") as log:
        most = lib.cl_log_max_bytes(log._ptr)
        with pytest.raises(CorelaneError, match=f"a record of this log has {most} bytes at most"):
            log.append(bytes(most + 1))
        with pytest.raises(CorelaneError, match="the meta blob 256"):
            log.set_meta(bytes(257))
        log.extend([bytes(most), b"", b"3"])
        log.trim(2)
        calls: list[Callable[[], object]] = [
            lambda: log.truncate(5),
            lambda: log.truncate(1),
            lambda: log.trim(5),
            lambda: log.restart(1),
            lambda: next(log.records(1)),
            lambda: next(log.records(5)),
        ]
        for call in calls:
            with pytest.raises(CorelaneError, match="it keeps the records 2 to 3") as raised:
                call()
            assert raised.value.errno == errno.ERANGE
            assert "No such file" not in str(raised.value)
        assert [r.index for r in log.records()] == [2, 3]
        log.trim(4)
        for call in (lambda: next(log.records(3)), lambda: log.truncate(3), lambda: log.trim(5)):
            with pytest.raises(CorelaneError, match=r"it keeps none: the next is 4") as raised:
                call()
            assert raised.value.errno == errno.ERANGE


def test_whose_next_record_is_gone_is_told_which_there_are(tmp_path: Path) -> None:
    """By trimming before it, or by truncating and appending again."""
    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log") as log:
        log.extend([b"1", b"2", b"3", b"4"])
        first, third = log.records(), log.records(3)
        assert (next(first).index, next(third).index) == (1, 3)
        log.trim(3)
        log.truncate(3)
        log.append(b"another")
        for reader in (first, third):
            with pytest.raises(
                CorelaneError, match=r"read the log: .* was trimmed or truncated: it keeps the records 3 to 3$"
            ) as raised:
                next(reader)
            assert raised.value.errno == errno.ESTALE


def test_a_snapshot_may_be_made_of_the_logs_records(tmp_path: Path) -> None:
    """And the log goes on meanwhile; but of a snapshot's chunks no other snapshot is asked for."""
    Log.create(tmp_path / "log", MIB, snapshot_bytes=1000)
    with Log.open(tmp_path / "log") as log:
        log.extend([b"a", b"b"])

        def chunks() -> Iterator[bytes]:
            for record in log.records():
                yield record.data
                if record.index < 4:
                    log.append(record.data.upper())
            with pytest.raises(CorelaneError, match="end that one first"):
                log.save_snapshot(9, [])

        log.save_snapshot(2, chunks())
        assert b"".join(log.read_snapshot()) == b"abABA"
        with pytest.raises(ZeroDivisionError):
            log.save_snapshot(3, (bytes(1 // n) for n in (1, 0)))
        log.save_snapshot(4, [b"4"])
        assert b"".join(log.read_snapshot()) == b"4"


def test_a_reader_that_is_garbage_is_closed_wherever_it_is_collected(tmp_path: Path) -> None:
    """Also inside the log's own calls, which have its lock."""
    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log") as log:
        log.extend([b"a", b"b"])
        reader = log.records()
        assert next(reader).data == b"a"
        with log._lock:
            reader.close()
        assert len(log._unused) == 1
        assert [r.data for r in log.records()] == [b"a", b"b"]
        assert not log._unused


def test_the_child_of_a_fork_has_no_log(tmp_path: Path) -> None:
    """It cannot hurt its parent's, whose queue with the device it shares: nor by closing it."""
    path = tmp_path / "log"
    Log.create(path, MIB)
    with Log.open(path) as log:
        log.append(b"one")
        reader = log.records()
        next(reader)
        child = os.fork()
        if child == 0:
            said = []
            calls: list[Callable[[], object]] = [
                lambda: log.append(b"of the child"),
                lambda: log.append_async(b"of the child").result(30),
                lambda: log.set_meta(b"m"),
                lambda: log.durable_index,
                lambda: next(reader),
            ]
            for call in calls:
                try:
                    call()
                except CorelaneError as error:
                    said.append("forked" in str(error))
            try:
                log.close()
            finally:
                os._exit(0 if said == [True] * 5 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert log.extend([b"two", b"three"]) == [2, 3]
    with Log.open(path) as log:
        assert log.report.tail == "clean"
        assert [r.data for r in log.records()] == [b"one", b"two", b"three"]


def test_a_device_has_one_log(tmp_path: Path) -> None:
    """Two would write over each other; nor is it closed, or made anew, under the one that it has."""
    Log.create(tmp_path / "log", MIB)
    with FileBlk(tmp_path / "log", queues=2) as blk:
        first = Log(blk)
        first.append(b"one")
        again: list[Callable[[], object]] = [
            lambda: Log(blk),
            lambda: Log(blk, queue=1),
            lambda: Log(blk, on_damage="read-only"),
            lambda: format_area(blk),
            blk.close,
        ]
        for call in again:
            with pytest.raises(CorelaneError, match=r"a log is open on .*close (it|that) first") as refused:
                call()
            assert refused.value.errno == errno.EBUSY
            assert "\n" not in str(refused.value)
        assert first.append(b"two") == 2
        first.close()
        with Log(blk, queue=1) as second:
            assert [r.data for r in second.records()] == [b"one", b"two"]
        format_area(blk)
        with pytest.raises(CorelaneError, match="there is no queue 2"):
            Log(blk, queue=2)
        blk.write(4096, bytes(4096))
        blk.write(0, bytes(4096))
        for _ in range(2):  # a log that could not be opened does not have the device
            with pytest.raises(CorelaneError, match="superblock"):
                Log(blk)


@pytest.mark.parametrize("link", [os.symlink, os.link, None])
def test_a_file_has_one_log_by_whatever_name(tmp_path: Path, link: Callable[[Path, Path], None] | None) -> None:
    """In this process too, and in the child of a fork; until it is closed."""
    path, other = tmp_path / "log", tmp_path / "other"
    Log.create(path, MIB)
    if link:
        link(path, other)
    else:
        other = path
    with Log.open(path) as log:
        with pytest.raises(CorelaneError, match=f"open {other}: it is open in another place") as refused:
            Log.open(other)
        assert "\n" not in str(refused.value)
        child = os.fork()
        if child == 0:
            try:
                Log.open(other)
            except CorelaneError as error:
                os._exit("is open in another place" not in str(error))
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert log.append(b"one") == 1
    with Log.open(other) as log:
        assert [r.data for r in log.records()] == [b"one"]


def test_the_child_of_a_fork_has_no_device_either(tmp_path: Path) -> None:
    """It opens no log on its parent's, and closing it there leaves it locked against others."""
    path = tmp_path / "log"
    Log.create(path, MIB)
    with FileBlk(path) as blk:
        child = os.fork()
        if child == 0:
            try:
                Log(blk)
            except CorelaneError as error:
                blk.close()
                os._exit("forked" not in str(error))
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(CorelaneError, match="is open in another place"):
            Log.open(path)
        with Log(blk) as log:
            assert log.append(b"one") == 1

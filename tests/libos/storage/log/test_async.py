"""Log.append_async: futures that are done when their records are durable, whatever happens to the log meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, wait
from pathlib import Path

import pytest
from cltest import die_with_parent, wait_until
from slowlog import Slow, in_threads, opened_log

from corelane.drivers.blk.blk import BlkFaults, FaultBlk, memory_blk
from corelane.libos.storage.log.log import Log, format_area
from corelane.runtime.errors import CorelaneError

MIB = 1 << 20
LONG = 60.0


class Gated(Slow):
    """Time passes on the device only while `gate` is set; `waited` once somebody waits for it."""

    def __init__(self) -> None:
        super().__init__(virtual=True)
        self.gate, self.waited = threading.Event(), threading.Event()
        self.gather = self._gathered

    def _gathered(self) -> None:
        self.waited.set()
        assert self.gate.wait(LONG)
        self.set(BlkFaults())  # what is sent from now on takes no time, so that the log can be closed


def done(futures: list[Future[int]]) -> list[int | CorelaneError]:
    """What they came to, when all have."""
    assert not wait(futures, LONG).not_done
    out: list[int | CorelaneError] = []
    for future in futures:
        error = future.exception()
        assert error is None or isinstance(error, CorelaneError)
        out.append(error or future.result())
    return out


def test_a_future_is_done_only_when_its_record_is_durable() -> None:
    blk = Gated()
    future = blk.log.append_async(b"one", tag=5, kind=6)
    assert blk.waited.wait(LONG)
    assert not future.done()
    assert blk.log.durable_index == 0
    assert not future.cancel()
    blk.gate.set()
    assert future.result(LONG) == 1
    (record,) = blk.log.records()
    assert (record.data, record.tag, record.kind) == (b"one", 5, 6)
    blk.end()


def test_what_is_asked_for_while_a_flush_is_on_its_way_shares_the_next() -> None:
    blk = Gated()
    first = blk.log.append_async(b"first")
    assert blk.waited.wait(LONG)
    futures = [blk.log.append_async(b"%d" % i) for i in range(300)]
    assert not any(future.done() for future in (first, *futures))
    blk.gate.set()
    assert done([first, *futures]) == list(range(1, 302))
    assert blk.log.stats()["flushes"] == 2
    assert [r.data for r in blk.log.records()] == [b"first"] + [b"%d" % i for i in range(300)]
    blk.end()


def test_an_event_loop_awaits_them(tmp_path: Path) -> None:
    async def all_of(log: Log) -> list[int]:
        return await asyncio.gather(*(asyncio.wrap_future(log.append_async(b"%d" % i)) for i in range(100)))

    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log") as log:
        assert asyncio.run(all_of(log)) == list(range(1, 101))
    with Log.open(tmp_path / "log") as log:
        assert [r.data for r in log.records()] == [b"%d" % i for i in range(100)]


def test_a_callback_may_append_and_wait_but_not_close(tmp_path: Path) -> None:
    Log.create(tmp_path / "log", MIB)
    came: Future[tuple[int, Future[int], str]] = Future()

    def callback(future: Future[int]) -> None:
        try:
            indexes = log.extend([b"%d" % future.result()] * 3)
            log.append(b"alone")
            with pytest.raises(CorelaneError) as caught:
                log.close()
            came.set_result((indexes[-1], log.append_async(b"last"), caught.value.why))
        except BaseException as error:
            came.set_exception(error)

    with Log.open(tmp_path / "log") as log:
        log.append_async(b"first").add_done_callback(callback)
        index, last, why = came.result(LONG)
        assert (index, last.result(LONG)) == (4, 6)
        assert "a callback of one of its futures" in why
        assert log.append(b"open") == 7


@pytest.mark.parametrize("device", ["memory", "file"])
def test_who_waits_does_not_overtake_what_was_promised_before(tmp_path: Path, device: str) -> None:
    if device == "memory":
        blk = Slow(virtual=True)
        log, end = blk.log, blk.end
    else:
        Log.create(tmp_path / "log", MIB)
        log = Log.open(tmp_path / "log")
        end = log.close
    for i in range(200):
        promised = log.append_async(b"first")
        assert log.append(b"second") == 2 * i + 2
        assert promised.result(LONG) == 2 * i + 1
    end()


def test_what_is_given_up_does_not_overtake_what_was_promised_before(tmp_path: Path) -> None:
    """A truncation, a restart and a meta blob have their turn among the appends of their thread."""
    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log") as log:
        for _ in range(100):
            first = log.durable_index + 1
            log.restart(first)
            promised = log.append_async(b"first")
            log.truncate(first)
            assert promised.result(LONG) == first
            assert log.durable_index == first - 1
            promised = log.append_async(b"second")
            log.set_meta(b"%d" % first)
            assert log.durable_index == first
            assert promised.result(LONG) == first
            promised = log.append_async(b"third")
            log.restart(first + 5)
            assert promised.result(LONG) == first + 1
            assert (log.durable_index, log.meta()) == (first + 4, b"%d" % first)


def test_a_callback_that_exits_ends_nothing_but_itself(caplog: pytest.LogCaptureFixture) -> None:
    blk = Gated()
    futures = [blk.log.append_async(b"x") for _ in range(100)]
    futures[10].add_done_callback(lambda _: sys.exit(3))
    blk.gate.set()
    assert done(futures) == list(range(1, 101))
    assert blk.log.append_async(b"after").result(LONG) == 101
    blk.end()
    assert "SystemExit(3)" in caplog.text


def test_threads_that_wait_and_those_that_do_not_share_a_log() -> None:
    n, each = 6, 40
    blk = Slow(virtual=True)
    futures: list[Future[int]] = []
    waited: list[int] = []

    def work(i: int) -> None:
        for k in range(each):
            if (i + k) % 2:
                futures.append(blk.log.append_async(b"later"))
            else:
                waited.append(blk.log.append(b"now"))

    for thread in in_threads(n, work):
        thread.join(LONG)
        assert not thread.is_alive()
    later = done(futures)
    found = {r.index: r.data for r in blk.log.records()}
    assert sorted([*waited, *later]) == list(found) == list(range(1, n * each + 1))  # type: ignore[type-var]
    assert {found[i] for i in waited} == {b"now"}
    assert {found[i] for i in later} == {b"later"}  # type: ignore[index]
    blk.end()


def test_a_full_area_and_a_long_record_are_errors_of_their_own_futures(tmp_path: Path) -> None:
    Log.create(tmp_path / "log", 256 << 10)
    with Log.open(tmp_path / "log") as log:
        ended = done([log.append_async(bytes(9000 if i % 7 else MIB)) for i in range(50)])
        refused = [e for e in ended if isinstance(e, CorelaneError)]
        assert {e.errno for e in refused} == {errno.EMSGSIZE, errno.ENOSPC}
        assert any("trim it" in e.why for e in refused)
        indexes = [i for i in ended if isinstance(i, int)]
        assert indexes == list(range(1, len(indexes) + 1))
        assert log.durable_index == len(indexes)
        log.trim(log.durable_index)
        assert log.append_async(b"again").result(LONG) == len(indexes) + 1


@pytest.mark.parametrize("after", range(0, 40, 3))
def test_of_a_log_whose_device_fails_what_was_acknowledged_is_there(after: int) -> None:
    blk = FaultBlk(memory_blk(4 * MIB), seed=after)
    format_area(blk)
    log = Log(blk)
    assert log.append(b"first") == 1
    blk.set(BlkFaults(fail_after=after + 1))
    futures: list[Future[int]] = []
    for i in range(200):
        futures.append(log.append_async(b"%d" % i))
        if i % 5 == 0:
            wait(futures[-1:], LONG)
    ended = done(futures)
    errors = [e for e in ended if isinstance(e, CorelaneError)]
    assert errors
    assert {e.errno for e in errors} == {errno.EIO}
    with pytest.raises(CorelaneError):
        log.close()
    assert all(f.done() for f in futures)
    blk.set(BlkFaults())
    again = Log(blk)
    found = {r.index: r.data for r in again.records()}
    for i, index in enumerate(ended):
        if isinstance(index, int):
            assert found[index] == b"%d" % i
    again.close()
    blk.close()


def test_closing_waits_for_all_and_takes_no_more() -> None:
    blk = Gated()
    futures = [blk.log.append_async(b"%d" % i) for i in range(100)]
    assert blk.waited.wait(LONG)
    closing = threading.Thread(target=blk.log.close)
    closing.start()
    wait_until(lambda: blk.log._promises._closed, LONG, "the log to begin to close")
    with pytest.raises(CorelaneError, match="it is closed"):
        blk.log.append_async(b"late")
    assert not any(future.done() for future in futures)
    blk.gate.set()
    closing.join(LONG)
    assert not closing.is_alive()
    assert [future.result(0) for future in futures] == list(range(1, 101))
    with Log(blk) as again:
        assert [r.data for r in again.records()] == [b"%d" % i for i in range(100)]
    blk.close()


def test_an_error_that_nobody_expects_ends_all_and_the_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log") as log:
        pump = log._group._pump

        def fails() -> None:
            raise CorelaneError("wait", "for nothing")

        monkeypatch.setattr(log._group, "_pump", fails)
        ended = done([log.append_async(b"x") for _ in range(20)])
        assert {str(e) for e in ended} == {"wait: for nothing"}
        monkeypatch.setattr(log._group, "_pump", pump)
        index = log.append_async(b"last").result(LONG)
    with Log.open(tmp_path / "log") as log:
        assert next(log.records(index)).data == b"last"


def test_a_log_that_promised_nothing_has_no_thread(tmp_path: Path) -> None:
    Log.create(tmp_path / "log", MIB)
    with Log.open(tmp_path / "log") as log:
        log.append(b"x")
        assert log._promises._thread is None
        log.append_async(b"y").result(LONG)
        thread = log._promises._thread
        assert thread is not None
    assert not thread.is_alive()


# Each acknowledgement is one line, said by the future's callback.
APPENDER = """
import os, sys
from corelane.libos.storage.log.log import Log
def said(future):
    os.write(1, b"%d\\n" % future.result())
with Log.open(sys.argv[1]) as log:
    os.write(1, b"open %d\\n" % log.durable_index)
    number = log.durable_index
    while True:
        some = []
        for _ in range(100):
            number += 1
            some.append(log.append_async(b"%d" % number))
            some[-1].add_done_callback(said)
        some[50].result()
        if log.free_bytes < 600_000:
            some[-1].result()
            log.trim(log.durable_index)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_what_futures_said_before_a_kill_is_there(tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / "log", random.Random(seed)
    Log.create(path, 4 * MIB)
    last = 0
    for _ in range(3):
        command = [sys.executable, "-c", APPENDER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent) as process:
            assert process.stdout is not None
            assert int(process.stdout.readline().split()[1]) >= last
            for _ in range(rng.randrange(1, 1500)):
                before, last = last, int(process.stdout.readline())
                assert last > before
            os.kill(process.pid, signal.SIGKILL)
            for line in process.stdout.read().splitlines(keepends=True):
                last = int(line) if line.endswith(b"\n") else last
        with wait_until(lambda: opened_log(path), 60.0, "the lock of the killed process") as log:
            assert log.report.tail != "damaged"
            assert log.durable_index >= last
            for record in log.records():
                assert record.data == b"%d" % record.index

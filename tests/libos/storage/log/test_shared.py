"""A log that a runtime's uthreads append to: compiled handlers answer what is durable, and whose the log is when."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host

from corelane import libos
from corelane.drivers.blk.blk import BlkFaults, FaultBlk, memory_blk
from corelane.drivers.blk.file import FileBlk
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime
from corelane.libos.numba import calls
from corelane.libos.numba.atomics import atomic_add
from corelane.libos.storage.log.log import Log, format_area
from corelane.libos.storage.log.shared import SharedLog
from corelane.libos.trace.pieces import joined
from corelane.libos.trace.stages import table
from corelane.runtime.errors import CorelaneError
from corelane.runtime.trace import Segment

Serve = Callable[..., Any]
MIB = 1 << 20
SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")
SLOW = BlkFaults(latency_min_ns=1_000_000, latency_max_ns=2_000_000)


@pytest.fixture
def log() -> Iterator[Log]:
    """Of a device in memory. It is for the test to see that no runtime has it at the end."""
    with memory_blk(MIB) as blk:
        format_area(blk)
        with Log(blk) as log:
            yield log


state = np.zeros(2, np.uint64)  # the log, requests so far


@libos.udp(9000, state=state)
def journal(request: Any, reply: Any, state: Any) -> int:
    """The reply is the record's index, or the error, and what the record says."""
    atomic_add(state, 1, 1)
    calls.put_le64(reply, 0, calls.log_append(state[0], request))
    reply[8 : 8 + len(request)] = request
    return 8 + len(request)


def share(log: Log) -> Callable[[Runtime], SharedLog]:
    def before(runtime: Runtime) -> SharedLog:
        shared = runtime.share(log)
        state[0] = shared.address
        return shared

    return before


def answers(served: Any, *requests: bytes) -> list[tuple[int, bytes]]:
    """Index, or -errno, and record of each, in the order of the replies."""
    served.send(*(CLIENT.datagram(SERVER, r, 5555, 9000) for r in requests))
    replies = [d.payload for d in served.datagrams(len(requests))]
    return [(int.from_bytes(r[:8], "little", signed=True), r[8:]) for r in replies]


@pytest.mark.parametrize("kthreads", [1, 2])
def test_what_is_answered_is_in_the_log(serve: Serve, tmp_path: Path, kthreads: int) -> None:
    Log.create(tmp_path / "log", MIB)
    with FaultBlk(FileBlk(tmp_path / "log"), SLOW) as blk, Log(blk) as log:
        served = serve(journal, kthreads=kthreads, before=share(log))
        acknowledged = []
        for burst in range(8):
            acknowledged += answers(served, *(b"%d of %d" % (i, burst) for i in range(64)))
        assert served.runtime.stop() == 0
        stats = log.stats()
    assert sorted(index for index, _ in acknowledged) == list(range(1, 513))
    assert stats["appends"] == 512
    assert stats["flushes"] < 512, "requests that wait at the same time share a flush"
    with Log.open(tmp_path / "log") as log:
        assert log.report.tail == "clean"
        assert [(r.index, r.data) for r in log.records()] == sorted(acknowledged)


def test_each_append_is_a_message_of_the_trace(serve: Serve, log: Log) -> None:
    served = serve(journal, before=share(log), trace="full")
    with Segment.of_process(os.getpid()) as segment:
        assert [index for index, _ in answers(served, b"a", b"b", b"c")] == [1, 2, 3]
        parts: list[Any] = []
        appends = segment.services().index("log 1")

        def whole() -> bool:
            parts.append(segment.read())
            return int((joined(parts).messages["service"] == appends).sum()) == 3

        wait_until(whole, 60, "three messages of the log")
        one = table(joined(parts), segment.services(), segment.hz).of_service(appends)
    assert (one.messages["end"] == one.messages["blocked"] + one.messages["ready"]).all()
    assert (one.stages["handler", "wait: log", "written"] > 0).all()
    served.runtime.stop()


def test_of_a_disk_that_fails_nothing_is_acknowledged(serve: Serve) -> None:
    with FaultBlk(memory_blk(MIB)) as blk:
        format_area(blk)
        log = Log(blk)
        served = serve(journal, before=share(log))
        assert answers(served, b"well") == [(1, b"well")]
        blk.set(BlkFaults(write_error=1.0))
        assert answers(served, b"not") == [(-errno.EIO, b"not")]
        blk.set(BlkFaults())
        assert answers(served, b"nor", b"this") == [(-errno.EIO, b"nor"), (-errno.EIO, b"this")]
        served.runtime.stop()
        with pytest.raises(CorelaneError, match="close the log") as closed:
            log.close()
        assert closed.value.errno == errno.EIO
        with Log(blk) as log:
            assert next(log.records()).data == b"well"
            assert not {b"nor", b"this"} & {r.data for r in log.records()}, "they never went to the device"


words = np.zeros(1 << 14, np.uint64)  # twice as much as a record of a log of 1 MiB may be


@libos.udp(9000, state=words)
def odd(request: Any, reply: Any, state: Any) -> int:
    what = request[0]
    if what == 0:
        result = calls.log_append(state[0], request[1:], 7)
    elif what == 1:
        result = calls.log_append(state[0], state[1:3])
    elif what == 2:
        result = calls.log_append(state[0], state)
    elif what == 3:
        result = calls.log_append(np.uint64(0), request)
    elif what == 4:
        result = calls.log_trim(np.uint64(0), 1)
    else:
        result = calls.log_trim(state[0], np.uint64(request[1]))
    calls.put_le64(reply, 0, result)
    return 8


def test_records_of_all_kinds_and_trimming(serve: Serve, log: Log) -> None:
    """Of wide items every byte is kept, also of a slice; what cannot be is told by its error."""
    served = serve(odd)
    with pytest.raises(CorelaneError, match="share it before `start`"):
        served.runtime.share(log)
    served.runtime.stop()
    with pytest.raises(CorelaneError, match="share it before `start`"):
        served.runtime.share(log)

    def before(runtime: Runtime) -> None:
        words[:3] = runtime.share(log).address, 1, 2

    served = serve(odd, before=before)
    first = log.first_index
    said = [answers(served, bytes(r))[0][0] for r in ([0, 65, 66], [0], [1], [2], [3], [4], [5, 3], [5, 9])]
    assert said == [1, 2, 3, -errno.EMSGSIZE, -errno.EINVAL, -errno.EINVAL, 0, -errno.ERANGE]
    assert (first, log.first_index, log.durable_index) == (1, 3, 3)
    served.runtime.stop()
    assert [(r.index, r.data, r.tag) for r in log.records()] == [(3, words[1:3].tobytes(), 0)]


def test_a_record_longer_than_c_can_say_is_refused() -> None:
    """And not cut to what its length is modulo 2^32."""
    endless = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**32 + 5,), (1,))
    assert calls.log_append(1, endless) == -errno.EMSGSIZE


def test_a_record_has_its_tag(serve: Serve, log: Log) -> None:
    served = serve(odd, before=lambda runtime: words.__setitem__(0, runtime.share(log).address))
    assert answers(served, b"\0AB")[0][0] == 1
    served.runtime.stop()
    assert [(r.data, r.tag) for r in log.records()] == [(b"AB", 7)]


def test_uthreads_of_another_runtime_are_refused(serve: Serve, log: Log) -> None:
    """Nobody would bring them back."""
    owner = serve(before=share(log))
    other = serve(journal)
    assert answers(other, b"x") == [(-errno.EDEADLK, b"x")]
    owner.runtime.stop()
    assert log.append(b"its opener's") == 1


def test_while_it_is_shared_python_reads_numbers_only(serve: Serve, log: Log) -> None:
    log.extend([b"one", b"two"])
    reader = log.records()
    assert next(reader).data == b"one"
    served = serve(journal, before=share(log))
    others: list[Callable[[], object]] = [
        lambda: log.append(b"x"),
        lambda: log.extend([b"x", b"y"]),
        lambda: log.append_async(b"x").result(30),
        lambda: log.trim(2),
        lambda: log.truncate(2),
        lambda: log.restart(9),
        lambda: log.set_meta(b"x"),
        log.meta,
        log.snapshot,
        lambda: next(reader),
        lambda: next(log.records()),
        lambda: serve(before=share(log)),
        log.close,
    ]
    for call in others:
        with pytest.raises(CorelaneError, match=r"it is shared with a runtime \(stop that first") as refused:
            call()
        assert refused.value.errno == errno.EBUSY
        assert "\n" not in str(refused.value)
    reader.close()
    assert answers(served, b"three") == [(3, b"three")]
    assert (log.first_index, log.durable_index, log.stats()["appends"]) == (1, 3, 3)
    served.runtime.stop()
    assert log.append(b"four") == log.append_async(b"five").result(30) - 1 == 4
    assert [r.data for r in log.records()] == [b"one", b"two", b"three", b"four", b"five"]


def test_a_log_has_one_runtime_after_the_other(serve: Serve, log: Log) -> None:
    for n in (1, 2):
        served = serve(journal, before=share(log))
        assert answers(served, b"x") == [(n, b"x")]
        served.runtime.stop()


def test_a_runtime_has_several_logs(log: Log, serve: Serve) -> None:
    with memory_blk(MIB) as blk:
        format_area(blk)
        with Log(blk) as second:

            def before(runtime: Runtime) -> None:
                share(log)(runtime)
                share(second)(runtime)

            served = serve(journal, before=before)
            assert answers(served, b"x") == [(1, b"x")]
            served.runtime.stop()
            assert (log.durable_index, second.durable_index) == (0, 1)


def unstarted() -> Runtime:
    nic, _ = memory_link(ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24)
    return Runtime(nic=nic)


def test_a_runtime_that_never_starts_gives_it_back(log: Log) -> None:
    with unstarted() as runtime:
        shared = runtime.share(log)
        with pytest.raises(CorelaneError, match="shared with a runtime"):
            runtime.share(log)
    with pytest.raises(CorelaneError, match="its runtime has stopped"):
        _ = shared.address
    with pytest.raises(CorelaneError, match="it is closed"):
        runtime.share(log)
    assert log.append(b"x") == 1
    log.close()
    with unstarted() as runtime, pytest.raises(CorelaneError, match="it is closed"):
        runtime.share(log)


def test_what_was_asked_for_before_is_done_or_refused() -> None:
    """Never forgotten: futures that the device has not been given when the log is shared have an error."""
    with FaultBlk(memory_blk(MIB)) as blk:
        format_area(blk)
        with Log(blk) as log:
            blk.set(SLOW)
            futures = [log.append_async(b"%d" % i) for i in range(100)]
            with unstarted() as runtime:
                runtime.share(log)
                errors = [f.exception(30) for f in futures]
                assert all("shared with a runtime" in str(e) for e in errors if e)
            done = [b"%d" % i for i, e in enumerate(errors) if not e]
            assert [r.data for r in log.records()] == done
            assert log.append_async(b"later").result(30) == len(done) + 1


@pytest.mark.parametrize("log_first", [False, True])
def test_uthreads_left_behind_lose_no_record(log_first: bool) -> None:
    """Their appends are in the log and their stacks in the runtime, whichever is closed first."""
    nic, end = memory_link(ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24, mac=(SERVER.mac, CLIENT.mac))
    with FaultBlk(memory_blk(MIB), virtual_clock=True) as blk:
        format_area(blk)
        log = Log(blk)
        blk.set(BlkFaults(latency_min_ns=10, latency_max_ns=10))
        runtime = Runtime(nic=nic)
        runtime.bind(journal)
        share(log)(runtime)
        runtime.start()
        before = int(state[1])
        end.send([CLIENT.datagram(SERVER, b"%d" % i, 5555, 9000) for i in range(8)])
        wait_until(lambda: state[1] == before + 8, 60, "appends")
        assert runtime.stop(0) == 8
        blk.now_ns = 1000
        blk.set(BlkFaults())
        if log_first:
            log.close()
            runtime.close()
        else:
            runtime.close()
            assert log.durable_index == 8
            log.close()
        with Log(blk) as log:
            assert sorted(r.data for r in log.records()) == [b"%d" % i for i in range(8)]
    end.close()
    nic.close()

"""Trace segments, as others read them: whole records under a writer that never waits; garbage; whose they are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime._native import ffi, lib
from corelane.runtime.clock import default_clock, tsc
from corelane.runtime.errors import CorelaneError
from corelane.runtime.trace import Segment, records_of

Program = Callable[..., Callable[..., str]]
RECORDS = 256
LATE = int(lib.CL_TRACE_STAMP_MOST)


@pytest.mark.parametrize("size", [256, 4096])
def test_what_a_reader_keeps_is_whole_and_the_rest_is_counted(c_program: Program, size: int) -> None:
    records = 20_000 if os.environ.get("CORELANE_SANITIZE") else 200_000
    assert c_program("tests/runtime/c/trace_ring.c")(size, records) == "ok\n"


class Written:
    """A segment that a test writes, one ring unless told otherwise."""

    def __init__(self, rings: int = 1, seal: int = lib.CL_MEMORY_PEERS_READ) -> None:
        err = ffi.new("char[256]")
        self.bytes = int(lib.cl_trace_bytes(rings, RECORDS))
        self.memory = ffi.new("struct cl_memory *")
        assert lib.cl_memory_create(b"corelane-trace", self.bytes, seal, self.memory, err) == 0, ffi.string(err)
        self.raw = ffi.buffer(self.memory.base, self.bytes)
        self.header = ffi.cast("struct cl_trace_header *", self.memory.base)
        self.header.magic, self.header.version = 0x6563617274636C, lib.CL_TRACE_VERSION
        self.header.n_rings, self.header.ring_records = rings, RECORDS
        self.header.hz, self.header.total_bytes, self.header.pid = 10**9, self.bytes, os.getpid()
        self.ring_bytes = lib.CL_TRACE_PAGE + RECORDS * lib.CL_TRACE_RECORD
        self.first = self.bytes - rings * self.ring_bytes

    def head(self, ring: int, value: int) -> None:
        at = self.first + ring * self.ring_bytes
        self.raw[at : at + 8] = value.to_bytes(8, "little")

    def put(self, ring: int, number: int, record: bytes) -> None:
        at = self.first + ring * self.ring_bytes + lib.CL_TRACE_PAGE + number % RECORDS * lib.CL_TRACE_RECORD
        self.raw[at : at + lib.CL_TRACE_RECORD] = record

    def open(self) -> Segment:
        return Segment(os.dup(self.memory.fd))


@pytest.fixture
def written() -> Iterator[Written]:
    made = Written(rings=2)
    yield made
    lib.cl_memory_close(made.memory)


def message(number: int, **fields: int) -> bytes:
    """A valid one, with other values in some fields."""
    m = ffi.new("struct cl_trace_message *", {"kind": lib.CL_TRACE_MESSAGE, "id": number + 1, "begin": 10 * number})
    m.shared, m.pickup, m.start, m.end, m.sent = 1, 1, 2, 3, 4
    for field, value in fields.items():
        setattr(m, field, value)
    return bytes(ffi.buffer(m))


def test_records_come_once_by_ring_and_what_was_overwritten_is_told(written: Written) -> None:
    with written.open() as segment:
        assert len(segment.read().messages) == 0
        for number in range(10):
            written.put(0, number, message(number))
            written.put(1, number, message(100 + number))
        written.head(0, 10)
        written.head(1, 4)
        seen = segment.read()
        assert list(seen.messages["id"]) == [*range(1, 11), *range(101, 105)]
        assert (seen.lost, seen.garbage) == (0, 0)
        assert len(segment.read().messages) == 0
        for number in range(10, 1000):
            written.put(0, number, message(number))
        written.head(0, 1000)
        seen = segment.read()
        kept = RECORDS - lib.CL_TRACE_AHEAD  # the writer may have put so many more
        assert list(seen.messages["id"]) == list(range(1001 - kept, 1001))
        assert seen.lost == 990 - kept
        first, second = segment.counts()
        assert first == (1000, 1000 - RECORDS, 990 - kept, 0)
        assert second == (4, 0, 0, 0)
        segment.skip()
        written.head(0, 5)  # it lies: nothing is repeated
        assert len(segment.read().messages) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": 0},
        {"kind": lib.CL_TRACE_BURST + 1},
        {"id": 0},
        {"kthread": 64},
        {"service": 256},
        {"pickup": 3},
        {"start": 4},
        {"end": 5},
        {"sent": 2},
        {"blocked": 2},
        {"ready": 2},
        {"blocked": 1, "ready": 1},
        {"shared": 0},
        {"begin": lib.CL_TRACE_STAMP_MOST},
        {"begin": 2**64 - 1},
    ],
)
def test_what_is_no_record_is_counted_and_left_out(written: Written, wrong: dict[str, int]) -> None:
    written.put(0, 0, message(0))
    written.put(0, 1, message(1, **wrong))
    written.put(0, 2, message(2, blocked=1))
    written.head(0, 3)
    with written.open() as segment:
        seen = segment.read()
    assert list(seen.messages["id"]) == [1, 3]
    assert seen.garbage == 1


def group(size: int, first_id: int = 1, **fields: int) -> list[bytes]:
    """The records of so many messages that have one start. fields: of the group. In a row, each runs 10 ticks longer
    than the one before it."""
    g = ffi.new("struct cl_trace_group *", {"kind": lib.CL_TRACE_GROUP, "n": size, "id": first_id})
    g.start, g.ran, g.sent, g.faults = 10_000, 50, 10_057, 3
    alike = {"flags": lib.CL_TRACE_ANSWERED, "service": 2}
    members = [{"start": 100 + i, "picked": i, "flow": i, "bytes": 20 + i, **alike} for i in range(size)]
    g.first = members[0]
    for field, value in fields.items():
        setattr(g, field, value)
    out = [bytes(ffi.buffer(g))]
    for at in range(1, size, lib.CL_TRACE_MORE_EACH):
        more = ffi.new("struct cl_trace_more *", {"kind": lib.CL_TRACE_MORE})
        for i, member in enumerate(members[at : at + lib.CL_TRACE_MORE_EACH]):
            more.of[i] = member
            more.ran[i] = 50 + 10 * (at + i)
        out.append(bytes(ffi.buffer(more)))
    return out


def put_all(written: Written, number: int, records: list[bytes]) -> int:
    """Put them from a number on; the one behind them."""
    for i, one in enumerate(records):
        written.put(0, number + i, one)
    return number + len(records)


def test_a_group_is_read_as_its_messages(written: Written) -> None:
    head = put_all(written, 0, [message(0), *group(32, 100), *group(3, 200), message(1)])
    written.head(0, head)
    with written.open() as segment:
        seen = segment.read()
    assert list(seen.messages["id"]) == [1, *range(100, 132), *range(200, 203), 2]
    assert (seen.lost, seen.garbage) == (0, 0)
    of = seen.messages[1:33]
    assert list(of["begin"]) == [9900 - i for i in range(32)]
    assert set(of["pickup"]) == {100}
    assert list(of["end"] - of["start"]) == [50] * 32
    assert list(of["sent"] - of["end"]) == [7] * 32
    assert (set(of["shared"]), set(of["service"]), list(of["faults"])) == ({32}, {2}, [3] + [0] * 31)
    assert set(of["flags"]) == {lib.CL_TRACE_ANSWERED | lib.CL_TRACE_DRAWN | lib.CL_TRACE_SHARED}


def test_each_of_a_row_begins_where_the_one_before_it_ended(written: Written) -> None:
    put_all(written, 0, group(8, in_row=1, sent=11_000))
    written.head(0, 4)
    with written.open() as segment:
        of = segment.read().messages
    ends = list(of["begin"] + of["end"])
    assert list(of["begin"] + of["start"]) == [10_000, *ends[:-1]]
    assert list(of["end"] - of["start"]) == [50 + 10 * i for i in range(8)]
    assert set(of["begin"] + of["sent"]) == {11_000}
    assert (list(of["start"]), set(of["shared"]), list(of["id"])) == ([100 + i for i in range(8)], {1}, [*range(1, 9)])
    assert set(of["flags"]) == {lib.CL_TRACE_ANSWERED | lib.CL_TRACE_DRAWN}
    assert list(of["faults"]) == [0] * 7 + [3]


@pytest.mark.parametrize("in_row", [0, 1])
def test_a_group_whose_doorbell_is_not_known_was_not_sent_as_far_as_is_known(written: Written, in_row: int) -> None:
    put_all(written, 0, group(5, in_row=in_row, sent=0))
    written.head(0, 3)
    with written.open() as segment:
        of = segment.read().messages
    assert len(of) == 5
    assert list(of["sent"]) == list(of["end"])
    assert (of["flags"] & lib.CL_TRACE_UNSENT).all()


@pytest.mark.parametrize(("sent", "wanted"), [(1, 0), (10_010, 0), (2**40, 2**32 - 1), (2**64 - 1, 2**32 - 1)])
def test_a_doorbell_is_behind_the_end_and_saturates(written: Written, sent: int, wanted: int) -> None:
    put_all(written, 0, group(3, sent=sent))
    written.head(0, 2)
    with written.open() as segment:
        of = segment.read().messages
    assert list(of["sent"]) == [wanted or end for end in of["end"]]


def test_what_is_left_of_a_group_whose_begin_was_written_over_is_lost(written: Written) -> None:
    """The oldest record that is surely whole is one of its others."""
    oldest = 1000 + lib.CL_TRACE_AHEAD - RECORDS
    put_all(written, oldest - 2, group(11))
    for number in range(oldest + 2, 1000):
        written.put(0, number, message(number))
    written.head(0, 1000)
    with written.open() as segment:
        seen = segment.read()
    assert list(seen.messages["id"]) == list(range(oldest + 3, 1001))
    assert (seen.lost, seen.garbage) == (oldest + 2, 0)


def test_more_messages_than_are_read_at_a_time_come_once(written: Written) -> None:
    """Whatever the room, and wherever a group lies among those that are copied at a time."""
    head, wanted = 0, []
    for n in (32, 5, 31, 3, 32, 32, 4, 32, 2):
        wanted += range(1 + 100 * n + head, 1 + 100 * n + head + n)
        head = put_all(written, head, group(n, 1 + 100 * n + head))
    written.head(0, head)
    base, lost, garbage = written.memory.base, ffi.new("uint64_t *"), ffi.new("uint64_t *")
    for room in (32, 33, 40, 63, 64, 4096):
        out, next_of, found = ffi.new("uint8_t[]", room * lib.CL_TRACE_RECORD), ffi.new("uint64_t *"), []
        while n := lib.cl_trace_read(base, written.bytes, 0, next_of, out, room, lost, garbage):
            found += list(records_of(bytes(ffi.buffer(out, n * lib.CL_TRACE_RECORD))).messages["id"])
        assert (found, next_of[0], lost[0], garbage[0]) == (wanted, head, 0, 0), room


@pytest.mark.parametrize(
    "wrong", [{"n": 1}, {"n": 0}, {"n": 33}, {"n": 9}, {"kthread": 64}, {"id": 0}, {"ran": 2**32 - 1}, {"n": 65535}]
)
def test_a_group_that_cannot_be_is_left_out(written: Written, wrong: dict[str, int]) -> None:
    head = put_all(written, 0, [*group(5, **wrong), message(7)])
    written.head(0, head)
    with written.open() as segment:
        seen = segment.read()
    assert list(seen.messages["id"]) == [8]
    assert (seen.garbage, seen.lost) == (1, 2)


def test_a_group_that_ends_behind_the_head_is_left_out(written: Written) -> None:
    put_all(written, 0, group(32))
    written.head(0, 2)
    with written.open() as segment:
        seen = segment.read()
        assert (len(seen.messages), seen.garbage, seen.lost) == (0, 1, 1)
        written.put(0, 2, message(1))
        written.head(0, 3)
        assert len(segment.read().messages) == 1


@given(st.lists(st.binary(min_size=64, max_size=64), min_size=1, max_size=30), st.data())
def test_any_bytes_are_read_as_messages_that_can_be(raw: list[bytes], data: st.DataObject) -> None:
    made = Written()
    kinds = st.sampled_from([lib.CL_TRACE_GROUP, lib.CL_TRACE_GROUP, lib.CL_TRACE_MORE, lib.CL_TRACE_MESSAGE])
    sizes = st.integers(0, 34)
    try:
        for i, one in enumerate(raw):
            n = data.draw(sizes).to_bytes(2, "little")
            in_row = bytes([data.draw(st.integers(0, 1)), 0, 0, 0])
            made.put(0, i, bytes([data.draw(kinds), 0]) + n + in_row + one[8:])
        made.head(0, len(raw))
        with made.open() as segment:
            seen = segment.read()
        for m in seen.messages:
            assert m["pickup"] <= m["start"] <= m["end"] <= m["sent"]
            assert m["service"] < lib.CL_TRACE_SERVICES
        assert len(seen.messages) <= len(raw) * lib.CL_TRACE_GROUP_MOST
        assert seen.lost + seen.garbage <= len(raw)
    finally:
        lib.cl_memory_close(made.memory)


def record(struct: str, kind: int, **fields: int) -> bytes:
    """One of a struct, with 0 in what is not said."""
    made = ffi.new(f"struct {struct} *", {"kind": kind})
    for field, value in fields.items():
        setattr(made, field, value)
    return bytes(ffi.buffer(made))


@pytest.mark.parametrize(
    ("struct", "kind", "fields", "wrong"),
    [
        (
            "cl_trace_gap",
            lib.CL_TRACE_GAP,
            {"n": 1, "how": lib.CL_TRACE_GAP_COUNTERS, "begin": 10, "end": 30, "gone": 20},
            (
                *({"how": 0}, {"how": 9}, {"end": 9}, {"gone": 21}, {"waited": 21}, {"n": 0}, {"kthread": 64}),
                {"end": LATE},
            ),
        ),
        (
            "cl_trace_wait",
            lib.CL_TRACE_WAIT,
            {"n": 1, "what": lib.CL_TRACE_WAITS_LOG, "blocked": 30, "first": 10, "second": 20},
            ({"what": lib.CL_TRACE_WAITS}, {"n": 0}, {"first": 31}, {"second": 21}, {"blocked": 29}, {"begin": LATE}),
        ),
        (
            "cl_trace_command",
            lib.CL_TRACE_COMMAND,
            {"id": 1, "gone": 5, "sent": 6, "flush": 6, "written": 8, "durable": 9, "others": 7, "agreed": 9},
            (
                *({"id": 0}, {"gone": 7}, {"written": 5}, {"durable": 7}, {"agreed": 4}, {"flags": 4}, {"kthread": 64}),
                {"begin": LATE},
            ),
        ),
        (
            "cl_trace_core",
            lib.CL_TRACE_CORE,
            {"n": 1, "begin": 10, "end": 30},
            ({"n": 0}, {"end": 9}, {"end": LATE}),
        ),
        (
            "cl_trace_sample",
            lib.CL_TRACE_SAMPLE,
            {"n": 1, "stands": 1},
            ({"n": 0}, {"n": lib.CL_TRACE_CHAIN + 1}, {"stands": 0}, {"begin": LATE}),
        ),
        (
            "cl_trace_burst",
            lib.CL_TRACE_BURST,
            {"begin": 10, "taken": 5, "given": 5},
            ({"taken": 6}, {"begin": LATE}, {"kthread": 64}),
        ),
    ],
)
def test_other_records_that_cannot_be_are_left_out(
    written: Written, struct: str, kind: int, fields: dict[str, int], wrong: tuple[dict[str, int], ...]
) -> None:
    written.put(0, 0, record(struct, kind, **fields))
    for number, other in enumerate(wrong, 1):
        written.put(0, number, record(struct, kind, **fields | other))
    written.head(0, 1 + len(wrong))
    with written.open() as segment:
        seen = segment.read()
    kinds = (seen.gaps, seen.waits, seen.commands, seen.cores, seen.samples, seen.bursts)
    assert sum(map(len, kinds)) == 1
    assert seen.garbage == len(wrong)


def test_how_far_clocks_are_apart_is_told_if_it_was_measured(written: Written) -> None:
    base = ffi.cast("uint8_t *", written.memory.base)
    clocks = ffi.cast("struct cl_trace_clocks *", base + lib.CL_TRACE_CLOCKS_OFFSET)
    with written.open() as segment:
        assert segment.apart_ns is None
        clocks.apart, clocks.version = 250, 1
        assert segment.apart_ns == 250.0


@given(st.binary(min_size=64, max_size=64), st.integers(0, 5))
def test_any_bytes_are_a_record_or_none(raw: bytes, kind: int) -> None:
    raw = bytes([kind]) + raw[1:]
    if lib.cl_trace_valid(raw):
        seen = records_of(raw)
        kinds = (seen.messages, seen.waits, seen.cores, seen.gaps, seen.commands)
        assert sum(map(len, kinds)) == 1
        for m in seen.messages:
            assert m["pickup"] <= m["start"] <= m["end"] <= m["sent"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("magic", 1, "it is no trace segment"),
        ("version", 77, f"its version is 77, this program reads {lib.CL_TRACE_VERSION}"),
        ("n_rings", 0, "its header cannot be"),
        ("n_rings", 3, "its header cannot be"),
        ("n_rings", 2**32 - 1, "its header cannot be"),
        ("ring_records", 512, "its header cannot be"),
        ("ring_records", 300, "its header cannot be"),
        ("total_bytes", 1, "its header cannot be"),
        ("hz", 0, "its header cannot be"),
        ("base_tsc", LATE, "its header cannot be"),
        ("base_ns", -1, "its header cannot be"),
        ("base_ns", LATE, "its header cannot be"),
    ],
)
def test_a_header_that_cannot_be_is_refused(written: Written, field: str, value: int, said: str) -> None:
    setattr(written.header, field, value)
    with pytest.raises(CorelaneError, match=said):
        written.open()


@pytest.mark.parametrize("virtual", [False, True])
def test_times_of_stamps_are_the_machines_of_now(written: Written, virtual: bool) -> None:
    """What the header says is of long ago, and the clock has been steered since. A virtual clock has that alone."""
    clock = default_clock()
    written.header.hz = clock.hz
    written.header.source = lib.CL_CLOCK_VIRTUAL if virtual else clock.ptr.source
    written.header.base_tsc, written.header.base_ns = tsc(), time.monotonic_ns() - 10**10
    with written.open() as segment:
        before, ns, after = tsc(), time.monotonic_ns(), tsc()
        segment.read()
        off = 10 * clock.hz if virtual else 0
        assert before - clock.hz <= segment.tsc_of(ns) - off <= after + clock.hz
        assert abs(segment.ns_of(before) + (10**10 if virtual else 0) - ns) <= 10**9


def test_a_header_that_changes_later_leads_nowhere(written: Written) -> None:
    written.put(0, 0, message(0))
    written.head(0, 1)
    with written.open() as segment:
        written.header.ring_records = lib.CL_TRACE_MAX_RECORDS
        written.header.n_rings = lib.CL_TRACE_MAX_RINGS
        written.header.total_bytes = 2**62
        assert len(segment.read().messages) == 0


def test_a_name_is_a_line_of_text(written: Written) -> None:
    written.header.name = "\x1b[2Jk\u00e9\r\n".encode() + b"\xff"
    with written.open() as segment:
        assert segment.name == "?[2Jk\u00e9??\ufffd"


def test_whoever_reads_says_how_much_and_gets_the_newest(written: Written) -> None:
    for number in range(100):
        written.put(0, number, message(number))
        written.put(1, number, message(1000 + number))
    written.head(0, 100)
    written.head(1, 10)
    with written.open() as segment:
        seen = segment.read(60)
        assert list(seen.messages["id"]) == [*range(71, 101), *range(1001, 1011)]
        assert seen.lost == 70
        assert segment.counts()[0].missed == 70
        assert len(segment.read(60).messages) == 0
        written.head(0, 2**64 - 1)  # it lies
        assert len(segment.read(60).messages) <= 60
        assert len(segment.read(60).messages) == 0


def test_a_process_is_looked_at_as_far_as_its_first_descriptors(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    Segment.of_process(os.getpid()).close()
    monkeypatch.setattr("corelane.runtime.trace.FIRST", 3)
    with pytest.raises(CorelaneError, match="no runtime of it traces"):
        Segment.of_process(os.getpid())


def test_a_file_that_may_shrink_is_refused() -> None:
    fd = os.memfd_create("corelane-trace")
    os.ftruncate(fd, 1 << 20)
    with pytest.raises(CorelaneError, match="may shrink under its mapping"):
        Segment(fd)


def test_a_reader_cannot_write(written: Written) -> None:
    err, memory = ffi.new("char[256]"), ffi.new("struct cl_memory *")
    fd = os.open(f"/proc/self/fd/{written.memory.fd}", os.O_RDWR)
    try:
        assert lib.cl_memory_map(fd, written.bytes, True, memory, err) < 0
        assert b"read-only" in ffi.string(err)
    finally:
        os.close(fd)


READER = """
import os, sys
from corelane.runtime.errors import CorelaneError
from corelane.runtime.trace import Segment
os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    Segment.of_process(int(sys.argv[1]))
except CorelaneError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user: run the tests as root")
def test_another_users_reader_is_refused(written: Written) -> None:
    assert written.header.pid == os.getpid()
    done = subprocess.run([sys.executable, "-c", READER, str(os.getpid())], capture_output=True, text=True, check=False)
    assert "another user's" in done.stdout, done.stderr
    assert "ask as that user or as root" in done.stdout


def test_its_own_process_is_found_and_one_without_is_told(written: Written) -> None:
    with Segment.of_process(os.getpid()) as segment:
        assert segment.pid == os.getpid()
    with subprocess.Popen(["sleep", "60"]) as other:
        with pytest.raises(CorelaneError, match="no runtime of it traces"):
            Segment.of_process(other.pid)
        other.kill()
    with pytest.raises(CorelaneError, match="there is no such process"):
        Segment.of_process(2**22 + 1)
    segment.close()
    with pytest.raises(CorelaneError, match="it is closed"):
        segment.read()


def test_geometry_has_bounds() -> None:
    assert lib.cl_trace_bytes(0, 256) < 0
    assert lib.cl_trace_bytes(65, 256) < 0
    assert lib.cl_trace_bytes(1, 128) < 0
    assert lib.cl_trace_bytes(1, 2**21) < 0
    assert lib.cl_trace_bytes(64, 2**20) > 64 * 2**26

"""Recording and replaying. The reader here is the oracle for our writer, and its writer for our reader."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
import threading
import time

import pytest
from cltest import wait_until

from corelane.drivers._native import ffi, lib
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import BURST
from corelane.drivers.nic.pcap import PcapNic, ReplayNic
from corelane.runtime.clock import Clock, VirtualClock, default_clock, tsc
from corelane.runtime.errors import CorelaneError


def read_pcap(data: bytes) -> list[tuple[int, bytes, int]]:
    """(nanoseconds, kept bytes, length on the wire) of each record of a nanosecond file in native byte order."""
    magic, major, minor, _, _, _, link = struct.unpack_from("=IHHIIII", data)
    assert (magic, major, minor, link) == (0xA1B23C4D, 2, 4, 1)
    out, at = [], 24
    while at < len(data):
        seconds, ns, kept, length = struct.unpack_from("=IIII", data, at)
        assert ns < 10**9
        out.append((seconds * 10**9 + ns, data[at + 16 : at + 16 + kept], length))
        assert len(out[-1][1]) == kept
        at += 16 + kept
    return out


def write_pcap(frames, *, order: str = "=", ns: bool = True, link: int = 1) -> bytes:
    """A file of (time in ns, frame, length on the wire)."""
    out = struct.pack(order + "IHHIIII", 0xA1B23C4D if ns else 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for at, frame, length in frames:
        fraction = at % 10**9 // (1 if ns else 1000)
        out += struct.pack(order + "IIII", at // 10**9, fraction, len(frame), length) + frame
    return out


def test_both_directions_are_recorded(tmp_path, rng):
    path = tmp_path / "both.pcap"
    a, b = memory_link()
    before = time.time_ns()
    with PcapNic(a, path) as nic, b:
        there = [rng.randbytes(rng.randint(14, 1514)) for _ in range(300)]
        back = [rng.randbytes(rng.randint(14, 1514)) for _ in range(300)]
        got: list[bytes] = []
        for i in range(0, 300, 10):
            assert nic.send(there[i : i + 10]) == 10
            assert b.send(back[i : i + 10]) == 10
            got += nic.recv()
            b.recv()
        assert got == back
        nic.flush()
        records = read_pcap(path.read_bytes())
        counts = nic.counts()
    after = time.time_ns()
    assert counts.recorded == counts.written == len(records) == 600
    assert counts.missed == counts.failed_errno == 0
    assert counts.file_bytes == path.stat().st_size
    frames = [f for _, f, _ in records]
    assert [f for f in frames if f in set(there)] == there
    assert [f for f in frames if f in set(back)] == back
    times = [t for t, _, _ in records]
    assert before - 10**6 <= times[0]
    assert times[-1] <= after + 10**6
    assert times == sorted(times)
    assert all(len(f) == n for _, f, n in records)


def test_times_are_the_machines_also_where_a_clock_has_drifted(tmp_path):
    path = tmp_path / "drifted.pcap"
    drifted = Clock.from_hz(default_clock().hz, tsc(), time.monotonic_ns() - 10**10)
    a, b = memory_link(clock=drifted)
    before = time.time_ns()
    with PcapNic(a, path) as nic, b:
        nic.send([bytes(60)])
        nic.flush()
    times = [t for t, _, _ in read_pcap(path.read_bytes())]
    assert before - 10**6 <= times[0] <= time.time_ns() + 10**6


def test_closing_writes_everything(tmp_path):
    path = tmp_path / "closed.pcap"
    a, b = memory_link()
    with b:
        with PcapNic(a, path) as nic:
            nic.send([bytes([i]) * 60 for i in range(100)])
        assert a.closed
        assert b.gone
    assert [f for _, f, _ in read_pcap(path.read_bytes())] == [bytes([i]) * 60 for i in range(100)]


def test_frames_not_taken_are_not_recorded(tmp_path):
    path = tmp_path / "full.pcap"
    a, b = memory_link(ring_slots=16)
    with PcapNic(a, path) as nic, b:
        assert nic.send([bytes([i]) * 60 for i in range(50)]) == 16
        assert len(b.recv()) == 16
        assert nic.send([bytes([100 + i]) * 60 for i in range(10)]) == 10
        nic.flush()
        assert [f[0] for _, f, _ in read_pcap(path.read_bytes())] == [*range(16), *range(100, 110)]


def test_long_frames_are_cut(tmp_path):
    path = tmp_path / "cut.pcap"
    a, b = memory_link()
    with PcapNic(a, path, snap_bytes=100) as nic, b:
        nic.send([b"a" * 60, b"b" * 1000])
    assert [(f, n) for _, f, n in read_pcap(path.read_bytes())] == [(b"a" * 60, 60), (b"b" * 100, 1000)]


def test_what_the_recorder_misses_is_counted(tmp_path):
    """The writer stands still in a pipe that nobody reads: traffic goes on."""
    import os

    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    a, b = memory_link()
    try:
        with b:
            nic = PcapNic(a, path, ring_bytes=65536)
            sent = 0
            while nic.counts().missed < 100:
                assert nic.send([b"x" * 1500] * 20) == 20
                sent += 20
                assert len(b.recv()) == 20
            counts = nic.counts()
            assert counts.recorded + counts.missed == sent
            data = bytearray()
            done = threading.Event()

            def drain() -> None:
                while True:
                    try:
                        part = os.read(reader, 1 << 20)
                    except BlockingIOError:
                        continue
                    if not part and done.is_set():
                        return
                    data.extend(part)

            thread = threading.Thread(target=drain)
            thread.start()
            nic.close()
            done.set()
            thread.join()
        assert len(read_pcap(bytes(data))) == counts.recorded
    finally:
        os.close(reader)


def test_a_full_disk_stops_the_recording_and_says_so():
    a, b = memory_link()
    with PcapNic(a, "/dev/full") as nic, b:
        nic.send([b"x" * 60] * 10)
        with pytest.raises(CorelaneError, match="No space left"):
            nic.flush()
        assert nic.send([b"x" * 60] * 10) == 10
        assert len(b.recv()) == 20
        assert nic.counts().failed_errno == 28


def test_other_tools_read_our_files(tmp_path):
    tcpdump = shutil.which("tcpdump")
    if not tcpdump:
        pytest.skip("no tcpdump: apt-get install tcpdump")
    path = tmp_path / "theirs.pcap"
    a, b = memory_link()
    with PcapNic(a, path) as nic, b:
        nic.send([b"\2" * 12 + b"\x88\xb5" + b"x" * 50] * 3)
    text = subprocess.run([tcpdump, "-e", "-n", "-r", path], capture_output=True, text=True, check=True).stdout
    assert text.count("length 64") == 3


FRAMES = [(10**18 + i * 1_000_000 + 7, bytes([i]) * (20 + i), 20 + i) for i in range(100)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("ns", [True, False])
def test_all_flavours_of_the_format_are_replayed(tmp_path, order, ns):
    path = tmp_path / "in.pcap"
    path.write_bytes(write_pcap(FRAMES, order=order, ns=ns))
    with ReplayNic(path, speed=0, loops=2) as nic:
        got = nic.recv(1000)
        assert got == [f for _, f, _ in FRAMES] * 2
        assert nic.done
        assert nic.recv() == []
        counts = nic.counts()
        assert (counts.in_file, counts.delivered, counts.loops_done) == (100, 200, 2)
        assert nic.buffers_free == nic.buffers
        assert nic.stats().rx_frames == 200


def test_a_recording_can_be_replayed_and_recorded(tmp_path):
    first, second = tmp_path / "1.pcap", tmp_path / "2.pcap"
    a, b = memory_link()
    sent = [bytes([i]) * (14 + 5 * i) for i in range(200)]
    with PcapNic(a, first) as nic, b:
        nic.send(sent)
    with PcapNic(ReplayNic(first, speed=0), second) as replay:
        assert replay.recv(1000) == sent
        assert replay.send(b"answer" * 10) == 1
        assert replay.stats().tx_frames == 1
    assert [f for _, f, _ in read_pcap(second.read_bytes())] == [*sent, b"answer" * 10]


def test_the_pace_is_the_files(tmp_path):
    """200 us between frames: no frame comes before its time, and the loop goes on at the same distances."""
    path = tmp_path / "paced.pcap"
    path.write_bytes(write_pcap([(10**18 + i * 200_000, bytes([i]) * 20, 20) for i in range(50)]))
    for speed in (1.0, 4.0):
        with ReplayNic(path, speed=speed, loops=2) as nic:
            start, arrivals = time.monotonic_ns(), []
            while not nic.done:
                got = nic.recv()
                now = time.monotonic_ns()
                arrivals += [(now - start, f[0]) for f in got]
            assert [n for _, n in arrivals] == [*range(50)] * 2
            for i, (at, _) in enumerate(arrivals):
                assert at >= (i * 200_000 / speed) - 1000, "a frame came before its time"


def test_waiting_ends_when_a_frame_is_due(tmp_path):
    path = tmp_path / "wait.pcap"
    path.write_bytes(write_pcap([(10**18 + i * 20_000_000, b"x" * 20, 20) for i in range(3)]))
    with ReplayNic(path) as nic:
        got = 0
        while not nic.done:
            got += len(nic.recv(timeout_s=60))
        assert got == 3


def test_without_buffers_a_frame_waits(tmp_path):
    path = tmp_path / "in.pcap"
    path.write_bytes(write_pcap(FRAMES))
    with ReplayNic(path, speed=0, buffers=10, mac="02:00:00:00:00:05") as nic:
        assert nic.mac == "02:00:00:00:00:05"
        burst = ffi.new("struct cl_frame[64]")
        assert lib.cl_nic_rx(nic.ptr, 0, burst, BURST) == 10
        assert lib.cl_nic_rx(nic.ptr, 0, burst + 10, BURST - 10) == 0
        assert nic.stats().alloc_short >= 1
        lib.cl_nic_free(nic.ptr, 0, burst, 10)
        assert len(nic.recv(100)) == 90


def test_frames_that_cannot_be_replayed_are_left_out_and_counted(tmp_path):
    path = tmp_path / "odd.pcap"
    good = b"g" * 60
    whole = write_pcap(
        [(1, good, 60), (2, b"cut" * 20, 1000), (3, b"j" * 20000, 20000), (4, b"tiny", 4), (5, good, 60)]
    )
    path.write_bytes(whole + b"\0" * 7)
    with ReplayNic(path, speed=0) as nic:
        assert nic.recv(10) == [good, good]
        counts = nic.counts()
        assert (counts.in_file, counts.cut, counts.too_long, counts.delivered) == (5, 2, 1, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        (b"", "empty"),
        (b"no pcap file, but long enough", "no pcap file"),
        (struct.pack("<I", 0x0A0D0D0A) + bytes(40), "no pcap file"),
        (write_pcap(FRAMES, link=101), "link type 101"),
        (write_pcap([]), "no whole frame"),
        (write_pcap([(1, b"a" * 20, 30)]), "no whole frame"),
    ],
)
def test_files_that_cannot_be_replayed_are_refused(tmp_path, content, message):
    path = tmp_path / "bad.pcap"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorelaneError, match=message):
        ReplayNic(path)


def test_random_bytes_are_no_danger(tmp_path, rng):
    """Any file is replayed or refused; under the sanitizers this would show a read beyond the file."""
    head = write_pcap([])
    for _ in range(300):
        path = tmp_path / "fuzz.pcap"
        body = bytearray(write_pcap(FRAMES[:5])[24:])
        for _ in range(rng.randint(1, 20)):
            body[rng.randrange(len(body))] = rng.choice((0, 255, rng.randrange(256)))
        path.write_bytes(head + bytes(body[: rng.randint(1, len(body))]))
        try:
            nic = ReplayNic(path, speed=0)
        except CorelaneError:
            continue
        with nic:
            assert len(nic.recv(1000)) == nic.counts().delivered


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a block device's node: run as root")
def test_a_disk_is_not_recorded_over(tmp_path):
    os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 255))
    a, b = memory_link()
    with a, b, pytest.raises(CorelaneError, match="is a block device"):
        PcapNic(a, tmp_path / "disk")


def test_misuse_is_refused(tmp_path):
    a, b = memory_link()
    with a, b:
        with pytest.raises(CorelaneError, match="cannot write"):
            PcapNic(a, tmp_path / "no" / "such" / "folder")
        with pytest.raises(CorelaneError, match="power of two"):
            PcapNic(a, tmp_path / "x", ring_bytes=100_000)
        assert not a.closed
    path = tmp_path / "in.pcap"
    path.write_bytes(write_pcap(FRAMES))
    for speed in (-1, float("nan"), 1e-9):
        with pytest.raises(CorelaneError, match="speed"):
            ReplayNic(path, speed=speed)


def test_a_flush_ends_while_traffic_goes_on(tmp_path):
    a, b = memory_link()
    with PcapNic(a, tmp_path / "busy.pcap") as nic, b:
        stop = threading.Event()

        def traffic() -> None:
            while not stop.is_set():
                nic.send([b"x" * 60] * 32)
                b.recv()

        thread = threading.Thread(target=traffic)
        thread.start()
        wait_until(lambda: nic.counts().recorded > 100)
        for _ in range(5):
            seen = nic.counts().recorded
            nic.flush()
            assert nic.counts().written >= seen
        stop.set()
        thread.join()


def test_by_a_virtual_clock_a_file_has_its_times_and_the_order_of_calls(tmp_path):
    """Two directions at one instant lie in the order in which they passed; no thread writes the file."""
    path, clock = tmp_path / "virtual.pcap", VirtualClock()
    a, b = memory_link(clock=clock)
    with PcapNic(a, path) as nic, b:
        for i in range(3):
            assert b.send(b"in" + bytes([i]) * 60) == 1
            assert nic.send(b"out" + bytes([i]) * 60) == 1
            assert len(nic.recv()) == 1
            clock.advance(5_000_000)
        nic.flush()
        got = read_pcap(path.read_bytes())
        assert nic.counts().written == 6
    assert [frame[:4] for _, frame, _ in got] == [
        head + bytes([i]) * (4 - len(head)) for i in range(3) for head in (b"out", b"in")
    ]
    assert [at - VirtualClock.START_NS for at, _, _ in got] == [i * 5_000_000 for i in range(3) for _ in (0, 1)]


def test_by_a_virtual_clock_a_replay_waits_for_it(tmp_path):
    path, clock = tmp_path / "paced.pcap", VirtualClock()
    path.write_bytes(write_pcap([(at * 10**9, bytes([at]) * 60, 60) for at in (100, 101, 160)]))
    with ReplayNic(path, clock=clock) as nic:
        seen = []
        for _ in range(61):
            seen.append(len(nic.recv()))
            clock.advance(10**9)
        assert [i for i, n in enumerate(seen) if n] == [0, 1, 60]
        assert nic.done

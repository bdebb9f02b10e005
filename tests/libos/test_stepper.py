"""Runtimes on a virtual clock: the same in each run, to the byte; and a minute takes no time."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from corelane import libos
from corelane.drivers._native import ffi, lib
from corelane.drivers.nic.link.link import Link, LinkNic
from corelane.drivers.nic.link.wire import Wire
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import mac_to_bytes
from corelane.drivers.nic.pcap import PcapNic
from corelane.libos.numba.calls import bucket_take
from corelane.runtime.clock import VirtualClock
from corelane.runtime.errors import CorelaneError

REQUESTS = 300 if os.environ.get("CORELANE_SANITIZE") else 2000


def stamps(path: Path) -> list[int]:
    """Times of a recording in ns."""
    data, at, out = path.read_bytes(), 24, []
    while at < len(data):
        seconds, ns, kept, _ = struct.unpack_from("<IIII", data, at)
        out.append(seconds * 10**9 + ns)
        at += 16 + kept
    return out


@pytest.mark.parametrize("kthreads", [1, 3])
def test_equal_seeds_leave_equal_recordings(c_program: Callable[..., Callable[..., str]], tmp_path: Path, kthreads):
    run = c_program("tests/libos/c/two_hosts.c")

    def once(name: str, seed: int) -> tuple[str, bytes, bytes]:
        files = [tmp_path / f"{name}-{end}.pcap" for end in "ab"]
        said = run(seed, REQUESTS, 1000, kthreads, *files)
        assert stamps(files[0]) == sorted(stamps(files[0])), "in the order of time"
        return said, files[0].read_bytes(), files[1].read_bytes()

    first, again, other = once("first", 7), once("again", 7), once("other", 8)
    assert first == again
    assert first[1] != other[1]
    answered, lost, ended_ns = map(int, first[0].split())
    assert answered + lost == REQUESTS
    assert lost > REQUESTS / 100
    assert ended_ns > 1000 * 10**6 + REQUESTS * 10**6, "a request a millisecond, and those that waited in vain"


@pytest.fixture
def hosts():
    """Function: a clock, a stepper and two runtimes on it, joined by a wire with links."""
    opened: list[object] = []

    def make(there: Link | None = None, back: Link | None = None):
        clock = VirtualClock()
        a, near = memory_link(clock=clock, ipv4=("10.77.0.1", None), ipv4_prefix=24)
        far, b = memory_link(
            clock=clock, ipv4=(None, "10.77.0.2"), ipv4_prefix=24, mac=("02:00:00:00:00:03", "02:00:00:00:00:04")
        )
        wire = Wire(near, far, there=there, back=back)
        one, other = libos.Runtime(nic=a), libos.Runtime(nic=b)
        stepper = libos.Stepper(clock)
        opened.extend((stepper, one, other, wire, a, b))
        for part in (one, wire, other):
            stepper.add(part)
        return clock, stepper, one, other, wire

    yield make
    for thing in opened:
        thing.close()  # type: ignore[attr-defined]


def test_ten_idle_minutes_take_no_time(hosts):
    clock, stepper, one, _, _ = hosts()
    calls: list[int] = []
    one.bind(libos.every(ms=30_000.0, compiled=False)(lambda: calls.append(clock.now_ns())))
    stepper.run(600.0)
    assert clock.now_ns() == VirtualClock.START_NS + 600 * 10**9
    assert [at - VirtualClock.START_NS for at in calls] == [i * 30 * 10**9 for i in range(1, 21)]


@pytest.mark.parametrize("compiled", [True, False])
def test_a_token_bucket_fills_by_the_clock_of_who_takes(hosts, compiled: bool) -> None:
    """A token each 10 ms, and somebody who asks each 3 ms: each fourth time there is one."""
    _, stepper, one, _, _ = hosts()
    bucket = libos.TokenBucket(per_second=100, burst=1)

    def compiled_taker() -> None:
        bucket_take(address, 1)

    def taker() -> None:
        bucket.take()

    address = bucket.address
    one.bind(libos.every(ms=3.0, compiled=compiled)(compiled_taker if compiled else taker))
    stepper.run(12.0)
    assert bucket.counters == {"taken": 1000, "refused": 3000}


def test_a_python_handler_answers_over_a_wire_when_it_is_due():
    clock = VirtualClock()
    client, near = memory_link(clock=clock)
    far, nic = memory_link(clock=clock, ipv4=(None, "10.77.0.2"), ipv4_prefix=24)
    asked: list[tuple[int, bytes]] = []

    def note(request: memoryview) -> bytes:
        asked.append((clock.now_ns(), bytes(request)))
        return bytes(request)[::-1]

    with (
        client,
        nic,
        Wire(near, far, there=Link(delay_us=1000), back=Link(delay_us=3000)) as wire,
        libos.Runtime(nic=nic) as runtime,
        libos.Stepper(clock) as stepper,
    ):
        runtime.bind(libos.udp(port=9000, compiled=False)(note))
        stepper.add(wire)
        stepper.add(runtime)
        stepper.run(1.0)
        assert [frame[12:14] for frame in client.recv()] == [b"\x08\x06"], "it says by ARP who it is"
        frame = ffi.new("uint8_t[]", lib.CL_UDP_HEADERS + 3)
        ffi.buffer(frame)[lib.CL_UDP_HEADERS :] = b"abc"
        ends = (mac_to_bytes(client.mac), mac_to_bytes(nic.mac), 0x0A4D0001, 0x0A4D0002)
        lib.cl_net_udp_headers(frame, *ends, 20000, 9000, 3, True)
        began = clock.now_ns()
        assert client.send(bytes(ffi.buffer(frame))) == 1
        stepper.run(0.003999)
        assert asked == [(began + 1_000_000, b"abc")]
        assert client.recv() == []
        stepper.run(0.000001)
        assert [got[-3:] for got in client.recv()] == [b"cba"]
        assert (wire.counts("there").delivered, wire.counts("back").delivered) == (1, 2)
        assert runtime.stop() == 0
        stepper.run(1.0)


def test_a_neighbour_is_asked_for_again_by_the_clock_of_the_nic(tmp_path: Path) -> None:
    """Each second, four times; then what waits for the answer is dropped."""
    clock = VirtualClock()
    a, b = memory_link(clock=clock, ipv4=("10.77.0.1", "10.77.0.2"), ipv4_prefix=24)
    with PcapNic(a, tmp_path / "a.pcap") as nic, b, libos.Runtime(nic=nic) as one, libos.Stepper(clock) as stepper:
        socket = one.open_udp()
        one.bind(libos.every(ms=10_000.0, compiled=False)(lambda: socket.send(b"x", ("10.77.0.9", 9))))
        stepper.add(one)
        stepper.run(13.9)
        assert one.stats().net["tx_dropped_arp"] == 0
        stepper.run(0.1)
        assert one.stats().net["tx_dropped_arp"] == 1
    asked = [(at - VirtualClock.START_NS) / 10**9 for at in stamps(tmp_path / "a.pcap")]
    assert asked == [0, 10, 11, 12, 13], "the first says who we are"


@pytest.mark.parametrize("link_first", [True, False])
def test_what_a_link_lets_go_comes_at_that_instant_whoever_is_stepped_first(tmp_path: Path, link_first: bool) -> None:
    """A NIC that moves frames on finds nothing itself."""
    clock = VirtualClock()
    a, b = memory_link(clock=clock, ipv4=("10.77.0.1", "10.77.0.2"), ipv4_prefix=24)
    with (
        LinkNic(a, tx=Link(delay_us=1000)) as near,
        PcapNic(b, tmp_path / "b.pcap") as far,
        libos.Runtime(nic=near) as one,
        libos.Runtime(nic=far) as other,
        libos.Stepper(clock) as stepper,
    ):
        for part in (one, other) if link_first else (other, one):
            stepper.add(part)
        stepper.run(2.0)
    start = VirtualClock.START_NS
    assert stamps(tmp_path / "b.pcap") == [start, start + 1_000_000], "each says by ARP who it is"


def test_a_started_runtime_is_refused_and_a_stepped_one_is_not_started():
    clock = VirtualClock()
    a, b = memory_link(clock=clock, ipv4=("10.77.0.1", "10.77.0.2"), ipv4_prefix=24)
    real, end = memory_link(ipv4=("10.77.0.1", "10.77.0.2"), ipv4_prefix=24)
    with a, b, real, end, libos.Stepper(clock) as stepper:
        with libos.Runtime(nic=a) as stepped, libos.Runtime(nic=real) as threaded:
            with pytest.raises(CorelaneError, match="virtual clock: step the runtime"):
                stepped.start()
            with pytest.raises(CorelaneError, match="another clock than the stepper"):
                stepper.add(threaded)
            stepper.add(stepped)
            with pytest.raises(CorelaneError, match="started before"):
                stepper.add(stepped)
            stepper.remove(stepped)
        for seconds in (-1.0, math.nan, math.inf):
            with pytest.raises(CorelaneError, match="give 0 to"):
                stepper.run(seconds)
        stepper.run(1.0)


def test_wires_of_two_clocks_and_threads_on_a_virtual_one_are_refused():
    a, b = memory_link(clock=VirtualClock())
    c, d = memory_link()
    with a, b, c, d:
        with pytest.raises(CorelaneError, match="different clocks"):
            Wire(a, c)
        with pytest.raises(CorelaneError, match="same NIC"):
            Wire(a, a)
        with Wire(LinkNic(a), b) as wire, pytest.raises(CorelaneError, match="step it"):
            wire.start()


@pytest.mark.skipif("CORELANE_SANITIZE" in os.environ, reason="as many turns as this takes last minutes in such builds")
def test_who_polls_for_a_time_is_told(c_program: Callable[..., Callable[..., str]], tmp_path: Path) -> None:
    c_program("tests/libos/c/two_hosts.c")(1, 0, 1000, 1, tmp_path / "a", tmp_path / "b")

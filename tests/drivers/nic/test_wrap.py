"""NICs around NICs: what `wrapped` makes of words, and recorder, bad wire and replay under stress and sanitizers."""

from __future__ import annotations

import pytest

from corelane.drivers.nic.fault import FaultNic
from corelane.drivers.nic.link.link import linked
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.pcap import PcapNic
from corelane.drivers.nic.wrap import recorded, wrapped
from corelane.runtime.clock import VirtualClock
from corelane.runtime.errors import CorelaneError


def test_recorder_bad_wire_and_replay_with_all_threads_at_once(c_program, tmp_path, seed):
    run = c_program("tests/drivers/nic/c/wrapped_stress.c")
    assert "80000 sent" in run(tmp_path / "x.pcap", 20_000, seed)


def test_whoever_reads_statistics_sees_that_the_device_is_gone(tmp_path):
    a, b = memory_link()
    with wrapped(linked(a, {"delay_us": 5.0}), rates={"loss": 0.5}, record=tmp_path / "x.pcap") as nic:
        b.close()
        nic.stats()
        assert nic.gone


def test_nothing_asked_for_wraps_nothing():
    a, b = memory_link()
    with a, b:
        assert wrapped(a) is a
        assert wrapped(a, rates={"loss": 0.0}) is a
        assert recorded(a) is None


def test_the_recorder_is_outermost_and_tells_what_it_has(tmp_path):
    a, b = memory_link()
    with wrapped(a, rates={"duplicate": 1.0}, record=tmp_path / "x.pcap") as nic, b:
        assert isinstance(nic, PcapNic)
        assert nic.send([b"x" * 60] * 5) == 5
        assert len(b.recv()) == 10
        told = recorded(nic)
        assert told is not None
        assert told.text == "5 frames recorded"
        assert (told.facts["written"], told.facts["missed"]) == (5, 0)
    a, b = memory_link()
    with wrapped(a, rates={"loss": 0.5}) as nic, b:
        assert isinstance(nic, FaultNic)
        assert recorded(nic) is None


def test_a_recording_that_stopped_says_why():
    a, b = memory_link()
    with wrapped(a, record="/dev/full") as nic, b:
        nic.send(b"x" * 60)
        told = recorded(nic)
        assert told is not None
        assert told.text == "the recording stopped: No space left on device; free some space and record anew"
        assert told.facts["failed_errno"] == 28


def test_a_link_lies_below_the_faults():
    clock = VirtualClock()
    a, b = memory_link(clock=clock)
    with wrapped(linked(a, {"queue_bytes": 100, "rate_bps": 1e6}), rates={"duplicate": 1.0}) as nic, b:
        assert isinstance(nic, FaultNic)
        nic.send([b"x" * 60] * 5)
        assert not b.recv()
        for _ in range(20):
            clock.advance(1_000_000)
            nic.recv()
        assert len(b.recv()) == 2, "one on the line and one in the queue, of ten with their doubles"
    a, b = memory_link()
    with a, b:
        assert linked(a, {}) is linked(a, None) is a
    with pytest.raises(CorelaneError, match="burst 1 or more"):
        linked(a := memory_link()[0], {"loss": 2.0})
    assert a.closed


@pytest.mark.parametrize(
    "words",
    [
        {"rates": {"loss": 2.0}},
        {"record": "/nonexistent/x.pcap"},
        {"delay_us": 5.0},
        {"rates": {"delay": 1.0}},
    ],
)
def test_what_cannot_be_closes_the_nic(words):
    a, b = memory_link()
    with b:
        with pytest.raises(CorelaneError):
            wrapped(a, **words)
        assert a.closed

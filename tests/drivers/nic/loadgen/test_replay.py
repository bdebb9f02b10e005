"""Requests given one by one, under a fake clock: when they are sent, what they ask for, and what became of each."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from cltest.fakeload import FakeLoad, echo

from corelane.drivers.nic.loadgen.loadgen import Closed, Echo, Phase, Replay
from corelane.runtime.errors import CorelaneError

MS = 1_000_000
AT = np.array([100, 100, 2_000, 50_000])
SERVICE = np.array([8_000, 28_000, 1, 8_000])


def begun(load: Replay, **options: object) -> FakeLoad:
    """At the run's start."""
    fake = FakeLoad(Echo(service_us=5.0, long_us=9.0, long_fraction=0.5), **options)
    fake.load.replay(load)
    fake.poll()
    fake.now += 20_000
    return fake


def csum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_each_is_sent_when_it_is_due_and_asks_for_its_time() -> None:
    load = Replay(AT, SERVICE)
    fake = begun(load, checksum=True)
    start, frames = fake.now, []
    while fake.load.running:
        for frame in fake.poll():
            frames.append(frame)
            fake.receive(echo(frame))
        fake.now += 50
    assert load.sent_ns.tolist() == load.answered_ns.tolist() == AT.tolist()
    assert [struct.unpack_from("=I", frame, 50)[0] for frame in frames] == SERVICE.tolist()
    for frame in frames:  # whole with the pseudo-header of UDP
        assert csum(frame[26:34] + struct.pack("!HH", 17, len(frame) - 34) + frame[34:]) == 0xFFFF
    assert fake.now - start <= 60_000
    assert fake.load.results()[0].answered == 4


def test_what_is_answered_wrongly_or_never_has_no_answer() -> None:
    load = Replay(AT, SERVICE)
    fake = begun(load)
    fake.now += 60_000
    frames = fake.poll()
    assert load.sent_ns.tolist() == [60_000] * 4  # late, and not skipped
    wrong = bytearray(echo(frames[0]))
    wrong[50] ^= 1  # what to spend
    fake.receive(bytes(wrong), echo(frames[2]))
    fake.now += 100 * MS
    fake.poll()
    assert not fake.load.running
    assert load.answered_ns.tolist() == [0, 0, 60_000, 0]
    assert fake.load.results()[0].wrong == 1


def test_it_notes_when_nobody_polled() -> None:
    load = Replay(AT, SERVICE)
    fake = begun(load)
    fake.poll()
    for step in (999, 1_000, 5, 7_000):
        fake.now += step
        fake.poll()
    at, ns = load.gaps
    assert at.tolist() == [999, 2_004]
    assert ns.tolist() == [1_000, 7_000]


def test_phases_are_as_before_after_a_replay() -> None:
    load = Replay(AT, SERVICE)
    fake = begun(load)
    fake.serve(echo, fake.now + 100 * MS)
    fake.start(Phase(0.001, 1e5))
    fake.serve(echo, fake.now + 100 * MS)
    assert fake.load.result().answered > 50
    assert load.sent_ns.tolist() == pytest.approx([1000, 1000, 2000, 50_000], abs=1000)


def test_what_cannot_be_replayed_is_refused() -> None:
    with pytest.raises(CorelaneError, match="differ in length"):
        Replay(AT, SERVICE[:2])
    with pytest.raises(CorelaneError, match="no request"):
        FakeLoad(Echo(service_us=1.0)).load.replay(Replay(AT[:0], SERVICE[:0]))
    for fake in (FakeLoad(Echo()), FakeLoad(Echo(service_us=1.0), arrivals=Closed(2))):
        with pytest.raises(CorelaneError, match="echo traffic whose requests say what to spend"):
            fake.load.replay(Replay(AT, SERVICE))

"""The load generator's engine under a clock that only the test moves, and frames that never leave the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corelane.drivers._native import ffi, lib
from corelane.drivers.nic.loadgen.loadgen import Echo, Limits, Loadgen, Memcached, Phase

FRAME_BYTES = 4096


def swap(frame: bytearray) -> bytes:
    """The same datagram, sent back: addresses and ports exchanged."""
    f = frame
    return bytes(f[6:12] + f[0:6] + f[12:26] + f[30:34] + f[26:30] + f[36:38] + f[34:36] + f[38:])


def with_payload(frame: bytes, payload: bytes) -> bytes:
    """The frame with another UDP payload, lengths adjusted; no UDP checksum."""
    out = bytearray(frame[:42] + payload)
    out[16:18] = (28 + len(payload)).to_bytes(2, "big")
    out[38:40] = (8 + len(payload)).to_bytes(2, "big")
    out[40:42] = b"\0\0"
    return bytes(out)


class FakeLoad:
    """A Loadgen whose time is `now` in ns (a tick is a ns): `poll` generates what is due, `reply` delivers answers."""

    def __init__(self, traffic: Echo | Memcached, **options: Any) -> None:
        self.clock = ffi.new("struct cl_clock *")
        assert lib.cl_clock_from_hz(self.clock, 1_000_000_000, 0, 0) == 0
        options.setdefault("server_mac", "02:00:00:00:00:02")
        options.setdefault("limits", Limits(outstanding=16384))  # a sixteenth of what each test would clear
        self.load = Loadgen(traffic, clock=self.clock, **options)
        self.now = 1_000_000
        self._memory = ffi.new("uint8_t[]", 64 * FRAME_BYTES)
        self._frames = ffi.new("struct cl_frame[64]")

    def _arm(self, i: int) -> Any:
        frame = self._frames[i]
        frame.data, frame.buf, frame.room, frame.len = self._memory + i * FRAME_BYTES, i, FRAME_BYTES, 0
        return frame

    def start(self, *phases: Phase) -> None:
        """Begin a run; the first phase starts 20 us after this."""
        self.load.start(phases)
        self.poll()
        self.now += 20_000

    def poll(self, most: int = 64, buffers: int = 64) -> list[bytes]:
        """The frames that are due now, when no more than `buffers` are to be had."""
        due = lib.cl_loadgen_due(self.load.ptr, self.now, most)
        got = min(due, buffers)
        for i in range(got):
            self._arm(i)
        made = lib.cl_loadgen_generate(self.load.ptr, self.now, self._frames, got)
        return [bytes(ffi.buffer(self._frames[i].data, self._frames[i].len)) for i in range(made)]

    def receive(self, *frames: bytes) -> None:
        """Deliver frames at the present time."""
        for at in range(0, len(frames), 64):
            part = frames[at : at + 64]
            for i, data in enumerate(part):
                frame = self._arm(i)
                ffi.memmove(frame.data, data, len(data))
                frame.len = len(data)
            lib.cl_loadgen_receive(self.load.ptr, self.now, self._frames, len(part))

    def serve(
        self, answer: Callable[[bytes], bytes | None], until_ns: int, step_ns: int = 1000, delay_ns: int = 0
    ) -> int:
        """Poll every step until a time; answer each request after `delay_ns`. Returns how many requests there were."""
        waiting: list[tuple[int, bytes]] = []
        seen = 0
        while self.now < until_ns and self.load.running:
            while frames := self.poll():
                seen += len(frames)
                replies = [answer(f) for f in frames]
                waiting += [(self.now + delay_ns, r) for r in replies if r is not None]
            self.receive(*(r for at, r in waiting if at <= self.now))
            waiting = [(at, r) for at, r in waiting if at > self.now]
            self.now += step_ns
        return seen


def echo(frame: bytes) -> bytes:
    """An echo server."""
    return swap(bytearray(frame))

"""What the configuration says about applications, as the iokernel takes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AppSettings:
    """What the configuration says about one application; None and 0 leave it to the defaults.

    mac: "02:..", ipv4: "10.77.0.9". max_kthreads: more are refused. cpus: where its kthreads run; an application with
    CPUs of its own keeps them, whatever is managed. may_spin: whether idle kthreads may keep a core that they have for
    themselves. loop: index of the loop that serves it. rx_slots, tx_slots: descriptors in a ring; rx_buffers,
    tx_buffers: packet buffers in all; these win over what it asks for. frames_per_s, bytes_per_s: limits of what it may
    send; burst_frames, burst_bytes: what it may send at once after a pause (64 frames and 64 KiB).

    Where cores are managed, None leaves it to the application: kind: "latency" or "batch"; guaranteed, maximum: cores;
    weight: share among equals; deadline_us: what its tail should stay under; quantum_us: how long a uthread runs before
    it yields to others, 0 for ever.
    """

    mac: str | None = None
    ipv4: str | None = None
    max_kthreads: int = 0
    cpus: tuple[int, ...] = ()
    may_spin: bool = True
    loop: int | None = None
    rx_slots: int = 0
    tx_slots: int = 0
    rx_buffers: int = 0
    tx_buffers: int = 0
    frames_per_s: int = 0
    bytes_per_s: int = 0
    burst_frames: int = 0
    burst_bytes: int = 0
    kind: str | None = None
    guaranteed: int | None = None
    maximum: int | None = None
    weight: int | None = None
    deadline_us: int | None = None
    quantum_us: int | None = None


@dataclass(frozen=True, slots=True)
class ArenaDefaults:
    """Geometry of an application's arena where it does not ask for another.

    slots: descriptors in a ring, a power of two. rx_buffers, tx_buffers: packet buffers a kthread, at least
    `min_buffers` in all. buffer_bytes: longest frame. On a virtual machine the host takes a core away for milliseconds
    at a time, in which a receive ring must hold what comes: 4096 frames are 2 ms of two million a second. Buffers that
    no such pause fills are never touched.
    """

    rx_slots: int = 4096
    tx_slots: int = 1024
    rx_buffers: int = 4096
    tx_buffers: int = 2048
    min_buffers: int = 4096
    buffer_bytes: int = 2048

"""The software NIC: a link with two ends in one process. corelane/drivers/memory.h says how it works and what it does
not do."""

from __future__ import annotations

from ...runtime.clock import Clock
from ...runtime.typed import typed
from .._native import ffi, lib
from ..device import check
from .nic import Nic, ipv4_to_int, mac_to_bytes


@typed("make a memory link")
def memory_link(
    queues: tuple[int, int] = (1, 1),
    *,
    buffers: int = 0,
    buffer_bytes: int = 0,
    ring_slots: int = 0,
    mtu: int = 0,
    drop_when_full: bool = False,
    rss_key: int = 0,
    mac: tuple[str | None, str | None] = (None, None),
    ipv4: tuple[str | None, str | None] = (None, None),
    ipv4_prefix: int = 0,
    clock: Clock | None = None,
) -> tuple[Nic, Nic]:
    """Two NICs back to back; what one sends, the other receives. Close both.

    queues: of each end, 1..64. buffers: shared by both ends. buffer_bytes: 256..16384 (2048). ring_slots: frames that
    wait for one pair of queues, a power of two (512). mtu: 1500, or what a buffer holds. drop_when_full: drop and
    count as hardware would, instead of telling the sender to wait. rss_key: 64 bits. mac, ipv4: "02:..", "10.77.0.1".
    clock: of what is made on the ends, runtimes and wrapping NICs, such as a VirtualClock; None: the machine's.
    Zero or None chooses the default. Raises CorelaneError for a value outside its limits.
    """
    config = ffi.new("struct cl_memory_config *")
    config.queues = queues
    config.buffers, config.buffer_bytes, config.ring_slots, config.mtu = buffers, buffer_bytes, ring_slots, mtu
    config.drop_when_full, config.rss_key, config.ipv4_prefix = drop_when_full, rss_key, ipv4_prefix
    if clock is not None:
        config.clock = clock.ptr
    for end in (0, 1):
        if (address := mac[end]) is not None:
            ffi.memmove(config.mac[end], mac_to_bytes(address), 6)
        if (ip := ipv4[end]) is not None:
            config.ipv4[end] = ipv4_to_int(ip)
    ends = ffi.new("struct cl_nic *[2]")
    err = ffi.new("char[256]")
    check(lib.cl_memory_link_new(config, ends, err), err, "memory link")
    keep = () if clock is None else (clock,)
    return Nic(ends[0], keep), Nic(ends[1], keep)

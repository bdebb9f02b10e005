"""What of an application's memory has its pages from the start: the rings up to a bound, whatever was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.drivers.port.port import PortMemory, open_port
from corelane.iokernel import Iokernel

KIB = 1024
SLOT_BYTES = 16
RINGS_BOUND = 512 * KIB  # iokernel/loop/app.c, as the next one
BUFFERS_BOUND = 1024 * KIB
REST = 64 * KIB  # header, lines of kthreads, pages that bounds are rounded up to


def resident_bytes() -> int:
    """Of the largest arena that the iokernel, in this process, has mapped."""
    sizes, named = [0], False
    for line in Path("/proc/self/smaps").read_text(errors="replace").splitlines():  # a file's name may be no text
        if "-" in line.split(" ")[0]:
            named = "corelane-arena" in line
        elif named and line.startswith("Rss:"):
            sizes.append(int(line.split()[1]) * KIB)
    return max(sizes)


@pytest.mark.parametrize(("kthreads", "slots"), [(2, 1 << 16), (64, 1 << 12), (64, 16), (1, 16)])
def test_rings_have_their_first_pages_from_the_start(socket_path: str, kthreads: int, slots: int) -> None:
    rings = 2 * kthreads * slots * SLOT_BYTES
    memory = PortMemory(rx_slots=slots, tx_slots=slots)
    with Iokernel(socket_path, poll="block"), open_port(socket_path, name="app", kthreads=kthreads, memory=memory):
        resident = resident_bytes()
    assert resident >= min(rings, RINGS_BOUND)
    assert resident <= min(rings, RINGS_BOUND) + BUFFERS_BOUND + REST + 2 * kthreads * 4 * KIB

"""The layout of shared memory: sizes, alignment, line ownership, and what cffi and DWARF say of them."""

from __future__ import annotations

import random

import pytest

from corelane.runtime import layout
from corelane.runtime._native import ffi, lib

LINE = 64


def offset(struct: str, field: str) -> int:
    return int(ffi.offsetof(struct, field))


def test_lines_of_different_writers_are_apart():
    kthread = "struct cl_arena_kthread"
    of_application = [offset(kthread, f) // LINE for f in ("park", "rx_head", "signals")]
    of_iokernel = [offset(kthread, f) // LINE for f in ("tx_head", "reserved_iokernel", "tx_stamps")]
    assert offset(kthread, "tx_stamped") // LINE == offset(kthread, "tx_head") // LINE, "both once a burst"
    assert len({*of_application, *of_iokernel}) == 6, "a line each"
    assert not {n // 2 for n in of_application} & {n // 2 for n in of_iokernel}, "nor in one prefetched pair"
    assert ffi.sizeof(kthread) == 512 + lib.CL_SHM_TX_STAMPS * ffi.sizeof("struct cl_arena_tx_stamp")
    assert ffi.sizeof("struct cl_state_loop") == 128
    assert offset("struct cl_state_loop", "heartbeat_tsc") == LINE


@pytest.mark.parametrize(
    "name",
    [
        "cl_arena_header",
        "cl_arena_doorbell",
        "cl_arena_kthread",
        "cl_state_header",
        "cl_state_loop",
        "cl_arena_layout",
        "cl_latency",
        "cl_desc",
    ],
)
def test_numpy_sees_the_same_offsets(name):
    """One definition: numpy's view is built from cffi's, which the compiler filled in."""
    dtype = layout.dtype(ffi, f"struct {name}")
    assert dtype.itemsize == ffi.sizeof(f"struct {name}")
    for field in dtype.names:
        assert dtype.fields[field][1] == offset(f"struct {name}", field)


def made(**fields: int) -> object:
    return ffi.new(
        "struct cl_arena_layout *",
        {"n_kthreads": 2, "rx_slots": 64, "tx_slots": 64, "n_rx": 64, "n_tx": 64, "buffer_bytes": 2048} | fields,
    )


def test_parts_follow_each_other_and_never_overlap(seed):
    rng = random.Random(seed)
    for _ in range(2000):
        fields = {
            "n_kthreads": rng.randint(1, 64),
            "rx_slots": 1 << rng.randint(4, 12),
            "tx_slots": 1 << rng.randint(4, 12),
            "n_rx": rng.randint(16, 5000),
            "n_tx": rng.randint(16, 5000),
            "buffer_bytes": rng.randint(256, 16384),
        }
        a = made(**fields)
        assert lib.cl_shm_layout(a) == 0
        ends = [
            a.lines_offset + fields["n_kthreads"] * ffi.sizeof("struct cl_arena_kthread"),
            a.rx_offset + fields["n_kthreads"] * fields["rx_slots"] * 16,
            a.tx_offset + fields["n_kthreads"] * fields["tx_slots"] * 16,
            a.buffers_offset + (fields["n_rx"] + fields["n_tx"]) * a.buffer_stride,
        ]
        latency = a.total_bytes - (fields["n_kthreads"] * lib.CL_LATENCY_SERVICES + 1) * lib.CL_LATENCY_PAGE
        starts = [a.lines_offset, a.rx_offset, a.tx_offset, a.buffers_offset, latency]
        assert all(s % 4096 == 0 for s in starts)
        assert all(end <= after for end, after in zip(ends, starts[1:], strict=True))
        assert a.buffer_stride >= fields["buffer_bytes"] + 64, "a header read of 64 bytes stays in the buffer"
        assert (a.buffer_stride // LINE) % 2 == 1, "an odd number of lines"
        assert a.buffer_stride % LINE == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"n_kthreads": 0},
        {"n_kthreads": 65},
        {"rx_slots": 8},
        {"tx_slots": 100},
        {"rx_slots": 1 << 21},
        {"n_rx": 15},
        {"n_rx": 0xFFFFFF},
        {"n_tx": 0xFFFFFFFF},
        {"n_rx": 0x800000, "n_tx": 0x800000},
        {"buffer_bytes": 255},
        {"buffer_bytes": 16385},
    ],
)
def test_what_cannot_be_is_refused(fields):
    assert lib.cl_shm_layout(made(**fields)) == -22

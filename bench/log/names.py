"""The raw loops and the fixed settings that the log is compared with, by name."""

from __future__ import annotations

from .._native import lib

RAW = {
    "O_DIRECT+O_DSYNC pwrite": lib.CL_BENCH_LOG_DSYNC,
    "io_uring RWF_DSYNC": lib.CL_BENCH_LOG_URING,
    "io_uring RWF_DSYNC, looking": lib.CL_BENCH_LOG_URING_POLL,
    "pwrite+fdatasync": lib.CL_BENCH_LOG_FDATASYNC,
}
# Name: records that a flush waits for, how long it waits at most (us), flushes in flight (0: the log's own). For each
# load some fit it: as many records as writers, and a fourth of them with four in flight.
FIXED = {
    **{f"no wait, {n} in flight": (1, 0, n) for n in (1, 2, 4, 8, 16)},
    "2 or 50 us": (2, 50, 0),
    "4 or 50 us": (4, 50, 0),
    "8 or 50 us": (8, 50, 0),
    "16 or 50 us": (16, 50, 0),
    "32 or 100 us": (32, 100, 0),
    "64 or 100 us": (64, 100, 0),
    "64 or 400 us": (64, 400, 0),
}
ADAPTIVE = (0, 0, 0)

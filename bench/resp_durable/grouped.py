"""A server that only writes and answers groups of requests: grouped.h."""

from __future__ import annotations

import os
from pathlib import Path

from ...drivers.blk import file as blk_file
from ...libos import Runtime
from ...runtime.closing import Closing
from ...runtime.errors import SystemLimit, check
from .._native import ffi, lib

FILE_BYTES = 16 << 20
BACKLOG = 1024


class Grouped(Closing):
    """Binds it to a runtime with one kthread. folder: where its file is made. group: as many requests share a write.
    Outlives the runtime. SystemLimit: nothing can be written there without the page cache."""

    def __init__(self, folder: Path, group: int, port: int) -> None:
        self._port, self._ptr, self._fd = port, ffi.NULL, -1
        path = folder / "grouped"
        if not path.exists():
            blk_file.create(path, FILE_BYTES)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC | os.O_CLOEXEC)
        except OSError as error:
            raise SystemLimit(f"open {path}", error.strerror or str(error)) from error
        out = ffi.new("struct cl_bench_grouped **")
        check(lib.cl_bench_grouped_new(self._fd, FILE_BYTES, group, out), "a server of groups")
        self._ptr = out[0]

    def __call__(self, runtime: Runtime) -> None:
        """For rig.started."""
        rc = lib.cl_bench_grouped_listen(runtime.ptr, self._port, BACKLOG, self._ptr)
        check(rc, f"listen on TCP port {self._port}")

    @property
    def writes(self) -> int:
        """So far."""
        return int(lib.cl_bench_grouped_writes(self._ptr))

    def close(self) -> None:
        """Give all back. May be called twice. CorelaneError: a write has failed."""
        ptr, self._ptr = self._ptr, ffi.NULL
        error = lib.cl_bench_grouped_error(ptr) if ptr else 0
        lib.cl_bench_grouped_delete(ptr)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        check(-error, "write a group of requests")

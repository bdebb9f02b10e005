"""The kv application: `corelane run kv`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...runtime.errors import CorelaneError, check
from .._native import ffi, lib
from ..registry import App, option
from .store import Store

_UDP_COUNTERS = ("datagrams", "answered", "silent", "answers", "runts", "fast_gets", "split", "cut", "multi_packet")


@dataclass(frozen=True)
class Options:
    """What `corelane run kv` takes."""

    port: int = option(11211, "UDP port")
    memory_bytes: int = option(64 << 20, "memory of the store: index, items and all; touched as it fills")
    item_max_bytes: int = option(0, "largest item, key and 48 bytes included (0: 1 MiB, or less in a small store)")
    index_bytes: int = option(0, "memory of the hash index, out of memory_bytes (0: up to a sixth)")
    partitions: int = option(0, "parts with a lock each, a power of two (0: one, or four a kthread)")
    huge_pages: int = option(1, "0: ordinary pages, 1: transparent huge pages, 2: hugetlb pages")


def partitions_for(kthreads: int, memory_bytes: int) -> int:
    """Enough partitions that writers seldom meet: none to share with one kthread, else four each of 4 MiB or more."""
    count = 1
    while kthreads > 1 and count < min(4 * kthreads, 64) and memory_bytes // (2 * count) >= 4 << 20:
        count *= 2
    return count


class KvService:
    """The store and its port on a runtime. Public attribute: store."""

    def __init__(self, runtime: Any, options: Options) -> None:
        if not 0 < options.port < 65536:
            raise CorelaneError("run kv", f"port {options.port}", "a port from 1 to 65535")
        info = ffi.new("struct cl_runtime_info *")
        lib.cl_runtime_info(runtime.ptr, info)
        self._kthreads = int(info.kthreads)
        self._service = ffi.NULL
        self._runtime = runtime
        self._port = options.port
        self.store = Store(
            options.memory_bytes,
            item_max_bytes=options.item_max_bytes,
            index_bytes=options.index_bytes,
            partitions=options.partitions or partitions_for(self._kthreads, options.memory_bytes),
            threads=self._kthreads,
            huge_pages=options.huge_pages,
        )
        out, err = ffi.new("struct cl_kv_service **"), ffi.new("char[256]")
        rc = lib.cl_kv_serve(runtime.ptr, self.store.ptr, options.port, out, err)
        if rc < 0:
            self.store.close()
            check(rc, "run kv", err)
        self._service = out[0]

    @property
    def ports(self) -> tuple[int, ...]:
        """Its UDP port."""
        return (self._port,)

    def stats(self) -> dict[str, int]:
        """Counters of the store (struct cl_kv_usage, cl_kv_counters) and of its port (struct cl_kv_udp), summed."""
        total = dict.fromkeys(_UDP_COUNTERS, 0)
        for k in range(self._kthreads):
            side = lib.cl_kv_service_udp(self._service, k)
            for name in _UDP_COUNTERS:
                total[name] += int(getattr(side, name))
        return {**self.store.usage(), **self.store.counters(), **total}

    def close(self) -> None:
        """Free the store. The runtime must have stopped. Closing twice is allowed."""
        service, self._service = self._service, ffi.NULL
        lib.cl_kv_service_delete(service)
        self.store.close()


def setup(runtime: Any, options: Options) -> KvService:
    """Make a store and serve it on a libos Runtime that has not started."""
    return KvService(runtime, options)


APP = App("kv", "key-value store: memcached's protocols over UDP, in bounded memory", Options, setup)

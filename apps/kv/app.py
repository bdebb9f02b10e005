"""The kv application: `corelane run kv`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from ...runtime.errors import CorelaneError, check
from .._native import ffi, lib
from ..registry import App, option
from .flags import options_of
from .store import Protocol, Store

_UDP_COUNTERS = ("datagrams", "answered", "silent", "answers", "runts", "fast_gets", "split", "cut", "multi_packet")


@dataclass(frozen=True)
class Options:
    """What `corelane run kv` takes."""

    port: int = option(11211, "TCP and UDP port")
    tcp_port: int = option(-1, "TCP port (-1: that of `port`, 0: no TCP)")
    udp_port: int = option(-1, "UDP port (-1: that of `port`, 0: no UDP)")
    memory_bytes: int = option(64 << 20, "memory of the store: index, items and all; touched as it fills")
    item_max_bytes: int = option(0, "largest item, key and 48 bytes included (0: 1 MiB, or less in a small store)")
    index_bytes: int = option(0, "memory of the hash index, out of memory_bytes (0: up to a sixth)")
    partitions: int = option(0, "parts with a lock each, a power of two (0: one, or four a kthread)")
    huge_pages: int = option(1, "0: ordinary pages, 1: transparent huge pages, 2: hugetlb pages")
    no_evict: bool = option(False, "refuse what finds no room, instead of evicting")
    no_cas: bool = option(False, "tell uniques as 0, and let no cas through, as memcached -C does")
    no_flush: bool = option(False, "refuse flush_all, as memcached -F does")
    no_watch: bool = option(False, "refuse watch, as memcached -W does")
    no_dump: bool = option(False, "refuse listings of all keys, as memcached -X does")
    protocol: str = option("auto", "auto, or ascii or binary alone, as memcached -B")
    connections: int = option(1024, "most connections; who comes then is told so and sent away")
    backlog: int = option(1024, "connections that are being opened at one time, at most")
    unix: str = option("", "path of a Unix socket that serves, too, for control")
    unix_mode: str = option("700", "permissions of that socket, in octal")
    idle_timeout_s: int = option(0, "connections that say nothing for so long are closed (0: never)")
    memcached: str = option("", "memcached's own options, as in memcached='-p 11211 -m 64 -I 2m -o idle_timeout=60'")
    requests_per_event: int = option(20, "commands of a connection that are executed before others have a turn")
    held_bytes: int = option(
        0,
        "memory that connections may hold: values on their way, answers not read (0: 64 MiB, or 8 largest items)",
    )


def partitions_for(kthreads: int, memory_bytes: int) -> int:
    """Enough partitions that writers seldom meet: none to share with one kthread, else four each of 4 MiB or more."""
    count = 1
    while kthreads > 1 and count < min(4 * kthreads, 64) and memory_bytes // (2 * count) >= 4 << 20:
        count *= 2
    return count


_PROTOCOLS: dict[str, Protocol] = {"auto": "auto", "ascii": "ascii", "binary": "binary"}


def _protocol(name: str) -> Protocol:
    if name not in _PROTOCOLS:
        raise CorelaneError("run kv", f"protocol {name!r}", "give auto, ascii or binary")
    return _PROTOCOLS[name]


def _mode(octal: str) -> int:
    try:
        mode = int(octal, 8)
    except ValueError:
        mode = 0
    if not 0 < mode <= 0o777:
        raise CorelaneError("run kv", f"mode {octal!r} of the Unix socket", "give one in octal, as in 770")
    return mode


class KvService:
    """The store and its ports on a runtime. Public attribute: store. manual_clock: as of Store, for tests."""

    def __init__(self, runtime: Any, options: Options, *, manual_clock: bool = False) -> None:
        tcp, udp = (options.port if port < 0 else port for port in (options.tcp_port, options.udp_port))
        for port in (tcp, udp):
            if not 0 <= port < 65536:
                raise CorelaneError("run kv", f"port {port}", "a port from 1 to 65535, or 0 for none")
        if not tcp and not udp:
            raise CorelaneError("run kv", "port 0 for TCP and for UDP", "a port from 1 to 65535 for one of them")
        info = ffi.new("struct cl_runtime_info *")
        lib.cl_runtime_info(runtime.ptr, info)
        self._kthreads = int(info.kthreads)
        self._service = self._front = self._local = ffi.NULL
        self._runtime = runtime
        self._ports = (tcp, udp)
        self.store = Store(
            options.memory_bytes,
            item_max_bytes=options.item_max_bytes,
            index_bytes=options.index_bytes,
            partitions=options.partitions or partitions_for(self._kthreads, options.memory_bytes),
            threads=self._kthreads + bool(options.unix),
            huge_pages=options.huge_pages,
            no_evict=options.no_evict,
            no_cas=options.no_cas,
            no_flush=options.no_flush,
            no_watch=options.no_watch,
            no_dump=options.no_dump,
            protocol=_protocol(options.protocol),
            manual_clock=manual_clock,
        )
        try:
            self._serve(options, int(info.ipv4))
        except CorelaneError:
            self.close()
            raise

    def _serve(self, options: Options, ipv4: int) -> None:
        tcp, udp = self._ports
        path = ffi.new("char[]", os.fsencode(options.unix)) if options.unix else ffi.NULL
        config = {
            "max_connections": options.connections,
            "idle_timeout_s": options.idle_timeout_s,
            "backlog": options.backlog,
            "ipv4": ipv4,
            "tcp_port": tcp,
            "udp_port": udp,
            "kthreads": self._kthreads,
            "requests_per_event": options.requests_per_event,
            "budget_bytes": options.held_bytes,
            "path": path,
            "path_mode": _mode(options.unix_mode),
        }
        front = ffi.new("struct cl_kv_front **")
        check(
            lib.cl_kv_front_new(self.store.ptr, ffi.new("struct cl_kv_front_config *", config), front),
            f"have {options.connections} connections",
        )
        self._front = front[0]
        out, err = ffi.new("struct cl_kv_service **"), ffi.new("char[256]")
        check(lib.cl_kv_serve(self._runtime.ptr, self.store.ptr, udp, out, err), "run kv", err)
        self._service = out[0]
        if tcp:
            check(lib.cl_kv_listen_tcp(self._front, self._runtime.ptr), f"serve TCP port {tcp}")
        if options.unix:
            local = ffi.new("struct cl_kv_local **")
            check(lib.cl_kv_listen_local(self._front, local), f"serve the Unix socket {options.unix}")
            self._local = local[0]

    @property
    def ports(self) -> tuple[int, ...]:
        """Its UDP port, if it has one."""
        return self._ports[1:] if self._ports[1] else ()

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """Its TCP port, if it has one."""
        return self._ports[:1] if self._ports[0] else ()

    def stats(self) -> dict[str, int]:
        """Counters of the store (struct cl_kv_usage, cl_kv_counters), of its UDP port (struct cl_kv_udp), summed, and
        of its connections (struct cl_kv_front_counts)."""
        total = dict.fromkeys(_UDP_COUNTERS, 0)
        for k in range(self._kthreads):
            side = lib.cl_kv_service_udp(self._service, k)
            for name in _UDP_COUNTERS:
                total[name] += int(getattr(side, name))
        counts = ffi.new("struct cl_kv_front_counts *")
        lib.cl_kv_front_counts(self._front, counts)
        conns = {f"conn_{name}": int(getattr(counts, name)) for name, _ in ffi.typeof(counts[0]).fields}
        return {**self.store.usage(), **self.store.counters(), **total, **conns}

    def close(self) -> None:
        """Free the store. The runtime must have stopped. Closing twice is allowed."""
        local, self._local = self._local, ffi.NULL
        lib.cl_kv_local_delete(local)
        service, self._service = self._service, ffi.NULL
        lib.cl_kv_service_delete(service)
        front, self._front = self._front, ffi.NULL
        lib.cl_kv_front_delete(front)
        self.store.close()


def setup(runtime: Any, options: Options) -> KvService:
    """Make a store and serve it on a libos Runtime that has not started."""
    given = options_of(options.memcached, address=runtime.address, kthreads=runtime.kthreads)
    return KvService(runtime, replace(options, **given))


APP = App("kv", "key-value store: memcached's protocols over TCP and UDP, in bounded memory", Options, setup)

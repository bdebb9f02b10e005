"""A runtime's C configuration, filled in from what `Runtime` was given. Wrong values raise CorelaneError."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from typing import Any

from ..drivers.nic.nic import Nic
from ..runtime.errors import CorelaneError
from ..runtime.tracing import TRACE_MODES
from ._native import ffi, lib
from .options import CoreShare, Network, Scheduler, Trace

_POLL = {"spin": lib.CL_SCHED_SPIN, "adaptive": lib.CL_SCHED_ADAPTIVE, "block": lib.CL_SCHED_BLOCK}
_BATCH_QUANTUM_US = int(lib.CL_CONTROL_BATCH_QUANTUM_US)  # of batch runtimes that are told none
_STACK_BYTES = {"latency": 65536, "batch": lib.CL_RUNTIME_BATCH_STACK_BYTES}  # unless told otherwise
_KINDS = {"latency": lib.CL_RUNTIME_LATENCY, "batch": lib.CL_RUNTIME_BATCH}

TRACE_WAYS = dict(
    zip(TRACE_MODES, (lib.CL_RUNTIME_TRACE_OFF, lib.CL_RUNTIME_TRACE_SAMPLED, lib.CL_RUNTIME_TRACE_FULL), strict=True)
)


def fill(
    config: Any,
    *,
    socket: str | None,
    nic: Nic | None,
    name: str | None,
    kthreads: int | None,
    kind: str,
    adopted: int,
    poll: str,
    cpus: Sequence[int] | None,
    address: str | None,
    scheduler: Scheduler,
    network: Network,
    share: CoreShare,
    trace: Trace,
) -> list[Any]:
    """Fill in a `struct cl_runtime_config`. Returns what it points to, to be kept: cffi frees it with its object."""
    keep = _place(config, socket, nic, name)
    keep += _kthreads(config, kthreads, poll, cpus)
    config.adopted = adopted
    _network(config, address, network)
    _scheduler(config, kind, scheduler)
    _share(config, kthreads, share)
    config.trace, config.trace_records = TRACE_WAYS[trace.mode], trace.records
    config.trace_one_in, config.trace_slowest = trace.one_in, trace.slowest
    return keep


def stack_bytes(kind: str, scheduler: Scheduler) -> int:
    """Of a uthread's stack, for a kind that `fill` took."""
    return scheduler.stack_bytes or _STACK_BYTES[kind]


def _place(config: Any, socket: str | None, nic: Nic | None, name: str | None) -> list[Any]:
    if (socket is None) == (nic is None):
        raise CorelaneError(
            "make a runtime", "it needs a place", "give the path of an iokernel's socket or nic=, not both"
        )
    keep: list[Any] = []
    if socket is not None:
        keep.append(owned := ffi.new("char[]", os.fsencode(socket)))
        config.socket_path = owned
    if name is not None:
        keep.append(owned := ffi.new("char[]", os.fsencode(name)))
        config.name = owned
    if nic is not None:
        config.nic = nic.ptr
    return keep


def _kthreads(config: Any, kthreads: int | None, poll: str, cpus: Sequence[int] | None) -> list[Any]:
    if poll not in _POLL:
        raise CorelaneError("make a runtime", f"poll {poll!r}", f"one of: {', '.join(_POLL)}")
    config.poll, config.poll_set = _POLL[poll], 1
    if kthreads is not None and kthreads < 1:
        raise CorelaneError("make a runtime", f"{kthreads} kthreads", "at least 1")
    config.kthreads = kthreads or 0
    if cpus is None:
        return []
    if kthreads is not None and len(cpus) != kthreads:
        raise CorelaneError("make a runtime", f"{len(cpus)} cpus for {kthreads} kthreads", "one CPU a kthread")
    owned = ffi.new("int32_t[]", list(cpus))
    config.cpus = owned
    return [owned]


def _network(config: Any, address: str | None, network: Network) -> None:
    try:
        if address is not None:
            interface = ipaddress.IPv4Interface(address)
            config.ipv4 = int(interface.ip)
            config.ipv4_prefix = interface.network.prefixlen if "/" in address else 0
            if "/" in address and interface.network.prefixlen == 0:
                raise ValueError(f"prefix of {address} must be 1 to 32 bits")
    except ValueError as error:
        raise CorelaneError("make a runtime", str(error), "addresses as in 10.77.0.9/16") from error
    config.gateway = int(ipaddress.IPv4Address(network.gateway or 0))
    config.no_udp_checksum = not network.udp_checksums
    config.chunk_bytes = network.memory_mib << 20
    config.seed = network.seed or 0


def _scheduler(config: Any, kind: str, scheduler: Scheduler) -> None:
    if kind not in _KINDS:
        raise CorelaneError("make a runtime", f"kind {kind!r}", f"one of: {', '.join(_KINDS)}")
    config.kind = _KINDS[kind]
    default_us = _BATCH_QUANTUM_US if kind == "batch" else 0
    config.quantum_us = default_us if scheduler.quantum_us is None else scheduler.quantum_us
    config.quantum_signal = scheduler.quantum_signal
    config.stack_bytes, config.no_steal = scheduler.stack_bytes, not scheduler.steal
    config.spin_ns = int(scheduler.spin_us * 1000) or 1  # C takes 0 for its default
    config.stop_ms = int(scheduler.stop_s * 1000) or 1


def _share(config: Any, kthreads: int | None, share: CoreShare) -> None:
    if kthreads is not None and share.max_cores > kthreads:
        why = f"max_cores {share.max_cores} is more than its kthreads: {kthreads}"
        raise CorelaneError("make a runtime", why, "a kthread runs on one core at a time")
    config.guaranteed, config.max_cores = share.guaranteed, share.max_cores
    config.weight, config.deadline_us = share.weight, share.deadline_us

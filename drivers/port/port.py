"""The `port` NIC: an application's end of an iokernel's arena. drivers/port/port.h says how it works and how it
fails."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...runtime.options import Group, option
from ...runtime.paths import default_socket
from ...runtime.typed import typed
from .._native import ffi, lib
from ..device import check
from ..nic.nic import Nic, ipv4_to_int

ATTACHED: int = lib.CL_PORT_ATTACHED
STALLED: int = lib.CL_PORT_STALLED
GONE: int = lib.CL_PORT_GONE
DRAIN: int = lib.CL_PORT_DRAIN
READY: int = lib.CL_MEMBER_READY
DRAINING: int = lib.CL_MEMBER_DRAINING
_MAX_U32 = 2**32 - 1


@dataclass(frozen=True, slots=True)
class PortInfo:
    """What the iokernel granted, and how it is.

    state: ATTACHED, STALLED (the iokernel has not polled for seconds) or GONE. attached: how many times, the first
    included. cpus: CPU of each kthread, -1 for "anywhere". text: what happened last, one line.
    note: what was wished for and is not granted, one line; "": nothing.
    """

    state: int
    app: int
    loop: int
    attached: int
    generation: int
    may_spin: bool
    iokernel_pid: int
    member: int | None
    gateway: str | None
    arena_bytes: int
    cpus: tuple[int, ...]
    text: str
    note: str


class Port(Nic):
    """A Nic that is attached to an iokernel. Made by `open_port`."""

    def info(self) -> PortInfo:
        """State of the attachment; callable from any thread."""
        out = ffi.new("struct cl_port_info *")
        lib.cl_port_info(self.ptr, out)
        return PortInfo(
            state=int(out.state),
            app=int(out.app),
            loop=int(out.loop),
            attached=int(out.attached),
            generation=int(out.generation),
            may_spin=bool(out.may_spin),
            iokernel_pid=int(out.iokernel_pid),
            member=int(out.member) - 1 if out.member else None,
            gateway=str(ipaddress.IPv4Address(int(out.gateway))) if out.gateway else None,
            arena_bytes=int(out.arena_bytes),
            cpus=tuple(int(out.cpus[k]) for k in range(self.queues)),
            text=ffi.string(out.text).decode(errors="replace"),
            note=ffi.string(out.note).decode(errors="replace"),
        )

    def say(self, state: int, *, others: bool = False) -> int:
        """As a member of a group: it is READY, or DRAINING. others: and the others drain from now on; returns how many
        were told. Raises CorelaneError."""
        err = ffi.new("char[256]")
        told = int(lib.cl_port_say(self.ptr, state, others, err))
        check(told, err, f"port {self.name}")
        return told

    def reattach(self) -> None:
        """Attach again now, after the iokernel was lost. Raises CorelaneError with the reason if that fails."""
        err = ffi.new("char[256]")
        check(lib.cl_port_reattach(self.ptr, err), err, f"port {self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMemory(Group):
    """What an application asks for of its arena; 0: the iokernel's default. Its configuration wins.

    rx_slots, tx_slots: frames that wait in a ring, powers of two. rx_buffers, tx_buffers: packet buffers of all
    kthreads together. buffer_bytes: of a buffer, for the longest frame.
    """

    rx_slots: int = option(0, "slots of a receive ring", low=0, high=_MAX_U32)
    tx_slots: int = option(0, "slots of a transmit ring", low=0, high=_MAX_U32)
    rx_buffers: int = option(0, "buffers for receiving", low=0, high=_MAX_U32)
    tx_buffers: int = option(0, "buffers for sending", low=0, high=_MAX_U32)
    buffer_bytes: int = option(0, "bytes of a buffer", low=0, high=_MAX_U32)


@typed("open a port")
def open_port(
    socket_path: str | None = None,
    *,
    name: str,
    kthreads: int = 1,
    ipv4: str | None = None,
    memory: PortMemory | None = None,
    timeout_s: float = 15.0,
    reattach_s: float = 0.1,
    on_change: Callable[[int, str], None] | None = None,
) -> Port:
    """Attach to the iokernel that listens on `socket_path` (None: runtime/paths.py) as the application `name`.

    reattach_s: pause between attempts to attach again after the iokernel died; 0: only `Port.reattach` does.
    on_change(state, text) is called by the port's watcher thread at each change of state. Raises CorelaneError: nobody
    listens, refused (with the iokernel's reason), another version.
    """
    config = ffi.new("struct cl_port_config *")
    path, label = ffi.new("char[]", os.fsencode(socket_path or default_socket())), ffi.new("char[]", os.fsencode(name))
    config.socket_path, config.name, config.n_kthreads = path, label, kthreads
    memory = memory or PortMemory()
    config.rx_slots, config.tx_slots, config.buffer_bytes = memory.rx_slots, memory.tx_slots, memory.buffer_bytes
    config.n_rx, config.n_tx = memory.rx_buffers, memory.tx_buffers
    config.timeout_ms, config.reattach_ms = max(1, int(timeout_s * 1e3)), int(reattach_s * 1e3)
    if ipv4 is not None:
        config.ipv4 = ipv4_to_int(ipv4)
    keep: list[Any] = []
    if on_change is not None:
        user = on_change

        @ffi.callback("void(void *, int, const char *)")  # type: ignore[untyped-decorator]
        def changed(_arg: Any, state: int, text: Any) -> None:
            user(int(state), ffi.string(text).decode(errors="replace"))

        config.on_change = changed
        keep.append(changed)
    out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
    check(lib.cl_port_nic_new(config, out, err), err, f"application {name}")
    return Port(out[0], keep)

"""An attached application, as the control thread keeps it, and the message that tells it what it got."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from ...runtime.config import NetworkConfig
from ...runtime.peers import Peer
from .._native import ffi, lib
from .cores import Claim
from .messages import line_of


@dataclass(frozen=True, slots=True)
class App:
    """What an application got when it was admitted. since: CLOCK_MONOTONIC, in seconds."""

    id: int
    name: str
    peer: Peer
    mac: bytes
    ipv4: int
    loop: int
    cpus: tuple[int, ...]
    may_spin: bool
    claim: Claim | None  # None: its cores are not managed
    note: str  # what it wished for and did not get
    layout: dict[str, int]
    slot: int  # of its first kthread in the state segment
    since: float
    member: int | None  # its place in its group; None: it is of none


def accept_message(io: Any, app: App, layout: Any, network: NetworkConfig) -> bytes:
    """The ACCEPT message. layout: its arena's `struct cl_arena_layout`. Calls that take io are serialised."""
    message = ffi.new("struct cl_control_accept *")
    header = message.header
    header.magic, header.version = lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION
    header.type, header.bytes = lib.CL_CONTROL_ACCEPT, ffi.sizeof("struct cl_control_accept")
    message.app, message.loop, message.layout = app.id, app.loop, layout
    message.generation = lib.cl_io_generation(io)
    message.state_bytes = lib.cl_io_state_bytes(io)
    ffi.memmove(message.mac, app.mac, 6)
    message.may_spin = app.may_spin
    message.managed, message.slot = app.claim is not None, app.slot
    message.member = 0 if app.member is None else app.member + 1
    message.ipv4, message.ipv4_prefix = app.ipv4, ipaddress.IPv4Network(network.subnet).prefixlen
    message.mtu = min(int(lib.cl_io_mtu(io)), app.layout["buffer_bytes"] - lib.CL_ETH_HLEN)
    message.gateway = int(ipaddress.IPv4Address(network.gateway or 0))
    for k in range(lib.CL_SHM_MAX_KTHREADS):
        message.cpus[k] = app.cpus[k] if k < len(app.cpus) else -1
    note = line_of(app.note, len(message.note))
    ffi.memmove(message.note, note, len(note))
    return bytes(ffi.buffer(message))

"""AF_XDP NICs: the sockets of drivers/nic/af_xdp/af_xdp.h together with the XDP program that feeds them.

    with AfXdp("eth0", addresses=["10.77.0.5"]) as nic: ...

The interface stays Linux's: only frames to the given addresses (and ARP asking for them) are taken, see bpf/steer.py.
docs/af_xdp.md says what this needs and what it does not deal with.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import socket
import struct
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ....runtime.errors import CorelaneError
from ....runtime.options import Group, option
from ....runtime.typed import typed
from ..._native import ffi, lib
from ...bpf import loader, steer
from ...bpf.object import read_object
from ...device import check
from ...linux.ethtool import driver, receive_queues
from ..nic import Nic, ipv4_and_prefix

_COPY_MODES = {"no": "CL_XSK_COPY", "yes": "CL_XSK_ZEROCOPY", "auto": "CL_XSK_AUTO"}
_KERNEL_STATS = (
    "rx_dropped",
    "rx_invalid_descs",
    "tx_invalid_descs",
    "rx_ring_full",
    "rx_fill_ring_empty_descs",
    "tx_ring_empty_descs",
)
_HIGH_FDS, _HIGH_ROOM = 1024, 16  # descriptors that are handed over are the last ones below the first
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 263, 1, 1

BUFFERS_PER_QUEUE = int(lib.CL_AF_XDP_BUFFERS)
BIND_DEADLINE_MS = int(lib.CL_AF_XDP_BIND_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Umem(Group):
    """Packet memory and the rings on it.

    ring_slots: of the rx, tx and fill rings, a power of two. fill: frames kept ready for receiving on each queue.
    buffers: UMEM frames in all; 0: 2048 a queue. buffer_bytes: of a frame, 2048 or 4096.
    """

    ring_slots: int = option(lib.CL_AF_XDP_RING_SLOTS, "slots of a ring", low=1, high=1 << 20)
    fill: int = option(lib.CL_AF_XDP_FILL, "frames kept ready for receiving", low=1, high=1 << 20)
    buffers: int = option(0, "UMEM frames", low=0, high=1 << 24)
    buffer_bytes: int = option(lib.CL_AF_XDP_BUFFER_BYTES, "bytes of a frame", choices=(2048, 4096))


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions(Group):
    """How the kernel serves the sockets.

    zero_copy: "yes", "no", or "auto" where the device can. need_wakeup: let the kernel say when it needs a system call.
    busy_poll_us: > 0 has the queue's softirq work done by our own system calls (real NICs with copy mode).
    """

    zero_copy: str = option("auto", "zero copy", choices=("auto", "yes", "no"))
    need_wakeup: bool = option(True, "wait for the kernel's word before a system call")
    busy_poll_us: int = option(0, "busy polling", low=0, high=1_000_000)


class AfXdp(Nic):
    """A NIC on the queues of a network interface of the calling thread's network namespace.

    ifname: the interface, up. queues: how many of its receive queues, None for all; fewer than it has is refused, since
    frames that the device spreads to the others would go to Linux. A range names queues whose flows you steer yourself:
    range(4, 6) is queues 4 and 5, and the others are Linux's. addresses, subnets: IPv4 "a.b.c.d" and "a.b.c.d/n" whose
    traffic is ours (also later: add_address, add_subnet). A single address, which may have a prefix length, is also
    `Nic.ipv4`. steer: "addresses", or "all" for every frame of the interface. program: path of an eBPF object of your
    own instead, with an XSKMAP. mode: "native", "generic" or "auto" XDP (see `xdp_mode`). promiscuous: take frames for
    any MAC, as the uplink of a switch must. umem, sockets: the finer settings.

    Raises CorelaneError that says what is missing and how to mend it. Closing detaches the program.
    """

    @typed("open an AF_XDP NIC")
    def __init__(
        self,
        ifname: str,
        queues: int | range | None = None,
        *,
        addresses: Iterable[str] = (),
        subnets: Iterable[str] = (),
        steer: str = "addresses",
        program: str | Path | bytes | None = None,
        mode: str = "auto",
        promiscuous: bool = False,
        umem: Umem | None = None,
        sockets: SocketOptions | None = None,
    ) -> None:
        self.ifname = ifname
        self.ifindex = _index(ifname)
        wanted = _queues(ifname, queues)
        given = list(addresses)
        parsed = [ipv4_and_prefix(each) for each in given]
        with contextlib.ExitStack() as undo:
            program_ = _load(program, steer)
            undo.callback(program_.close)
            own = _create(ifname, wanted, umem or Umem(), sockets or SocketOptions())
            super().__init__(own)
            undo.callback(super().close)
            xskmap = _xskmap(program_)
            for i, queue in enumerate(wanted):
                xskmap.update(queue, own.ops.fd(own, i))
            self._program = program_
            for each in given:
                self.add_address(each.partition("/")[0])
            for subnet in subnets:
                self.add_subnet(subnet)
            owned: list[_Closes] = [program_]
            if promiscuous:
                owned.insert(0, _promiscuous(self.ifindex))
                undo.callback(owned[0].close)
            self._link = loader.attach(program_.program_fd, self.ifindex, xdp_mode(ifname, mode))
            self.mode = self._link.mode
            undo.pop_all()
        if len(given) == 1:
            self.ptr.ipv4, self.ptr.ipv4_prefix = parsed[0]
        # A NIC given away to a wrapper is closed in C: program and link go when the wrapper lets go of this object.
        self._finalize = weakref.finalize(self, _close_all, [self._link, *owned])

    def close(self) -> None:
        """Detach the program, close the sockets, free the buffers. May be called twice."""
        self._link.close()  # first: what comes meanwhile is Linux's
        super().close()
        self._finalize()

    def add_address(self, address: str) -> None:
        """From now on frames for this IPv4 address are ours. Raises CorelaneError (map full, steer="all")."""
        self._map("addresses").update(steer.address_key(address), 1)

    def remove_address(self, address: str) -> bool:
        """Leave this address to Linux again; False if it was not ours."""
        return self._map("addresses").delete(steer.address_key(address))

    def add_subnet(self, subnet: str) -> None:
        """From now on frames for this IPv4 subnet "a.b.c.d/n" are ours."""
        self._map("subnets").update(steer.subnet_key(subnet), 1)

    def remove_subnet(self, subnet: str) -> bool:
        """Leave this subnet to Linux again; False if it was not ours."""
        return self._map("subnets").delete(steer.subnet_key(subnet))

    def _map(self, name: str) -> loader.Map:
        if name not in self._program.maps:
            raise CorelaneError(f"the XDP program on {self.ifname} has no map {name!r}: it steers by other means")
        return self._program.maps[name]

    @property
    def zero_copy(self) -> bool:
        """Whether the device works on the UMEM itself; else the kernel copies each frame."""
        return bool(lib.cl_af_xdp_zero_copy(self.ptr))

    @property
    def program_id(self) -> int:
        """The kernel's id of the attached program, as `ip link` shows it."""
        return self._program.program_id

    def counters(self) -> dict[str, int]:
        """Frames that the program redirected to us or passed to Linux, by reason; empty for a program of your own."""
        counters = self._program.maps.get("counters")
        if counters is None or counters.definition != steer.MAPS["counters"]:
            return {}
        return {name: counters.sum(i) for i, name in enumerate(steer.COUNTERS)}

    def kernel_stats(self, queue: int = 0) -> dict[str, int]:
        """XDP_STATISTICS of a queue's socket as the kernel names them."""
        out = ffi.new("uint64_t[6]")
        code = lib.cl_af_xdp_kernel_stats(self.ptr, self._queue(queue), out)
        if code < 0:
            raise CorelaneError(f"cannot read XDP_STATISTICS of {self.ifname}: {os.strerror(-code)}")
        return dict(zip(_KERNEL_STATS, (int(v) for v in out), strict=True))


@dataclass(frozen=True)
class Given:
    """An XDP program that steers an interface's frames to sockets that another program will open: `hand_over`.

    xskmap_fd: where it enters them; before that the frames are Linux's. link_fd: the program is attached until this is
    closed, by its last holder."""

    xskmap_fd: int
    link_fd: int


def hand_over(ifname: str, queues: int, address: str, mode: str = "auto") -> Given:
    """Attach the XDP program of an AfXdp without its sockets, for who opens them after exec (given.c).

    The descriptors are kept across exec, and the caller's. Arguments and errors as of AfXdp; every queue counts.
    """
    ifindex = _index(ifname)
    _queues(ifname, queues)
    with contextlib.closing(_load(None, "addresses")) as program:
        program.maps["addresses"].update(steer.address_key(address), 1)
        with loader.attach(program.program_fd, ifindex, xdp_mode(ifname, mode)) as link:
            return Given(_kept(_xskmap(program).fd), _kept(link.fd))


def _kept(fd: int) -> int:
    """A copy that exec keeps, out of the way of the small numbers that programs expect to be given."""
    most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _HIGH_FDS)
    return fcntl.fcntl(fd, fcntl.F_DUPFD, max(most - _HIGH_ROOM, 3))


def xdp_mode(ifname: str, mode: str = "auto") -> str:
    """The mode to attach with on a device of this thread's namespace: `mode`, but for "auto" on a veth "generic".

    A veth hands over finished packets in any case. Its native mode takes them through a ring and a NAPI poll and makes
    an XDP frame of each, which is longer at every load (`corelane bench afxdp` shows both); real devices have native
    mode before there is a packet, and there it is the short way. With several queues "auto" stays: only in native mode
    does a veth keep to which of them a packet was sent, in generic mode all arrive on the first.
    """
    generic = mode == "auto" and driver(ifname) == "veth" and receive_queues(ifname) == 1
    return "generic" if generic else mode


class _Closes(Protocol):
    def close(self) -> None: ...


def _close_all(owned: list[_Closes]) -> None:
    for one in owned:
        one.close()


def _promiscuous(ifindex: int) -> socket.socket:
    """A packet socket that keeps the device promiscuous until it is closed; it never sees a frame (protocol 0)."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, struct.pack("iHH8s", ifindex, _PACKET_MR_PROMISC, 0, b""))
    return sock


def _index(ifname: str) -> int:
    try:
        return socket.if_nametoindex(ifname)
    except OSError:
        listed = ", ".join(name for _, name in socket.if_nameindex())
        raise CorelaneError(f"no interface {ifname!r} in this network namespace; there are: {listed}") from None


def _queues(ifname: str, asked: int | range | None) -> range:
    """The queues to open; refuses to leave some of the device's to Linux unless a range names those that are ours."""
    has = receive_queues(ifname)
    wanted = asked if isinstance(asked, range) else range(has or 1 if asked is None else asked)
    if wanted.step != 1 or len(wanted) < 1 or wanted.start < 0:
        raise CorelaneError(f"{ifname}: queues={asked} are none", "", "give a number, or a range as in range(4, 6)")
    if has is not None and wanted.stop > has:
        raise CorelaneError(
            f"{ifname} has {has} receive queues, not {wanted.stop}: `ethtool -L {ifname} combined {wanted.stop}` "
            "may add some, or ask for fewer"
        )
    if has is not None and len(wanted) < has and wanted is not asked:
        raise CorelaneError(
            f"{ifname} spreads frames over {has} queues and only {len(wanted)} would be read, the rest would go to "
            f"Linux: use all of them, or `ethtool -L {ifname} combined {len(wanted)}`, or steer flows yourself and say "
            f"queues=range(0, {len(wanted)})"
        )
    return wanted


def _load(program: str | Path | bytes | None, mode: str) -> loader.Loaded:
    if program is None:
        return loader.load(read_object(steer.steer_object(mode)))
    loaded = loader.load(read_object(program))
    if not any(m.definition.type == loader.XSKMAP for m in loaded.maps.values()):
        loaded.close()
        raise CorelaneError(f"{program!r}: the program has no map of type XSKMAP to redirect into")
    return loaded


def _xskmap(program: loader.Loaded) -> loader.Map:
    found = [m for m in program.maps.values() if m.definition.type == loader.XSKMAP]
    if len(found) > 1:
        named = [m for m in found if m.name == "xsks"]
        if not named:
            raise CorelaneError(f"several XSKMAPs ({', '.join(m.name for m in found)}): call the one to fill `xsks`")
        return named[0]
    return found[0]


def _create(ifname: str, queues: range, umem: Umem, sockets: SocketOptions) -> Any:
    """The C object. Raises CorelaneError with the reason."""
    name = ffi.new("char[]", os.fsencode(ifname))
    c = ffi.new("struct cl_af_xdp_config *")
    c.socket.ifname = name
    c.socket.rx_size = c.socket.tx_size = c.socket.fill_size = umem.ring_slots
    c.socket.copy_mode = getattr(lib, _COPY_MODES[sockets.zero_copy])
    c.socket.need_wakeup, c.socket.busy_poll_us = sockets.need_wakeup, sockets.busy_poll_us
    c.socket.bind_deadline_ms = BIND_DEADLINE_MS
    c.n_queues, c.first_queue = len(queues), queues.start
    c.n_buffers, c.buffer_bytes = umem.buffers or len(queues) * BUFFERS_PER_QUEUE, umem.buffer_bytes
    c.fill_target = min(umem.fill, umem.ring_slots)
    out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
    check(lib.cl_af_xdp_nic_new(c, out, err), err, f"AF_XDP on {ifname}")
    return out[0]

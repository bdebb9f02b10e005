"""TAP NICs: a wire to this host's own network stack, without XDP. corelane/drivers/tap.h says what they cost.

with Tap("cl0", address="10.77.0.1/24") as nic: ...     # Linux has 10.77.0.1 on cl0; the NIC is the other end
"""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from ....runtime.errors import CorelaneError
from ....runtime.typed import typed
from ..._native import ffi, lib
from ...device import check
from ..nic import Nic, ipv4_and_prefix, mac_to_bytes

BUFFERS_PER_QUEUE = 512


class Tap(Nic):
    """The NIC end of a tap interface in the calling thread's network namespace.

    ifname: made if it does not exist (needs CAP_NET_ADMIN; it then vanishes with the NIC), opened if it exists and
    belongs to this user (`ip tuntap add dev NAME mode tap user NAME [multi_queue]`); "cl%d" lets the kernel number it.
    address: Linux's own address on the interface, "a.b.c.d/n", None for none. queues: more than one needs multi_queue.
    buffers: in all (0: 512 a queue). mac: the NIC's (None: 02:... from the name). ipv4: what `Nic.ipv4` shall say,
    with or without a prefix length.
    set_up: set MTU and address, and the interface up, where they are not so already; False leaves it as it is.
    Raises CorelaneError that says what is missing and how to mend it.
    """

    @typed("open a tap")
    def __init__(
        self,
        ifname: str = "cl%d",
        queues: int = 1,
        *,
        address: str | None = None,
        mtu: int = 1500,
        buffers: int = 0,
        mac: str | None = None,
        ipv4: str | None = None,
        set_up: bool = True,
    ) -> None:
        own, prefix = _address(address)
        name = ffi.new("char[]", os.fsencode(ifname))
        config = ffi.new("struct cl_tap_config *")
        config.ifname, config.n_queues, config.mtu = name, queues, mtu
        config.n_buffers = buffers or queues * BUFFERS_PER_QUEUE
        ffi.memmove(config.mac, mac_to_bytes(mac) if mac else stable_mac(f"tap {ifname}"), 6)
        out, chosen, err = ffi.new("struct cl_nic **"), ffi.new("char[16]"), ffi.new("char[256]")
        check(lib.cl_tap_nic_new(config, out, chosen, err), err, "cannot open a tap")
        super().__init__(out[0])
        self.ifname: str = os.fsdecode(ffi.string(chosen))
        if set_up:
            code = lib.cl_tap_set_up(chosen, mtu, own, prefix, err)
            if code < 0:
                self.close()
                check(code, err, "cannot set up the interface")
        self.ifindex = socket.if_nametoindex(self.ifname)
        if ipv4:
            self.ptr.ipv4, self.ptr.ipv4_prefix = ipv4_and_prefix(ipv4)


def open_tap(ifname: str, queues: int, *, tell: Callable[[str], None], **options: Any) -> Tap:
    """A Tap, also one that was made for this user and that only root may set up: `tell` then gets what root is to type.

    Raises what Tap raises otherwise.
    """
    try:
        return Tap(ifname, queues, **options)
    except CorelaneError as error:
        if error.errno != errno.EPERM:
            raise
        refused = error
    nic = Tap(ifname, queues, set_up=False, **options)
    tell(f"{refused}; nothing comes or goes until then")
    return nic


def stable_mac(name: str) -> bytes:
    """A locally administered unicast MAC (02:...) that depends on the name alone."""
    return b"\x02" + hashlib.sha256(os.fsencode(name)).digest()[:5]


def _address(text: str | None) -> tuple[int, int]:
    """(address as the four bytes in memory, prefix length) of "a.b.c.d/n"."""
    if text is None:
        return 0, 0
    try:
        found = ipaddress.IPv4Interface(text)
    except ValueError:
        raise CorelaneError(f"{text!r} is no IPv4 address with its prefix; write it as in 10.77.0.1/24") from None
    return int.from_bytes(found.packed, sys.byteorder), found.network.prefixlen

"""The few settings of a network device that matter here, by ethtool's ioctl; no ethtool program needed.

All functions speak of a device of the calling thread's network namespace. Source: linux/ethtool.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from ...runtime.errors import CorelaneError

_SIOCETHTOOL = 0x8946
# Commands that take a struct ethtool_value {cmd u32, data u32}.
_OFFLOADS = {"rx-checksum": 0x15, "tx-checksum": 0x17, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}
_GDRVINFO, _GTXCSUM = 0x03, 0x16
_GFLAGS, _SFLAGS, _GCHANNELS = 0x25, 0x26, 0x3C
_FLAG_TXVLAN, _FLAG_RXVLAN = 1 << 7, 1 << 8


def _call(name: str, data: bytes) -> bytes:
    """One ioctl; `data` begins with the command. Returns what the kernel left there. Raises OSError."""
    buffer = ctypes.create_string_buffer(data, len(data))
    request = struct.pack("16sP16x", os.fsencode(name), ctypes.addressof(buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)
    return buffer.raw


def _get(name: str, command: int) -> int:
    return int(struct.unpack("II", _call(name, struct.pack("II", command, 0)))[1])


def _set(name: str, command: int, value: int) -> bool:
    try:
        _call(name, struct.pack("II", command, value))
    except OSError:
        return False
    return True


def driver(name: str) -> str:
    """Name of the device's driver, such as "veth" or "ixgbe"; empty if it does not say."""
    try:
        reply = _call(name, struct.pack("I192x", _GDRVINFO))
    except OSError:
        return ""
    return reply[4:36].split(b"\0", 1)[0].decode(errors="replace")


def veth_peer(name: str) -> str | None:
    """The other end of a veth; "" if that is in another network namespace. None: the device is no veth."""
    if driver(name) != "veth":
        return None
    try:
        index = int(Path(f"/sys/class/net/{name}/iflink").read_text())
        other = socket.if_indextoname(index)
        back = int(Path(f"/sys/class/net/{other}/iflink").read_text())
        return other if back == socket.if_nametoindex(name) else ""
    except (OSError, ValueError):
        return ""


def tx_checksum(name: str) -> bool:
    """Whether the device leaves transmit checksums to the hardware. Raises OSError if it cannot say."""
    return bool(_get(name, _GTXCSUM))


def offloads_off(name: str) -> None:
    """Switch off everything that lets frames leave the kernel unfinished: checksums, segmentation, merging, VLAN tags.

    Raises CorelaneError if transmit checksum offload cannot be switched off: without that, frames that AF_XDP reads on
    the other end of a veth are corrupt.
    """
    done = {label: _set(name, command, 0) for label, command in _OFFLOADS.items()}
    if not done["tx-checksum"]:
        raise CorelaneError(f"{name}: transmit checksum offload stays on; try `ethtool -K {name} tx off`")
    # Not every device has these: a tag in the frame is then the only way, which is what we want.
    with contextlib.suppress(OSError):
        _set(name, _SFLAGS, _get(name, _GFLAGS) & ~(_FLAG_TXVLAN | _FLAG_RXVLAN))


def receive_queues(name: str) -> int | None:
    """Receive queues in use (`ethtool -l`), or None if the driver does not say."""
    try:
        reply = _call(name, struct.pack("9I", _GCHANNELS, *[0] * 8))
    except OSError:
        return None
    counts = struct.unpack("9I", reply)
    return int(counts[5] + counts[8]) or None  # rx + combined

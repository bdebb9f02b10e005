"""The IPv4 addresses that Linux has in this network namespace."""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct

from ...runtime.errors import SystemLimit

_SIOCGIFCONF = 0x8912
_IFREQ_BYTES = 40  # struct ifreq: a name of 16 bytes, then a struct sockaddr_in with the address at 4
_MOST = 1024


def local_ipv4() -> frozenset[int]:
    """In host byte order, of all its devices that are up or down, secondary ones too (netdevice(7), SIOCGIFCONF).

    Raises SystemLimit, without a descriptor to be had for one.
    """
    room = array.array("B", bytes(_MOST * _IFREQ_BYTES))
    where, n_bytes = room.buffer_info()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            answer = fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iP", n_bytes, where))
    except OSError as error:
        hint = "raise the limit of open files (ulimit -n)" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
        raise SystemLimit("read this machine's addresses", str(error.strerror), hint, error.errno or 0) from error
    used = struct.unpack("iP", answer)[0]
    return frozenset(struct.unpack_from("!I", room, at + 20)[0] for at in range(0, used, _IFREQ_BYTES))

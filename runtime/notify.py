"""Telling systemd how a service is (sd_notify(3)): a datagram to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import os
import socket

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(*assignments: str) -> bool:
    """Send assignments like READY. False: nobody asked for them (no NOTIFY_SOCKET), or he does not listen."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if name[:1] not in ("/", "@"):
        return False
    address = os.fsencode(name)
    if name[0] == "@":  # an abstract socket (unix(7))
        address = b"\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1.0)  # a service does not fail for want of a listener
        try:
            sock.sendto("\n".join(assignments).encode(errors="replace"), address)
        except OSError:
            return False
    return True

"""An echo server on lwIP, as a thread of this process on one of our NICs (lwip_tcp.c). Needs gcc and liblwip-dev.

with Lwip(nic, address="10.77.0.2", port=9000, cpu=1): ...
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path

from ...drivers._native import ffi
from ...drivers.nic.nic import Nic, ipv4_to_int
from ...runtime.closing import Closing
from ...runtime.errors import check
from .compiled import build

INCLUDE = Path(__file__).parents[2] / "runtime" / "_include"
HEADERS = "/usr/include/lwip"  # as `pkg-config --cflags lwip` says
_folder = tempfile.TemporaryDirectory(prefix="corelane-lwip-")


@functools.cache
def library() -> ctypes.CDLL:
    """Compiled and loaded once. Raises SystemLimit, saying what to install, if that cannot be."""
    flags = ("-shared", "-fPIC", "-fvisibility=hidden", "-pthread", f"-I{INCLUDE}", f"-I{HEADERS}")
    return ctypes.CDLL(str(build("lwip_tcp", "CORELANE_LWIP", ("lwip",), Path(_folder.name), flags)))


class Lwip(Closing):
    """Serves from construction to `close`; one at a time. Raises CorelaneError if it cannot."""

    def __init__(self, nic: Nic, *, address: str, port: int, cpu: int) -> None:
        self._running = False
        where = ctypes.c_void_p(int(ffi.cast("uintptr_t", nic.ptr)))
        self._nic = nic
        check(library().lwip_tcp_start(where, ipv4_to_int(address), port, cpu), "serve TCP by lwIP")
        self._running = True

    def close(self) -> None:
        """Stop serving, and end its connections. Closing twice is allowed."""
        if self._running:
            self._running = False
            library().lwip_tcp_stop()

"""Asking a running iokernel, from Python. The protocol: runtime/control.h. Applications attach by drivers/port.py."""

from __future__ import annotations

import json
from typing import Any

from ._native import ffi, lib
from .errors import check


def statistics(socket_path: str, timeout_s: float = 2.0) -> dict[str, Any]:
    """What `Iokernel.stats` says, of the iokernel that listens on `socket_path`.

    Raises CorelaneError: nobody listens, not allowed, no answer in time.
    """
    err, text = ffi.new("char[256]"), ffi.new("char **")
    timeout_ms = max(1, int(timeout_s * 1e3))
    fd = check(lib.cl_control_connect(socket_path.encode(), timeout_ms, err), f"connect to {socket_path}", err)
    try:
        check(lib.cl_control_stats(fd, text, timeout_ms, err), f"ask the iokernel on {socket_path}", err)
        document: dict[str, Any] = json.loads(ffi.string(text[0]))
        lib.cl_control_free(text[0])
        return document
    finally:
        lib.cl_control_close(fd)

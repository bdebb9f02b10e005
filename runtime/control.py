"""Asking a running iokernel, from Python. The protocol: runtime/control.h. Applications attach by
drivers/port/port.py."""

from __future__ import annotations

import json
import os
from typing import Any

from ._native import ffi, lib
from .errors import CorelaneError, check


def statistics(socket_path: str, timeout_s: float = 2.0) -> dict[str, Any]:
    """What `Iokernel.stats` says, of the iokernel that listens on `socket_path`.

    Raises CorelaneError: nobody listens, not allowed, no answer in time.
    """
    err, text = ffi.new("char[256]"), ffi.new("char **")
    timeout_ms = max(1, int(timeout_s * 1e3))
    fd = check(lib.cl_control_connect(os.fsencode(socket_path), timeout_ms, err), f"connect to {socket_path}", err)
    try:
        check(lib.cl_control_stats(fd, text, timeout_ms, err), f"ask the iokernel on {socket_path}", err)
        document: dict[str, Any] = json.loads(ffi.string(text[0]))
        lib.cl_control_free(text[0])
        return document
    finally:
        lib.cl_control_close(fd)


def area(
    socket_path: str, op: int, name: str = "", size: int = 0, owner: str = "", timeout_s: float = 10.0
) -> tuple[Any, int, int]:
    """Ask an iokernel about storage areas (docs/storage.md); op: CL_CONTROL_AREA_*. Making one means writing it all.

    Returns its answer, and, when opening, the area's descriptor and the connection's, the caller's to close: with the
    connection the claim ends. Else -1 and -1. Raises CorelaneError: nobody listens, refused, no answer in time.
    """
    err, text, fd = ffi.new("char[256]"), ffi.new("char **"), ffi.new("int *")
    ask = ffi.new("struct cl_control_area *", {"op": op, "bytes": size})
    for field, value in ((ask.name, os.fsencode(name)), (ask.owner, os.fsencode(owner))):
        if len(value) >= len(field):
            raise CorelaneError(
                f"ask for storage area {name}", f"{os.fsdecode(value)!r} is longer than {len(field) - 1} bytes"
            )
        ffi.memmove(field, value, len(value))
    connection = check(lib.cl_control_connect(os.fsencode(socket_path), 2000, err), f"connect to {socket_path}", err)
    keep = False
    try:
        what = f"storage area {name}" if name else "storage areas"
        check(lib.cl_control_area(connection, ask, text, fd, max(1, int(timeout_s * 1e3)), err), what, err)
        answer = json.loads(ffi.string(text[0]))
        lib.cl_control_free(text[0])
        keep = op == lib.CL_CONTROL_AREA_OPEN
        return answer, int(fd[0]), connection if keep else -1
    finally:
        if not keep:
            lib.cl_control_close(connection)


def trace(
    socket_path: str, name: str, pid: int = 0, how: int = 0, timeout_s: float = 5.0
) -> tuple[dict[str, Any], int]:
    """Ask an iokernel for the trace of an application that is attached; pid: of several that have the name. how:
    CL_RUNTIME_TRACE_..., as it is to be traced from now on, within half a second; 0: as it is.

    Returns {"app", "pid", "segment": whether there is one to read, "why" not} and the segment's descriptor, read-only,
    the caller's to close, or -1. Raises CorelaneError: nobody listens, refused, no answer in time.
    """
    err, text, fd = ffi.new("char[256]"), ffi.new("char **"), ffi.new("int *")
    ask, word = ffi.new("struct cl_control_trace *", {"pid": pid, "how": how}), os.fsencode(name)
    if len(word) >= len(ask.name):
        raise CorelaneError(f"trace {name}", f"the name is longer than {len(ask.name) - 1} bytes")
    ffi.memmove(ask.name, word, len(word))
    timeout_ms, path = max(1, int(timeout_s * 1e3)), os.fsencode(socket_path)
    connection = check(lib.cl_control_connect(path, timeout_ms, err), f"connect to {socket_path}", err)
    try:
        check(lib.cl_control_trace(connection, ask, text, fd, timeout_ms, err), f"trace {name}", err)
        answer: dict[str, Any] = json.loads(ffi.string(text[0]))
        lib.cl_control_free(text[0])
        return answer, int(fd[0])
    finally:
        lib.cl_control_close(connection)

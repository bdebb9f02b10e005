"""Shared memory files and what memory a process holds. What a memory file promises is in memory.h.

with Memory.create("rings", 1 << 20, huge=True) as m:
    m.buffer[0:5] = b"hello"
    send_fds(sock, b"here it is", [m.fd])
    print(m.report())

data, fds = receive_fds(sock, 4096, 1)
with Memory.map(fds[0], 1 << 20, writable=False) as peer: ...
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ._native import ffi, lib
from .errors import CorelaneError, ProtocolError, SystemLimit, check

HUGE_HINT = "reserve some: echo 64 > /proc/sys/vm/nr_hugepages (as root)"


class Memory:
    """A mapped memory file; close it, or use it as a context manager."""

    def __init__(self, ptr: Any) -> None:
        self.ptr = ptr
        """`struct cl_memory *`, for C."""

    @classmethod
    def create(
        cls,
        name: str,
        size_bytes: int,
        *,
        huge: bool = False,
        thp: bool = False,
        prefault: bool = False,
        peers_read_only: bool = False,
    ) -> Memory:
        """Make, seal and map a zeroed file of at least `size_bytes`; peers get it by its `fd`.

        huge: of huge pages if there are any (`report` says); thp: transparent huge pages; prefault: take the memory
        now; peers_read_only: nobody but this mapping can ever write. SystemLimit if the memory is not there.
        """
        flags = lib.CL_MEMORY_HUGE * huge | lib.CL_MEMORY_THP * thp | lib.CL_MEMORY_PREFAULT * prefault
        flags |= lib.CL_MEMORY_PEERS_READ * peers_read_only
        ptr, err = ffi.new("struct cl_memory *"), ffi.new("char[256]")
        size = max(0, min(size_bytes, 1 << 62))
        check(lib.cl_memory_create(os.fsencode(name)[:200], size, flags, ptr, err), f"make shared memory {name!r}", err)
        return cls(ptr)

    @classmethod
    def map(cls, fd: int, size_bytes: int, *, writable: bool) -> Memory:
        """Map a file that a peer passed, of at least `size_bytes`; takes over `fd` unless it raises.

        ProtocolError if it is shorter, SystemLimit if it is not sealed against shrinking or may not be written.
        """
        ptr, err = ffi.new("struct cl_memory *"), ffi.new("char[256]")
        check(lib.cl_memory_map(fd, size_bytes, writable, ptr, err), "map a peer's shared memory", err, " ")
        return cls(ptr)

    @property
    def fd(self) -> int:
        """The descriptor to pass on; -1 when closed."""
        return int(self.ptr.fd)

    @property
    def size_bytes(self) -> int:
        """Bytes mapped: what was asked for, rounded up to pages."""
        return int(self.ptr.bytes)

    @property
    def buffer(self) -> Any:
        """The memory as a writable cffi buffer (read-only mappings crash when written: the kernel says SIGSEGV)."""
        if not self.ptr.base:
            raise CorelaneError("use shared memory", "it is closed")
        return ffi.buffer(self.ptr.base, self.size_bytes)

    @property
    def huge(self) -> bool:
        """Whether it is made of huge pages."""
        return bool(self.ptr.flags & lib.CL_MEMORY_HUGE)

    @property
    def why_not_huge(self) -> str:
        """Why huge pages that were wished for were not obtained; "" if there is nothing to explain."""
        code = int(self.ptr.huge_error)
        if not code:
            return ""
        if code == errno.ENOMEM:
            return f"no free huge pages; {HUGE_HINT}"
        return f"{os.strerror(code)}; {HUGE_HINT}"

    def used_bytes(self) -> int:
        """Bytes that take memory now, whichever process touched them."""
        out = ffi.new("uint64_t *")
        check(lib.cl_memory_used(self.ptr, out), "measure shared memory")
        return int(out[0])

    def report(self) -> dict[str, Any]:
        """Reserved against used, and what kind of pages."""
        return {
            "reserved_bytes": self.size_bytes,
            "used_bytes": self.used_bytes(),
            "page_bytes": int(self.ptr.page_bytes),
            "huge": self.huge,
            "why_not_huge": self.why_not_huge,
        }

    def close(self) -> None:
        """Unmap and close; again: nothing. No buffer of it may be used afterwards."""
        lib.cl_memory_close(self.ptr)

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def send_fds(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    """Send all of `data` (not empty) on a unix socket, descriptors with its first byte (16 at most)."""
    sent = check(
        lib.cl_fds_send(sock.fileno(), data, len(data), list(fds), len(fds)),
        f"send {len(fds)} descriptors with {len(data)} bytes",
    )
    sock.sendall(data[sent:])


def receive_fds(sock: socket.socket, size: int, max_fds: int) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes and the descriptors that come with them; b"" at the end of the stream.

    Descriptors are close-on-exec. ProtocolError, with all of them closed, if there are more than `max_fds`.
    """
    data, fds, n = ffi.new("char[]", max(size, 1)), ffi.new("int[]", 17), ffi.new("unsigned *")
    got = lib.cl_fds_receive(sock.fileno(), data, size, 0, fds, 17, n)
    received = list(fds[0 : n[0]])
    if got < 0 or len(received) > max_fds:
        for fd in received:
            with contextlib.suppress(OSError):
                os.close(fd)
    if len(received) > max_fds or got == -errno.EMSGSIZE:
        raise ProtocolError("receive descriptors", f"the peer sent more than {max_fds}")
    check(got, "receive descriptors")
    return ffi.buffer(data, got)[:], received


def process_memory(pid: int | str = "self", root: Path = Path("/")) -> dict[str, int]:
    """Memory of a process in bytes: "rss", "pss" (shared pages divided among their users), "private", "shared", "swap".

    From /proc/PID/smaps_rollup under `root`. SystemLimit if it cannot be read.
    """
    path = root / "proc" / str(pid) / "smaps_rollup"
    try:
        fields = dict(_smaps_fields(path.read_text()))
    except OSError as error:
        raise SystemLimit(f"read {path}", str(error), "run as root, or as the process's owner") from error
    return {
        "rss": fields.get("Rss", 0),
        "pss": fields.get("Pss", 0),
        "private": fields.get("Private_Clean", 0) + fields.get("Private_Dirty", 0),
        "shared": fields.get("Shared_Clean", 0) + fields.get("Shared_Dirty", 0),
        "swap": fields.get("Swap", 0),
    }


def _smaps_fields(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and words[2] == "kB" and words[0].endswith(":"):
            yield words[0][:-1], int(words[1]) * 1024

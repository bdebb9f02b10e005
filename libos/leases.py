"""TCP's bytes without a copy: leases of what has come, and regions to send from (corelane/libos/lease.h).

    stream.set(keep_frames=True)
    while lease := stream.lease():
        with lease:
            look_at(lease.data)

    with libos.Region(page) as region:
        stream.write_from(region)
        stream.wait_released()

The bytes of a lease are yours for as long as any view of them exists: `data`, a slice of it, an array made of it. When
the last is gone they go back to the stack. A runtime cannot be closed before that.
"""

from __future__ import annotations

import contextlib
import errno
import weakref
from typing import Any

from ..runtime.closing import Closing
from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib

_GONE = memoryview(b"")
_GONE.release()


class Leases:
    """Those of a runtime that are out."""

    def __init__(self) -> None:
        self._out: set[Any] = set()
        self._late: list[Any] = []

    def __len__(self) -> int:
        return len(self._out)

    def add(self, held: Any) -> None:
        """One was given out: a `struct cl_lease *`."""
        self._out.add(held)

    def give_back(self, runtime: Any, held: Any) -> None:
        """Nobody can see its bytes any more. runtime: a `struct cl_runtime *`."""
        self._out.discard(held)
        if lib.cl_lease_return(runtime, held) == -errno.ESHUTDOWN:  # it is about to stop: when it has
            self._late.append(held)

    def settle(self, runtime: Any) -> None:
        """The runtime has stopped, and is to be freed. Raises CorelaneError if views of leases exist."""
        while self._late:
            self.give_back(runtime, self._late.pop())
        if self._out:
            hint = "close them, and delete what was made of their data"
            raise CorelaneError("close the runtime", f"{len(self._out)} leases of TCP's bytes are out", hint)


class Lease(Closing):
    """Bytes that came, where they lie. Made by TcpStream.lease; returned by `close`, or with the last view of them.

    data: a memoryview, which cannot be written to. Public attribute.
    """

    def __init__(self, runtime: Any, given: Any) -> None:
        held = ffi.new("struct cl_lease *", given)
        runtime.leases.add(held)
        self._memory = ffi.buffer(held.data, held.len)  # which each view of it keeps
        self._returned = weakref.finalize(self._memory, _return, runtime, held)
        self._returned.atexit = False
        self.data = memoryview(self._memory).toreadonly()

    def __len__(self) -> int:
        return len(self.data)

    @property
    def closed(self) -> bool:
        """Whether the bytes are the stack's again."""
        return not self._returned.alive

    def close(self) -> None:
        """Return it. May be called twice.

        Raises CorelaneError if slices of `data`, or arrays made of it, exist: it is returned when they are gone.
        """
        with contextlib.suppress(BufferError):  # an array was made of it, which `_memory` shows as well
            self.data.release()
        self.data = _GONE
        self._memory = None
        if self._returned.alive:
            raise CorelaneError(
                "return a lease",
                "slices of its data, or arrays made of it, exist",
                "it is returned with the last of them",
            )


def _return(runtime: Any, held: Any) -> None:
    # It keeps the runtime, which cannot be closed meanwhile, but may have been abandoned.
    try:
        pointer = runtime.ptr
    except CorelaneError:
        return
    runtime.leases.give_back(pointer, held)


_left: list[Region] = []  # forgotten while connections sent from them


class Region(Closing):
    """Memory to send from without a copy: TcpStream.write_from. data: bytes, bytearray, an array, a memory map, ...

    It stays alive, and of its size, until `close`. What was written from it must not change before it is released: by
    an acknowledgement, or the connection's end. `lent` bytes are not.
    """

    @typed("make a region")
    def __init__(self, data: Any) -> None:
        self._pointer: Any = None
        try:
            self._memory = ffi.from_buffer(memoryview(data).cast("B"))
        except TypeError as error:
            raise CorelaneError("make a region", str(error), "give bytes, or a contiguous array") from error
        self._size = len(self._memory)
        out = ffi.new("struct cl_region **")
        check(lib.cl_region_new(self._memory, self._size, out), f"make a region of {self._size} bytes")
        self._pointer = out[0]
        _left[:] = [region for region in _left if not region._delete()]

    def __len__(self) -> int:
        return self._size

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None and not self._delete():
            _left.append(self)

    @property
    def ptr(self) -> Any:
        """The `struct cl_region *`. Raises CorelaneError once closed."""
        if self._pointer is None:
            raise CorelaneError("send from a region", "it is closed", "make another")
        return self._pointer

    @property
    def address(self) -> int:
        """The `struct cl_region *` as a number, for compiled code (calls.tcp_write_from)."""
        return int(ffi.cast("uintptr_t", self.ptr))

    @property
    def lent(self) -> int:
        """Bytes that connections may still read, also those that were closed."""
        return 0 if self._pointer is None else int(lib.cl_region_lent(self._pointer))

    def _delete(self) -> bool:
        if self._pointer is not None and lib.cl_region_delete(self._pointer):
            return False
        self._pointer = self._memory = None
        return True

    def close(self) -> None:
        """Let the memory go. May be called twice. Raises CorelaneError while some of it is lent."""
        if not self._delete():
            hint = "wait for it (TcpStream.wait_released), or abort the connections"
            raise CorelaneError("close a region", f"{self.lent} bytes of it are not acknowledged", hint)

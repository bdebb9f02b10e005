"""An object of Python that owns one device of C, and closes it once: what NICs and block devices have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..runtime.closing import Closing
from ..runtime.errors import CorelaneError
from ._native import ffi


def check(rc: int, err: Any, what: str) -> None:
    """Raise CorelaneError with the reason that a C constructor left in `err` (char[256]) if `rc` is negative."""
    if rc < 0:
        reason = ffi.string(err).decode(errors="replace") or f"error {-rc}"
        raise CorelaneError(f"{what}: {reason}", errno=-rc)


class Device(Closing):
    """Owns a C object with `ops->name` and `n_queues`. A context manager; leaving it closes the device.

    `ptr` is the object for C. One thread at a time uses a queue. `keep` holds Python objects (devices that this one
    wraps, callbacks) alive as long as it is open. A subclass says what it is called (`_noun`: in messages; `_wrapper`:
    what may own it instead), and closes the C object in `_close`.
    """

    _noun: ClassVar[str]
    _wrapper: ClassVar[str]

    def __init__(self, ptr: Any, keep: Sequence[object] = ()) -> None:
        self._ptr: Any = ptr
        self._keep: tuple[object, ...] = tuple(keep)

    def _close(self, ptr: Any) -> None:
        raise NotImplementedError

    @property
    def ptr(self) -> Any:
        """The C object. Raises CorelaneError once closed or handed to a wrapping device."""
        if self._ptr is None:
            raise CorelaneError(
                f"this {self._noun} is closed, or belongs to the {self._wrapper} that wraps it; open a new one"
            )
        return self._ptr

    @property
    def closed(self) -> bool:
        """Whether `close` was called or ownership was given away."""
        return self._ptr is None

    @property
    def name(self) -> str:
        """Name of the driver."""
        return str(ffi.string(self.ptr.ops.name).decode())

    @property
    def queues(self) -> int:
        """Number of queues; of a NIC: of receive queues, and of transmit queues."""
        return int(self.ptr.n_queues)

    @property
    def gone(self) -> bool:
        """Whether the peer has vanished, or the device has failed for good."""
        return bool(self.ptr.gone)

    def close(self) -> None:
        """Close the device, and those that it wrapped. Nobody may be using it. May be called twice."""
        if self._ptr is not None:
            ptr, self._ptr = self._ptr, None
            self._close(ptr)
            for kept in self._keep:
                if isinstance(kept, Device):  # that this one wrapped: closed in C, but it may hold more than that
                    kept.close()
            self._keep = ()

    def release(self) -> Any:
        """Give ownership away (to a device that wraps this one): returns `ptr`; this object then counts as closed."""
        ptr, self._ptr = self.ptr, None
        return ptr

    def _queue(self, queue: int) -> int:
        if not 0 <= queue < self.queues:
            raise CorelaneError(f"queue {queue} of a {self._noun} with {self.queues}; queues count from 0")
        return queue
